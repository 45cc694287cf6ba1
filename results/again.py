"""Print how far a second training moved a table: python results/again.py results/hatexplain [BASELINE]

Compares FOLDER/results.jsonl with FOLDER/again.jsonl, the same methods and seeds: the largest difference of
a mean over seeds and of a single model, and the differences to the baseline (Vanilla) whose 95 % interval
leaves out zero in one of the two only, and all in hard ECE+TS: first run -> second.
"""

import json
import sys
from pathlib import Path
from statistics import mean

import numpy as np
from beyond_tables import COLUMNS, seeds_of

from calmoe.metrics import paired_difference

MOVED = ("accuracy", "ece", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts")
BASELINE = sys.argv[2] if len(sys.argv) > 2 else "vanilla"


def side(rows, method, column, protocol):
    """The baseline's value taken off: the interval's side of zero, and the difference in words."""
    a, b = (seeds_of(rows, name, column, protocol) for name in (method, BASELINE))
    d = paired_difference(*(np.array([values[seed] for seed in sorted(a)]) for values in (a, b)))
    return (d.low > 0) - (d.high < 0), f"{d.estimate:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"


folder = Path(sys.argv[1])
first, second = (
    [json.loads(line) for line in (folder / name).read_text().splitlines()]
    for name in ("results.jsonl", "again.jsonl")
)
for protocol in ("corrected", "published"):
    methods = sorted({row["method"] for row in first if row["protocol"] == protocol})
    print(f"\n{protocol} protocol: largest difference of a mean, of a model")
    for column in MOVED:
        moves = []
        for method in methods:
            a, b = (seeds_of(rows, method, column, protocol) for rows in (first, second))
            moves.append([b[seed] - a[seed] for seed in sorted(a)])
        of_means, of_models = (max(abs(mean(m)) for m in moves), max(abs(v) for m in moves for v in m))
        print(f"{column:12} {of_means:.4f} {of_models:.4f}")
    columns = dict.fromkeys((*COLUMNS, "ece"))
    others = [method for method in methods if method != BASELINE]
    intervals = len(columns) * len(others)
    print(f"less {BASELINE}, {intervals} intervals: hard ECE+TS, and what changes sides of zero (!)")
    for method in others:
        for column in columns:
            (was, a), (is_now, b) = (side(rows, method, column, protocol) for rows in (first, second))
            if was != is_now or column == "hard_ece_ts":
                print(f"{method:16} {column:13} {a} -> {b} {'!' * (was != is_now)}")
