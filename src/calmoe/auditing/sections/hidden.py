"""Hidden miscalibration: E|m(S) − f| against the level-set error, which is all that an ECE sees.

sup over |g| ≤ 1 of E[(Y − f) g(S)] = E|m(S) − f|. So the mean of D g(S), with a witness g that was learned on
other rows, is an honest lower bound: it errs on the low side only, by what g has not learned. Several random
splits say which rows are the others; `splits` makes one answer of theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr
from sklearn.tree import DecisionTreeRegressor

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import (
    Estimate,
    at_least,
    binned_gap,
    normal,
    proportion,
    spread,
    within,
)
from calmoe.auditing.statistics.sequential import Learned, learn
from calmoe.auditing.statistics.splits import how_many, level_each, middle, one_bound, one_p_value, seeds
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError

STRATUM = 50  # rows of nearly equal confidence among which residuals are exchanged


@dataclass(frozen=True)
class Rule:
    """Configurations that a reader can name: how many they are, and which way they are off."""

    text: str
    share: Estimate
    gap: Estimate  # E[Y − f | rule]; the intervals of all rules of all splits hold together; shares' too


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """How much of the calibration is cancellation between configurations.

    level_set: Σ_b |E[D 1_b]|, the ECE of the population at equal-width bins; two-sided.
    witness: E[D g(S)] ≤ E|m(S) − f| for the learned g = sign of the expected m(S) − f; a lower bound.
    cancelled: E|m(S) − f| − Σ_b |E[D 1_b]|, what the ECE cannot see; a lower bound. The ECE of the judged
        rows is taken off as it is, biased upward, so that the bound errs on the low side.
    p_calibrated: of the null "calibrated in every configuration", m(S) = f: the sum of D ĥ(S) against its
        variance Σ ĥ² f (1 − f) under that null.
    p_hidden: of the null "given f, the configuration says nothing more": the same sum, both sides freed from
        what is linear in f, against its law when residuals are exchanged among rows of nearly equal f.
    splits: random splits of the rows; the numbers above are the middle ones of theirs, at a level or times a
        factor that pays for it (`calmoe.auditing.statistics.splits`). by_split: p_hidden of each split alone.
    rules: those of the split with the middle p_hidden.
    """

    level_set: Estimate
    witness: Estimate
    cancelled: Estimate
    p_calibrated: float
    p_hidden: float
    splits: int
    by_split: tuple[float, ...]
    rules: tuple[Rule, ...]


class _Split(NamedTuple):
    """What one split says."""

    witness: Estimate
    cancelled: Estimate
    p_calibrated: float
    p_hidden: float
    rules: tuple[Rule, ...]


def hidden(
    configurations: Configurations,
    learned: Learned | None = None,
    *,
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    splits: int | None = None,
    inside: Callable[[float], None] = lambda share: None,
) -> Hidden:
    """Measure it; `learned`, of the first split, is worked out where it is not given.

    splits: an odd number; fewer for many rows where not given. `inside` hears how far it is.
    """
    splits = how_many(len(configurations)) if splits is None else splits
    if splits < 1 or splits % 2 == 0:
        raise InputError(f"splits must be an odd number, so that one is in the middle; got {splits}")
    found = []
    for r, own in enumerate(seeds(seed, splits)):
        inside(r / splits)
        if r > 0 or learned is None:
            learned = learn(configurations, own)
        found.append(_split(configurations, learned, bins, level, own, splits))
    p_hidden = tuple(split.p_hidden for split in found)
    index, noise = configurations.bins(bins), configurations.noise
    return Hidden(
        level_set=binned_gap(configurations.residual, index, bins, level=level, noise=noise),
        witness=one_bound([split.witness for split in found]),
        cancelled=one_bound([split.cancelled for split in found]),
        p_calibrated=one_p_value([split.p_calibrated for split in found]),
        p_hidden=one_p_value(p_hidden),
        splits=splits,
        by_split=p_hidden,
        rules=found[middle(p_hidden)].rules,
    )


def _split(
    configurations: Configurations, learned: Learned, bins: int, level: float, seed: int, splits: int
) -> _Split:
    residual, index = configurations.residual, configurations.bins(bins)
    judged, binned = residual[learned.rows], index[learned.rows]
    witness = np.where(learned.expected >= 0, 1.0, -1.0)
    signs = np.where(np.bincount(binned, judged, minlength=bins) >= 0, 1.0, -1.0)
    noise, each = configurations.noise[learned.rows], level_each(level, splits)
    return _Split(
        witness=_lower(judged, witness, noise, each),
        cancelled=_lower(judged, witness - signs[binned], noise, each),
        p_calibrated=_p_calibrated(judged, configurations.confidence[learned.rows], learned.expected),
        p_hidden=_p_hidden(configurations, learned, seed),
        rules=_rules(configurations, learned, index, bins, 1 - (1 - level) / splits),
    )


def _lower(residual: np.ndarray, weights: np.ndarray, noise: np.ndarray, level: float) -> Estimate:
    """A bound from below on E[w D]."""
    values = weights * residual
    return at_least(float(values.mean()), spread(values, weights**2 * noise), level)


def _p_calibrated(residual: np.ndarray, confidence: np.ndarray, expected: np.ndarray) -> float:
    variance = float((expected**2 * confidence * (1 - confidence)).sum())
    score = float((residual * expected).sum())
    return float(ndtr(-score / variance**0.5)) if variance > 0 else float(score <= 0)


def _p_hidden(configurations: Configurations, learned: Learned, seed: int) -> float:
    """Within a stratum of m rows, let u and e be ĥ and D less their lines in f: Σ u e has mean 0.

    Were f not taken out, an ECE that changes inside a stratum would pass for something hidden. The e are
    exchanged (Freedman and Lane), which gives Σ u e the variance SS_u SS_e / (m − 2); or, where the noise
    changes with u, Σ u² e² m / (m − 2). The larger of the two, over all strata, counts.
    """
    confidence, residual = configurations.confidence[learned.rows], configurations.residual[learned.rows]
    score = exchanged = own = 0.0
    ties = np.random.default_rng(seed).random(len(confidence))
    for part in learned.parts():
        order = part[np.lexsort((ties[part], confidence[part]))]
        stratum = np.arange(len(order)) * max(len(order) // STRATUM, 1) // len(order)
        counts = np.bincount(stratum)
        f = _centred(confidence[order], stratum, counts)
        left, right = (
            _detrended(_centred(values[order], stratum, counts), f, stratum)
            for values in (learned.expected, residual)
        )
        free = np.maximum(counts - 2, 1)
        score += float((left * right).sum())
        squares = np.bincount(stratum, left**2) * np.bincount(stratum, right**2)
        exchanged += float((squares / free).sum())
        own += float((np.bincount(stratum, (left * right) ** 2) * counts / free).sum())
    variance = max(exchanged, own)
    return float(ndtr(-score / variance**0.5)) if variance > 0 else 1.0


def _centred(values: np.ndarray, stratum: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return values - (np.bincount(stratum, values) / counts)[stratum]


def _detrended(values: np.ndarray, f: np.ndarray, stratum: np.ndarray) -> np.ndarray:
    """values less their line in f, stratum by stratum, rounding taken for zero; both are centred."""
    squares = np.bincount(stratum, f**2)
    slope = np.bincount(stratum, values * f) / np.where(squares > 1e-16, squares, np.inf)
    left = values - slope[stratum] * f
    return np.where(np.abs(left) > 1e-12, left, 0.0)


def _rules(
    configurations: Configurations, learned: Learned, index: np.ndarray, bins: int, level: float
) -> tuple[Rule, ...]:
    """A small tree on what can be read, grown on the first block for what lies beyond the bins' own gaps.

    Shares and gaps are those of the judged rows; of n rules, each interval has level 1 − (1 − level)/n.
    """
    experts, residual = configurations.num_experts, configurations.residual
    leads = configurations.leading[:, None] == np.arange(experts if experts > 1 else 0)
    columns = {
        "routing entropy": configurations.entropy,
        "disagreement": configurations.disagreement,
        "plain average − mixture": configurations.dissent,
    }
    readable = np.column_stack([leads, *columns.values()])
    names = [*(f"expert {k} leads" for k in range(leads.shape[1])), *columns]
    taught, judged = learned.taught, learned.rows
    counts = np.bincount(index[taught], minlength=bins)
    gaps = np.bincount(index[taught], residual[taught], minlength=bins) / np.maximum(counts, 1)
    least = max(50, len(taught) // 20)
    tree = DecisionTreeRegressor(max_leaf_nodes=6, min_samples_leaf=least, random_state=0)
    tree.fit(readable[taught], residual[taught] - gaps[index[taught]])
    leaf = tree.apply(readable[judged].astype(np.float32))
    found = np.unique(leaf)
    rules = []
    for node in found:
        rows = judged[leaf == node]
        inside, each = residual[rows], 1 - (1 - level) / len(found)
        error = spread(inside, configurations.noise[rows])
        gap = within(normal(float(inside.mean()), error, each), -1.0, 1.0)
        share = proportion(len(rows) / len(judged), len(judged), each)
        rules.append(Rule(_path(tree.tree_, int(node), names), share, gap))
    return tuple(sorted(rules, key=lambda rule: -abs(rule.gap.value * rule.share.value)))


def _path(tree: object, leaf: int, names: list[str]) -> str:
    """The conditions on the way to a leaf, in words; only the tightest bound of each feature."""
    left, right = tree.children_left, tree.children_right  # type: ignore[attr-defined]
    feature, threshold = tree.feature, tree.threshold  # type: ignore[attr-defined]
    parent = {int(child): node for side in (left, right) for node, child in enumerate(side) if child >= 0}
    words: dict[tuple[int, bool], str] = {}
    node = leaf
    while node in parent:
        above = parent[node]
        name, upper = names[feature[above]], int(left[above]) == node
        if name.endswith("leads"):
            text = f"not {name}" if upper else name
        else:
            value = f"{threshold[above]:.3g}".replace("-", "−")
            text = f"{name} {'≤' if upper else '>'} {value}"
        words.setdefault((int(feature[above]), upper), text)  # from the leaf upward: the tightest comes first
        node = above
    told = list(dict.fromkeys(reversed(words.values())))
    if any(word.startswith("expert") for word in told):
        told = [word for word in told if not word.startswith("not expert")]
    return " and ".join(told) or "all configurations"
