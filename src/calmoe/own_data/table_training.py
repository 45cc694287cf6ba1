"""Train on a table: a mixture of models, or one network, beside the baselines."""

import os
import warnings

import numpy as np

from calmoe.errors import InputError
from calmoe.models import CalibratedMoEClassifier, MixtureOfModels, Preparation
from calmoe.models.card import Card, Scores
from calmoe.models.classifier import TableClassifier
from calmoe.models.table_model import TableModel
from calmoe.own_data.baselines import BOOSTED, LINEAR, base_rate, baseline_row, fit_baseline
from calmoe.own_data.parts import Labelled
from calmoe.own_data.scores import Row
from calmoe.own_data.spec import NUM_EXPERTS, PATIENCE, SHARP, TrainSpec
from calmoe.predictions import Predictions

MANY_ROWS, MOST_JOBS = 20_000, 8
EXPERTS = {LINEAR: "linear", BOOSTED: "boosting"}  # the experts of a mixture that are baselines by themselves


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


def train_table(data: Labelled, spec: TrainSpec) -> tuple[TableModel, list[Row]]:
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
            estimator.fit(columns, labels[data.codes[rows]])
    except InputError:
        raise
    except ValueError as error:  # scikit-learn's refusals, some of several lines
        raise InputError(f"{source.name} cannot be learned from ({' '.join(str(error).split())})") from None
    if isinstance(estimator, MixtureOfModels):
        estimator.n_jobs = None  # of this machine, no part of the model
    model = TableModel(estimator, Card())
    if spec.expect_shift and isinstance(estimator, MixtureOfModels):
        model.card.settings.update(eta=estimator.eta_, etas_tried=len(estimator.shift_log_loss_))
    title = "Mixture of models" if isinstance(estimator, MixtureOfModels) else "Calibrated network"
    model.card.scores.update(_validated(estimator, len(rows)))
    ours = {part: _predicted(model, data, at) for part, at in data.judged.items()}
    return model, [Row(title, ours, ours=True), base_rate(data), *_baselines(estimator, data, spec.seed)]


def make_estimator(spec: TrainSpec, rows: int, cores: int = 1) -> MixtureOfModels | CalibratedMoEClassifier:
    """The estimator that the spec asks for, not fitted; many rows need fewer folds, and all cores."""
    if spec.model == "network":
        network = spec.network
        return CalibratedMoEClassifier(
            num_experts=network.experts or NUM_EXPERTS,
            rho=SHARP if network.rho is None else network.rho,
            max_epochs=network.epochs or 100,
            patience=network.patience or PATIENCE,
            batch_size=network.batch or 128,
            learning_rate=network.learning_rate or 1e-3,
            random_state=spec.seed,
        )
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


def _validated(estimator: TableClassifier, rows: int) -> Scores:
    """The log loss by which the router, or the epoch, was chosen."""
    if isinstance(estimator, MixtureOfModels):
        chosen = min(t.log_loss for t in estimator.trials_ if t.kind == estimator.choice_)
        return {"cross-validation": {"rows": rows, "log_loss": chosen}}
    curve = getattr(estimator, "validation_log_loss_", [])
    return {"validation": {"log_loss": min(curve)}} if curve else {}


def _baselines(estimator: TableClassifier, data: Labelled, seed: int) -> list[Row]:
    """Both baselines; where the mixture has them as experts, these, which are fitted already."""

    def features(rows: np.ndarray) -> np.ndarray:
        return estimator.preparation_.transform(data.source.take(rows).columns).astype(np.float64)

    fitted, fit = dict(getattr(estimator, "experts_", [])), data.parts.fit
    judged = {part: features(at) for part, at in data.judged.items()}
    rows = []
    for name, expert in EXPERTS.items():
        model = fitted.get(expert) or fit_baseline(name, features(fit), data.codes[fit], seed)
        rows.append(baseline_row(name, model, judged, data))
    return rows
