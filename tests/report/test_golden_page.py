"""One page, word for word: where its words change on purpose, CALMOE_GOLDEN=1 writes it anew.

Other tests pin numbers and structure; this one alone pins sentences.
"""

import os
import re
from html import unescape
from pathlib import Path
from zlib import crc32

from calmoe.experiments.run import Run
from calmoe.experiments.spec import load_preset, narrowed
from calmoe.experiments.store import RunFolder
from calmoe.report.columns import COLUMNS
from calmoe.report.run_page import run_page
from calmoe.report.run_tables import tables
from calmoe.report.sources import Source, Sources
from run_folders import record_of

GOLDEN = Path(__file__).with_name("golden_page.txt")
SESSION = {
    "date": "2026-01-01T00:00:00+00:00", "device": "a processor", "cores": 2, "python": "3.11.0",
    "torch": "2.0", "calmoe": "0.1.0", "commit": "0" * 40, "command": ["calmoe", "run", "cifar10h"],
}  # fmt: skip


def place_of(column):
    """A number below 20 that the name of the column decides, whatever other columns there are."""
    return crc32(column.encode()) % 20


def made_up_run():
    """CIFAR-10H, three methods and seeds under both protocols: numbers that nobody measured."""
    protocols, methods, seeds = ("corrected", "published"), ("vanilla", "mocae", "robust"), (42, 43, 44)
    spec = narrowed(load_preset("cifar10h"), methods=methods, seeds=seeds)
    rows = [
        {"method": method, "seed": seed, "protocol": protocol, "n": 10_000, "n_hard": 300}
        | {"temperature": 1.5, "temperature_status": "optimum" if protocol == "corrected" else "published"}
        | {
            column: round(0.1 + 0.01 * place_of(column) + 0.02 * len(method) + 0.003 * (seed - 42) ** 2, 6)
            for column in COLUMNS
        }
        for protocol in protocols
        for method in methods
        for seed in seeds
    ]
    run = Run(RunFolder(Path("runs/cifar10h")), record_of(spec, protocols=protocols, hard="hard"))
    return Sources([Source(run, [SESSION], rows, [])], {})


def words(page):
    """The page's text, a line a block; no styles, no scripts."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", page.html(), flags=re.S)
    lines = unescape(re.sub(r"<[^>]+>", "\n", body)).splitlines()
    return "\n".join(line for line in (" ".join(line.split()) for line in lines) if line) + "\n"


def test_the_page_says_what_it_said():
    sources = made_up_run()
    text = words(run_page(sources, tables(sources), {}, {"frontier": "its numbers are missing"}))
    if os.environ.get("CALMOE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
