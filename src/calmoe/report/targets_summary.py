"""The summary over several target domains in plain words: the question that they answer, and the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calmoe.methods import METHODS, card, method_title
from calmoe.render.page import Point
from calmoe.render.wording import count_range, listed, many
from calmoe.report.columns import column_title
from calmoe.report.comparison import no_test, verdict_in_words
from calmoe.report.rows_over_seeds import PairedDifference, Rows
from calmoe.report.rows_over_targets import MEAN, compare_by_target, mean_over_targets, paired_by_target
from calmoe.report.run_summary import BASELINE, Asked
from calmoe.report.sentences import (
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
from calmoe.report.temperatures import all_separable, consequences, exceptions, not_fitted

VANILLA = method_title(BASELINE)
JUDGED = {column: column_title(column) for column in ("ece_ts", "nll_ts")}  # the question is about these two
AS_TRAINED = {column.removesuffix("_ts"): title.removesuffix("+TS") for column, title in JUDGED.items()}
NAMES = {**JUDGED, **AS_TRAINED, "accuracy": "accuracy"}


@dataclass(frozen=True, kw_only=True)
class AskedTargets(Asked):
    """What the user asked of runs on targets; titles in order, and the dataset's targets without a run."""

    titles: Mapping[str, str]
    absent: Sequence[str] = ()


def targets_in_words(rows: Rows, asked: AskedTargets) -> list[Point]:
    """What was trained, whether robust training beats a temperature on unseen domains, what is missing."""
    own = [row for row in rows if row["protocol"] == asked.protocol]
    differences = paired_by_target(own, asked.protocol, asked.titles, BASELINE, (*JUDGED, "accuracy"))
    points = [
        Point("What was done", _done(own, asked)),
        Point("The question", _question(asked), _methods_text(differences[MEAN], own)),
        Point("The answer", f"{consequences(own)} {_answer(verdicts(differences[MEAN]))}".strip()),
        Point("Instead of a temperature", *_as_trained(own, asked)),
        Point("By target", "", _by_target(differences, asked)),
        Point("Beside the paper", _beside(own, asked)),
        Point("Uncertain", "", _uncertain(own, asked, differences)),
        Point("Missing", *_missing(own, asked)),
    ]
    return [point for point in points if point.text or point.bullets]


def _done(own: Rows, asked: AskedTargets) -> str:
    sizes = {row["target"]: row["n"] for row in own if "n" in row}
    on = listed(
        [f"{title} ({sizes[t]:,} rows)" if t in sizes else title for t, title in asked.titles.items()]
    )
    dataset = ", ".join(filter(None, (asked.dataset, asked.backbone, asked.settings)))
    fitted_on = count_range(asked.validation, "validation row") if asked.validation else "rows"
    return (
        f"{models_text(own, dataset)}. {many(len(asked.titles), 'target')}: {on}; each was tested with "
        f"models trained on the other domains, and temperatures are fitted on {fitted_on} of those. "
        f"{protocol_text(asked.protocol)}{exceptions(own)}."
    )


def _question(asked: AskedTargets) -> str:
    fitted = "a converged" if asked.protocol == "corrected" else "the published"
    return (
        f"After {fitted} temperature from the source domains, does a robust method beat {VANILLA} "
        f"on unseen domains in ECE+TS and NLL+TS, and at what cost in accuracy? Differences to it over the "
        f"same seeds, of the mean over {_titles(asked)}, with 95 % intervals."
    )


def _methods_text(differences: Sequence[PairedDifference], own: Rows) -> list[str]:
    """The differences of each robust method; then the methods of which no seed has every target."""
    sentences, lacking = [], []
    for method in (method.name for method in METHODS.values() if method.is_robust):
        known = [d for d in differences if d.method == method and d.n]
        if known:
            sentences.append(f"{method_title(method)}: {_method_text(known)}")
        elif any(row["method"] == method for row in own):
            lacking.append(method)
    if lacking:
        sentences.append(f"{method_titles(lacking)}: no seed has every target, there and of the baseline.")
    return sentences


def _method_text(differences: Sequence[PairedDifference]) -> str:
    parts = []
    for d in differences:
        sign = side(d)
        if sign is None:
            judged = "interval unknown"
        elif sign == 0:
            judged = "no evidence of a difference"
        else:
            good = sign == (1 if d.column == "accuracy" else -1)
            judged = f"{'higher' if sign > 0 else 'lower'} ({'better' if good else 'worse'})"
        parts.append(f"{NAMES[d.column]} {difference_text(d)}, {judged}")
    return f"{'; '.join(parts)} ({many(max(d.n for d in differences), 'seed')})."


class Verdict(NamedTuple):
    """In which measures a method is better and worse than the baseline, each by a whole interval."""

    better: tuple[str, ...]
    worse: tuple[str, ...]
    costs_accuracy: bool


def verdicts(differences: Sequence[PairedDifference]) -> dict[str, Verdict | None]:
    """The verdict on each robust method; None without an interval for every measure."""
    sides: dict[str, dict[str, int | None]] = {}
    for d in differences:
        if card(d.method).is_robust:
            sides.setdefault(d.method, {})[d.column] = side(d)

    def verdict(own: Mapping[str, int | None]) -> Verdict | None:
        if any(own[column] is None for column in JUDGED):
            return None
        better, worse = (tuple(column for column in JUDGED if own[column] == sign) for sign in (-1, 1))
        return Verdict(better, worse, own.get("accuracy") == -1)

    return {method: verdict(own) for method, own in sides.items()}


def _answer(verdicts: Mapping[str, Verdict | None]) -> str:
    """Who beats the baseline in both measures, in one, in neither."""
    judged = {method: verdict for method, verdict in verdicts.items() if verdict is not None}
    if not judged:
        return "Unknown: an interval takes at least two seeds that have every target."
    both = [method for method, verdict in judged.items() if len(verdict.better) == len(JUDGED)]
    sentences = [
        f"Yes, in ECE+TS and NLL+TS: {method_titles(both)}."
        if both
        else f"No robust method is seen to beat {VANILLA} in both."
    ]
    for column, name in JUDGED.items():
        (other,) = (title for c, title in JUDGED.items() if c != column)
        alone = [
            f"{method_title(method)} ({'worse' if verdict.worse else 'no evidence'} in {other})"
            for method, verdict in judged.items()
            if verdict.better == (column,)
        ]
        sentences += [f"In {name} alone: {listed(alone)}."] if alone else []
    groups = {
        "No evidence of a difference in either": [m for m, v in judged.items() if not v.better + v.worse],
        "Worse in at least one and better in none": [
            m for m, v in judged.items() if not v.better and v.worse
        ],
        "At a cost in accuracy": [m for m, v in judged.items() if v.better and v.costs_accuracy],
        "Not judged, for want of seeds": [m for m in verdicts if m not in judged],
    }
    sentences += [f"{what}: {method_titles(methods)}." for what, methods in groups.items() if methods]
    return " ".join(sentences)


def _as_trained(own: Rows, asked: AskedTargets) -> tuple[str, list[str]]:
    """Robust methods without a temperature against the baseline with one."""
    scaled = [
        {**row, **{column: row[f"{column}_ts"] for column in AS_TRAINED}}
        if row["method"] == BASELINE
        else row
        for row in own
    ]
    differences = paired_by_target(scaled, asked.protocol, asked.titles, BASELINE, tuple(AS_TRAINED))[MEAN]
    sentences = _methods_text([d for d in differences if side(d) is not None], [])
    if not sentences:
        return "", []
    question = (
        f"Does the training do what a temperature does? Robust methods as trained, less {VANILLA} "
        "after its temperature, of the same mean."
    )
    if all_separable([row for row in own if row["method"] == BASELINE]):
        return f"No model of {VANILLA} has an optimal temperature: there is none to replace.", []
    return question, sentences


def _by_target(differences: Mapping[str, Sequence[PairedDifference]], asked: AskedTargets) -> list[str]:
    bullets = []
    for target, title in asked.titles.items():
        robust = [d for d in differences[target] if card(d.method).is_robust]
        by_metric = {name: [d for d in robust if d.column == column] for column, name in JUDGED.items()}
        parts = [f"{name}: {text}" for name, own in by_metric.items() if (text := sides_text(own))]
        bullets += [f"{title}. {' '.join(parts)}"] if parts else []
    return bullets


def _beside(own: Rows, asked: AskedTargets) -> str:
    cells = compare_by_target(own, asked.dataset, asked.protocol, asked.titles)
    why = no_test(asked.protocol, asked.backbone, asked.settings)
    return verdict_in_words([c for own in cells.values() for c in own], why)


def _uncertain(
    own: Rows, asked: AskedTargets, differences: Mapping[str, Sequence[PairedDifference]]
) -> list[str]:
    uncovered = f"targets or of test rows: the mean is of {_titles(asked)} and says nothing of another domain"
    every = [d for by_target in differences.values() for d in by_target]
    robust = [d for d in every if card(d.method).is_robust and d.column in JUDGED]
    odd = [
        f"{method_title(row['method'])} seed {row['seed']} on {asked.titles[row['target']]}"
        for row in not_fitted(own)
    ]
    return [
        interval_caveat(own, uncovered),
        *multiplicity_caveats(robust, f" in {' and '.join(JUDGED.values())}"),
        *no_optimum_caveats(odd, len(own)),
    ]


def _missing(own: Rows, asked: AskedTargets) -> tuple[str, list[str]]:
    """By target, the methods and seeds that a run on any target names and the results do not have."""
    gaps = [
        f"{title}: there is no run. Every mean is over the other targets alone." for title in asked.absent
    ]
    for target, title in asked.titles.items():
        finished = {(row["method"], row["seed"]) for row in own if row["target"] == target}
        gone = {m: [seed for seed in asked.seeds if (m, seed) not in finished] for m in asked.methods}
        whole = [m for m, seeds in gone.items() if len(seeds) == len(asked.seeds)]
        parts = [f"no seed of {method_titles(whole)}"] if whole else []
        parts += [
            f"{method_title(m)} lacks seed {listed(s)}" for m, s in gone.items() if s and m not in whole
        ]
        gaps += [f"{title}: {'; '.join(parts)}."] if parts else []
    models = {(row["method"], row["seed"]) for row in own}
    kept = {(row["method"], row["seed"]) for row in mean_over_targets(own, asked.titles)}
    if models - kept:
        gaps.append(
            f"Left out of the mean over targets, for lack of one: {many(len(models - kept), 'model')} of "
            f"{len(models)} (a method and a seed)."
        )
    return missing_text(gaps, len(asked.seeds), "on every target")


def _titles(asked: AskedTargets) -> str:
    return listed(list(asked.titles.values()))
