"""Fragility: the worst calibration error over reweightings of the configurations within a KL radius.

F(ε) = sup { Σ_b |E[a(S) (m(S) − f) 1_b]| : E[a] = 1, KL(a) ≤ ε } = max over signs s of sup E[a s_b (m − f)],
and for given signs the best a is the exponential tilt of s_b (m − f). An adversary here chooses its signs on
earlier rows, tilts the judged rows by what was learned from earlier rows (`learning`), and is demonstrated
on the judged rows' labels: the mean of a s_b D is an unbiased estimate of an error that a reweighting within
the radius forces, and so of something no larger than F(ε). (Signs chosen on the judged rows' configurations,
even without their labels, would follow the accidents of the sample: too high by about E|m − f| √(bins/n).)
The signs are chosen once, before the first judged block: blocks that push a bin to opposite sides cancel,
and their densities together would be a reweighting that forces less than each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import RARE, Estimate, binned_gap, normal, within
from calmoe.auditing.statistics.sequential import Learned, learn
from calmoe.auditing.statistics.tilting import tilt
from calmoe.defaults import BINS, LEVEL

RADII = (0.0, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
SMALLEST = 0.01  # an ECE below one point counts as one point where "twice the ECE" is asked


class Seen(NamedTuple):
    """Rows as an adversary sees them; of the judged rows it never looks at `residual`."""

    expected: np.ndarray  # [n] ĥ(S)
    binned: np.ndarray  # [n] the bin of f
    region: np.ndarray  # [n] the leading expert
    value: np.ndarray  # [n] what a label-free adversary tilts
    residual: np.ndarray  # [n] Y − f
    noise: np.ndarray  # [n] f (1 − f)


Attack = Callable[[Seen, Seen, float, int, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""(past, now, radius, bins, signs) -> a density of mean 1 on the rows of now, and the signs [B] it pushes to.

Signs that are given are kept."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one kind of adversary forces, radius by radius; each point was demonstrated on labels.

    error: E[a s_b D], the signs s chosen without these labels: unbiased for the population's
        Σ_b s_b E[a D 1_b] ≤ F(ε); two-sided interval.
    ece: the ECE of the population under the density a, at equal-width bins, with `total_gap`'s interval.
    plain_ece: what `calmoe.metrics.ece` gives on the judged rows with a as weights; biased upward.
    effective: Kish's effective number of rows under a, (Σ a)² / Σ a².
    """

    name: str
    radii: np.ndarray  # [R]
    error: tuple[Estimate, ...]
    ece: tuple[Estimate, ...]
    plain_ece: np.ndarray  # [R]
    effective: np.ndarray  # [R]
    densities: np.ndarray  # [R, J] float32: the reweighting of the judged rows itself

    def reaches(self, error: float) -> Estimate:
        """The smallest radius, interpolated, at which the error is forced; infinite: not within the radii.

        Its interval: where the curve's upper ends reach the error, and where its lower ends do.
        """
        ends = (np.array([getattr(point, end) for point in self.error]) for end in ("value", "high", "low"))
        value, low, high = (self._crosses(values, error) for values in ends)
        return Estimate(value, low, high, float("nan"))

    def _crosses(self, values: np.ndarray, error: float) -> float:
        above = np.flatnonzero(values >= error)
        if not len(above):
            return float("inf")
        i = int(above[0])
        if i == 0:
            return float(self.radii[0])
        part = (error - values[i - 1]) / (values[i] - values[i - 1])
        return float(self.radii[i - 1] + part * (self.radii[i] - self.radii[i - 1]))


@dataclass(frozen=True, kw_only=True)
class Fragility:
    """The curves of four adversaries, and the one number to quote.

    configurations: knows what was learned about m(S) − f. regions: may only change how often each expert
    leads, the shifts that leave a hard-routed mixture calibrated. disagreement, entropy: tilt towards more or
    less of it; no label is needed to do so.
    doubling: the smallest KL at which the first curve reaches `doubled`: twice the ECE, or twice 0.01 where
    the ECE is smaller. Since the true curve lies above the demonstrated one, the true KL is below the
    interval's upper end, and may be below its lower one. Infinite: not within the radii.
    """

    configurations: Curve
    regions: Curve
    disagreement: Curve
    entropy: Curve
    rows: np.ndarray  # [J] the judged rows, in the order of `densities`
    doubled: float
    doubling: Estimate

    @property
    def curves(self) -> tuple[Curve, ...]:
        return self.configurations, self.regions, self.disagreement, self.entropy


def fragility(
    configurations: Configurations,
    learned: Learned | None = None,
    *,
    radii: tuple[float, ...] = RADII,
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    inside: Callable[[float], None] = lambda share: None,
) -> Fragility:
    """Attack and demonstrate; `learned` is worked out where not given, `inside` is told how far it is."""
    learned = learned or learn(configurations, seed)
    everywhere, residual = configurations.bins(bins), configurations.residual
    leading, noise = configurations.leading, configurations.noise

    def seen(rows: np.ndarray, expected: np.ndarray, values: np.ndarray) -> Seen:
        return Seen(expected, everywhere[rows], leading[rows], values[rows], residual[rows], noise[rows])

    def curve(name: str, attack: Attack, values: np.ndarray) -> Curve:
        inside(list(ATTACKS).index(name) / len(ATTACKS))
        blocks = [
            (
                part,
                seen(past, recalled, values),
                seen(learned.rows[part], learned.expected[part], values),
            )
            for part, past, recalled in zip(learned.parts(), learned.past, learned.recalled, strict=True)
        ]
        return _demonstrate(name, attack, blocks, radii, bins, level)

    values = {"disagreement": configurations.disagreement, "entropy": configurations.entropy}
    curves = {name: curve(name, attack, values.get(name, residual)) for name, attack in ATTACKS.items()}
    ece = binned_gap(residual, everywhere, bins, level=level, noise=noise)
    doubled = 2 * max(ece.value, SMALLEST)
    return Fragility(
        **curves,
        rows=learned.rows,
        doubled=doubled,
        doubling=curves["configurations"].reaches(doubled),
    )


def _pushed(expected: np.ndarray, index: np.ndarray, bins: int, density: np.ndarray) -> np.ndarray:
    """Σ a ĥ 1_b: which way, and how far, a density is expected to push each bin."""
    return np.bincount(index, density * expected, minlength=bins)


def _signs(pushed: np.ndarray) -> np.ndarray:
    return np.where(pushed >= 0, 1.0, -1.0)


def _best(starts: list[np.ndarray], push: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Of several sign patterns, each improved until it stays as it is, the one that pushes furthest.

    push: the bins' expected sums under the density that is best for the given signs.
    """
    best, furthest = starts[0], -np.inf
    for signs in starts:
        for _ in range(4):
            pushed = push(signs)
            improved = _signs(pushed)
            if (improved == signs).all():
                break
            signs = improved
        if np.abs(pushed).sum() > furthest:
            best, furthest = signs, np.abs(pushed).sum()
    return best


def _informed(
    past: Seen, now: Seen, radius: float, bins: int, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts s_b ĥ(S)."""
    if signs is not None:
        return tilt(signs[now.binned] * now.expected, radius), signs

    def push(signs: np.ndarray) -> np.ndarray:
        density = tilt(signs[past.binned] * past.expected, radius)
        return _pushed(past.expected, past.binned, bins, density)

    plain = _signs(np.bincount(past.binned, past.residual, minlength=bins))
    spread = float(past.expected.std())
    rate = np.sqrt(2 * radius) / spread if spread > 1e-6 else 0.0
    up, down = (
        np.bincount(past.binned, np.exp(sign * rate * past.expected), minlength=bins) for sign in (1, -1)
    )
    ones = np.ones(bins)
    signs = _best([plain, _signs(up - down), ones, -ones], push) if radius > 0 else plain
    return tilt(signs[now.binned] * now.expected, radius), signs


def _regional(
    past: Seen, now: Seen, radius: float, bins: int, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts the shares of the leading experts by the mean of s_b D in each region."""
    experts = int(max(past.region.max(), now.region.max())) + 1
    table = np.zeros((experts, bins))
    np.add.at(table, (past.region, past.binned), past.residual)
    shares, shares_now = (
        np.bincount(seen.region, minlength=experts) / len(seen.region) for seen in (past, now)
    )
    table /= len(past.region)  # E[D 1_k 1_b]

    def density(signs: np.ndarray, mass: np.ndarray) -> np.ndarray:
        return tilt(table @ signs / np.maximum(shares, 1e-12), radius, mass)

    ones = np.ones(bins)
    starts = [_signs(table.sum(axis=0)), ones, -ones, *map(_signs, table), *map(_signs, -table)]
    if signs is None:
        signs = _best(starts, lambda signs: density(signs, shares) @ table)
    return density(signs, shares_now)[now.region], signs


def _blind(
    past: Seen, now: Seen, radius: float, bins: int, signs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Tilts a value that needs no label, upward or downward, whichever did more in the past."""
    pushed = [
        _pushed(past.residual, past.binned, bins, tilt(sign * past.value, radius)) for sign in (1.0, -1.0)
    ]
    worse = int(np.argmax([np.abs(push).sum() if signs is None else signs @ push for push in pushed]))
    signs = _signs(pushed[worse]) if signs is None else signs
    return tilt((1.0, -1.0)[worse] * now.value, radius), signs


ATTACKS: dict[str, Attack] = {
    "configurations": _informed,
    "regions": _regional,
    "disagreement": _blind,
    "entropy": _blind,
}


def _demonstrate(
    name: str,
    attack: Attack,
    blocks: list[tuple[np.ndarray, Seen, Seen]],
    radii: tuple[float, ...],
    bins: int,
    level: float,
) -> Curve:
    """Each block under its own adversary; densities have mean 1 in each block, so that blocks weigh alike."""
    index = np.concatenate([now.binned for *_, now in blocks])
    residual, noise = (
        np.concatenate([getattr(now, name) for *_, now in blocks]) for name in ("residual", "noise")
    )
    errors, eces, plain, effective = [], [], [], []
    densities = np.ones((len(radii), len(residual)), np.float32)
    for i, radius in enumerate(radii):
        forced, variance, signs = 0.0, 0.0, None
        for part, past, now in blocks:
            density, signs = attack(past, now, radius, bins, signs)
            pushed = signs[now.binned] * now.residual
            here = float((density * pushed).mean())
            forced += here * len(part)
            seldom = min(float((density**2 * now.noise).sum()), RARE * float(density.max()) ** 2)
            variance += max(float((density**2 * (pushed - here) ** 2).sum()), seldom)
            densities[i, part] = density
        error = normal(forced / len(residual), variance**0.5 / len(residual), level)
        errors.append(within(error, -1.0, 1.0))
        weights = densities[i].astype(np.float64)
        eces.append(binned_gap(residual, index, bins, weights, level, noise=noise))
        plain.append(np.abs(np.bincount(index, weights * residual, minlength=bins)).sum() / weights.sum())
        effective.append(float(weights.sum() ** 2 / (weights**2).sum()))
    return Curve(
        name=name,
        radii=np.array(radii),
        error=tuple(errors),
        ece=tuple(eces),
        plain_ece=np.array(plain),
        effective=np.array(effective),
        densities=densities,
    )
