"""Predictions of scikit-learn's models on real data, for studies that need files nobody has tuned on."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calmoe.predictions import Predictions

TURNED = (0, 15, 30)  # degrees by which digits are turned
TAUGHT, MOST = 0.3, 10_000  # the share of rows that models learn from, and the most rows of a table
TABLES = ("lending", "churn", "credit", "remote_work", "income", "smoking")
ALONE = ("forest", "network")  # models that are judged alone too
FEWEST_CLASS = 20  # rows of a class that is kept


def real_predictions(tables: Path | None) -> Iterator[tuple[str, Predictions]]:
    """By name: two models alone, and all of them as a mixture of equal weights; on rows new to the models."""
    yield from _digits()
    if tables is None:
        return
    about = json.loads((tables / "tables.json").read_text())
    for name in TABLES:
        features, labels = _table(tables / f"{name}.csv", about[name]["label"])
        order = np.random.default_rng(0).permutation(len(labels))[:MOST]
        taught, rest = np.split(order, [int(TAUGHT * len(order))])
        models = _fitted(features[taught], labels[taught])
        yield from _answers(name, models, features[rest], labels[rest])


def _digits() -> Iterator[tuple[str, Predictions]]:
    from scipy.ndimage import rotate
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    taught, rest = np.split(np.random.default_rng(0).permutation(len(labels)), [500])
    models = _fitted(images[taught], labels[taught])
    for degrees in TURNED:
        turned = rotate(images[rest].reshape(-1, 8, 8), degrees, axes=(1, 2), reshape=False, order=1)
        yield from _answers(f"digits turned by {degrees}", models, turned.reshape(-1, 64), labels[rest])


def _fitted(features: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    models = {
        "naive Bayes": GaussianNB(var_smoothing=1e-3),
        "logistic": LogisticRegression(C=10, max_iter=300),
        "forest": RandomForestClassifier(50, min_samples_leaf=2, random_state=0),
        "network": MLPClassifier((32,), max_iter=60, random_state=0),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they need not converge
        return {
            name: make_pipeline(StandardScaler(), model).fit(features, labels)
            for name, model in models.items()
        }


def _answers(
    name: str, models: dict[str, Any], features: np.ndarray, labels: np.ndarray
) -> Iterator[tuple[str, Predictions]]:
    experts = np.stack([_within(model.predict_proba(features)) for model in models.values()], axis=1)
    codes = np.searchsorted(next(iter(models.values())).classes_, labels)
    for place, model in enumerate(models):
        if model in ALONE:
            yield f"{name}, {model}", Predictions.from_probs(experts[:, place], codes)
    routing = np.full(experts.shape[:2], 1 / experts.shape[1])
    mixture = Predictions.from_probs(experts.mean(axis=1), codes, routing=routing, expert_probs=experts)
    yield f"{name}, all", mixture


def _within(probs: np.ndarray) -> np.ndarray:
    """Probabilities that cost no row infinitely much."""
    inside = np.clip(probs, 1e-4, None)
    return inside / inside.sum(axis=1, keepdims=True)


def _table(path: Path, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as they are, words and missing values as codes; rare classes left out."""
    from pyarrow import csv

    table = csv.read_csv(path)
    labels = np.array([str(value) for value in table[label].to_pylist()])
    names, counts = np.unique(labels, return_counts=True)
    kept = np.isin(labels, names[counts >= FEWEST_CLASS])
    columns = [_numbers(table[name].to_pylist()) for name in table.column_names if name != label]
    return np.stack(columns, axis=1)[kept], labels[kept]


def _numbers(values: list[Any]) -> np.ndarray:
    if all(value is None or isinstance(value, int | float) for value in values):
        column = np.array([np.nan if value is None else float(value) for value in values])
        return np.where(np.isfinite(column), column, np.nanmean(column))
    return np.unique([str(value) for value in values], return_inverse=True)[1].astype(float)
