"""Print what docs/reproduce.md says of the switch on digits: python results/digits/claims.py [FOLDER]

What forgetting AdamW's moments at the switch ("reset") changes, in ERM too (η = 0); then objectives less ERM,
both with the reset and both without; then what an objective gains less what ERM gains. Within ten seeds, 95 %
intervals, not corrected for their number; * leaves out zero. FOLDER has the four runs, by default those here.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
sys.path.insert(0, str(HERE.parent))
from beyond_tables import less, seeds_of  # noqa: E402 - beside this folder, no package

COLUMNS = ("accuracy", "hard_accuracy", "ece", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts")
ROBUST = ("robust", "robust_filtered", "fgr_robust", "entropic", "robust_brier")


def read(name):
    return [json.loads(line) for line in (FOLDER / name / "results.jsonl").read_text().splitlines()]


objectives = read("plain"), read("forget_moments")
erm = read("eta0"), read("eta0_forget_moments")


def columns(method, name):
    """By seed: without the reset, and with it."""
    if method == "ERM":
        return [seeds_of(rows, "robust", name) for rows in erm]
    return [seeds_of(rows, method, name) for rows in objectives]


def change(method, name):
    plain, reset = columns(method, name)
    return {seed: reset[seed] - plain[seed] for seed in plain}


same = all(columns("vanilla", name)[0] == columns("ERM", name)[0] for name in COLUMNS)
print(f"Vanilla and η = 0 agree in all rows: {same}")
comparisons = {
    "with the reset, less without": lambda m, c: columns(m, c)[::-1],
    "both with the reset, less ERM": lambda m, c: (columns(m, c)[1], columns("ERM", c)[1]),
    "both without, less ERM": lambda m, c: (columns(m, c)[0], columns("ERM", c)[0]),
    "the change, less ERM's": lambda m, c: (change(m, c), change("ERM", c)),
}
for title, pair in comparisons.items():
    print(f"\n{title}")
    for method in ROBUST if "ERM" in title else ("ERM", *ROBUST):
        for name in COLUMNS:
            print(f"{method:16} {name:13} {less(*pair(method, name))}")
