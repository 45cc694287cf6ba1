"""CalibratedMoEClassifier: the recommended neural mixture, as a scikit-learn estimator."""

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from calmoe.arrays import as_count, as_number
from calmoe.calibration import Temperature
from calmoe.calibration.temperature import CLAMP
from calmoe.calibration.temperature_solvers import CalibrationWarning, temper
from calmoe.errors import InputError, shown
from calmoe.mixture import MixtureClassifier, MixtureHead, MixtureOutput
from calmoe.models.classifier import Rows, TableClassifier, held_together_by, seed_of
from calmoe.models.columns import Columns
from calmoe.models.folds import grouped_folds, stratified_folds
from calmoe.models.network import Examples, Recipe, make_network, merge_equal, train
from calmoe.models.objective_choice import named_objective
from calmoe.models.preparation import Preparation
from calmoe.threads import threads

FEWEST_ROWS = 60  # that differ; below it none can be spared for validation


class CalibratedMoEClassifier(TableClassifier):
    """A mixture of experts on top of a small network, trained for probabilities that can be believed.

    Sharp gradients and averaged weights train it. Part of the rows are held out: training stops at their
    lowest log loss, and one temperature is fitted on them. X is a table with numbers, text, dates and gaps,
    or an array (`calmoe.models.Preparation`). On tables `calmoe.MixtureOfModels` is usually better; this one
    is for those who want one network.

    Rows that are equal count as one of larger weight; with fewer than 60 different rows none are held out:
    training takes all `max_epochs`, and the temperature stays 1.

    Args:
        num_experts: The number of experts, K.
        hidden: The widths of the network's hidden layers.
        router_hidden: The width of the router's hidden layer.
        objective: "erm", "entropic", "tilted", "filtered" or "cvar".
        eta: How hard the objective leans on large losses; "erm" and "cvar" do not read it.
        rho: How far sharp gradients look, ρ; 0 is plain training.
        average: How slowly the average of the weights moves, between 0 and 1.
        max_epochs: The most epochs.
        patience: How many epochs without a lower log loss end the training.
        batch_size: The rows of a step.
        learning_rate: AdamW's.
        weight_decay: AdamW's.
        validation_fraction: The share of rows held out.
        random_state: A seed, as in scikit-learn.

    Attributes:
        classes_: The classes, sorted. [C]
        network_: The trained network.
        temperature_: The temperature.
        validation_log_loss_: One an epoch.
        preparation_: How the table becomes numbers.
        n_features_in_: The number of columns.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(200, 2))
        >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "yes", "no")
        >>> model = CalibratedMoEClassifier(max_epochs=5, random_state=0).fit(X, y)
        >>> model.predict_proba(X[:3]).shape, model.predictions(X, y).num_experts
        ((3, 2), 4)
    """

    def __init__(
        self,
        num_experts: int = 4,
        hidden: tuple[int, ...] = (128,),
        *,
        router_hidden: int = 32,
        objective: str = "erm",
        eta: float = 1.0,
        rho: float = 0.1,
        average: float = 0.99,
        max_epochs: int = 100,
        patience: int = 10,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        validation_fraction: float = 0.15,
        random_state: Any = None,
    ) -> None:
        self.num_experts = num_experts
        self.hidden = hidden
        self.router_hidden = router_hidden
        self.objective = objective
        self.eta = eta
        self.rho = rho
        self.average = average
        self.max_epochs = max_epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from a table or an array X and labels y.

        Args:
            X: A table by columns, or an array. [N, columns]
            y: The classes. [N]
            sample_weight: Weights ≥ 0. [N]
            groups: One value a row [N]; rows of a group train or are held out together (a patient, a shop).
        """
        recipe, share = self._recipe(), as_number("validation_fraction", self.validation_fraction, 0.01, 0.5)
        rows = self._begin(X, y, sample_weight)
        seed = seed_of(self.random_state)
        self.preparation_ = Preparation().fit(rows.columns, rows.weights)
        features = self.preparation_.transform(rows.columns)
        training, held_out = _split(features, rows, held_together_by(groups, y, rows), share, seed)
        with threads(1), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._make(features.shape[1])
            network, self.validation_log_loss_ = train(model, training, held_out, recipe, seed)
            self.network_ = network.double().requires_grad_(False).eval()
            self.temperature_ = 1.0 if held_out is None else self._fit_temperature(held_out)
        return self

    def save(self, folder: str | Path) -> None:
        """Write the model into a new or empty `folder`: JSON and safetensors."""
        from calmoe.models.folders import save_calibrated_moe

        save_calibrated_moe(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> "CalibratedMoEClassifier":
        """Read what `save` wrote into `folder`."""
        from calmoe.models.folders import load_calibrated_moe, refuse_calibrator

        refuse_calibrator(folder)
        return load_calibrated_moe(folder)

    @property
    def _num_experts(self) -> int:
        head = self.network_.head
        assert isinstance(head, MixtureHead)
        return head.num_experts

    def _answer(self, columns: Columns, given: Any) -> MixtureOutput:
        features = torch.from_numpy(self.preparation_.transform(columns)).double()
        with torch.no_grad(), threads(1):
            output = self.network_(features)
            return output._replace(log_probs=temper(output.log_probs, self.temperature_))

    def _make(self, features: int) -> MixtureClassifier:
        """The network, untrained."""
        hidden = self.hidden if isinstance(self.hidden, tuple | list) else (self.hidden,)
        if not hidden:
            raise InputError(f"hidden must be widths of layers such as (128,), not {shown(self.hidden)}")
        return make_network(
            features,
            len(self.classes_),
            as_count("num_experts", self.num_experts),
            [as_count("hidden", width) for width in hidden],
            as_count("router_hidden", self.router_hidden),
        )

    def _recipe(self) -> Recipe:
        return Recipe(
            objective=named_objective(self.objective, self.eta),
            rho=as_number("rho", self.rho, least=0),
            average=as_number("average", self.average, least=0, most=0.99999),
            max_epochs=as_count("max_epochs", self.max_epochs),
            patience=as_count("patience", self.patience),
            batch_size=as_count("batch_size", self.batch_size),
            learning_rate=as_number("learning_rate", self.learning_rate, above=0),
            weight_decay=as_number("weight_decay", self.weight_decay, least=0),
        )

    def _fit_temperature(self, held_out: Examples) -> float:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # a separable table leaves it at 1
            output = self.network_(held_out.features.double())
            fitted = Temperature().fit(output.log_probs, held_out.labels, held_out.weights)
        return float(np.clip(fitted.temperature_, *CLAMP))


def _split(
    features: np.ndarray, rows: Rows, together: np.ndarray | None, share: float, seed: int
) -> tuple[Examples, Examples | None]:
    """Rows to train on, and rows held out, by whole groups if there are any; none where rows are few."""
    everything = merge_equal(features, rows.labels, rows.weights)
    if len(everything) < FEWEST_ROWS:
        return everything, None
    count = max(2, round(1 / share))
    if together is None:
        folds = stratified_folds(everything.labels.numpy(), count, np.random.default_rng(seed))
        return everything.take(np.flatnonzero(folds > 0)), everything.take(np.flatnonzero(folds == 0))
    folds = grouped_folds(rows.labels, together, count, seed)
    training, held_out = (
        merge_equal(features[side], rows.labels[side], rows.weights[side]) for side in (folds > 0, folds == 0)
    )
    return training, held_out
