"""How much does the audit's seed change p_hidden? One file, seven seeds: python results/audit/seeds.py RUN

The file is Vanilla MoE's validation split, training seed 42; a row is a number of splits.
"""

import argparse
from pathlib import Path

from calmoe.report.run_curves import models

from calmoe.auditing import Configurations, hidden

METHOD, SEED, SEEDS, SPLITS = "vanilla", 42, range(7), (1, 3, 5, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default=METHOD)
    asked = parser.parse_args()
    (model,) = (m for m in models(asked.run, seeds=[SEED]) if m.method == asked.method)
    seen = Configurations.of(model.validation)
    print(f"| splits | {' | '.join(f'seed {seed}' for seed in SEEDS)} |\n| ---: |{' ---: |' * len(SEEDS)}")
    for splits in SPLITS:
        found = [hidden(seen, seed=seed, splits=splits) for seed in SEEDS]
        print(f"| {splits} | {' | '.join(f'{each.p_hidden:.2g}' for each in found)} |", flush=True)


if __name__ == "__main__":
    main()
