"""Print what docs/reproduce.md says beyond the tables, from curves.json and the rows.

python results/cifar10h/claims.py
"""

import json
from pathlib import Path

import numpy as np

from calmoe.metrics import paired_difference
from calmoe.report import compare
from calmoe.report.curves import reachable, read_curves

BUDGETS = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.08)
runs = {(c["method"], c["seed"]): c for c in read_curves(Path(__file__).with_name("curves.json"))}
methods = list(dict.fromkeys(method for method, _ in runs))


def by_seed(method):
    return {seed: c for (name, seed), c in runs.items() if name == method}


print(
    f"lowest hard ECE within an ECE budget, less Vanilla's; paired 95 % intervals, {len(BUDGETS)} budgets a"
)
print("method and no correction for looking that often; * excludes zero")
vanilla = by_seed("vanilla")
for method in (m for m in methods if m != "vanilla"):
    own = by_seed(method)
    seeds = sorted(own.keys() & vanilla.keys())
    cells = []
    for i, _ in enumerate(BUDGETS):
        a, b = ([reachable(c[s]["frontier"], BUDGETS)[i] for s in seeds] for c in (own, vanilla))
        kept = [(x, y) for x, y in zip(a, b, strict=True) if np.isfinite(x) and np.isfinite(y)]
        if len(kept) < 2:
            cells.append("too few".rjust(23))
            continue
        d = paired_difference(*map(np.array, zip(*kept, strict=True)))
        star = "*" if d.low > 0 or d.high < 0 else " "
        cells.append(f"{d.estimate:+.3f} [{d.low:+.3f},{d.high:+.3f}]{star}{len(kept)}")
    print(f"{method:16}", *cells)

print("\nVanilla's curve at the ECE of a raw robust point: seeds in which it reaches at most that hard ECE")
for method in ("robust", "fgr_robust"):
    hits = []
    for seed, c in by_seed(method).items():
        raw = {part: c["raw"]["reliability"][part]["ece"] for part in ("all", "hard")}
        hits.append(bool(reachable(vanilla[seed]["frontier"], (raw["all"],))[0] <= raw["hard"]))
    print(f"{method:16} {sum(hits)} of {len(hits)}")

print("\nrouting entropy / log K, mean on all images: by seed, and their mean")
for method in methods:
    means = [c["routing"]["entropy"]["all"]["mean"] for c in by_seed(method).values() if c["routing"]]
    if means:
        print(f"{method:16}", *(f"{mean:.3f}" for mean in means), f" mean {np.mean(means):.3f}")

print("\nmean confidence and accuracy, raw, over seeds")
for method in methods:
    for part in ("easy", "hard"):
        tables = [c["raw"]["histogram"][part] for c in by_seed(method).values()]
        values = (np.mean([table[name] for table in tables]) for name in ("confidence", "accuracy"))
        print(f"{method:16} {part}", *(f"{value:.3f}" for value in values))


def read(name):
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text().splitlines()]


rows = read("results.jsonl")
again = {
    "Robust MoE again, η sweep at 2": [r for r in read("sweep_eta.jsonl") if r["value"] == 2],
    "Robust MoE again, warm-up sweep at 20": [r for r in read("sweep_warmup.jsonl") if r["value"] == 20],
}


def seeds_of(found, method, column, protocol):
    return {r["seed"]: r[column] for r in found if (r["method"], r["protocol"]) == (method, protocol)}


def less(a, b):
    """a - b over the seeds both have, with its interval and their number."""
    common = sorted(a.keys() & b.keys())
    d = paired_difference(np.array([a[s] for s in common]), np.array([b[s] for s in common]))
    return f"{d.estimate:+.4f} [{d.low:+.4f}, {d.high:+.4f}] n={len(common)}"


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
a, b = by_seed("robust_filtered"), by_seed("robust")
for i, budget in enumerate(BUDGETS):
    ab = [{s: reachable(c[s]["frontier"], BUDGETS)[i] for s in c} for c in (a, b)]
    print(budget, less(*({s: v for s, v in of.items() if np.isfinite(v)} for of in ab)))

cells = compare(rows, "cifar10h")
squared = np.mean([c.combined_errors**2 for c in cells])
print(f"\nmean squared difference to the paper, in combined standard errors: {squared:.2f}")
ratios = [c.published_se / c.standard_error for c in cells]
print(f"the paper's standard errors over ours, median: {np.median(ratios):.1f}")
