"""Print what docs/reproduce.md says about a results folder beyond its tables.

    python results/beyond_tables.py results/hatexplain [BASELINE]

Seed-paired differences to the baseline (Vanilla), the frontier by budget of ECE, routing, confidence. All
intervals are 95 %, Student's t, not corrected for their number; * leaves out zero.
"""

import json
import sys
from pathlib import Path

import numpy as np

from calmoe.metrics import paired_difference
from calmoe.report.curves import reachable, read_curves

BUDGETS = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.08)
COLUMNS = ("accuracy", "hard_accuracy", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts", "hard_nll_ts")


def less(a, b):
    """a - b over the seeds where both are finite, with its interval and their number."""
    common = [s for s in sorted(a.keys() & b.keys()) if np.isfinite(a[s]) and np.isfinite(b[s])]
    if len(common) < 2:
        return "too few seeds"
    d = paired_difference(np.array([a[s] for s in common]), np.array([b[s] for s in common]))
    star = "*" if d.low > 0 or d.high < 0 else " "
    return f"{d.estimate:+.4f} [{d.low:+.4f}, {d.high:+.4f}]{star} n={len(common)}"


def seeds_of(rows, method, column, protocol="corrected"):
    """A column of a method by seed."""
    return {r["seed"]: r[column] for r in rows if (r["method"], r["protocol"]) == (method, protocol)}


def by_seed(runs, method):
    return {c["seed"]: c for c in runs if c["method"] == method}


def main(folder, baseline="vanilla"):
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    runs = read_curves(folder / "curves.json")
    methods = list(dict.fromkeys(c["method"] for c in runs))
    others = [method for method in methods if method != baseline]

    print(f"seed-paired, less {baseline}, corrected protocol")
    for method in others:
        for column in COLUMNS:
            print(f"{method:16} {column:14}", less(*(seeds_of(rows, m, column) for m in (method, baseline))))

    print(f"\nlowest hard ECE of any temperature within a budget of ECE, less {baseline}'s")
    reached = {
        method: {s: reachable(c["frontier"], BUDGETS) for s, c in by_seed(runs, method).items()}
        for method in methods
    }
    for method in others:
        for i, budget in enumerate(BUDGETS):
            a, b = ({s: v[i] for s, v in reached[m].items()} for m in (method, baseline))
            print(f"{method:16} {budget:<5}", less(a, b))

    print("\nrouting entropy / log K, mean over all rows: by seed, and their mean")
    for method in methods:
        found = [
            c["routing"]["entropy"]["all"]["mean"] for c in by_seed(runs, method).values() if c["routing"]
        ]
        if found:
            print(f"{method:16}", *(f"{mean:.3f}" for mean in found), f" mean {np.mean(found):.3f}")

    print("\nmean confidence and accuracy over seeds, raw and after the temperature")
    for method in methods:
        for part in ("easy", "hard"):
            told = []
            for kind in ("raw", "scaled"):
                tables = [c[kind]["histogram"][part] for c in by_seed(runs, method).values()]
                told += [np.mean([table[name] for table in tables]) for name in ("confidence", "accuracy")]
            print(f"{method:16} {part}", *(f"{value:.3f}" for value in told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
