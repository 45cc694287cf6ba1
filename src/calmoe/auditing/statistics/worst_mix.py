"""A search for the mix of rows that is calibrated worst, among products of tilts of the factors' levels.

For given signs s of the bins the tilt that raises E[a s_b (Y − f)] most at first is along s_b (Y − f) itself;
the nearest that levels can say is its additive regression on them. Ridge keeps rare levels from following
noise. The signs come from the bins' gaps, all up, or all down, and follow the mix found so far.
"""

import numpy as np

from calmoe.auditing.statistics.mixes import Cells

RIDGE = 60.0  # rows: the noise of a row, about 0.15, over the square of a gap that is worth finding, 0.05
ROUNDS = 3
HALVINGS = 40
FURTHEST = 60.0  # of the scale of a tilt


def worst_tilt(cells: Cells, budget: float) -> list[list[np.ndarray]]:
    """Candidates: for each factor the log tilt of each level; none where no factor tells rows apart."""
    if not cells.level.shape[1]:
        return []
    gap = cells.outcome - cells.confidence
    sizes = np.array(cells.levels)
    ends = np.cumsum(sizes)
    columns = cells.level + (ends - sizes)
    design = np.zeros((len(cells.count), int(ends[-1])))
    np.put_along_axis(design, columns, 1.0, axis=1)
    tilts = []
    up = np.ones(cells.bins)
    for start in (np.bincount(cells.bin, gap, minlength=cells.bins), up, -up):
        signs, density = np.where(start >= 0, 1.0, -1.0), np.ones(len(gap))
        for _ in range(ROUNDS):
            weight = density * cells.count
            pushed = density * signs[cells.bin] * gap
            pushed = pushed - weight * (pushed.sum() / weight.sum())
            gram = design.T @ (design * weight[:, None]) + RIDGE * np.eye(len(design.T))
            slopes = np.linalg.solve(gram, design.T @ pushed)
            direction = design @ slopes
            widest = float(np.abs(direction).max())
            if widest < 1e-12:
                break
            scale = _scale(cells, direction / widest, budget)
            tilts.append(np.split(scale * slopes / widest, ends[:-1]))
            density = cells.density(scale * direction / widest)[0]
            signs = np.where(np.bincount(cells.bin, density * gap, minlength=cells.bins) >= 0, 1.0, -1.0)
    return tilts


def _scale(cells: Cells, direction: np.ndarray, budget: float) -> float:
    """How far along the direction the budget reaches."""
    low, high = 0.0, FURTHEST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cells.density(middle * direction)[1] <= budget else (low, middle)
    return low
