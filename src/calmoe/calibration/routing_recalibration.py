"""Repair after training: multiaccuracy boosting on routing-weighted auditors, on top of one temperature.

Let f be the tempered mixture's probability of its predicted class and Y say whether that class is right. An
auditor is g = r_k φ_j(f) or r_k φ_j(f_k), with f_k expert k's probability of the same class and φ_j hats on
[0, 1]. Where E[g (Y − p)] is not zero for the repaired probability p, its logit is moved along g, so that

    logit p = logit f + Σ_k r_k (u_k(f) + v_k(f_k)),  with u_k, v_k piecewise linear,

and the other classes keep their proportions: probabilities stay normalised. By the second family the experts'
disagreement Σ_k r_k (f_k − f)² is nearly a sum of auditors too.
"""

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import expit, log_expit
from torch import Tensor

from calmoe.arrays import Array, as_count, as_number, as_tensor, check_bins
from calmoe.calibration.isotonic import KEYS as CURVE_KEYS
from calmoe.calibration.isotonic import TopLabelIsotonic
from calmoe.calibration.saved import read_saved
from calmoe.calibration.temperature import CalibrationWarning, Temperature, check_whole
from calmoe.errors import InputError, about
from calmoe.files import write_json
from calmoe.metrics.scores import possible
from calmoe.mixture import MixtureOutput
from calmoe.validation import items, number, numbers, one_of, table, text, whole

FEWEST_TO_REPAIR = 200  # rows below which nothing but the temperature is fitted
FOLDS = 5
SURE = 2.0  # paired standard errors by which the repair must beat the temperature on held-out rows
LARGEST = 1e15  # a coefficient of a file; rows times rounds bound what can be fitted
OPTIONS = ("bins", "rate", "rounds", "seed")
RESULTS = ("temperature", "temperature_status", "coefficients", "steps", "status", "message", "gain")
KEYS = (*OPTIONS, *RESULTS)
RIDGE = 1.0  # imagined information of each auditor, in rows of variance 1


class RoutingRecalibration:
    """The converged temperature, then the steps on the predicted class's logit that routing calls for.

    Each round takes the auditor whose score (Σ g D)² / Σ g² f (1 − f), twice what a Newton step along it
    would gain, is largest, and makes `rate` of that step. Five-fold cross-validation chooses the number of
    rounds with the least held-out NLL; a fold's temperature and steps are fitted on the other folds, and what
    is gained there is counted after the rounds that the other folds choose. The repair is kept only where it
    beats the folds' temperatures by more than two paired standard errors; otherwise `transform` is the
    temperature's, and `status_` and `message_` say why:

    Args:
        bins: The nodes of an auditor's curve over confidence, less one.
        rate: The share of a Newton step that a round makes.
        rounds: The most rounds that cross-validation tries.
        seed: Which rows are in which fold. The same rows, seed and order give the same steps.

    Attributes:
        status_: "repaired"; "no gain": not that much better; "few rows": fewer than 200; "one outcome": the
            predicted class is always right, or always wrong, and every step towards certainty would win.
        message_: The same in a sentence.
        coefficients_: u_k and v_k at the nodes j / bins; zero where nothing is repaired. [2, K, bins + 1]
        rounds_: How many steps made them.
        curve_: What follows the steps, if anything: from p to how often p is right.
        gain_: The NLL that cross-validation takes off; NaN if not tried.
        gain_error_: Its paired standard error.

    Example:
        >>> from calmoe.worlds.binary import cancelling
        >>> world = cancelling(seed=0, delta=0.15, rule="leading")
        >>> rows = world.sample(4000, seed=0)
        >>> repair = RoutingRecalibration().fit(rows.output, rows.labels)
        >>> repair.status_, world.recalibrated(repair.transform).hidden < 0.7 * world.hidden
        ('repaired', True)
    """

    def __init__(self, bins: int = 10, rate: float = 0.5, rounds: int = 200, seed: int = 0) -> None:
        self.bins, self.rounds = check_bins(bins), as_count("rounds", rounds)
        self.rate = as_number("rate", rate, above=0, most=1)
        self.seed = as_count("seed", seed, 0, 2**32 - 1)
        self.temperature_: Temperature
        self.coefficients_: np.ndarray
        self.rounds_: int
        self.curve_: TopLabelIsotonic | None = None
        self.status_: str
        self.message_: str
        self.gain_: float
        self.gain_error_: float

    def fit(self, output: MixtureOutput, labels: Array) -> Self:
        """Fit on the mixture's `output` on validation data, and its `labels` [N]."""
        check_whole(output)
        self.temperature_ = Temperature().fit(output.log_probs, labels)
        self.rounds_, self.gain_, self.gain_error_ = 0, float("nan"), float("nan")
        labels = as_tensor(labels, output.log_probs.device).long()
        kept = possible(output.log_probs, labels)
        output, labels = output.take(kept), labels[kept]  # the temperature warned of the others
        event = _Event.of(output, self.temperature_)
        right = (event.predicted == labels).cpu().numpy()
        if len(right) < FEWEST_TO_REPAIR:
            self.status_ = "few rows"
        elif right.all() or not right.any():
            self.status_ = "one outcome"
        else:
            self.rounds_ = self._cross_validate(output, labels, right)
            self.status_ = "repaired" if self.rounds_ else "no gain"
        self.coefficients_ = np.zeros((2, output.log_routing.shape[1], self.bins + 1))
        for auditor, size in self._boost(event, right, self.rounds_):
            self.coefficients_.flat[auditor] += size
        change = f"{-self.gain_:+z.5f}".replace("-", "−")
        self.message_ = _MESSAGES[self.status_].format(
            rows=len(right), gain=self.gain_, change=change, error=self.gain_error_, steps=self.rounds_
        )
        return self

    @classmethod
    def after(
        cls, counts: Sequence[int], temperature: Temperature, output: MixtureOutput, labels: Array
    ) -> "list[RoutingRecalibration]":
        """One for each of `counts` of rounds, on top of this `temperature`; whoever asks does the choosing.

        On `output` and `labels` [N] the predicted class must be right on some rows and wrong on others.
        """
        event = _Event.of(output, temperature)
        right = (event.predicted == as_tensor(labels, event.predicted.device)).cpu().numpy()
        steps = cls()._boost(event, right, max(counts))
        fits = []
        for count in counts:
            fitted = cls(rounds=count)
            fitted.temperature_, fitted.rounds_, fitted.status_ = temperature, count, "repaired"
            fitted.gain_, fitted.gain_error_ = float("nan"), float("nan")
            fitted.message_ = f"{count} steps"
            fitted.coefficients_ = np.zeros((2, output.log_routing.shape[1], fitted.bins + 1))
            for auditor, size in steps[:count]:
                fitted.coefficients_.flat[auditor] += size
            fits.append(fitted)
        return fits

    def with_curve(self, output: MixtureOutput, labels: Array) -> "RoutingRecalibration":
        """The same with a rising curve after the steps, fitted on what `output` and `labels` say.

        Steps leave rows of equal p off, by what they have not learned; the curve mends that.
        """
        unchanged, fitted = Temperature(), copy.copy(self)
        unchanged.restore(1.0, "optimum", "status")
        fitted.curve_ = TopLabelIsotonic().fit_on(unchanged, self.transform(output).log_probs, labels)
        return fitted

    def transform(self, output: MixtureOutput) -> MixtureOutput:
        """The `output` with repaired log-probabilities of the mixture; routing and experts stay."""
        coefficients = self._fitted()
        check_whole(output)
        if coefficients.shape[1] != output.log_routing.shape[1]:
            raise InputError(
                f"fitted on {coefficients.shape[1]} experts, given {output.log_routing.shape[1]}"
            )
        tempered = self.temperature_.transform(output.log_probs)
        if not coefficients.any() and self.curve_ is None:
            return output._replace(log_probs=tempered)
        event = _Event.of(output, self.temperature_)
        shift = torch.as_tensor(event.shift(coefficients), device=tempered.device)
        scores = tempered.double().scatter_add(1, event.predicted[:, None], shift[:, None])
        moved = torch.log_softmax(scores, dim=1)
        if self.curve_ is not None:
            moved = self.curve_.transform(moved)
        return output._replace(log_probs=moved.to(tempered.dtype))

    @property
    def repaired(self) -> bool:
        """Whether anything beyond the temperature was kept."""
        return bool(self._fitted().any())

    def save(self, path: str | Path) -> None:
        """Write JSON."""
        write_json(path, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {
            "kind": "RoutingRecalibration",
            "bins": self.bins,
            "rate": self.rate,
            "rounds": self.rounds,
            "seed": self.seed,
            "temperature": self.temperature_.temperature_,
            "temperature_status": self.temperature_.status_,
            "coefficients": self._fitted().tolist(),
            "steps": self.rounds_,
            "status": self.status_,
            "message": self.message_,
            "gain": [self.gain_, self.gain_error_] if np.isfinite(self.gain_) else None,
            "curve": None if self.curve_ is None else self.curve_.to_dict(),
        }

    @classmethod
    def load(cls, path: str | Path) -> "RoutingRecalibration":
        """Read what `save` wrote."""
        saved = read_saved(path, "RoutingRecalibration", KEYS)
        with about(path):
            return cls.from_dict(saved)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "RoutingRecalibration":
        """What `to_dict` gave, checked."""
        fitted = cls(
            bins=whole("bins", saved["bins"], least=1),
            rate=number("rate", saved["rate"], above=0, most=1),
            rounds=whole("rounds", saved["rounds"], least=1),
            seed=whole("seed", saved["seed"]),
        )
        fitted._restore(saved)
        return fitted

    def _restore(self, saved: dict[str, Any]) -> None:
        """Take over the results in a file; the options are known already."""
        self.temperature_ = Temperature()
        self.temperature_.restore(saved["temperature"], saved["temperature_status"], "temperature_status")
        self.coefficients_ = numbers("coefficients", saved["coefficients"], (2, None, self.bins + 1))
        self.status_ = one_of("status", saved["status"], _MESSAGES)
        self.message_ = text("message", saved["message"])
        self.rounds_ = whole("steps", saved["steps"], most=self.rounds)
        if np.abs(self.coefficients_).max() > LARGEST:
            raise InputError(f"coefficients must lie between -{LARGEST:g} and {LARGEST:g}")
        if (self.status_ == "repaired") != (self.rounds_ > 0) or (not self.rounds_ and self.repaired):
            raise InputError("status, steps and coefficients must agree on whether anything is repaired")
        self.gain_ = self.gain_error_ = float("nan")
        if saved["gain"] is not None:
            gain = items("gain", saved["gain"], least=2, most=2)
            self.gain_, self.gain_error_ = (number("gain", each) for each in gain)
        if saved.get("curve") is not None:  # files of earlier versions have none
            self.curve_ = TopLabelIsotonic.from_dict(table("curve", saved["curve"], CURVE_KEYS))

    def _fitted(self) -> np.ndarray:
        if not hasattr(self, "coefficients_"):
            raise InputError("this RoutingRecalibration is not fitted: call fit(output, labels) first")
        return self.coefficients_

    def _cross_validate(self, output: MixtureOutput, labels: Tensor, right: np.ndarray) -> int:
        """The number of rounds with the least held-out NLL, 0 if it is not surely better than none."""
        n = len(right)
        fold = np.random.default_rng(self.seed).permutation(np.arange(n) % FOLDS)
        shape = FOLDS, self.rounds
        sums, squares = np.zeros(shape), np.zeros(shape)  # of the gains after 1, 2, … rounds, fold by fold
        for held_out in range(FOLDS):
            rest = torch.as_tensor(fold != held_out, device=labels.device)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                alone = Temperature().fit(output.log_probs[rest], labels[rest])
            taught, judged = (_Event.of(output.take(rows), alone) for rows in (rest, ~rest))
            design, logit = judged.design(self.bins), judged.logit.copy()
            won = right[fold == held_out]
            before = log_expit(np.where(won, logit, -logit))
            for i, (auditor, size) in enumerate(self._boost(taught, right[fold != held_out], self.rounds)):
                _move(logit, design, auditor, size)
                gain = log_expit(np.where(won, logit, -logit)) - before
                sums[held_out, i] = gain.sum()
                squares[held_out, i] = (gain**2).sum()
        total = sums.sum(axis=0)
        by_others = np.arange(FOLDS), (total - sums).argmax(axis=1)  # a fold has no say in its own rounds
        self.gain_ = float(sums[by_others].sum() / n)
        self.gain_error_ = float(max(squares[by_others].sum() / n - self.gain_**2, 0.0) / n) ** 0.5
        return int(total.argmax()) + 1 if self.gain_ > SURE * self.gain_error_ else 0

    def _boost(self, event: "_Event", right: np.ndarray, rounds: int) -> list[tuple[int, float]]:
        """Round by round, the auditor and the step along it."""
        if rounds == 0:
            return []
        design, logit, steps = event.design(self.bins), event.logit.copy(), []
        squared = design.power(2)
        for _ in range(rounds):
            probability = expit(logit)
            moments = design @ (right - probability)
            information = squared @ (probability * (1 - probability)) + RIDGE
            best = int((moments**2 / information).argmax())
            steps.append((best, float(self.rate * moments[best] / information[best])))
            _move(logit, design, *steps[-1])
        return steps


def _move(logit: np.ndarray, design: csr_array, auditor: int, size: float) -> None:
    entries = slice(*design.indptr[auditor : auditor + 2])
    logit[design.indices[entries]] += size * design.data[entries]


class _Event(NamedTuple):
    """ "The class that the tempered mixture predicts is right", and who says what about it."""

    predicted: Tensor  # [N]
    logit: np.ndarray  # [N] log f − log(1 − f), infinite where f is 1
    routing: np.ndarray  # [N, K]
    experts: np.ndarray  # [N, K] f_k

    @classmethod
    def of(cls, output: MixtureOutput, temperature: Temperature) -> "_Event":
        tempered = temperature.transform(output.log_probs.double())
        top, predicted = tempered.max(dim=1)
        others = tempered.scatter(1, predicted[:, None], -torch.inf).logsumexp(dim=1)
        picked = predicted.view(-1, 1, 1).expand(-1, output.log_routing.shape[1], 1)
        experts = output.expert_log_probs.gather(2, picked).squeeze(2).double().exp().clamp(max=1)
        logit, routing = top - others, output.log_routing.double().exp()
        return cls(predicted, *(part.cpu().numpy() for part in (logit, routing, experts)))

    def shift(self, coefficients: np.ndarray) -> np.ndarray:
        """Σ_k r_k (u_k(f) + v_k(f_k)). [N]"""
        nodes, confidence = np.linspace(0, 1, coefficients.shape[2]), expit(self.logit)
        total = np.zeros(len(self.logit))
        for routing, own, u, v in zip(self.routing.T, self.experts.T, *coefficients, strict=True):
            total += routing * (np.interp(confidence, nodes, u) + np.interp(own, nodes, v))
        return total

    def design(self, bins: int) -> csr_array:
        """All auditors, in the order of the coefficients. [2 K (bins + 1), N], 4 K entries a column"""
        confidence = np.broadcast_to(expit(self.logit)[:, None], self.routing.shape)
        at = np.stack([confidence, self.experts], axis=1) * bins  # [N, 2, K]
        left = np.minimum(at.astype(np.int32), bins - 1)
        part, routing = at - left, self.routing[:, None, :]
        data = np.stack([routing * (1 - part), routing * part], axis=-1)
        first = left + np.arange(2 * at.shape[2]).reshape(2, -1) * (bins + 1)
        columns = np.stack([first, first + 1], axis=-1)
        rows = np.arange(len(at) + 1) * data[0].size
        shape = len(at), at[0].size * (bins + 1)
        return csr_array((data.ravel(), columns.ravel(), rows), shape=shape).T.tocsr()


_MESSAGES = {
    "repaired": "{steps} steps; held-out NLL falls by {gain:.5f} ± {error:.5f} against the temperature's",
    "no gain": "on held-out rows the best repair changes the temperature's NLL by {change} ± "
    "{error:.5f}, no gain of two standard errors: the temperature alone is kept",
    "few rows": f"{{rows}} rows are fewer than {FEWEST_TO_REPAIR}: the temperature alone is kept",
    "one outcome": "the predicted class is always right or always wrong, so that any step towards certainty "
    "would win: the temperature alone is kept",
}
