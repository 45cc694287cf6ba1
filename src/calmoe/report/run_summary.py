"""The summary of a run in plain words: computed from its rows, and no surer than they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from calmoe.calibration.temperature import CLAMP
from calmoe.methods import method_title
from calmoe.render.grid import estimate
from calmoe.render.page import Point
from calmoe.render.wording import count_range, listed, many
from calmoe.report.columns import column_title, columns_in
from calmoe.report.comparison import compare, no_test, verdict_in_words
from calmoe.report.published import is_published
from calmoe.report.rows_over_seeds import Cell, PairedDifference, Rows, Summary, cell_of, paired, summarise
from calmoe.report.sentences import (
    UNBROKEN,
    difference_text,
    interval_caveat,
    method_titles,
    missing_text,
    models_text,
    multiplicity_caveats,
    no_optimum_caveats,
    protocol_text,
    side,
    sides_text,
)
from calmoe.report.temperatures import consequences, not_fitted

BASELINE = "vanilla"
METRICS = {c: column_title(c).removesuffix("+TS") for c in columns_in("summary")}  # the lower, the better
SMALL = 1000  # rows: a subset below this has an ECE that binning inflates


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user asked of a run: these methods with these seeds, judged by these protocols."""

    dataset: str
    methods: Sequence[str]
    seeds: Sequence[int]
    protocols: Sequence[str]
    table: str = ""  # the paper's, where its name is not the dataset's
    backbone: str = ""  # the run's beside the paper's, where they differ
    settings: str = ""  # those that the user changed
    added: Sequence[str] = ()  # methods whose predictions come from elsewhere, with the seeds that they have
    validation: Sequence[int] = ()  # rows that the temperature of each model is fitted on; empty if unknown

    @property
    def protocol(self) -> str:
        """The one that the summary is about: with converged temperatures, if there is a choice."""
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
    methods = dict.fromkeys(row["method"] for row in own)
    return (
        f"{models_text(own, asked.dataset)}: {method_titles(methods)}. {_test_set(own)}{_fitted_on(asked)}"
        f"{protocol_text(asked.protocol)}. {consequences(own)}"
    ).strip()


def _fitted_on(asked: Asked) -> str:
    if not asked.validation:
        return ""
    return f"Temperatures are fitted on {count_range(asked.validation, 'validation row')}. "


def _test_set(own: Rows) -> str:
    if not own or "n" not in own[0]:
        return ""
    n, hard = own[0]["n"], own[0].get("n_hard", 0)
    return f"Tested on {n:,} rows{f', {hard:,} of them hard' if hard else ''}. "


def _best(cells: Summary, differences: Sequence[PairedDifference]) -> list[str]:
    """For each metric the lowest mean, and whether it differs from the baseline's by more than chance."""
    sentences = []
    for column, name in METRICS.items():
        means = {m: cell for m in cells if (cell := cell_of(cells, m, column)).n}
        if len(means) < 2:
            continue
        low = min(round(cell.mean, 3) for cell in means.values())
        best = [method for method, cell in means.items() if round(cell.mean, 3) == low]
        judged = _judged(best, column, means, differences)
        sentences.append(f"{name}: {_lowest(best, means)} {judged}".strip())
    return sentences


def _lowest(best: Sequence[str], means: dict[str, Cell]) -> str:
    if len(best) > 1:
        return f"{method_titles(best)} share the lowest mean, {means[best[0]].mean:.3f}."
    cell, most = means[best[0]], max(cell.n for cell in means.values())
    fewer = f" over {many(cell.n, 'seed')} only" if cell.n < most else ""
    return f"{method_titles(best)} has the lowest mean, {_value(cell)}{fewer}."


def _judged(
    best: Sequence[str], column: str, means: dict[str, Cell], differences: Sequence[PairedDifference]
) -> str:
    """What the seed-paired difference between the best and the baseline shows, and what it does not."""
    title = method_title(BASELINE)
    if BASELINE in best or BASELINE not in means:
        return ""
    known = [d for d in differences if d.method in best and d.column == column and d.n]
    baseline = f"{title} has {_value(means[BASELINE])}"
    if len(best) > 1 or not known:
        return f"{baseline}."
    (difference,) = known
    both = f"{baseline}; over the same seeds the difference is {difference_text(difference)}"
    if side(difference) is None:
        return f"{both}: one seed says nothing of chance."
    if side(difference) == 0:
        return f"{both}: no evidence of a difference."
    picked = f"; but it was picked for its mean, out of {len(means)}" if len(means) > 2 else ""
    return f"{both}. The interval leaves out zero{picked}."


def _against(differences: Sequence[PairedDifference], cells: Summary) -> tuple[str, list[str]]:
    """Every other method against the baseline, metric by metric."""
    title = method_title(BASELINE)
    if BASELINE not in cells:
        return f"There are no results of {title} in this run: nothing to compare the others with.", []
    bullets = []
    for column, name in METRICS.items():
        sides = sides_text([d for d in differences if d.column == column])
        bullets += [f"{name}: {sides}"] if sides else []
    return ("Differences over the same seeds, with 95 % intervals." if bullets else ""), bullets


def _beside(rows: Rows, asked: Asked) -> str:
    table = asked.table or asked.dataset
    if "published" not in asked.protocols or not is_published(table):
        return ""
    return verdict_in_words(compare(rows, table), no_test("published", asked.backbone, asked.settings))


def _uncertain(rows: Rows, asked: Asked, differences: Sequence[PairedDifference]) -> list[str]:
    own = [row for row in rows if row["protocol"] == asked.protocol]
    caveats = [interval_caveat(own, "test rows: all seeds share one test set")]
    caveats += multiplicity_caveats(differences)
    hard = own[0].get("n_hard", 0) if own else 0
    if 0 < hard < SMALL:
        caveats.append(
            f"The hard subset has {hard:,} rows: binning inflates so small a subset's ECE, for every method."
        )
    clamped = [row["seed"] for row in own if set(CLAMP) & set(row.get("temperatures", ()))]
    if clamped:
        caveats.append(
            f"MoCaE, seed {listed(clamped)}: an expert's own temperature stopped at a bound, 0.1 or 10."
        )
    odd = [f"{method_title(row['method'])} seed {row['seed']}" for row in not_fitted(own)]
    return caveats + no_optimum_caveats(odd, len(own))


def _missing(rows: Rows, asked: Asked) -> tuple[str, list[str]]:
    """What the user asked for and the results do not have."""
    own = [row for row in rows if row["protocol"] == asked.protocol]
    gaps = []
    for method in (method for method in asked.methods if method not in asked.added):
        finished = {row["seed"] for row in own if row["method"] == method}
        gone = [seed for seed in asked.seeds if seed not in finished]
        title = method_title(method)
        if not finished:
            gaps.append(f"{title}: no seed is finished.")
        elif gone:
            gaps.append(
                f"{title}: {many(len(gone), 'seed')} of {len(asked.seeds)} not finished ({listed(gone)})."
            )
    if gaps:
        gaps.append("Not finished: failed, stopped or not started. Run the same command again to continue.")
    if not any(row.get("n_hard") for row in own):
        gaps.append("These data have no hard subset: nothing is said of hard rows.")
    return missing_text(gaps, len(asked.seeds), "that were asked for")


def _value(cell: Cell) -> str:
    return estimate(cell.mean, cell.standard_error).text.replace(" ", UNBROKEN)
