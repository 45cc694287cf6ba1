"""Mixtures of models beside ordinary ones, on real tables.

`python -m benchmarks.tables DATA --splits 10 --out rows.jsonl`: DATA holds `tables.json` (label and shift
column of each table) and a CSV file a table. A random split tests on a quarter of the rows. A shifted split
leaves out values of the shift column, a fifth of the rows or more, tests on them, and trains on four fifths
of the others. scikit-learn's models see prepared numbers, calmoe's prepare the table themselves, in the same
way. Rows that are in the file already are not computed again; `--summary` only reads it (`table_summary`).
"""

import argparse
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from benchmarks.table_summary import EXPERT, KINDS, OURS, RIVAL, summarise
from calmoe import CalibratedMoEClassifier, MixtureOfModels
from calmoe.errors import InputError
from calmoe.metrics import accuracy, ece
from calmoe.metrics.scores import log_losses
from calmoe.models import Preparation
from calmoe.progress_bar import progress_bar

SHIFT_EXPECTED = f"{OURS}, shift expected"
LEAST, FLOOR = 1e-15, 1e-3
"""Isotonic calibration gives probabilities of zero. They count as 1e-15 in the log loss, as scikit-learn has
it, and as 1e-3 in the floored log loss, so that a few of them do not decide the comparison."""
MOST_FITS = 6  # boosting on all training rows, and on those of five folds


class Boosting(HistGradientBoostingClassifier):
    """Boosting that remembers its last fits: two calibrations of it share the same folds."""

    fits: ClassVar[dict[bytes, dict[str, Any]]] = {}

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Boosting":
        key = hashlib.sha256(X.tobytes() + y.tobytes() + repr(self.get_params()).encode()).digest()
        if key not in self.fits:
            super().fit(X, y)
            self.fits[key] = self.__dict__.copy()
            for oldest in list(self.fits)[:-MOST_FITS]:
                del self.fits[oldest]
        self.__dict__.update(self.fits[key])
        return self


def boosting(seed: int) -> Boosting:
    return Boosting(random_state=seed)


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


def whole(probs: np.ndarray, labels: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The probabilities of all classes; of one that the model did not see next to zero. [N, C]"""
    every = np.zeros((len(probs), int(max(labels.max(), columns.max())) + 1))
    every[:, columns] = probs
    every = np.clip(every, LEAST, None)
    return every / every.sum(axis=1, keepdims=True)


def row_losses(probs: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The log loss of each row, as it is and floored. [N]"""
    floored = {"log_loss": probs, "floored_log_loss": np.maximum(probs, FLOOR)}
    truth = torch.from_numpy(labels)
    return {name: log_losses(torch.from_numpy(np.log(each)), truth).numpy() for name, each in floored.items()}


def scores(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Log losses, ECE and accuracy."""
    losses = {name: float(values.mean()) for name, values in row_losses(probs, labels).items()}
    return {**losses, "ece": ece(probs, labels), "accuracy": accuracy(probs, labels)}


def evaluate(
    X: pa.Table, y: np.ndarray, shift: str | None, kind: str, seed: int, wanted: set[str]
) -> Iterator[dict[str, Any]]:
    """One row a model, on one split.

    `log_loss_error` is the standard error over test rows of what the mixture of models is better by.
    """
    train, test = split(X, shift, kind, seed)
    labels = y[test]
    rows, answers = [], {}
    for name, found in _answers(X, y, shift, kind, seed, wanted, train, test):
        probs = found.pop("probs", None)
        if probs is not None:
            answers[name] = row_losses(probs, labels)
            found = scores(probs, labels) | found
        rows.append({"model": name, **found, "rows": len(train), "test_rows": len(test)})
    for row in rows:
        if OURS in answers and row["model"] in answers and row["model"] != OURS:
            for metric, values in answers[row["model"]].items():
                row[f"{metric}_error"] = float(np.std(values - answers[OURS][metric]) / len(labels) ** 0.5)
    yield from rows


def _answers(
    X: pa.Table,
    y: np.ndarray,
    shift: str | None,
    kind: str,
    seed: int,
    wanted: set[str],
    train: np.ndarray,
    test: np.ndarray,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each model, its probabilities of the test rows, and what is worth a note."""
    given, asked, labels = X.take(train), X.take(test), y[test]
    preparation = Preparation().fit(given)
    features, asked_features = preparation.transform(given), preparation.transform(asked)
    for name, make in MODELS.items():
        if name in wanted:
            started = time.process_time()
            model = make(seed).fit(features, y[train])
            seconds = time.process_time() - started
            probs = whole(model.predict_proba(asked_features), labels, model.classes_)
            yield name, {"probs": probs, "seconds": seconds}
    for name, model in _ours(kind, shift, seed).items():
        if name not in wanted:
            continue
        started = time.process_time()
        try:
            model.fit(given, y[train])
        except InputError as error:  # one value of the shift column is left: nothing to leave out
            yield name, {"refused": str(error)}
            continue
        seconds = time.process_time() - started
        notes = {"choice": model.choice_, "eta": model.eta_} if isinstance(model, MixtureOfModels) else {}
        yield (
            name,
            {"probs": whole(model.predict_proba(asked), labels, model.classes_), "seconds": seconds, **notes},
        )
        if name == OURS:
            for expert, fitted in model.experts_:
                probs = fitted.predict_proba(asked_features.astype(np.float64))
                yield EXPERT + expert, {"probs": whole(probs, labels, model.classes_[fitted.classes_])}


def _ours(kind: str, shift: str | None, seed: int) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "neural mixture": CalibratedMoEClassifier(random_state=seed),
        OURS: MixtureOfModels(random_state=seed),
    }
    if kind == "shifted":
        ours[SHIFT_EXPECTED] = MixtureOfModels(expect_shift=shift, random_state=seed)
    return ours


def read_table(folder: Path, name: str, label: str, most: int | None) -> tuple[pa.Table, np.ndarray]:
    """The table without its label, and the label as numbers from 0."""
    table = pyarrow.csv.read_csv(folder / f"{name}.csv")
    if most is not None and table.num_rows > most:
        table = table.take(np.sort(np.random.default_rng(0).permutation(table.num_rows)[:most]))
    labels = np.unique(np.array([str(v) for v in table[label].to_pylist()]), return_inverse=True)[1]
    return table.drop_columns([label]), labels


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of earlier runs; a last line that was cut off is dropped."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def run(
    folder: Path,
    out: Path,
    names: list[str],
    splits: int,
    kinds: list[str],
    most: int | None,
    left_out: str | None = None,
) -> None:
    """Compute what is missing in the file; left_out: a model that is not asked for."""
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
            wanted = {model for model in known if (name, kind, seed, model) not in done} - {left_out}
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
    parser.add_argument("--without", metavar="MODEL", help="leave this model out, such as a slow one")
    parser.add_argument("--summary", action="store_true", help="only read the file")
    options = parser.parse_args(arguments)
    if not options.summary:
        names = json.loads((options.data / "tables.json").read_text())
        chosen = options.tables.split(",") if options.tables else list(names)
        run(
            options.data,
            options.out,
            chosen,
            options.splits,
            options.kinds.split(","),
            options.rows,
            options.without,
        )
    print(summarise(read_rows(options.out)))


if __name__ == "__main__":
    main()
