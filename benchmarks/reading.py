"""Reading a table of 250 MB beside pandas: `python -m benchmarks.reading`.

Every reading has a process of its own, with one thread: seconds without imports, and the most memory that
the process ever held, imports included. `read_table` gives named arrays, as pandas gives a frame;
`Predictions.load` also takes logarithms and checks every row. (pyarrow imports pandas where it is installed,
so all import it.)
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROWS, CLASSES, ROUNDS = 1_000_000, 12, 5
WRITE = """
import sys
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
path, rows, classes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
source = np.random.default_rng(0)
probs = source.dirichlet(np.ones(classes), rows)
columns = {f"prob_{i}": probs[:, i] for i in range(classes)}
columns["label"] = source.integers(classes, size=rows)
columns["site"] = source.choice(["north", "south", "east", "west"], rows)
columns["score"] = source.random(rows)
columns["hard"] = source.random(rows) < 0.5
write = pyarrow.csv.write_csv if path.endswith("csv") else pyarrow.parquet.write_table
write(pa.table(columns), path)
"""
READ = """
import json, resource, sys, time
from pathlib import Path
import pandas, pyarrow.compute, pyarrow.csv, pyarrow.parquet
import {module}
path = Path(sys.argv[1])
start = time.perf_counter()
table = {call}
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
RIVALS = {
    "pandas": ("pandas", "getattr(pandas, f'read_{path.suffix[1:]}')(path)"),
    "read_table": ("calmoe.predictions", "calmoe.formats.read_table(path)"),
    "Predictions.load": ("calmoe.predictions", "calmoe.predictions.Predictions.load(path)"),
}


def in_a_process(code: str, *arguments: object) -> str:
    """What the code prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=alone).stdout


def measure(path: Path) -> dict[str, tuple[float, float]]:
    """Median seconds and MiB of each rival, taking turns."""
    rounds: dict[str, list[list[float]]] = {name: [] for name in RIVALS}
    for _ in range(ROUNDS):
        for name, (module, call) in RIVALS.items():
            rounds[name].append(json.loads(in_a_process(READ.format(module=module, call=call), path)))
    return {
        name: (statistics.median(s for s, _ in values), statistics.median(m for _, m in values))
        for name, values in rounds.items()
    }


def main() -> None:
    table = Table("file", "reader", "seconds", "times pandas", "MiB", "times pandas", title="Reading")
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("csv", "parquet"):
            path = Path(folder, f"predictions.{suffix}")
            in_a_process(WRITE, path, ROWS, CLASSES)
            rivals = measure(path)
            seconds, memory = rivals["pandas"]
            for name, (took, held) in rivals.items():
                size = f"{suffix}, {path.stat().st_size / 1e6:.0f} MB"
                cells = f"{took:.2f}", f"{took / seconds:.2f}", f"{held:.0f}", f"{held / memory:.2f}"
                table.add_row(size, name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
