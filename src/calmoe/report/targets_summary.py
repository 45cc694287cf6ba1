"""What runs on several target domains found, in plain words, and the question that they were run for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calmoe.methods import METHODS, method_title
from calmoe.render.page import Point
from calmoe.render.wording import listed, many
from calmoe.report.comparison import no_test, verdict_in_words
from calmoe.report.summary import (
    BASELINE,
    Asked,
    method_titles,
    no_optimum_told,
    protocol_told,
    rows_told,
    side,
    told_difference,
    told_sides,
)
from calmoe.report.tables import PairedDifference, Rows
from calmoe.report.targets import MEAN, compare_by_target, mean_over_targets, paired_by_target
from calmoe.report.temperatures import all_separable, consequences, exceptions, not_fitted

VANILLA = method_title(BASELINE)
ROBUST = tuple(m.name for m in METHODS.values() if m.family in ("robust", "beyond"))  # against a shift
JUDGED = {"ece_ts": "ECE+TS", "nll_ts": "NLL+TS"}  # the lower, the better
COLUMNS = (*JUDGED, "accuracy")
AS_TRAINED = {"ece": "ECE", "nll": "NLL"}
NAMES = {**JUDGED, **AS_TRAINED, "accuracy": "accuracy"}


@dataclass(frozen=True, kw_only=True)
class AskedTargets(Asked):
    """What runs were to give on targets, by title in order; `absent` ones of the dataset have no run."""

    titles: Mapping[str, str]
    absent: Sequence[str] = ()


def targets_in_words(rows: Rows, asked: AskedTargets) -> list[Point]:
    """What was trained, whether robust training beats a temperature on unseen domains, what is missing."""
    own = [row for row in rows if row["protocol"] == asked.protocol]
    differences = paired_by_target(own, asked.protocol, asked.titles, BASELINE, COLUMNS)
    points = [
        Point("What was done", _done(own, asked)),
        Point("The question", _question(asked), _methods_told(differences[MEAN], own)),
        Point("The answer", f"{consequences(own)} {_answer(differences[MEAN])}".strip()),
        Point("Instead of a temperature", *_as_trained(own, asked)),
        Point("By target", "", _by_target(differences, asked)),
        Point("Beside the paper", _beside(own, asked)),
        Point("Uncertain", "", _uncertain(own, asked, differences)),
        Point("Missing", *_missing(own, asked)),
    ]
    return [point for point in points if point.text or point.bullets]


def _done(own: Rows, asked: AskedTargets) -> str:
    methods, seeds = {row["method"] for row in own}, sorted({row["seed"] for row in own})
    sizes = {row["target"]: row["n"] for row in own if "n" in row}
    on = listed(
        [f"{title} ({sizes[t]:,} rows)" if t in sizes else title for t, title in asked.titles.items()]
    )
    changed = "".join(f", {told}" for told in (asked.backbone, asked.settings) if told)
    fitted_on = rows_told(asked.validation) if asked.validation else "rows"
    return (
        f"{many(len(methods), 'method')} on {asked.dataset}{changed}, {many(len(seeds), 'seed')} "
        f"({listed(seeds)}). {many(len(asked.titles), 'target')}: {on}; each was tested with models trained "
        f"on the other domains, and temperatures are fitted on {fitted_on} of those. "
        f"{protocol_told(asked)}{exceptions(own)}."
    )


def _question(asked: AskedTargets) -> str:
    fitted = "a converged" if asked.protocol == "corrected" else "the published"
    return (
        f"After {fitted} temperature from the source domains, does a robust method beat {VANILLA} "
        f"on unseen domains in ECE+TS and NLL+TS, and at what cost in accuracy? Differences to it over the "
        f"same seeds, of the mean over {_titles(asked)}, with 95 % intervals."
    )


def _methods_told(differences: Sequence[PairedDifference], own: Rows) -> list[str]:
    told, lacking = [], []
    for method in ROBUST:
        of = [d for d in differences if d.method == method and d.n]
        if of:
            told.append(f"{method_title(method)}: {_method_told(of)}")
        elif any(row["method"] == method for row in own):
            lacking.append(method)
    none = (
        f"{method_titles(lacking)}: no seed has every target, there and of the baseline." if lacking else ""
    )
    return [*told, *filter(None, [none])]


def _method_told(of: Sequence[PairedDifference]) -> str:
    parts = []
    for d in of:
        better = {-1: "lower", 1: "higher"}
        verdict = {None: "interval unknown", 0: "no evidence of a difference"}.get(side(d))
        if verdict is None:
            good = side(d) == (1 if d.column == "accuracy" else -1)
            verdict = f"{better[side(d) or 0]} ({'better' if good else 'worse'})"
        parts.append(f"{NAMES[d.column]} {told_difference(d)}, {verdict}")
    return f"{'; '.join(parts)} ({many(max(d.n for d in of), 'seed')})."


def _answer(differences: Sequence[PairedDifference]) -> str:
    """Who beats the baseline in both, in one, in none; nothing is claimed without an interval."""
    found: dict[str, dict[str, int | None]] = {}
    for d in differences:
        if d.method in ROBUST:
            found.setdefault(d.method, {})[d.column] = side(d)
    judged = {m: of for m, of in found.items() if all(of[column] is not None for column in JUDGED)}
    if not judged:
        return "Unknown: an interval takes at least two seeds that have every target."
    beaten = {m: [name for column, name in JUDGED.items() if of[column] == -1] for m, of in judged.items()}
    both = [m for m, names in beaten.items() if len(names) == len(JUDGED)]
    told = [
        f"Yes, in ECE+TS and NLL+TS: {method_titles(both)}."
        if both
        else f"No robust method is seen to beat {VANILLA} in both."
    ]
    for column, name in JUDGED.items():
        alone = [m for m, names in beaten.items() if names == [name]]
        (other,) = (c for c in JUDGED if c != column)
        told += [f"In {name} alone: {_rest(alone, judged, other)}."] if alone else []
    neither = [m for m, of in judged.items() if all(of[column] == 0 for column in JUDGED)]
    told += [f"No evidence of a difference in either: {method_titles(neither)}."] if neither else []
    worse = [m for m, of in judged.items() if not beaten[m] and any(of[column] == 1 for column in JUDGED)]
    told += [f"Worse in at least one and better in none: {method_titles(worse)}."] if worse else []
    cost = [m for m, of in judged.items() if beaten[m] and of.get("accuracy") == -1]
    told += [f"At a cost in accuracy: {method_titles(cost)}."] if cost else []
    unjudged = [m for m in found if m not in judged]
    told += [f"Not judged, for want of seeds: {method_titles(unjudged)}."] if unjudged else []
    return " ".join(told)


def _as_trained(own: Rows, asked: AskedTargets) -> tuple[str, list[str]]:
    """Robust methods without a temperature, less the baseline with one."""
    scaled = [
        {**row, **{column: row[f"{column}_ts"] for column in AS_TRAINED}}
        if row["method"] == BASELINE
        else row
        for row in own
    ]
    differences = paired_by_target(scaled, asked.protocol, asked.titles, BASELINE, tuple(AS_TRAINED))[MEAN]
    told = _methods_told([d for d in differences if side(d) is not None], [])
    question = (
        f"Does the training do what a temperature does? Robust methods as trained, less {VANILLA} "
        "after its temperature, of the same mean."
    )
    if told and all_separable([row for row in own if row["method"] == BASELINE]):
        return (
            f"No model of {VANILLA} has an optimal temperature: there is none to replace.",
            [],
        )
    return (question, told) if told else ("", [])


def _rest(methods: Sequence[str], judged: Mapping[str, Mapping[str, int | None]], other: str) -> str:
    words = {0: f"no evidence in {JUDGED[other]}", 1: f"worse in {JUDGED[other]}"}
    return listed([f"{method_title(m)} ({words[judged[m][other] or 0]})" for m in methods])


def _by_target(differences: Mapping[str, Sequence[PairedDifference]], asked: AskedTargets) -> list[str]:
    bullets = []
    for target, title in asked.titles.items():
        robust = [d for d in differences[target] if d.method in ROBUST]
        of = {name: [d for d in robust if d.column == column] for column, name in JUDGED.items()}
        told = [f"{name}: {sides}" for name, found in of.items() if (sides := told_sides(found))]
        bullets += [f"{title}. {' '.join(told)}"] if told else []
    return bullets


def _beside(own: Rows, asked: AskedTargets) -> str:
    cells = compare_by_target(own, asked.dataset, asked.protocol, asked.titles)
    why = no_test(asked.protocol, asked.backbone, asked.settings)
    return verdict_in_words([c for of in cells.values() for c in of], why)


def _uncertain(
    own: Rows, asked: AskedTargets, differences: Mapping[str, Sequence[PairedDifference]]
) -> list[str]:
    seeds = {row["seed"] for row in own}
    covered = f"the mean is of {_titles(asked)} and says nothing of another domain"
    told = [
        "There is one seed, so there are no intervals: no difference here can be told from chance."
        if len(seeds) == 1
        else f"Intervals are Student's t over at most {len(seeds)} seeds. They cover the luck of training, "
        f"not the choice of targets or of test rows: {covered}."
    ]
    robust = [d for of in differences.values() for d in of if d.method in ROBUST and d.column in JUDGED]
    judged = [d for d in robust if side(d) is not None]
    if judged:
        told.append(
            f"These are {many(len(judged), 'comparison')} in ECE+TS and NLL+TS, not corrected for their "
            f"number: were there no difference at all, about {0.05 * len(judged):.1f} would still stand out."
        )
    odd = [
        f"{method_title(r['method'])} seed {r['seed']} on {asked.titles[r['target']]}"
        for r in not_fitted(own)
    ]
    if odd:
        told.append(no_optimum_told(odd, len(own)))
    return told


def _missing(own: Rows, asked: AskedTargets) -> tuple[str, list[str]]:
    """By target, the methods and seeds that the runs name, on any target, and the results do not have."""
    told = [
        f"{title}: there is no run. Every mean is over the other targets alone." for title in asked.absent
    ]
    for target, title in asked.titles.items():
        there = {(row["method"], row["seed"]) for row in own if row["target"] == target}
        gone = {m: [seed for seed in asked.seeds if (m, seed) not in there] for m in asked.methods}
        whole = [m for m, seeds in gone.items() if len(seeds) == len(asked.seeds)]
        parts = [f"no seed of {method_titles(whole)}"] if whole else []
        parts += [
            f"{method_title(m)} lacks seed {listed(s)}" for m, s in gone.items() if s and m not in whole
        ]
        told += [f"{title}: {'; '.join(parts)}."] if parts else []
    seeds = {(row["method"], row["seed"]) for row in own}
    kept = {(row["method"], row["seed"]) for row in mean_over_targets(own, asked.titles)}
    if seeds - kept:
        told.append(
            f"Left out of the mean over targets, for lack of one: {many(len(seeds - kept), 'model')} of "
            f"{len(seeds)} (a method and a seed)."
        )
    if not told:
        return f"Nothing: every method has all {many(len(asked.seeds), 'seed')} on every target.", []
    return "", told


def _titles(asked: AskedTargets) -> str:
    return listed(list(asked.titles.values()))
