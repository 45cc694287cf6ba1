"""Print what docs/reproduce.md says of the frontier, routing and confidence, from curves.json.

python results/cifar10h/claims.py
"""

from pathlib import Path

import numpy as np

from calmoe.metrics import paired_difference
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
