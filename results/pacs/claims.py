"""Print what docs/reproduce.md says of PACS, from results.jsonl: python results/pacs/claims.py

Differences to Vanilla MoE within a seed, of the mean over targets; a seed counts where it has them all. All
intervals are 95 %, Student's t, not corrected for their number; * leaves out zero.
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
WITHOUT_CARTOON = ("photo", "art_painting", "sketch")
ALL = (*WITHOUT_CARTOON, "cartoon")

rows = [json.loads(line) for line in (FOLDER / "results.jsonl").read_text().splitlines()]
cells = {(r["method"], r["seed"], r["target"]): r for r in rows}


def over(targets, method, column):
    """The mean over targets by seed."""
    seeds = sorted({seed for _, seed, _ in cells})
    whole = [seed for seed in seeds if all((method, seed, target) in cells for target in targets)]
    return {seed: mean(cells[method, seed, target][column] for target in targets) for seed in whole}


for targets in (ALL, WITHOUT_CARTOON):
    print(f"\n{', '.join(targets)}: less Vanilla, and by seed")
    for method in (*ROBUST, *OTHERS):
        for column in COLUMNS:
            a, b = (over(targets, name, column) for name in (method, "vanilla"))
            by_seed = " ".join(f"{a[seed] - b[seed]:+.3f}" for seed in a)
            print(f"{method:16} {column:9} {less(a, b)}  {by_seed}")
    print("as trained, less Vanilla after its temperature, in ECE")
    for method in ROBUST:
        print(f"{method:16} {less(over(targets, method, 'ece'), over(targets, 'vanilla', 'ece_ts'))}")
    print("mean over targets and seeds:")
    for method in ("vanilla", *ROBUST):
        told = (f"{column} {mean(over(targets, method, column).values()):.3f}" for column in COLUMNS)
        print(f"{method:16} {', '.join(told)}")

print("\nBonferroni over five methods and four metrics: which stay (p < 0.0025)")
for targets in (ALL, WITHOUT_CARTOON):
    for method in ROBUST:
        for column in COLUMNS:
            a, b = (over(targets, name, column) for name in (method, "vanilla"))
            p = ttest_rel(list(a.values()), [b[seed] for seed in a]).pvalue
            if p < 0.0025:
                print(f"{method:16} {column:9} p = {p:.4f}, {len(a)} seeds, {len(targets)} targets")

print("\nRobust MoE less Vanilla by target and seed")
for target in ALL:
    for column in ("accuracy", "ece_ts"):
        a, b = (over((target,), name, column) for name in ("robust", "vanilla"))
        print(f"{target:13} {column:9}", *(f"{a[seed] - b[seed]:+.3f}" for seed in a))
