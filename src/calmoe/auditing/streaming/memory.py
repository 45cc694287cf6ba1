"""Whether a parquet file is too large to audit in memory."""

import os
from pathlib import Path

from calmoe.errors import InputError
from calmoe.formats.budget import CELL, NEVER_BEYOND, VARIABLE
from calmoe.formats.parquet_rows import ParquetRows

PER_CELL = 32
"""Bytes of memory that the audit takes for each cell of a table, at most: 1,000,000 rows of 54 cells take
1.8 GB, 0.4 of them before the first row (`python -m benchmarks.audit --speed`)."""
SHARE = 0.5  # of the machine's memory: the rest is for others, and for what an estimate may miss
CONTAINER = Path("/sys/fs/cgroup/memory.max")


def why_streamed(path: Path) -> str | None:
    """Why the file is streamed; None where the audit in memory takes it, or says what is wrong with it."""
    if path.suffix != ".parquet" or not path.is_file():
        return None
    try:
        table = ParquetRows([path], lenient=True)
    except InputError:
        return None
    cells = len(table) * len(table.names)
    need, budget = cells * PER_CELL, SHARE * memory()
    if need > budget:
        return (
            f"its audit would take about {need / 1e9:.0f} GB of memory, more than half of this machine's "
            f"{memory() / 1e9:.0f} GB: streamed"
        )
    if cells * CELL > NEVER_BEYOND and not os.environ.get(VARIABLE):
        return f"it unpacks to {cells * CELL / 1e9:.0f} GB, beyond what is read into memory: streamed"
    return None


def memory() -> float:
    """Bytes of memory of this machine, or of the container that holds this process."""
    whole = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        return min(whole, float(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return whole
