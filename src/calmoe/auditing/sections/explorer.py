"""The audit's section behind the shift explorer: what other mixes of the same rows would do to calibration.

The factors are confidence, agreement of the experts, leading expert, predicted class and groups. Rows are
counted in cells (`statistics.mixes`), from which page and Python compute the same exact numbers for any mix.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from calmoe.arrays import UNSAVED
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.event import class_titles
from calmoe.auditing.sections.section import Findings, Inside, Material, Section
from calmoe.auditing.statistics.after_answer import known_before
from calmoe.auditing.statistics.group_columns import named
from calmoe.auditing.statistics.mixes import Cells, Mix, Settings
from calmoe.auditing.statistics.worst_mix import worst_tilt
from calmoe.defaults import BINS
from calmoe.metrics.checks import Of
from calmoe.metrics.groups import column_groups
from calmoe.predictions import Predictions

BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # Kullback-Leibler divergences
USUAL = 3  # the budget that the page begins with, 0.1 as in all sentences
MOST_CELLS = 8000
MOST_LEVELS = (10, 3, 1)  # of a factor, as many as fit into the cells; the rest is one more
MOST_ASKED = 8  # experts of which pairs are looked at
MOST_COLUMNS = 3  # of groups
BANDS = 4  # of confidence
APART = 0.05  # experts whose answers spread by less agree
LIMIT, STEP = 3.0, 0.1  # of a slider, in log t: from a twentieth to twenty times as many


class Factor(NamedTuple):
    """What a mix can change; phrases continue "more rows …"."""

    title: str
    levels: tuple[str, ...]
    phrases: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Explorer:
    """The cells, the factors, and the worst mix that was found for each budget, as slider positions."""

    factors: tuple[Factor, ...]
    budgets: tuple[float, ...]
    worst: tuple[Settings, ...]
    left_out: tuple[str, ...]
    cells: Cells = field(metadata=UNSAVED)

    def describe(self, mix: Mix) -> str:
        """In words, what there is more of: of each factor the level that grows most, three at most."""
        before, moves = self.cells.mix().shares, []
        for factor, now, then in zip(self.factors, mix.shares, before, strict=True):
            at = int(np.argmax(now - then))
            moves.append((round(float(now[at] - then[at]), 6), factor.phrases[at], then[at], now[at]))
        moves = sorted((move for move in moves if move[0] >= 0.01), key=lambda move: -move[0])[:3]
        if not moves:
            return "the rows as they are"
        said = (f"{phrase} ({_whole(then)} → {_whole(now)})" for _, phrase, then, now in moves)
        return "more rows " + ", ".join(said)


def _whole(share: float) -> str:
    return f"{int(100 * share + 0.5)} %"


def explorer(
    configurations: Configurations, predictions: Predictions, *, of: Of = "top", bins: int = BINS
) -> Explorer:
    """Count the cells, and look for the worst mix of each budget."""
    index, kept, left_out = configurations.bins(bins), [], []
    key = index.astype(np.int64)
    for factor, level in _factors(configurations, predictions, index, of, bins):
        for most in MOST_LEVELS:
            small, levels = _fewer(factor, level, most)
            cells = np.unique(key * len(small.levels) + levels)
            if len(cells) <= MOST_CELLS:
                key = np.searchsorted(cells, key * len(small.levels) + levels)
                kept.append((small, levels))
                break
        else:
            left_out.append(factor.title)
    cells, first, where = np.unique(key, return_index=True, return_inverse=True)

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(where, values, minlength=len(cells))

    none = np.zeros((len(cells), 0), int)
    factors = tuple(factor for factor, _ in kept)
    counted = Cells(
        bins=bins,
        levels=tuple(len(factor.levels) for factor in factors),
        bin=index[first],
        level=np.stack([levels[first] for _, levels in kept], axis=1) if kept else none,
        count=sums(np.ones(len(index))),
        confidence=sums(configurations.confidence),
        outcome=sums(configurations.known_outcome),
        noise=sums(configurations.noise),
    )
    worst = tuple(_worst(counted, budget) for budget in BUDGETS) if factors else ()
    return Explorer(factors=factors, budgets=BUDGETS, worst=worst, left_out=tuple(left_out), cells=counted)


def _worst(cells: Cells, budget: float) -> Settings:
    """The candidate with the largest ECE, as slider positions; all 0 where none is worse than that."""
    still = tuple((0.0,) * levels for levels in cells.levels)
    candidates = [still, *(_settings(cells, tilts) for tilts in worst_tilt(cells, budget))]
    return max(candidates, key=lambda settings: cells.mix(settings, budget).ece)


def _settings(cells: Cells, tilts: list[np.ndarray]) -> Settings:
    """Slider positions: centred so that most rows stay, cut to the sliders' range, rounded to their step."""
    centred = []
    for values, share in zip(tilts, cells.mix().shares, strict=True):
        moved = np.clip(values - float((values * share).sum()), -LIMIT, LIMIT)
        centred.append(tuple(round(STEP * round(value / STEP), 1) + 0.0 for value in moved.tolist()))
    return tuple(centred)


# --- the factors --------------------------------------------------------------------------------------------

Levels = tuple[Factor, np.ndarray]


def _factors(
    configurations: Configurations, predictions: Predictions, index: np.ndarray, of: Of, bins: int
) -> list[Levels]:
    """Those that tell rows apart; where cells become too many, the last ones lose levels first."""
    factors = [_bands(index, bins, of)]
    if configurations.num_experts > 1:
        factors += [_agreement(configurations), _leading(configurations)]
    columns = {name: named(values) for name, values in known_before(predictions).items()}
    for column, masks in list(column_groups(columns).items())[:MOST_COLUMNS]:
        factors.append(_column(column, masks, len(index)))
    factors.append(_predicted(predictions))
    return [(factor, level) for factor, level in factors if len(factor.levels) > 1]


def _bands(index: np.ndarray, bins: int, of: Of) -> Levels:
    """Bands of neighbouring bins with about as many rows each."""
    counts = np.bincount(index, minlength=bins)
    after = (np.cumsum(counts) - counts / 2) / len(index)
    band = np.unique(np.minimum((after * BANDS).astype(int), BANDS - 1)[counts > 0], return_inverse=True)[1]
    of_bin = np.zeros(bins, int)
    of_bin[counts > 0] = band
    noun, names = "confidence" if of == "top" else "probability", []
    used = np.flatnonzero(counts > 0)
    for each in range(int(band.max()) + 1):
        own = used[band == each]
        low = 100 * (used[band == each - 1].max() + 1) / bins if each else 0.0
        high = 100 * (own.max() + 1) / bins
        last = each == band.max()
        inner = f"{low:.0f} to {high:.0f} %" if each else f"up to {high:.0f} %"
        names.append(f"above {low:.0f} %" if last else inner)
    phrases = tuple(f"with a {noun} {name if not name[0].isdigit() else f'of {name}'}" for name in names)
    return Factor(noun.capitalize(), tuple(names), phrases), of_bin[index]


def _agreement(configurations: Configurations) -> Levels:
    """Experts agree, or the pair that contributes most to Σ r_i r_j (f_i − f_j)² disagrees."""
    routing, answers = configurations.routing, configurations.experts
    asked = np.sort(np.argsort(-routing.mean(axis=0), kind="stable")[:MOST_ASKED])
    largest = np.full(len(routing), -1.0)
    level = np.zeros(len(routing), int)
    pairs = list(combinations(asked.tolist(), 2))
    for i, (a, b) in enumerate(pairs):
        part = routing[:, a] * routing[:, b] * (answers[:, a] - answers[:, b]) ** 2
        larger = part > largest
        largest[larger], level[larger] = part[larger], i + 1
    level[configurations.disagreement < APART] = 0
    names = configurations.expert_names
    apart = [f"{names[a]} and {names[b]} disagree" for a, b in pairs]
    levels = ("they agree", *apart)
    phrases = ("on which the experts agree", *(f"on which {each}" for each in apart))
    return _used(Factor("Do the experts agree?", levels, phrases), level)


def _leading(configurations: Configurations) -> Levels:
    names = configurations.expert_names
    phrases = tuple(f"on which {name} leads" for name in names)
    return _used(Factor("Leading expert", names, phrases), configurations.leading)


def _predicted(predictions: Predictions) -> Levels:
    names = class_titles(predictions)
    phrases = tuple(f"predicted as {name}" for name in names)
    level = predictions.output.log_probs.argmax(dim=1).numpy()
    return _used(Factor("Predicted class", names, phrases), level)


def _column(column: str, masks: dict[str, np.ndarray], rows: int) -> Levels:
    level = np.full(rows, len(masks))
    for i, mask in enumerate(masks.values()):
        level[mask] = i
    one = list(masks) == [column]  # a column of truth values
    names = (column, f"not {column}") if one else (*masks, "none of them")
    phrases = tuple(f"marked {name}" if one else f"with {column} {name}" for name in names)
    return _used(Factor(column, names, phrases), level)


def _used(factor: Factor, level: np.ndarray) -> Levels:
    """Without the levels that no row has."""
    used, inverse = np.unique(level, return_inverse=True)
    titles, levels, phrases = factor
    return Factor(titles, tuple(levels[i] for i in used), tuple(phrases[i] for i in used)), inverse


def _fewer(factor: Factor, level: np.ndarray, most: int) -> Levels:
    """The most frequent levels, in their order; all others are one."""
    if len(factor.levels) <= most + 1:
        return factor, level
    keep = np.sort(np.argsort(-np.bincount(level), kind="stable")[:most])
    position = np.full(len(factor.levels), most)
    position[keep] = np.arange(most)
    names = (*(factor.levels[i] for i in keep), "all others")
    others = f"of another {factor.title.lower().rstrip('?')}"
    if factor.title.endswith("?"):
        others = "on which other experts disagree"
    return Factor(factor.title, names, (*(factor.phrases[i] for i in keep), others)), position[level]


def _compute(material: Material, inside: Inside) -> Findings:
    numbers = explorer(material.configurations, material.predictions, of=material.of, bins=material.bins)
    return Findings({"explorer": numbers})


SECTION = Section(name="explorer", cost=0.5, compute=_compute, page=lambda report, pictures: None)
