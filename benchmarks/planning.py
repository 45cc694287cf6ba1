"""Planning, keys and resuming with 1,000 to 100,000 simulated nodes: `python -m benchmarks.planning`.

A simulated run has all packaged methods and as many seeds as its nodes need. "Plan": the nodes and their keys
out of a record. "Resume": open a folder in which every node is sealed, check every seal and every file, find
that nothing is left to do, and read the rows of its results. A node's files have some bytes each; real ones
take as long as SHA-256 needs for them, which the last line tells. Each size has a process of its own, whose
peak memory includes imports.
"""

import argparse
import gc
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.audit import random_predictions
from calmoe.experiments.evaluation import evaluate
from calmoe.experiments.plan import Node, to_do
from calmoe.experiments.record import Record
from calmoe.experiments.run import Run
from calmoe.experiments.sealing import MARK
from calmoe.experiments.spec import load_preset
from calmoe.experiments.store import METHOD_FILES, SPEC, RunFolder
from calmoe.files import digest_of, json_bytes
from calmoe.methods import PACKAGED

SIZES = (1_000, 10_000, 100_000)
LINKS = 50_000  # to one file; file systems take 65,000
GOALS = {10_000: "5 s", 100_000: "60 s, 2 GB"}


def simulated_record(nodes: int) -> Record:
    """A run of all packaged methods, with enough seeds for so many nodes."""
    methods = tuple(PACKAGED)
    a_seed = len(_record(methods, 1).merged(_record(methods, 1).plans()))
    return _record(methods, -(-nodes // a_seed))


def _record(methods: tuple[str, ...], seeds: int) -> Record:
    spec = replace(load_preset("digits"), methods=methods, seeds=tuple(range(seeds)))
    facts = {"fingerprint": "data", "training_fingerprint": "data", "hard": None, "training_version": 2}
    return Record(spec=spec, device="cpu", protocols=("corrected",), **facts)


def simulate(folder: Path, record: Record, nodes: list[Node]) -> None:
    """A folder in which every node is done. Nodes share small files, by links; every seal is its own."""
    folder.mkdir()
    RunFolder(folder).write_record(record)
    (folder / "nodes").mkdir()
    files: dict[str, str] = {}
    for place, node in enumerate(nodes):
        sources = folder / f"files{place // LINKS}"
        if place % LINKS == 0:
            sources.mkdir()
            for name in METHOD_FILES:
                (sources / name).write_bytes(f"{name}\n".encode() * 10)
                files[name] = hashlib.sha256((sources / name).read_bytes()).hexdigest()
        own = folder / "nodes" / node.key
        own.mkdir()
        for name in METHOD_FILES:
            os.link(sources / name, own / name)
        mark = {"key": node.key, "files": files}
        (own / MARK).write_bytes(json_bytes({**mark, "digest": digest_of(mark)}))
    run = Run.open(folder)
    predictions = dict.fromkeys(("validation", "test"), random_predictions(200))
    row = evaluate("vanilla", 0, "corrected", predictions)
    run.write_results([row | {"method": m.method, "seed": m.seed} for m in run.finished()])


def measure(nodes: int, place: Path) -> str:
    """A row of the table, measured in this process."""
    record = simulated_record(nodes)
    start, busy = time.perf_counter(), time.process_time()
    planned = record.merged(record.plans())
    plan, busy = time.perf_counter() - start, time.process_time() - busy
    folder = place / str(nodes)
    simulate(folder, record, planned)
    del planned
    gc.collect()
    start, busy = time.perf_counter(), busy - time.process_time()
    run = Run.open(folder)
    with run.folder.locked():
        left = to_do(run.nodes, run.done, run.nodes_for(run.spec, None))
        assert not left
        assert not run.untrained(run.spec, None)
        rows = run.current_rows()
        assert rows is not None
        assert len(rows) == len(run.models)
    resume, busy = time.perf_counter() - start, busy + time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    size = (folder / SPEC).stat().st_size / 1e3
    numbers = [f"{seconds:.2f}" for seconds in (plan, resume, plan + resume, busy)]
    cells = [f"{len(run.nodes):,}", *numbers, f"{peak:.2f}", f"{size:,.0f}", GOALS.get(nodes, "")]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--in", dest="place", type=Path, help="measure here, in this process")
    given = parser.parse_args()
    if given.place is not None:
        print(measure(given.nodes[0], given.place))
        return
    print("| nodes | plan, s | resume, s | both, s | of CPU | peak, GB | spec.json, kB | goal for both |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "benchmarks.planning", "--nodes", str(nodes), "--in", place]
            print(
                subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip(), flush=True
            )
    block, start = bytes(2**28), time.perf_counter()
    hashlib.sha256(block).hexdigest()
    print(f"\nSHA-256: {len(block) / 1e9 / (time.perf_counter() - start):.2f} GB/s")


if __name__ == "__main__":
    main()
