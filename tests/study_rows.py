"""Made-up rows of results for the studies, and what independent code makes of stored ones."""

import json
from pathlib import Path

import numpy as np
from scipy import stats

RESULTS = Path(__file__).parents[1] / "results"
FACTS = {"temperature": 1.0, "temperature_status": "optimum", "n": 100, "n_hard": 30}
COLUMNS = (
    *("accuracy", "ece", "ece_ts", "nll", "nll_ts", "brier", "brier_ts"),
    *("hard_accuracy", "hard_ece", "hard_ece_ts", "hard_nll_ts", "worst_group_ece_ts"),
)


def made(methods=("vanilla", "robust"), seeds=(42, 43, 44), protocols=("corrected", "published"), **facts):
    """Rows with random scores, the same at every call."""
    draw = np.random.default_rng(len(methods) + 10 * len(seeds) + 100 * len(facts))
    return [
        {"method": method, "seed": seed, "protocol": protocol, **FACTS, **facts}
        | {column: round(float(draw.uniform(0.1, 0.9)), 6) for column in COLUMNS}
        for protocol in protocols
        for method in methods
        for seed in seeds
    ]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def column(rows, name, **facts):
    """The values of the rows that have these facts, by seed."""
    chosen = [row for row in rows if all(row[key] == value for key, value in facts.items())]
    return np.array([row[name] for row in sorted(chosen, key=lambda row: row["seed"])])


def student(differences):
    """Estimate and 95 % interval, by scipy."""
    test = stats.ttest_1samp(differences, 0.0)
    return (float(np.mean(differences)), *map(float, test.confidence_interval(0.95)))


def numbers(grid, *labels):
    """The estimate and interval of the one row of a table of differences with these labels."""
    (row,) = [row for row in grid.rows if tuple(entry.values[0] for entry in row[: len(labels)]) == labels]
    return (*row[3].values, *row[4].values)
