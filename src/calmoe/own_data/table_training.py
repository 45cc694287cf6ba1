"""Train on a table: a mixture of models, or one network, beside the baselines."""

import os
import warnings
from typing import Any

import numpy as np

from calmoe.errors import InputError
from calmoe.models import CalibratedMoEClassifier, MixtureOfModels, Preparation
from calmoe.models.card import Card
from calmoe.models.classifier import TableClassifier, differing, seed_of
from calmoe.models.columns import Columns
from calmoe.models.experts import FEWEST_ROWS, Material, default_experts, expert_seeds
from calmoe.models.table_model import TableModel
from calmoe.own_data.baselines import BOOSTED, LINEAR, base_rate, baseline_row
from calmoe.own_data.parts import Labelled
from calmoe.own_data.scores import Row
from calmoe.own_data.settings import READ, SHARP, TABLE_NETWORK
from calmoe.own_data.spec import TrainSpec
from calmoe.predictions import Predictions

MANY_ROWS, MOST_JOBS = 20_000, 8
EXPERTS = {LINEAR: "linear", BOOSTED: "boosting"}  # experts of a mixture that are baselines by themselves
ARGUMENTS = {"experts": "num_experts", "epochs": "max_epochs", "batch": "batch_size"}  # of the network


def check_libraries(spec: TrainSpec) -> None:
    """Refuse, before anything is trained, a model that could not be saved."""
    if spec.model == "network":
        return
    try:
        import skops.io  # noqa: F401
    except ImportError:
        raise InputError(
            "a mixture of models is saved with skops: pip install skops, or give --model network"
        ) from None


def train_table(data: Labelled, spec: TrainSpec) -> tuple[TableModel, Row, list[Row]]:
    """The fitted model, and what it and the baselines say of the parts that were held out."""
    source, rows = data.source, data.parts.fit
    columns = {name: values[rows] for name, values in source.columns.items()}
    labels = np.array(data.classes, dtype=object if isinstance(data.classes[0], str) else np.int64)
    if not Preparation().fit(columns).kept:
        raise InputError(f"no column of {source.name} tells anything: each has one value only, or all differ")
    estimator = make_estimator(spec, len(rows), os.cpu_count() or 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = None if source.cases is None else source.case_numbers[rows]
            estimator.fit(columns, labels[data.codes[rows]], groups=groups)
            baselines = _baselines(estimator, columns, data, spec.seed)
    except InputError:
        raise
    except ValueError as error:  # scikit-learn's refusals, some of several lines
        raise InputError(f"{source.name} cannot be learned from ({' '.join(str(error).split())})") from None
    if isinstance(estimator, MixtureOfModels):
        estimator.n_jobs = None  # of this machine, no part of the model
        model, title = TableModel(estimator, _card_of_mixture(estimator, len(rows))), "Mixture of models"
    else:
        model, title = TableModel(estimator, _card_of_network(estimator)), "Calibrated network"
    answers = {part: _predicted(model, data, at) for part, at in data.judged.items()}
    return model, Row.of(title, answers, data.rare, ours=True), [base_rate(data), *baselines]


def make_estimator(spec: TrainSpec, rows: int, cores: int = 1) -> MixtureOfModels | CalibratedMoEClassifier:
    """The estimator that the spec asks for, not fitted; many rows need fewer folds, and all cores."""
    if spec.model == "network":
        given = {ARGUMENTS.get(name, name): value for name, value in spec.network.given.items()}
        return CalibratedMoEClassifier(**{"rho": SHARP, **given}, random_state=spec.seed)
    many = rows >= MANY_ROWS
    return MixtureOfModels(
        expect_shift=spec.expect_shift or None,
        cv=3 if many else 5,
        n_jobs=min(cores, MOST_JOBS) if many else None,
        random_state=spec.seed,
    )


def _predicted(model: TableModel, data: Labelled, rows: np.ndarray) -> Predictions:
    part = data.source.take(rows)
    return model.predictions(part.columns, part.labels, part.groups)


def _card_of_mixture(estimator: MixtureOfModels, rows: int) -> Card:
    """The log loss by which the router was chosen, and η where a shift is expected."""
    chosen = min(t.log_loss for t in estimator.trials_ if t.kind == estimator.choice_)
    settings: dict[str, Any] = {}
    if estimator.expect_shift is not None:
        settings = {"eta": estimator.eta_, "etas_tried": len(estimator.shift_log_loss_)}
    return Card(settings=settings, scores={"cross-validation": {"rows": rows, "log_loss": chosen}})


def _card_of_network(estimator: CalibratedMoEClassifier) -> Card:
    """The settings in use, and the log loss by which the epoch was chosen, where rows were spared for it."""
    settings = {name: getattr(estimator, ARGUMENTS.get(name, name)) for name in READ[TABLE_NETWORK]}
    if not (curve := estimator.validation_log_loss_):
        return Card(settings=settings)
    best = min(curve)
    return Card(
        settings=settings | {"best_epoch": curve.index(best) + 1}, scores={"validation": {"log_loss": best}}
    )


def _baselines(estimator: TableClassifier, columns: Columns, data: Labelled, seed: int) -> list[Row]:
    """Both baselines: experts of the mixture of models, or what these would be."""

    def features(columns: Columns) -> np.ndarray:
        return estimator.preparation_.transform(columns).astype(np.float64)

    fitted = dict(getattr(estimator, "experts_", []))
    if absent := [expert for expert in EXPERTS.values() if expert not in fitted]:
        codes = data.codes[data.parts.fit]
        material = Material(features(columns), codes, np.ones(len(codes)), prepared=True)
        usual = default_experts(FEWEST_ROWS) + default_experts(differing(columns, FEWEST_ROWS))
        seeds = dict(zip(EXPERTS.values(), expert_seeds(seed_of(seed), len(EXPERTS)), strict=True))
        for expert in absent:
            fitted[expert] = material.fit(expert, dict(usual)[expert], np.arange(len(codes)), seeds[expert])
    judged = {part: features(data.source.take(at).columns) for part, at in data.judged.items()}
    return [baseline_row(name, fitted[expert], judged, data) for name, expert in EXPERTS.items()]
