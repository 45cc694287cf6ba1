"""Scores that are linear in log-probabilities, z = W log f + b: what they do, and the W and b of least NLL.

W = diag(w) is vector scaling, W = I / T one temperature. A fit starts from the temperature and pays for
leaving it: little for w, `strength` for b and everything off the diagonal.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import Array, as_tensor, widen
from calmoe.calibration.temperature_solvers import check_scores, prepare, solve_exactly
from calmoe.errors import InputError
from calmoe.metrics.scores import possible

FLOOR = -104.0  # log of the smallest float32 number, about: a smaller probability counts as that
LARGEST_TEMPERATURE = 1e6
LARGEST = 1e9  # a weight or intercept of a file
MOST_FULL = 24  # classes: with more, only RANK directions of log f reach other classes
RANK = 8
CONVERGED = {"maxiter": 500, "maxfun": 1000, "gtol": 1e-5, "ftol": 1e-9}
LEAST_SPREAD = 1e-9  # the standard deviation below which a column counts as constant


class Weights(NamedTuple):
    """z = W log f + b."""

    matrix: np.ndarray  # [C, C], or [C] for a diagonal
    intercepts: np.ndarray  # [C]


class Labelled(NamedTuple):
    """Rows to learn from."""

    logs: np.ndarray  # [N, C] log f, at least FLOOR
    labels: np.ndarray  # [N]
    slope: float  # 1 / T of the temperature of least NLL


def log_distribution(log_probs: Array) -> Tensor:
    """log softmax in float64, no entry below FLOOR. [N, C]"""
    scores = as_tensor(log_probs)
    check_scores(scores)
    return torch.log_softmax(scores.double(), dim=1).clamp_(min=FLOOR)


def labelled(log_probs: Array, labels: Array) -> Labelled:
    """The rows whose label is possible, and their temperature; a CalibrationWarning counts the others."""
    problem = prepare(log_probs, labels, None)
    scores, places = as_tensor(log_probs), as_tensor(labels).long()
    kept = possible(scores, places)
    temperature, _ = solve_exactly(*problem, largest=LARGEST_TEMPERATURE)
    return Labelled(log_distribution(scores[kept]).numpy(), places[kept].cpu().numpy(), 1 / temperature)


def scale(log_probs: Array, weights: Weights) -> Tensor:
    """log softmax(W log f + b), in at least float32. [N, C]"""
    logs = log_distribution(log_probs)
    classes = len(weights.intercepts)
    if logs.shape[1] != classes:
        raise InputError(f"fitted on {classes} classes, given {logs.shape[1]}")
    matrix, intercepts = (torch.as_tensor(part, device=logs.device) for part in weights)
    scores = linear_scores(logs, matrix, intercepts)
    return torch.log_softmax(scores, dim=1).to(widen(as_tensor(log_probs)).dtype)


def linear_scores(log_probs: Tensor, matrix: Tensor, intercepts: Tensor) -> Tensor:
    """W log f + b, no log f below FLOOR. [N, C]"""
    logs = log_probs.clamp(min=FLOOR)
    return (logs * matrix if matrix.ndim == 1 else logs @ matrix.T) + intercepts


def fit_diagonal(rows: Labelled) -> Weights:
    """Vector scaling; one imagined row ties w and b to the temperature: there always is an optimum."""
    return _Problem(rows, directions=None).solve(strength=0.0, start=None)[0]


def fit_matrices(rows: Labelled, strengths: Sequence[float]) -> list[Weights]:
    """Matrix scaling at each strength; each fit starts where the one before ended."""
    logs, classes = rows.logs, rows.logs.shape[1]
    directions = np.eye(classes)
    if classes > MOST_FULL:
        centred = (logs - logs.mean(axis=0)) / _spread(logs)
        _, vectors = np.linalg.eigh(centred.T @ centred / len(logs))
        directions = vectors[:, ::-1][:, :RANK]
    problem, fits, start = _Problem(rows, directions), [], None
    for strength in strengths:
        weights, start = problem.solve(strength, start)
        fits.append(weights)
    return fits


def _spread(logs: np.ndarray) -> np.ndarray:
    spread = logs.std(axis=0)
    return np.where(spread > LEAST_SPREAD, spread, 1.0)


class _Problem:
    """Mean NLL of z = log f / T + (u + A D') x + b, x the standardised log f, plus the price of u, A and b.

    u stretches a class's own column, A [C, R] takes R directions D [C, R] of x to every class. Classes come
    before rows in every array: sums over few classes are then quick.
    """

    def __init__(self, rows: Labelled, directions: np.ndarray | None) -> None:
        self.rows, self.directions = rows, directions
        self.middle, self.spread = rows.logs.mean(axis=0), _spread(rows.logs)
        self.known = np.ascontiguousarray(rows.slope * rows.logs.T)  # [C, N]
        self.columns = np.ascontiguousarray(((rows.logs - self.middle) / self.spread).T)
        self.seen = None if directions is None else directions.T @ self.columns  # [R, N]
        self.classes, self.rank = len(self.columns), 0 if directions is None else directions.shape[1]

    def solve(self, strength: float, start: np.ndarray | None) -> tuple[Weights, np.ndarray]:
        """W and b, and where to start the next fit."""
        from scipy.optimize import minimize  # takes its time to import

        c, n = self.columns.shape
        prices = np.full(c * (2 + self.rank), strength)
        prices[:c] = 0.0
        prices += 1 / n
        picked = self.rows.labels, np.arange(n)

        def loss(at: np.ndarray) -> tuple[float, np.ndarray]:
            stretch, intercepts, across = self._parts(at)
            scores = stretch[:, None] * self.columns
            scores += self.known
            if self.seen is not None:
                scores += across @ self.seen
            scores += intercepts[:, None]
            scores -= scores.max(axis=0)
            of_labels = scores[picked].sum()
            probs = np.exp(scores, out=scores)
            sums = probs.sum(axis=0)
            value = float(np.log(sums).sum() - of_labels) / n
            probs /= sums
            probs[picked] -= 1
            slopes = [np.einsum("cn,cn->c", probs, self.columns), probs.sum(axis=1)]
            if self.seen is not None:
                slopes.append((probs @ self.seen.T).ravel())
            return value + 0.5 * float(prices @ at**2), np.concatenate(slopes) / n + prices * at

        begin = np.zeros(len(prices)) if start is None else start
        end = minimize(loss, begin, jac=True, method="L-BFGS-B", options=CONVERGED).x
        return self._weights(*self._parts(end)), end

    def _parts(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        c = self.classes
        return at[:c], at[c : 2 * c], at[2 * c :].reshape(c, self.rank)

    def _weights(self, stretch: np.ndarray, intercepts: np.ndarray, across: np.ndarray) -> Weights:
        """In terms of log f itself."""
        own = self.rows.slope + stretch / self.spread
        if self.directions is None:
            return Weights(own, intercepts - stretch / self.spread * self.middle)
        change = (np.diag(stretch) + across @ self.directions.T) / self.spread
        matrix = self.rows.slope * np.eye(self.classes) + change
        return Weights(matrix, intercepts - change @ self.middle)
