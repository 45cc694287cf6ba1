"""Mixtures of models beside ordinary ones, on real tables.

`python -m benchmarks.tables DATA --splits 10 --out rows.jsonl`: DATA holds `tables.json` (label and shift
column of each table) and a CSV file a table. A random split tests on a quarter of the rows. A shifted split
leaves out values of the shift column, a fifth of the rows or more, tests on them, and trains on four fifths
of the others. scikit-learn's models see prepared numbers, calmoe's prepare the table themselves, in the same
way. Rows that are in the file already are not computed again; `--summary` only reads it.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from scipy.stats import t as student
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from calmoe import CalibratedMoEClassifier, MixtureOfModels
from calmoe.errors import InputError
from calmoe.metrics import accuracy, ece, nll
from calmoe.models import Preparation
from calmoe.progress_bar import progress_bar

OURS, RIVAL = "mixture of models", "boosting, isotonic"
EXPERT = "expert: "  # of the mixture of models, raw
KINDS = ("random", "shifted")
LEAST, FLOOR = 1e-15, 1e-3
"""Isotonic calibration gives probabilities of zero. They count as 1e-15 in the log loss, as scikit-learn has
it, and as 1e-3 in the floored log loss, so that a few of them do not decide the comparison."""


def boosting(seed: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(random_state=seed)


MODELS: dict[str, Callable[[int], Any]] = {
    "logistic regression": lambda seed: LogisticRegression(max_iter=1000),
    "MLPClassifier": lambda seed: MLPClassifier(early_stopping=True, random_state=seed),
    "boosting": boosting,
    "boosting, temperature": lambda seed: CalibratedClassifierCV(boosting(seed), method="temperature"),
    RIVAL: lambda seed: CalibratedClassifierCV(boosting(seed), method="isotonic"),
}
"""They see the prepared numbers; those of calmoe see the table."""


def split(table: pa.Table, shift: str | None, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows to train and to test on."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(table.num_rows)
    if kind == "random":
        quarter = table.num_rows // 4
        return np.sort(rows[quarter:]), np.sort(rows[:quarter])
    values = np.array(["" if v is None else str(v) for v in table[shift].to_pylist()])
    left_out: list[str] = []
    share = 0.0
    for value in rng.permutation(np.unique(values)):
        size = float(np.mean(values == value))
        if share < 0.2 and share + size <= 0.5:
            left_out.append(value)
            share += size
    test = np.isin(values, left_out)
    others = rows[~test[rows]]
    return np.sort(others[: round(0.8 * len(others))]), np.flatnonzero(test)


def scores(probs: np.ndarray, labels: np.ndarray, columns: np.ndarray) -> dict[str, float]:
    """Log loss, ECE and accuracy; a class that the model did not see has probability zero."""
    whole = np.zeros((len(probs), int(max(labels.max(), columns.max())) + 1))
    whole[:, columns] = probs
    whole = np.clip(whole, LEAST, None)
    whole /= whole.sum(axis=1, keepdims=True)
    return {
        "log_loss": nll(np.log(whole), labels),
        "floored_log_loss": float(-np.log(np.maximum(whole[np.arange(len(labels)), labels], FLOOR)).mean()),
        "ece": ece(whole, labels),
        "accuracy": accuracy(whole, labels),
    }


def evaluate(
    X: pa.Table, y: np.ndarray, shift: str | None, kind: str, seed: int, wanted: set[str]
) -> Iterator[dict[str, Any]]:
    """One row a model, on one split."""
    train, test = split(X, shift, kind, seed)
    given, asked, labels = X.take(train), X.take(test), y[test]
    preparation = Preparation().fit(given)
    features, asked_features = preparation.transform(given), preparation.transform(asked)
    sizes = {"rows": len(train), "test_rows": len(test)}
    for name, make in MODELS.items():
        if name in wanted:
            started = time.perf_counter()
            model = make(seed).fit(features, y[train])
            seconds = time.perf_counter() - started
            found = scores(model.predict_proba(asked_features), labels, model.classes_)
            yield {"model": name, **found, "seconds": seconds, **sizes}
    for name, model in _ours(kind, shift, seed).items():
        if name not in wanted:
            continue
        started = time.perf_counter()
        try:
            model.fit(given, y[train])
        except InputError as error:  # one value of the shift column is left: nothing to leave out
            yield {"model": name, "refused": str(error), **sizes}
            continue
        seconds = time.perf_counter() - started
        found = scores(model.predict_proba(asked), labels, model.classes_)
        notes = {"choice": model.choice_, "eta": model.eta_} if isinstance(model, MixtureOfModels) else {}
        yield {"model": name, **found, "seconds": seconds, **notes, **sizes}
        if name == OURS:
            for expert, fitted in model.experts_:
                probs = fitted.predict_proba(asked_features.astype(np.float64))
                yield {"model": EXPERT + expert, **scores(probs, labels, model.classes_[fitted.classes_])}


def _ours(kind: str, shift: str | None, seed: int) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "neural mixture": CalibratedMoEClassifier(random_state=seed),
        OURS: MixtureOfModels(random_state=seed),
    }
    if kind == "shifted":
        ours[f"{OURS}, shift expected"] = MixtureOfModels(expect_shift=shift, random_state=seed)
    return ours


def read_table(folder: Path, name: str, label: str, most: int | None) -> tuple[pa.Table, np.ndarray]:
    """The table without its label, and the label as numbers from 0."""
    table = pyarrow.csv.read_csv(folder / f"{name}.csv")
    if most is not None and table.num_rows > most:
        table = table.take(np.sort(np.random.default_rng(0).permutation(table.num_rows)[:most]))
    labels = np.unique(np.array([str(v) for v in table[label].to_pylist()]), return_inverse=True)[1]
    return table.drop_columns([label]), labels


Cells = dict[tuple[str, str, str], dict[int, dict[str, Any]]]  # kind, table, model: by seed


def paired(differences: np.ndarray) -> tuple[float, float, float]:
    """The mean of differences, and its 95 % interval.

    >>> paired(np.array([0.0, 1.0, 2.0]))
    (1.0, -1.484..., 3.484...)
    """
    mean = float(np.mean(differences))
    if len(differences) < 2:
        return mean, float("-inf"), float("inf")
    half = float(student.ppf(0.975, len(differences) - 1) * np.std(differences, ddof=1))
    half /= len(differences) ** 0.5
    return mean, mean - half, mean + half


def summarise(rows: list[dict[str, Any]]) -> str:
    """Means a table, paired differences of log loss, and the two questions that the benchmark asks."""
    rows = [row for row in rows if "log_loss" in row]
    cells: Cells = {}
    for row in rows:
        cells.setdefault((row["kind"], row["table"], row["model"]), {})[row["seed"]] = row
    lines = []
    for kind in KINDS:
        tables = list(dict.fromkeys(row["table"] for row in rows if row["kind"] == kind))
        models = list(dict.fromkeys(row["model"] for row in rows if row["kind"] == kind))
        if not tables:
            continue
        for metric in ("log_loss", "floored_log_loss", "ece", "accuracy"):
            lines += ["", f"{kind} splits, {metric}", "| table | " + " | ".join(models) + " |"]
            lines.append("| --- " * (len(models) + 1) + "|")
            for table in tables:
                found = [cells.get((kind, table, model), {}) for model in models]
                shown = [f"{np.mean([r[metric] for r in c.values()]):.4f}" if c else "–" for c in found]
                lines.append(f"| {table} | " + " | ".join(shown) + " |")
        for metric in ("log_loss", "floored_log_loss"):
            lines += ["", f"{kind} splits, {metric}: the {OURS} less … (below 0: the mixture is better)"]
            lines += _compared(cells, kind, tables, models, metric)
    return "\n".join(lines)


def _compared(cells: Cells, kind: str, tables: list[str], models: list[str], metric: str) -> list[str]:
    """A line a table: against the expert that is best in the mean, and against the rival."""
    lines = [f"| table | its best expert | {RIVAL} |", "| --- | --- | --- |"]
    over_tables = []
    for table in tables:
        ours, rival = (cells.get((kind, table, model), {}) for model in (OURS, RIVAL))
        experts = [m for m in models if m.startswith(EXPERT) and (kind, table, m) in cells]
        if not ours or not experts:
            continue
        losses = {m: np.mean([row[metric] for row in cells[kind, table, m].values()]) for m in experts}
        best = min(losses, key=losses.__getitem__)
        against = [_differences(ours, other, metric) for other in (cells[kind, table, best], rival)]
        over_tables += [against[1].mean()] if len(against[1]) else []
        expert = best.removeprefix(EXPERT)
        lines.append(f"| {table} | {_said(against[0])} ({expert}) | {_said(against[1])} |")
    return [*lines, f"| mean over tables | | {_said(np.array(over_tables))} |"]


def _differences(ours: dict[int, Any], other: dict[int, Any], metric: str) -> np.ndarray:
    return np.array([ours[seed][metric] - other[seed][metric] for seed in sorted(ours.keys() & other.keys())])


def _said(differences: np.ndarray) -> str:
    if not len(differences):
        return "–"
    mean, low, high = paired(differences)
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of earlier runs; a last line that was cut off is dropped."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def run(folder: Path, out: Path, names: list[str], splits: int, kinds: list[str], most: int | None) -> None:
    """Compute what is missing in the file."""
    cards = json.loads((folder / "tables.json").read_text())
    done = {(r["table"], r["kind"], r["seed"], r["model"]) for r in read_rows(out)}
    tasks = [
        (seed, name, kind)
        for seed in range(splits)
        for name in names
        for kind in kinds
        if kind == "random" or cards[name]["shift"]
    ]
    bar = progress_bar(MofNCompleteColumn(), TimeRemainingColumn())
    with bar, out.open("a") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of models that stop before they converge
        for seed, name, kind in bar.track(tasks, description="splits"):
            known = [*MODELS, *_ours(kind, cards[name]["shift"], seed)]
            wanted = {model for model in known if (name, kind, seed, model) not in done}
            if wanted:
                X, y = read_table(folder, name, cards[name]["label"], most)
                for row in evaluate(X, y, cards[name]["shift"], kind, seed, wanted):
                    stream.write(json.dumps({"table": name, "kind": kind, "seed": seed, **row}) + "\n")
                    stream.flush()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", help="names, with commas between them; all by default")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", type=int, help="at most so many rows of each table, for a quick look")
    parser.add_argument("--summary", action="store_true", help="only read the file")
    options = parser.parse_args(arguments)
    if not options.summary:
        names = json.loads((options.data / "tables.json").read_text())
        chosen = options.tables.split(",") if options.tables else list(names)
        run(options.data, options.out, chosen, options.splits, options.kinds.split(","), options.rows)
    print(summarise(read_rows(options.out)))


if __name__ == "__main__":
    main()
