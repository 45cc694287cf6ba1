"""The streamed audit: rows a second, CPU seconds and peak memory: `python -m benchmarks.streaming`.

It writes a parquet file of random predictions (10 classes, 4 experts, float32, two columns of groups) some
rows at a time, audits it in a process of its own, and removes it. `--rows 20000000` is the full size: 4.4 GB
on disk for a while. `--shards N` passes over N shards one after another and merges them.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
import torch
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from calmoe.mixture import combine

CLASSES, EXPERTS, CHUNK = 10, 4, 100_000
SITES = np.array(["north", "south", "east", "west"])


def write(path: Path, rows: int) -> None:
    """Random predictions whose labels come from the mixture itself; 100,000 rows a row group."""
    writer = None
    for first in range(0, rows, CHUNK):
        table = pyarrow.table(chunk(first // CHUNK, min(CHUNK, rows - first)))
        writer = writer or parquet.ParquetWriter(
            path, table.schema, compression="none", use_dictionary=["site"]
        )
        writer.write_table(table)
    assert writer is not None
    writer.close()


def chunk(number: int, rows: int) -> dict[str, np.ndarray]:
    """Some rows, by column."""
    source, random = torch.Generator().manual_seed(number), np.random.default_rng(number)
    routing = torch.randn(rows, EXPERTS, generator=source).log_softmax(1)
    output = combine(routing, torch.randn(rows, EXPERTS, CLASSES, generator=source).mul(2).log_softmax(2))
    probs, weights, experts = (part.exp().numpy() for part in output)
    columns = {f"prob_{c}": probs[:, c] for c in range(CLASSES)}
    columns |= {f"routing_{k}": weights[:, k] for k in range(EXPERTS)}
    columns |= {f"expert_{k}_prob_{c}": experts[:, k, c] for k in range(EXPERTS) for c in range(CLASSES)}
    columns["label"] = (
        torch.multinomial(output.probs, 1, generator=source).squeeze(1).numpy().astype(np.int32)
    )
    columns["site"], columns["hard"] = random.choice(SITES, rows), random.random(rows) < 0.3
    return columns


def measured(path: Path, shards: int) -> dict[str, float]:
    """In this process: what the pass, the merging and the report take."""
    from calmoe.auditing.streaming.files import in_one_process
    from calmoe.auditing.streaming.run import MOST, pass_over, report_on
    from calmoe.auditing.streaming.shards import Place, Shard, Task, merged
    from calmoe.auditing.streaming.source import Source
    from calmoe.formats import Columns

    def whole(source: Source, task: Task) -> Shard:
        if shards == 1:
            return in_one_process(source, task, lambda rows: None)
        return merged((str(i), pass_over(source, task, Place(i, shards))) for i in range(1, shards + 1))

    source = Source([path], Columns())
    task = Task.on(source, of="top", bins=15, seed=0, most=MOST)
    before = _peak()
    clock, busy = time.perf_counter(), time.process_time()
    table = whole(source, task)
    passed, passed_busy, passed_peak = time.perf_counter(), time.process_time(), _peak()
    report = report_on(table)
    return {
        "rows": report.rows,
        "ece": report.aggregate.ece.value,
        "seconds of the pass": passed - clock,
        "CPU seconds of the pass": passed_busy - busy,
        "CPU seconds of what is learned": time.process_time() - passed_busy,
        "peak before the first row, GB": before,
        "peak after the pass, GB": passed_peak,
        "peak, GB": _peak(),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def show(numbers: dict[str, float], size: int) -> None:
    rows = numbers["rows"]
    rates = {
        "rows a second, the pass": rows / numbers["seconds of the pass"],
        "CPU seconds per million rows, the pass": numbers["CPU seconds of the pass"] / rows * 1e6,
    }
    table = Table("", "", title=f"A streamed audit of {rows:,.0f} rows, {size / 1e9:.1f} GB of parquet")
    for name, value in (numbers | rates).items():
        table.add_row(name, f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for the file, for as long as it is needed")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measured(given.measure, given.shards)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder, "predictions.parquet")
        write(path, given.rows)
        command = [sys.executable, "-m", "benchmarks.streaming", "--measure", str(path)]
        told = subprocess.run(
            [*command, "--shards", str(given.shards)], check=True, stdout=subprocess.PIPE, text=True
        )
        show(json.loads(told.stdout), path.stat().st_size)


if __name__ == "__main__":
    main()
