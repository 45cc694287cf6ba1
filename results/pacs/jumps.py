"""How far the training loss jumps when the objective switches, beside the accuracy that is lost.

    python results/pacs/jumps.py --out jumps.jsonl --runs RUN_FOLDERS
    python results/pacs/jumps.py --out jumps.jsonl                      # shows the file

A line is a target, a seed and a method that switches: its mean training loss in the epoch before the
switch, the highest after it and the last, and its accuracy on source validation rows and on the target, less
Vanilla MoE's.
"""

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from scipy.stats import spearmanr

from calmoe.experiments.runner import expected
from calmoe.experiments.store import HISTORY, RunFolder
from calmoe.predictions import Predictions
from calmoe.report.tables import METHODS

SWITCHING = ("robust", "robust_filtered", "fgr_robust", "entropic", "robust_brier")
COMPARABLE = ("robust", "robust_filtered", "entropic")  # the same loss of the same images
SPLITS = {"source": "validation", "target": "test"}


def models(path: Path) -> dict[tuple[str, int, str], dict[str, float]]:
    """Losses and accuracies of a run folder's models, by target, seed and method."""
    folder, found = RunFolder(path), {}
    record = folder.record()
    if record is None:
        raise SystemExit(f"{path} is no run folder")
    for result in expected(folder, record):
        if not result.done or result.method not in ("vanilla", *SWITCHING):
            continue
        history = json.loads((folder.node(result.node) / HISTORY).read_bytes())
        warmup = record["spec"]["training"]["warmup"]
        before, *losses = [entry["loss"] for entry in history[warmup - 1 :]]
        predictions = folder.predictions(result.node)
        right = {name: accuracy(predictions[split]) for name, split in SPLITS.items()}
        key = (record["spec"]["target"], result.seed, result.method)
        found[key] = {"loss_before": before, "highest_loss": max(losses), "last_loss": losses[-1], **right}
    return found


def accuracy(predictions: Predictions) -> float:
    return float(predictions.output.probs.argmax(1).eq(predictions.known_labels).double().mean())


def rows_of(runs: list[Path]) -> list[dict[str, Any]]:
    found = {key: model for run in runs for key, model in models(run).items()}
    rows = []
    for (target, seed, method), model in sorted(found.items()):
        vanilla = found.get((target, seed, "vanilla"))
        if method in SWITCHING and vanilla is not None:
            less = {f"{name}_less_vanilla": model[name] - vanilla[name] for name in SPLITS}
            rows.append({"target_domain": target, "seed": seed, "method": method, **model, **less})
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Means and ranges by method, then rank correlations over models."""
    columns = "loss_before", "highest_loss", "last_loss", "source_less_vanilla", "target_less_vanilla"
    heads = ["Loss before", "Highest loss", "Last loss"]
    heads += ["Source accuracy less Vanilla", "Target accuracy less Vanilla"]
    print(f"| Method | Models | {' | '.join(heads)} |\n| --- |{' ---: |' * (1 + len(heads))}")
    for method in SWITCHING:
        own = [row for row in rows if row["method"] == method]
        cells = []
        for name in columns:
            values = [row[name] for row in own]
            other_unit = (method, name) == ("robust_brier", "loss_before")  # the warm-up's cross-entropy
            span = f"{mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
            cells.append("–" if other_unit else span)
        print(f"| {METHODS[method]} | {len(own)} | {' | '.join(cells)} |")
    for chosen in (COMPARABLE, *((method,) for method in COMPARABLE)):
        own = [row for row in rows if row["method"] in chosen]
        for name in columns[3:]:
            rank = spearmanr([row["highest_loss"] for row in own], [row[name] for row in own]).statistic
            print(f"Spearman, highest loss and {name}, {len(own)} models of {', '.join(chosen)}: {rank:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, nargs="+")
    given = parser.parse_args()
    if given.runs:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows_of(given.runs)))
    if not given.out.is_file():
        parser.error(f"{given.out} is missing: --runs makes it")
    show([json.loads(line) for line in given.out.read_text().splitlines()])


if __name__ == "__main__":
    main()
