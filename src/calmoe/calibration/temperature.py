"""Post-hoc calibration: one temperature, one temperature per expert, and what any temperature could reach.

`fit` learns on validation data and returns self; `transform` applies it; fitted values end in "_" and are
saved as JSON.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import Array, as_number, as_tensor, check_word
from calmoe.calibration.saved import read_saved
from calmoe.calibration.temperature_solvers import (
    EXPLAINED,
    STATUSES,
    CalibrationWarning,
    check_scores,
    prepare,
    solve_as_published,
    solve_exactly,
    temper,
)
from calmoe.errors import InputError, about, shown
from calmoe.files import write_json
from calmoe.metrics import ece
from calmoe.mixture import MixtureOutput, combine
from calmoe.predictions import Predictions
from calmoe.validation import boolean, items, number, one_of

TEMPERATURE_KEYS = ("solver", "temperature", "status")
EXPERTS_KEYS = ("weighted", "clamp", "solver", "temperatures", "statuses")
CLAMP = (0.1, 10.0)  # the paper's bounds on an expert's temperature
SMALLEST = 1e-30  # |T| of the published solver, or a clamp: float32 can divide log-probabilities by it


class Temperature:
    """softmax(log f / T): the single temperature that minimises the validation cross-entropy.

    Rows whose label has probability zero cost infinitely much at every T: they are left out, with a warning.

    Args:
        solver: "exact" finds the optimum of this convex problem in 1/T by a bracketed Newton iteration; T is
            always positive. "published" is the paper's: LBFGS from T = 1, learning rate 0.01, 50 iterations,
            no line search; it usually stops short of the optimum and may return a negative T (with a
            warning).

    Attributes:
        temperature_: T.
        status_: "optimum"; "separable": every label already has the highest probability, so ever smaller T
            would win, and T stays 1; "uninformative": the probabilities do worse than uniform ones at any T,
            and T is the largest allowed; "at bound": the best T lies beyond the range searched. The published
            solver says "published" or "negative". A CalibrationWarning says what went wrong.

    Example:
        >>> log_probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]).log()
        >>> temperature = Temperature().fit(log_probs, torch.tensor([0, 0, 1, 1]))
        >>> round(temperature.temperature_, 3)
        2.0
        >>> temperature.transform(log_probs).exp()[0]
        tensor([0.7500, 0.2500])
    """

    LARGEST = 1e6

    def __init__(self, solver: str = "exact") -> None:
        self.solver = check_word("solver", solver, STATUSES)
        self.temperature_: float
        self.status_: str

    def fit(self, log_probs: Array, labels: Array, weights: Array | None = None) -> Self:
        """Fit on log_probs [N, C] (log-probabilities or logits), labels [N] and weights [N] ≥ 0."""
        problem = prepare(log_probs, labels, weights)
        if self.solver == "exact":
            self.temperature_, self.status_ = solve_exactly(*problem, largest=self.LARGEST)
        else:
            self.temperature_, self.status_ = solve_as_published(*problem)
        if self.status_ in EXPLAINED:
            warnings.warn(
                f"temperature {self.temperature_:.6g}: {EXPLAINED[self.status_]}",
                CalibrationWarning,
                stacklevel=2,
            )
        return self

    def transform(self, log_probs: Array) -> Tensor:
        """log softmax(log_probs / T) of `log_probs` [N, C], in at least float32."""
        scores = as_tensor(log_probs)
        check_scores(scores)
        return temper(scores, self._fitted())

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {
            "kind": type(self).__name__,
            "solver": self.solver,
            "temperature": self._fitted(),
            "status": self.status_,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What `to_dict` gave, checked."""
        fitted = cls(one_of("solver", saved["solver"], STATUSES))
        fitted.restore(saved["temperature"], saved["status"], "status")
        return fitted

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        saved = read_saved(path, cls.__name__, TEMPERATURE_KEYS)
        with about(path):
            return cls.from_dict(saved)

    def restore(self, temperature: Any, status: Any, field: str) -> None:
        """Take over `temperature` and `status` from a file, which keeps the status in `field`."""
        self.status_ = one_of(field, status, STATUSES[self.solver])
        smallest, largest = 1 / self.LARGEST, self.LARGEST
        if self.solver == "published":
            smallest, largest = SMALLEST, 1 / SMALLEST
        if self.status_ == "negative":
            smallest, largest = -largest, -smallest
        self.temperature_ = number("temperature", temperature, least=smallest, most=largest)

    def _fitted(self) -> float:
        if not hasattr(self, "temperature_"):
            raise InputError("this Temperature is not fitted: call fit(log_probs, labels) first")
        return self.temperature_


class ShiftedTemperature(Temperature):
    """The temperature for a target without labels: that of source labels weighted by dP_target / dP_source.

    Right where Y given the configuration is the same in both (the paper's shift). `calmoe.auditing`'s
    density_ratio(source, target).weights are such weights. A fit on fewer than 100 effective rows,
    (Σ w)² / Σ w², is refused.

    Args:
        solver: As in `Temperature`.

    Attributes:
        temperature_: T.
        effective_: The effective rows of the fit, (Σ w)² / Σ w²; None where an older file does not say it.

    Example:
        >>> log_probs = torch.tensor([[0.9, 0.1]] * 200 + [[0.6, 0.4]] * 200).log()
        >>> labels = torch.tensor(([0] * 9 + [1]) * 20 + ([0] * 11 + [1] * 9) * 10)
        >>> weights = torch.tensor([0.0] * 200 + [1.0] * 200)  # the target is all of the second kind
        >>> fitted = ShiftedTemperature().fit(log_probs, labels, weights)
        >>> round(fitted.temperature_, 3), fitted.effective_
        (2.021, 200.0)
    """

    FEWEST_EFFECTIVE = 100

    def __init__(self, solver: str = "exact") -> None:
        super().__init__(solver)
        self.effective_: float | None

    def fit(self, log_probs: Array, labels: Array, weights: Array | None = None) -> Self:
        """Fit on log_probs [N, C], labels [N] and weights [N] ≥ 0 of the source rows; weights are needed."""
        if weights is None:
            raise InputError("give the weights of the source rows, such as density_ratio(...).weights")
        mass = as_tensor(weights).double()
        squares = float(mass.square().sum())
        effective = float(mass.sum()) ** 2 / squares if squares > 0 else 0.0
        if effective < self.FEWEST_EFFECTIVE:
            raise InputError(
                f"the weights leave {effective:.0f} effective rows: a temperature for the target needs "
                f"{self.FEWEST_EFFECTIVE}"
            )
        self.effective_ = effective
        return super().fit(log_probs, labels, weights)

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {**super().to_dict(), "effective": self.effective_}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """What `to_dict` gave, checked."""
        fitted, effective = super().from_dict(saved), saved.get("effective")
        known = effective is not None
        fitted.effective_ = number("effective", effective, least=cls.FEWEST_EFFECTIVE) if known else None
        return fitted


class PerExpertTemperature:
    """MoCaE: each expert gets a temperature of its own before the router mixes them.

    Args:
        weighted: False fits each expert alone on all rows, as published. True fits it on its routing-weighted
            view, dQ_k ∝ r_k dP, on which the paper defines expert calibration.
        clamp: The smallest and the largest T allowed.
        solver: As in `Temperature`.

    Attributes:
        temperatures_: One T an expert. [K]
        statuses_: How each fit ended; "unrouted" is an expert without any routing weight, left at 1.

    Example:
        >>> output = combine(torch.zeros(4, 1), torch.tensor([[[0.9, 0.1]]] * 3 + [[[0.1, 0.9]]]).log())
        >>> PerExpertTemperature().fit(output, torch.tensor([0, 0, 1, 1])).temperatures_
        [2.0...]
    """

    def __init__(
        self, weighted: bool = False, clamp: tuple[float, float] = CLAMP, solver: str = "exact"
    ) -> None:
        bounds = [as_number("clamp", bound) for bound in clamp] if isinstance(clamp, tuple | list) else []
        if len(bounds) != 2 or not SMALLEST <= bounds[0] <= bounds[1] <= 1 / SMALLEST:
            raise InputError(
                f"clamp must be two positive bounds, the lower first, within {SMALLEST:g} and "
                f"{1 / SMALLEST:g}, not {shown(clamp)}"
            )
        Temperature(solver)
        self.weighted = weighted
        self.clamp = (bounds[0], bounds[1])
        self.solver = solver
        self.temperatures_: list[float]
        self.statuses_: list[str]

    def fit(self, output: MixtureOutput, labels: Array) -> Self:
        """Fit on the mixture's `output` on validation data, and its `labels` [N]."""
        check_whole(output)
        self.temperatures_, self.statuses_ = [], []
        for expert in range(output.log_routing.shape[1]):
            weights = output.routing[:, expert] if self.weighted else None
            temperature, status = 1.0, "unrouted"
            if weights is None or weights.any():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", CalibrationWarning)  # statuses_ and the clamp say it
                    alone = Temperature(self.solver).fit(output.expert_log_probs[:, expert], labels, weights)
                temperature, status = alone.temperature_, alone.status_
            self.temperatures_.append(min(max(temperature, self.clamp[0]), self.clamp[1]))
            self.statuses_.append(status)
        return self

    def transform(self, output: MixtureOutput) -> MixtureOutput:
        """The mixture of the calibrated experts of `output`."""
        temperatures = self._fitted()
        if len(temperatures) != output.log_routing.shape[1]:
            raise InputError(f"fitted on {len(temperatures)} experts, given {output.log_routing.shape[1]}")
        scale = output.expert_log_probs.new_tensor(temperatures).unsqueeze(1)
        return combine(output.log_routing, temper(output.expert_log_probs, scale))

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {
            "kind": "PerExpertTemperature",
            "weighted": self.weighted,
            "clamp": list(self.clamp),
            "solver": self.solver,
            "temperatures": self._fitted(),
            "statuses": self.statuses_,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "PerExpertTemperature":
        """What `to_dict` gave, checked."""
        low, high = (number("clamp", bound) for bound in items("clamp", saved["clamp"], least=2, most=2))
        solver = one_of("solver", saved["solver"], STATUSES)
        fitted = cls(boolean("weighted", saved["weighted"]), (low, high), solver)
        temperatures = items("temperatures", saved["temperatures"], least=1)
        fitted.temperatures_ = [number("temperatures", t, least=low, most=high) for t in temperatures]
        statuses = items("statuses", saved["statuses"], least=len(temperatures), most=len(temperatures))
        known = (*STATUSES[solver], "unrouted")
        fitted.statuses_ = [one_of("statuses", status, known) for status in statuses]
        return fitted

    @classmethod
    def load(cls, path: str | Path) -> "PerExpertTemperature":
        """Read what `save` wrote."""
        saved = read_saved(path, "PerExpertTemperature", EXPERTS_KEYS)
        with about(path):
            return cls.from_dict(saved)

    def _fitted(self) -> list[float]:
        if not hasattr(self, "temperatures_"):
            raise InputError("this PerExpertTemperature is not fitted: call fit(output, labels) first")
        return self.temperatures_


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """ECE against the ECE of a subset as T sweeps: what a temperature knob alone can reach.

    Attributes:
        temperatures: The values of T. [M]
        ece: On all test rows. [M]
        subset_ece: On the subset. [M]
        chosen: The index of the temperature that validation chose.

    Example:
        >>> curve = Frontier(temperatures=np.array([1.0, 2.0]), ece=np.array([0.1, 0.0]),
        ...                  subset_ece=np.array([0.0, 0.2]), chosen=1)
        >>> float(curve.temperatures[curve.chosen])
        2.0
    """

    temperatures: np.ndarray
    ece: np.ndarray
    subset_ece: np.ndarray
    chosen: int


def frontier(
    predictions_val: Predictions,
    predictions_test: Predictions,
    subset: str | Array,
    temperatures: Array | None = None,
) -> Frontier:
    """Sweep T over the test predictions and mark the T that the validation predictions choose.

    Args:
        predictions_val: The predictions that choose T, with labels.
        predictions_test: The predictions that the curve is about. Their labels draw it, and never choose a
            point on it.
        subset: A boolean group column of the test predictions, or a mask. [N]
        temperatures: The values of T to try; 61 from ¼ to 8 unless given.

    Returns:
        The curve, and where the chosen T lies on it.

    Example:
        >>> log_probs = torch.log_softmax(3 * torch.eye(2).repeat(8, 1), dim=1)
        >>> labels = torch.tensor([0, 1] * 7 + [1, 0])
        >>> predictions = Predictions.from_probs(log_probs.exp(), labels, groups={"hard": np.arange(16) > 7})
        >>> curve = frontier(predictions, predictions, "hard")
        >>> bool(curve.ece[curve.chosen] < 0.001), bool(curve.subset_ece[curve.chosen] > 0.1)
        (True, True)
    """
    fitted = Temperature().fit(predictions_val.output.log_probs, predictions_val.known_labels)
    grid = np.geomspace(0.25, 8.0, 61) if temperatures is None else np.asarray(temperatures, dtype=np.float64)
    if grid.ndim != 1 or not (grid > 0).all():
        raise InputError("temperatures must be a list of positive numbers")
    sweep = np.unique(np.append(grid, fitted.temperature_))
    mask = predictions_test.mask(subset) if isinstance(subset, str) else as_tensor(subset)
    if mask.dtype != torch.bool or mask.shape != (len(predictions_test),):
        raise InputError(f"subset must be a column's name or {len(predictions_test)} booleans")
    if not mask.any():
        raise InputError(f"the subset {subset if isinstance(subset, str) else ''} is empty: no curve to draw")
    log_probs, labels = predictions_test.output.log_probs, predictions_test.known_labels
    tempered = [temper(log_probs, float(temperature)).exp() for temperature in sweep]
    return Frontier(
        temperatures=sweep,
        ece=np.array([ece(probs, labels) for probs in tempered]),
        subset_ece=np.array([ece(probs[mask], labels[mask]) for probs in tempered]),
        chosen=int(np.searchsorted(sweep, fitted.temperature_)),
    )


def check_whole(output: MixtureOutput) -> None:
    """Refuse anything but a MixtureOutput."""
    if not isinstance(output, MixtureOutput):
        raise InputError(f"give the whole MixtureOutput, with routing and experts, not {type(output)}")
