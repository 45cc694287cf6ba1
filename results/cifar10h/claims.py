"""Print what docs/reproduce.md says beyond the tables, from curves.json and the rows.

python results/cifar10h/claims.py
"""

import json
import sys
from pathlib import Path

import numpy as np

from calmoe.report import compare
from calmoe.report.curves import reachable, read_curves

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
from beyond_tables import BUDGETS, by_seed, less, main, seeds_of  # noqa: E402 - beside this folder, no package

main(FOLDER)
runs = read_curves(FOLDER / "curves.json")

print("\nVanilla's curve at the ECE of a raw robust point: seeds in which it reaches at most that hard ECE")
vanilla = by_seed(runs, "vanilla")
for method in ("robust", "fgr_robust"):
    hits = []
    for seed, c in by_seed(runs, method).items():
        raw = {part: c["raw"]["reliability"][part]["ece"] for part in ("all", "hard")}
        hits.append(bool(reachable(vanilla[seed]["frontier"], (raw["all"],))[0] <= raw["hard"]))
    print(f"{method:16} {sum(hits)} of {len(hits)}")


def read(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


rows = read("results.jsonl")
again = {
    "Robust MoE again, η sweep at 2": [r for r in read("sweep_eta.jsonl") if r["value"] == 2],
    "Robust MoE again, warm-up sweep at 20": [r for r in read("sweep_warmup.jsonl") if r["value"] == 20],
}

print("\nseed-paired differences, corrected protocol (raw columns are the same under both)")
for a, b, columns in (
    (
        "robust",
        "vanilla",
        ("hard_ece", "hard_ece_ts", "nll_ts", "hard_nll_ts", "accuracy", "worst_group_ece_ts"),
    ),
    ("robust_filtered", "vanilla", ("hard_ece", "hard_ece_ts", "nll_ts", "hard_nll_ts", "accuracy")),
    ("fgr_robust", "vanilla", ("hard_ece", "hard_ece_ts", "nll_ts", "worst_group_ece_ts")),
    ("robust_filtered", "robust", ("accuracy", "nll_ts", "ece_ts", "hard_ece", "hard_ece_ts")),
    ("mocae", "vanilla", ("ece", "hard_ece", "hard_ece_ts", "nll_ts")),
):
    for column in columns:
        a_seeds, b_seeds = (seeds_of(rows, method, column, "corrected") for method in (a, b))
        print(f"{a:16} less {b:8} {column:19} {less(a_seeds, b_seeds)}")

print("\nthe same, published protocol")
for a, b, column in (
    ("robust", "vanilla", "hard_ece_ts"),
    ("mocae", "vanilla", "hard_ece_ts"),
    ("robust_filtered", "vanilla", "hard_ece_ts"),
    ("robust_filtered", "robust", "hard_ece_ts"),
):
    a_seeds, b_seeds = (seeds_of(rows, method, column, "published") for method in (a, b))
    print(f"{a:16} less {b:8} {column:19} {less(a_seeds, b_seeds)}")

print("\nRobust MoE trained again (η = 2, warm-up 20), by seed, and less Vanilla; first the table's run")
some = {"in the table, seeds 42-44": [r for r in rows if r["seed"] <= 44], **again}
for name, found in some.items():
    for column in ("hard_ece", "hard_ece_ts", "ece", "nll_ts", "accuracy"):
        own = seeds_of(found, "robust", column, "corrected")
        values = " ".join(f"{own[s]:.3f}" for s in sorted(own))
        print(f"{name:38} {column:12} {values}  {less(own, seeds_of(rows, 'vanilla', column, 'corrected'))}")

print("\nsweeps less Vanilla, hard ECE after a temperature (16 comparisons, uncorrected); η = 5 less η = 2")
for name in ("sweep_eta.jsonl", "sweep_warmup.jsonl"):
    found = read(name)
    at = {v: [r for r in found if r["value"] == v] for v in sorted({r["value"] for r in found})}
    own = {v: seeds_of(of, "robust", "hard_ece_ts", "corrected") for v, of in at.items()}
    for value, values in own.items():
        print(f"{name:20} {value:4} {less(values, seeds_of(rows, 'vanilla', 'hard_ece_ts', 'corrected'))}")
    if name == "sweep_eta.jsonl":
        print(f"η = 5 less η = 2 {less(own[5], own[2])}")

print("\nfrontier, Robust Filtered less Robust MoE, by budget", BUDGETS)
a, b = by_seed(runs, "robust_filtered"), by_seed(runs, "robust")
for i, budget in enumerate(BUDGETS):
    ab = [{s: reachable(c[s]["frontier"], BUDGETS)[i] for s in c} for c in (a, b)]
    print(budget, less(*ab))

cells = compare(rows, "cifar10h")
squared = np.mean([c.combined_errors**2 for c in cells])
print(f"\nmean squared difference to the paper, in combined standard errors: {squared:.2f}")
ratios = [c.published_se / c.standard_error for c in cells]
print(f"the paper's standard errors over ours, median: {np.median(ratios):.1f}")
