"""Print what a setting changes: python results/between.py RUN BASELINE_RUN

The methods and seeds that both run folders have, corrected protocol: first what RUN's differ by from the
baseline's, then each run's from its own Vanilla MoE. Within seeds, with 95 % intervals, not corrected for
their number; * leaves out zero.
"""

import argparse
import json
from pathlib import Path

from beyond_tables import less, seeds_of

COLUMNS = ("accuracy", "hard_accuracy", "ece", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts")


def rows(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("run", "baseline"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    run, baseline = given.run, given.baseline
    for folder in (run, baseline):
        if not (folder / "results.jsonl").is_file():
            parser.error(f"{folder} has no results.jsonl")
    sides = [rows(run), rows(baseline)]
    methods = [m for m in dict.fromkeys(r["method"] for r in sides[0]) if seeds_of(sides[1], m, "ece")]
    others = [method for method in methods if method != "vanilla"]
    compared = {f"{run}, less {baseline}": [((sides[0], m), (sides[1], m)) for m in methods]}
    for folder, side in zip((run, baseline), sides, strict=True):
        if "vanilla" in methods:
            compared[f"{folder}, less its Vanilla"] = [((side, m), (side, "vanilla")) for m in others]
    for title, pairs in compared.items():
        print(f"\n{title}")
        for (a, method), (b, other) in pairs:
            for column in COLUMNS:
                of_seeds = [seeds_of(side, name, column) for side, name in ((a, method), (b, other))]
                if None not in of_seeds[0].values():  # no hard subset
                    print(f"{method:16} {column:13} {less(*of_seeds)}")


if __name__ == "__main__":
    main()
