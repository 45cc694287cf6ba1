"""The class-wise, the experts' and the smooth ECE with intervals: gaps of cells that overlap.

The class-wise ECE and the experts' average ECE are sums of |E[v 1_cell]| where a row lies in several cells,
one a class or one an expert; the smooth ECE is an integral of |E[D K_σ(t, f)]|. `total_gap` estimates all of
them from the gaps and their covariance.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from calmoe.auditing.configurations import CHUNK, Configurations
from calmoe.auditing.statistics.estimates import RARE, Estimate, ece_from
from calmoe.defaults import BINS, LEVEL
from calmoe.metrics.binned import subtract_label, width_bins
from calmoe.metrics.smooth import diffused, on_grid, smooth_ece, to_cosines
from calmoe.predictions import Predictions

ROWS = 100_000  # rows that give the correlations between cells; all rows give the variances
MOST_GAPS = 3000  # cells: with more, their correlations count as zero
GRID = 256  # intervals of [0, 1] for the kernel
NARROWEST = 0.01  # bandwidth

Cells = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Some rows, [n, P] each: the cells a row lies in, what it adds to them, and the expected variance."""


def celled_gap(
    chunks: Iterable[Cells], size: int, rows: int, level: float = LEVEL, *, unit: float = 1.0
) -> Estimate:
    """Σ_cells |E[v 1_cell]| of the population, with `total_gap`'s interval; each row lies in P of the cells.

    unit: the most that a row can add to a cell. As in `binned_gap`, a cell has one imagined row, and at least
    the expected spread, up to RARE errors.

    >>> index, value = np.repeat([[0], [1]], 50, axis=0), np.repeat([[0.1], [-0.2]], 50, axis=0)
    >>> round(celled_gap([(index, value, 0 * value)], 2, 100).value, 2)  # half 0.1 off, half 0.2
    0.15
    """
    sums, products = np.zeros((4, size)), Products(size)
    stride, offset = -(-rows // ROWS), 0
    for cells, values, noise in chunks:
        sums += in_cells((cells, values, noise), size)
        some = slice((-offset) % stride, None, stride)
        offset += len(cells)
        products.add(cells[some], values[some])
    return gap_of_sums(sums, products, rows, level, unit=unit)


def in_cells(cells: Cells, size: int) -> np.ndarray:
    """Σ v, Σ v², Σ noise and rows of each cell. [4, size]"""
    index, values, noise = (part.ravel() for part in cells)
    parts = (values, values**2, noise, None)
    return np.stack([np.bincount(index, part, minlength=size).astype(np.float64) for part in parts])


class Products:
    """The mean over some rows of what a row adds to one cell times what it adds to another."""

    def __init__(self, size: int) -> None:
        self.size, self.total, self.rows = size, csr_array((size, size)), 0

    @property
    def few(self) -> bool:
        """Whether the cells are few enough for their correlations to count."""
        return self.size <= MOST_GAPS

    def add(self, cells: np.ndarray, values: np.ndarray) -> None:
        """Rows, [n, P] each: their cells, and what they add to them."""
        if self.few:
            ends = np.arange(0, cells.size + 1, cells.shape[1])
            table = csr_array((values.ravel(), cells.ravel(), ends), shape=(len(cells), self.size))
            self.total, self.rows = self.total + table.T @ table, self.rows + len(cells)

    def between(self, used: np.ndarray) -> np.ndarray:
        """Of each two of the cells `used` [U]. [U, U]"""
        return np.asarray(self.total[used][:, used].toarray()) / max(self.rows, 1)


def gap_of_sums(
    sums: np.ndarray, products: Products, rows: int, level: float, *, unit: float = 1.0
) -> Estimate:
    """`celled_gap`, from the sums of all rows in cells [4, size] and the products of some."""
    used = np.flatnonzero(sums[3])
    gaps, squares, expected, counts = sums[:, used] / rows
    if products.few:
        covariance = products.between(used) - np.outer(gaps, gaps)
    else:
        covariance = np.diag(squares - gaps**2)
    imagined = np.maximum(squares / counts, 0.05 * unit**2) / rows
    unseen = np.maximum(np.minimum(expected, RARE * unit**2 / rows) - squares, 0.0)
    safe = squares - gaps**2 + imagined + unseen
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.divide(np.sqrt(safe), errors, out=np.zeros_like(errors), where=errors > 0)
    covariance *= np.outer(scale, scale)  # correlations of some rows, variances of all
    np.fill_diagonal(covariance, safe)
    return ece_from(gaps, covariance / rows, level)


# --- cells that overlap: a row lies in one a class, or one an expert ----------------------------------------


def cells_of_classes(log_probs: Tensor, labels: Tensor, bins: int) -> Cells:
    """For each row and class: its bin, what the row adds to the class-wise ECE, and the expected variance."""
    probs, classes = log_probs.double().exp().clamp(max=1), log_probs.shape[1]
    gaps = -subtract_label(probs, labels).numpy() / classes
    noise = (probs * (1 - probs)).numpy() / classes**2
    return (width_bins(probs, bins) + bins * torch.arange(classes)).numpy(), gaps, noise


def cells_of_experts(confidence: np.ndarray, outcome: np.ndarray, routing: np.ndarray, bins: int) -> Cells:
    """For each row and expert: its bin, what the row adds to the experts' ECE, and the expected variance."""
    own, weight = confidence.astype(np.float64), routing.astype(np.float64)
    index = width_bins(torch.as_tensor(confidence), bins).numpy() + bins * np.arange(own.shape[1])
    return index, weight * (outcome - own), weight**2 * own * (1 - own)


def classwise(predictions: Predictions, *, bins: int = BINS, level: float = LEVEL) -> Estimate:
    """The mean over classes of Σ_b |E[(1[y = c] − p_c) 1_b]|: the class-wise ECE of the population."""
    logs, labels, classes = predictions.output.log_probs, predictions.known_labels, predictions.num_classes
    chunks = (cells_of_classes(logs[rows], labels[rows], bins) for rows in _chunks(len(predictions)))
    return celled_gap(chunks, classes * bins, len(predictions), level, unit=1 / classes)


def experts_gap(configurations: Configurations, *, bins: int = BINS, level: float = LEVEL) -> Estimate:
    """Σ_k Σ_b |E[r_k D_k 1_b]|: the experts' ECE on their views, averaged by their shares E[r_k]."""
    own, right, routing = configurations.own_confidence, configurations.own_outcome, configurations.routing
    assert right is not None
    chunks = (
        cells_of_experts(own[rows], right[rows], routing[rows], bins) for rows in _chunks(len(configurations))
    )
    return celled_gap(chunks, configurations.num_experts * bins, len(configurations), level)


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, rows, CHUNK))


def smooth(
    configurations: Configurations, *, bandwidth: float | None = None, level: float = LEVEL
) -> Estimate:
    """∫ |E[D K_σ(t, f)]| dt at the bandwidth σ, taken as fixed, with `total_gap`'s interval.

    By default σ is the one that Blasiok and Nakkiran's smooth ECE chooses, or 0.01 if that is more.
    """
    f, residual = configurations.confidence, configurations.residual
    if bandwidth is None:
        two = np.stack([1 - f, f], axis=1)
        bandwidth = max(smooth_ece(two, configurations.known_outcome.astype(np.int64), of=1), NARROWEST)
    kernel, n = smoothing(bandwidth), len(f)

    def spread_out(values: np.ndarray) -> np.ndarray:
        return on_grid(torch.as_tensor(f), torch.as_tensor(values), GRID)

    squares, noise = spread_out(residual**2), spread_out(configurations.noise)
    expected = float(noise.sum())
    if min(expected, RARE) > squares.sum():  # errors expected even where the rows show none
        squares = noise * min(expected, RARE) / expected
    squares += 0.05 * spread_out(np.ones(n)) / n  # one imagined row
    gaps = kernel @ spread_out(residual) / n
    covariance = (kernel * squares) @ kernel.T / n**2 - np.outer(gaps, gaps) / n
    return ece_from(gaps, covariance, level)


def smoothing(bandwidth: float) -> np.ndarray:
    """The map from masses at grid points to their smoothed density times the trapezoid's weights.

    >>> bool(np.allclose(smoothing(0.1).sum(axis=0), 1))  # no mass is lost
    True
    """
    kernel = diffused(to_cosines(np.eye(GRID + 1)), bandwidth) / GRID
    kernel[[0, -1]] /= 2
    return kernel
