"""What a run found, in plain words: computed from its rows, and no surer than they are."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calmoe.methods import method_title
from calmoe.render.grid import estimate, signed, telling
from calmoe.render.page import Point
from calmoe.render.wording import listed, many
from calmoe.report.comparison import compare, no_test, verdict_in_words
from calmoe.report.published import is_published
from calmoe.report.tables import (
    Cell,
    PairedDifference,
    Rows,
    Summary,
    paired,
    summarise,
)
from calmoe.report.temperatures import consequences, few, not_fitted

BASELINE = "vanilla"
METRICS = {"nll_ts": "NLL", "ece_ts": "ECE", "hard_ece_ts": "Hard ECE"}  # the lower, the better
PROTOCOLS = {
    "corrected": "temperatures are fitted to convergence, on validation rows that are not augmented",
    "published": "as in the authors' code, validation rows are augmented and the search for a temperature "
    "stops before it converges",
}
UNBROKEN = "\N{NO-BREAK SPACE}"
CLAMP = (0.1, 10.0)  # the paper's bounds on an expert's temperature
SMALL = 1000  # rows: a subset below this has an ECE that binning inflates


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run was to give: these methods with these seeds, judged by these protocols."""

    dataset: str
    methods: Sequence[str]
    seeds: Sequence[int]
    protocols: Sequence[str]
    table: str = ""  # of the paper, if it is not called as the dataset is
    backbone: str = ""  # beside the paper's, where they differ
    settings: str = ""  # those that were changed
    validation: Sequence[int] = ()  # rows that temperatures are fitted on, in any model; none if not known

    @property
    def protocol(self) -> str:
        """The one that the summary speaks of: with converged temperatures, if there is a choice."""
        return "corrected" if "corrected" in self.protocols else self.protocols[0]


def in_words(rows: Rows, asked: Asked) -> list[Point]:
    """What was trained, what came out best and by how much, what is uncertain, what is missing."""
    rows = [row for row in rows if row["method"] in asked.methods]
    own = [row for row in rows if row["protocol"] == asked.protocol]
    cells = summarise(rows, asked.protocol)
    differences = paired(rows, asked.protocol, BASELINE, list(METRICS)) if BASELINE in cells else []
    points = [
        Point("What was done", _done(rows, asked)),
        Point(
            "Lowest means",
            "Lower is better. Means over seeds, after one temperature"
            f"{' where there is an optimal one' if not_fitted(own) else ''}.",
            _best(cells, differences),
        ),
        Point(f"Against {method_title(BASELINE)}", *_against(differences, cells)),
        Point("Beside the paper", _beside(rows, asked)),
        Point("Uncertain", "", _uncertain(rows, asked, differences)),
        Point("Missing", *_missing(rows, asked)),
    ]
    return [point for point in points if point.bullets or (point.text and point.lead != "Lowest means")]


def _done(rows: Rows, asked: Asked) -> str:
    own = [row for row in rows if row["protocol"] == asked.protocol]
    methods = list(dict.fromkeys(row["method"] for row in own))
    seeds = sorted({row["seed"] for row in own})
    return (
        f"{many(len(methods), 'method')} on {asked.dataset}, {many(len(seeds), 'seed')} "
        f"({listed(seeds)}): {method_titles(methods)}. {_test_set(own)}{_fitted_on(asked)}"
        f"{protocol_told(asked)}. {consequences(own)}"
    ).strip()


def protocol_told(asked: Asked) -> str:
    does = PROTOCOLS.get(asked.protocol, "see the documentation")
    return f"{asked.protocol.capitalize()} protocol: {does}"


def _fitted_on(asked: Asked) -> str:
    return f"Temperatures are fitted on {rows_told(asked.validation)}. " if asked.validation else ""


def rows_told(counts: Sequence[int]) -> str:
    """
    >>> rows_told([1500]), rows_told([54, 48, 54])
    ('1,500 validation rows', '48 to 54 validation rows')
    """
    low, high = min(counts), max(counts)
    return many(high, "validation row") if low == high else f"{low:,} to {high:,} validation rows"


def _test_set(own: Rows) -> str:
    if not own or "n" not in own[0]:
        return ""
    n, hard = own[0]["n"], own[0].get("n_hard", 0)
    return f"Tested on {n:,} rows{f', {hard:,} of them hard' if hard else ''}. "


def _best(cells: Summary, differences: Sequence[PairedDifference]) -> list[str]:
    """For each metric the lowest mean, and whether it can be told from the baseline's."""
    told = []
    for column, name in METRICS.items():
        means = {m: of[column] for m, of in cells.items() if column in of and of[column].n}
        if len(means) < 2:
            continue
        low = min(round(cell.mean, 3) for cell in means.values())
        best = [method for method, cell in means.items() if round(cell.mean, 3) == low]
        told.append(f"{name}: {_lowest(best, means)} {_judged(best, column, means, differences)}".strip())
    return told


def _lowest(best: Sequence[str], means: dict[str, Cell]) -> str:
    if len(best) > 1:
        return f"{method_titles(best)} share the lowest mean, {means[best[0]].mean:.3f}."
    cell, most = means[best[0]], max(cell.n for cell in means.values())
    fewer = f" over {many(cell.n, 'seed')} only" if cell.n < most else ""
    return f"{method_titles(best)} has the lowest mean, {_value(cell)}{fewer}."


def _judged(
    best: Sequence[str], column: str, means: dict[str, Cell], differences: Sequence[PairedDifference]
) -> str:
    """What the seed-paired difference between the best and the baseline says, and what it does not."""
    title = method_title(BASELINE)
    if BASELINE in best or BASELINE not in means:
        return ""
    found = [d for d in differences if d.method in best and d.column == column and d.n]
    if len(best) > 1 or not found:
        return f"{title} has {_value(means[BASELINE])}."
    (difference,) = found
    theirs = _value(means[BASELINE])
    told = f"{title} has {theirs}; over the same seeds the difference is {told_difference(difference)}"
    if side(difference) is None:
        return f"{told}: one seed says nothing of chance."
    if side(difference) == 0:
        return f"{told}: no evidence of a difference."
    picked = f"; but it was picked for its mean, out of {len(means)}" if len(means) > 2 else ""
    return f"{told}. The interval leaves out zero{picked}."


def _against(differences: Sequence[PairedDifference], cells: Summary) -> tuple[str, list[str]]:
    """Every other method against the baseline, metric by metric."""
    title = method_title(BASELINE)
    if BASELINE not in cells:
        return f"There are no results of {title} in this run: nothing to compare the others with.", []
    bullets = []
    for column, name in METRICS.items():
        told = told_sides([d for d in differences if d.column == column])
        bullets += [f"{name}: {told}"] if told else []
    return ("Differences over the same seeds, with 95 % intervals." if bullets else ""), bullets


def told_sides(differences: Sequence[PairedDifference]) -> str:
    """Of one metric, the lower the better: for whom it is lower, higher or neither; nothing for one seed."""
    parts = []
    for at, word in ((-1, "Lower (better) for"), (1, "Higher (worse) for")):
        apart = [f"{method_title(d.method)}, {told_difference(d)}" for d in differences if side(d) == at]
        parts += [f"{word} {'; '.join(apart)}."] if apart else []
    level = [d.method for d in differences if side(d) == 0]
    return " ".join(
        [*parts, *([f"No evidence of a difference for {method_titles(level)}."] if level else [])]
    )


def _beside(rows: Rows, asked: Asked) -> str:
    table = asked.table or asked.dataset
    if "published" not in asked.protocols or not is_published(table):
        return ""
    return verdict_in_words(compare(rows, table), no_test("published", asked.backbone, asked.settings))


def _uncertain(rows: Rows, asked: Asked, differences: Sequence[PairedDifference]) -> list[str]:
    own = [row for row in rows if row["protocol"] == asked.protocol]
    seeds = len({row["seed"] for row in own})
    judged = [d for d in differences if side(d) is not None]
    told = []
    if seeds == 1:
        told.append(
            "There is one seed, so there are no intervals: no difference here can be told from chance."
        )
    else:
        told.append(
            f"Intervals are Student's t over at most {seeds} seeds. They cover the luck of training, not the "
            "choice of test rows: all seeds share one test set."
        )
    if judged:
        chance = f"{0.05 * len(judged):.1f}"
        told.append(
            f"These are {many(len(judged), 'comparison')}, not corrected for their number: were there no "
            f"difference at all, about {chance} would still stand out."
        )
    hard = own[0].get("n_hard", 0) if own else 0
    if 0 < hard < SMALL:
        told.append(
            f"The hard subset has {hard:,} rows: binning inflates so small a subset's ECE, for every method."
        )
    clamped = [row["seed"] for row in own if set(CLAMP) & set(row.get("temperatures", ()))]
    if clamped:
        told.append(
            f"MoCaE, seed {listed(clamped)}: an expert's own temperature stopped at a bound, 0.1 or 10."
        )
    odd = [f"{method_title(row['method'])} seed {row['seed']}" for row in not_fitted(own)]
    if odd:
        told.append(no_optimum_told(odd, len(own)))
    return told


def no_optimum_told(names: Sequence[str], models: int) -> str:
    """Which models have no optimal temperature, or the first of them."""
    where = f"{listed(few(names))} ({len(names)} of {many(models, 'model')})"
    return f"Validation found no optimal temperature for {where}."


def _missing(rows: Rows, asked: Asked) -> tuple[str, list[str]]:
    """What the run's spec names and the results do not have."""
    own = [row for row in rows if row["protocol"] == asked.protocol]
    told = []
    for method in asked.methods:
        there = {row["seed"] for row in own if row["method"] == method}
        gone = [seed for seed in asked.seeds if seed not in there]
        title = method_title(method)
        if not there:
            told.append(f"{title}: no seed is finished.")
        elif gone:
            told.append(
                f"{title}: {many(len(gone), 'seed')} of {len(asked.seeds)} not finished ({listed(gone)})."
            )
    if told:
        told.append("Not finished: failed, stopped or not started. Run the same command again to continue.")
    if not any(row.get("n_hard") for row in own):
        told.append("These data have no hard subset: nothing is said of hard rows.")
    if not told:
        return f"Nothing: every method has all {many(len(asked.seeds), 'seed')} that were asked for.", []
    return "", told


def side(d: PairedDifference) -> int | None:
    """-1 where the whole interval lies below zero, 1 above, 0 where it includes zero; None: no interval."""
    if math.isnan(d.low) or math.isnan(d.high):
        return None
    return int(d.low > 0) - int(d.high < 0)


def told_difference(d: PairedDifference) -> str:
    """ "−0.014 [−0.025, −0.002]", with as many decimals as it takes to see on which side of zero it lies."""
    if side(d) is None:
        return signed(d.estimate).text
    decimals = telling(d.low, d.high)
    middle, low, high = (signed(value, decimals=decimals).text for value in (d.estimate, d.low, d.high))
    return f"{middle} [{low}, {high}]".replace(" ", UNBROKEN)


def _value(cell: Cell) -> str:
    return estimate(cell.mean, cell.standard_error).text.replace(" ", UNBROKEN)


def method_titles(methods: Iterable[str]) -> str:
    return listed([method_title(method) for method in methods])
