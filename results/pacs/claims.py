"""Print what docs/reproduce.md says of PACS, from results.jsonl: python results/pacs/claims.py

Differences to Vanilla MoE within a seed, of the mean over targets. All intervals are 95 %, Student's t, not
corrected for their number; * leaves out zero.
"""

import json
import sys
from pathlib import Path
from statistics import mean

from scipy.stats import ttest_rel

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
from beyond_tables import less  # noqa: E402 - beside this folder, no package

ROBUST = ("robust", "robust_filtered", "fgr_robust", "entropic", "robust_brier")
OTHERS = ("single", "mocae", "fgr")
COLUMNS = ("accuracy", "ece", "ece_ts", "nll_ts")
TARGETS = ("photo", "art_painting", "cartoon", "sketch")

rows = [json.loads(line) for line in (FOLDER / "results.jsonl").read_text().splitlines()]
cells = {(r["method"], r["seed"], r["target"]): r for r in rows}


def over(targets, method, column):
    """The mean over targets by seed."""
    seeds = sorted({seed for _, seed, _ in cells})
    return {seed: mean(cells[method, seed, target][column] for target in targets) for seed in seeds}


def pair(method, column, targets=TARGETS):
    """A method and Vanilla MoE."""
    return over(targets, method, column), over(targets, "vanilla", column)


print("Mean over targets: less Vanilla, and by seed")
for method in (*ROBUST, *OTHERS):
    for column in COLUMNS:
        a, b = pair(method, column)
        by_seed = " ".join(f"{a[seed] - b[seed]:+.3f}" for seed in a)
        print(f"{method:16} {column:9} {less(a, b)}  {by_seed}")
print("as trained, less Vanilla after its temperature, in ECE")
for method in ROBUST:
    print(f"{method:16} {less(over(TARGETS, method, 'ece'), over(TARGETS, 'vanilla', 'ece_ts'))}")
print("mean over targets and seeds")
for method in ("vanilla", *ROBUST):
    told = (f"{column} {mean(over(TARGETS, method, column).values()):.3f}" for column in COLUMNS)
    print(f"{method:16} {', '.join(told)}")

print("\nBonferroni over five methods and four metrics: which stay (p < 0.0025)")
for method in ROBUST:
    for column in COLUMNS:
        a, b = pair(method, column)
        p = ttest_rel(list(a.values()), list(b.values())).pvalue
        if p < 0.0025:
            print(f"{method:16} {column:9} p = {p:.4f}")

print("\nLess Vanilla by target and seed")
for method in ROBUST:
    for target in TARGETS:
        for column in ("accuracy", "ece_ts"):
            a, b = pair(method, column, (target,))
            print(f"{method:16} {target:13} {column:9}", *(f"{a[seed] - b[seed]:+.3f}" for seed in a))

sittings = [source["spec"] for source in json.loads((FOLDER / "sources.json").read_text())]
later = [spec for spec in sittings if "vanilla" not in spec["methods"]]  # each trained its warm-up anew
apart = sum(len(spec["seeds"]) * len(set(spec["methods"]) & set(ROBUST)) for spec in later)
print(
    f"\n{apart} of {sum(key[0] in ROBUST for key in cells)} robust cells have another warm-up than Vanilla's"
)
