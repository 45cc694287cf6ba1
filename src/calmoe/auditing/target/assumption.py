"""Test whether E[Y | S] is the same on the target, as every prediction assumes; a few labelled rows do.

If it is, residuals Y − m(S) have the same weighted mean along every direction g(S), on target rows and on
source rows weighted by a(S): E_target[g (Y − m)] = E_source[a g (Y − m)], whatever the learned m lacks. The
directions are g = 1, the confidence f, and the learned m − f; the last two standardised. Both sides use the
same m and g: a source row those of the folds without it, a target row the average over all folds.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import f as fisher
from scipy.stats import norm

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import Estimate, normal, within
from calmoe.auditing.statistics.splits import FEWER, one_p_value, seeds
from calmoe.auditing.target.cross_fit import cross_fitted
from calmoe.auditing.target.density import DensityRatio, density_ratio
from calmoe.defaults import LEVEL

FEWEST_LABELLED = 30  # labelled target rows that the test needs


@dataclass(frozen=True, kw_only=True)
class Plausibility:
    """Whether labelled target rows contradict the assumption that E[Y | S] is the same.

    Attributes:
        rows: The labelled target rows.
        p_value: Of the null that E[Y | S] is the same, by all directions together (Hotelling's T²); over
            several `splits`, c times the middle one (`statistics.splits`). All else comes from the first
            split.
        discrepancy: The accuracy of the labelled target rows less the prediction for them.
        along_confidence: The same, times the standardised f.
        along_gap: The same, times the learned m − f.
        detectable: The discrepancy that the first direction alone finds four times in five; a smaller one
            usually stays unseen, and so does one that averages out along all three directions.
        splits: Random splits of the rows.

    Example:
        >>> off, level = Estimate(-0.2, -0.25, -0.15, 0.03), Estimate(0.0, -0.05, 0.05, 0.03)
        >>> along = {"along_confidence": level, "along_gap": level}
        >>> test = Plausibility(rows=300, p_value=1e-6, discrepancy=off, **along, detectable=0.08)
        >>> test.discrepancy.high < 0  # right less often than predicted
        True
    """

    rows: int
    p_value: float
    discrepancy: Estimate
    along_confidence: Estimate
    along_gap: Estimate
    detectable: float
    splits: int = 1


def plausibility(
    labelled: Configurations,
    gaps: np.ndarray,
    source: Configurations,
    source_gap: np.ndarray,
    ratio: DensityRatio,
    level: float = LEVEL,
) -> Plausibility:
    """gaps: the learned m − f of the labelled target rows, by fold [folds, L]; source_gap: of source rows."""
    rows = len(labelled)
    centre_f, centre_gap = labelled.confidence.mean(), gaps.mean()
    scale_f, scale_gap = (max(float(values.std()), 1e-9) for values in (labelled.confidence, gaps))

    def along(confidence: np.ndarray, learned: np.ndarray) -> np.ndarray:
        columns = [
            np.ones(len(learned)),
            (confidence - centre_f) / scale_f,
            (learned - centre_gap) / scale_gap,
        ]
        return np.stack(columns, axis=1)

    there = np.mean(
        [along(labelled.confidence, gap) * (labelled.residual - gap)[:, None] for gap in gaps], axis=0
    )
    here = along(source.confidence, source_gap) * (source.residual - source_gap)[:, None]
    share = (ratio.weights / ratio.weights.sum())[:, None]
    corrections = (share * here).sum(axis=0)
    influence = share * (here - corrections)
    difference = there.mean(axis=0) - corrections
    covariance = np.cov(there.T) / rows + influence.T @ influence
    errors = np.sqrt(np.diag(covariance))
    statistic = float(difference @ np.linalg.pinv(covariance) @ difference)
    size = len(difference)
    p_value = float(fisher.sf(statistic * (rows - size) / (size * (rows - 1)), size, rows - size))
    estimates = [normal(float(d), float(e), level) for d, e in zip(difference, errors, strict=True)]
    return Plausibility(
        rows=rows,
        p_value=p_value,
        discrepancy=within(estimates[0], -1.0, 1.0),
        along_confidence=estimates[1],
        along_gap=estimates[2],
        detectable=float((norm.ppf((1 + level) / 2) + norm.ppf(0.8)) * errors[0]),
    )


def over_splits(
    first: Plausibility,
    labelled: Configurations,
    here: Configurations,
    there: Configurations,
    level: float,
    seed: int,
) -> Plausibility:
    """The first split's test with the p-value of several, each of which learns its own ratio and m − f."""
    p_values, features, asked = [first.p_value], here.features(), [labelled.features()]
    for split_seed in seeds(seed, FEWER)[1:]:
        ratio = density_ratio(here, there, level=level, seed=split_seed)
        (learned,) = cross_fitted(features, asked, here.residual, ratio.fold, split_seed)
        p_values.append(plausibility(labelled, learned.by_fold, here, learned.source, ratio, level).p_value)
    return replace(first, p_value=one_p_value(p_values), splits=len(p_values))
