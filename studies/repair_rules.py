"""Which rule should choose a repair? Rules side by side, on worlds and real files that tuned none of them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from calmoe import worlds
from calmoe.auditing.repairs.answers import answer
from calmoe.auditing.repairs.candidates import NOTHING, TEMPERATURE
from calmoe.auditing.repairs.choosing import Rule
from calmoe.auditing.repairs.repair import recommend, repair
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, Heading, count, label, number, signed
from calmoe.worlds import cancellation, multiclass
from calmoe.worlds.finite import Finite
from studies.real_predictions import real_predictions
from studies.rows import read_lines, write_lines

RULES = {
    "least NLL": Rule(errors=0.0, rise=np.inf),
    "one standard error": Rule(errors=1.0, rise=np.inf),
    "one standard error, ECE may rise by 0.005": Rule(errors=1.0, rise=0.005),
    "one standard error, ECE may rise by 0.001": Rule(),
}
MADE: dict[str, Callable[[int], Finite]] = {
    **worlds.WORLDS,
    **multiclass.WORLDS,
    **{name: cancellation.WORLDS[name] for name in ("by class", "by expert vector", "by routing")},
    "little cancelling": partial(worlds.cancelling, delta=0.05),
    "slightly off": partial(worlds.miscalibrated, temperature=1.1),
}
ROWS, FRESH = 3000, 20_000  # of a world: to choose on, and to judge
SLIP, RISE = 0.002, 0.005  # what counts as worse on the judging rows: nats of NLL, and ECE


class Case(NamedTuple):
    """Rows to choose and fit on, and others to judge; kind: world or real."""

    name: str
    kind: str
    taught: Predictions
    judged: Predictions


def repair_rules(
    tables: Annotated[
        Path | None, typer.Argument(help="A folder with tables.json and its CSV files; else digits alone.")
    ] = None,
    rows: Annotated[Path, typer.Option(help="Written where `seeds` are given, else read.")] = Path(
        "results/audit/repair_rules.jsonl"
    ),
    seeds: Annotated[int, typer.Option(help="Samples of each world, and halves of each file.")] = 0,
) -> None:
    """Which rule should choose a repair?

    Chooses and fits on some rows and judges on others: in worlds of known truth, and on predictions that
    scikit-learn's models make of digits, as they are and turned, and of real tables. Prints a row a rule.

    Example: python -m studies repair-rules tables --seeds 1
    """
    if seeds:
        write_lines(rows, [row for case in cases(tables, seeds) for row in judged(case)])
    print(table(read_lines(rows)).markdown())


def cases(tables: Path | None, seeds: int) -> Iterator[Case]:
    """All of them, with seeds that no test has."""
    for seed in range(7000, 7000 + seeds):
        for name, make in MADE.items():
            world = make(seed)
            yield Case(name, "world", world.sample(ROWS, seed), world.sample(FRESH, seed + 1))
    for name, predictions in real_predictions(tables):
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(predictions))
            yield Case(name, "real", *(predictions.take(half) for half in np.array_split(order, 2)))


def judged(case: Case) -> list[dict[str, Any]]:
    """What each rule recommends, and what that does on the judging rows beside nothing and a temperature."""
    chosen_by = {errors: repair(case.taught, rule=Rule(errors, np.inf)) for errors in (0.0, 1.0)}
    fits = chosen_by[1.0].fits
    answers = {n: answer(f, case.judged.output, case.judged.known_labels) for n, f in fits.items()}
    losses = {name: float(each.loss.mean()) for name, each in answers.items()}
    eces = {name: _ece(each.confidence, each.outcome) for name, each in answers.items()}
    rows = []
    for name, rule in RULES.items():
        choice = chosen_by[rule.errors]
        measured = {**choice.candidates, "chosen": choice.choosing}
        taken = recommend(choice.chosen, measured, rule) or NOTHING
        rows.append(
            {
                "case": case.name,
                "kind": case.kind,
                "rule": name,
                "taken": taken,
                "nothing": round(losses[taken] - losses[NOTHING], 5),
                "temperature": round(losses[taken] - losses[TEMPERATURE], 5),
                "ece": round(eces[taken] - eces[NOTHING], 5),
            }
        )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> Grid:
    """A row a rule and kind of case."""

    def cells(kind: str, rule: str) -> tuple[Entry, ...]:
        own = [row for row in rows if row["kind"] == kind and row["rule"] == rule]
        beyond = [row["taken"] not in (NOTHING, TEMPERATURE) for row in own]
        worse = [row["taken"] != NOTHING and row["nothing"] > SLIP for row in own]
        behind = [row["taken"] != NOTHING and row["temperature"] > SLIP for row in own]
        risen = [row["ece"] > RISE for row in own]
        return (
            label({"world": "worlds", "real": "real predictions"}[kind], kind),
            label(rule, rule),
            count(len(own)),
            number(float(np.mean(beyond))),
            signed(float(np.mean([row["nothing"] for row in own])), decimals=4),
            signed(float(np.mean([row["temperature"] for row in own])), decimals=4),
            *(number(float(np.mean(share))) for share in (worse, behind, risen)),
        )

    titles = (
        *("cases", "rule", "count", "beyond a temperature", "NLL less nothing's", "less a temperature's"),
        *("worse than nothing", "worse than a temperature", "ECE risen"),
    )
    headings = tuple(Heading(title, (title,)) for title in titles)
    kinds = [kind for kind in ("world", "real") if any(row["kind"] == kind for row in rows)]
    sections = tuple(tuple(cells(kind, rule) for rule in RULES) for kind in kinds)
    caption = f"Worse: by more than {SLIP} nats on the judging rows; risen: by more than {RISE}"
    return Grid(caption, headings, sections)


def _ece(confidence: np.ndarray, outcome: np.ndarray, bins: int = 15) -> float:
    gaps = np.bincount(np.minimum((confidence * bins).astype(int), bins - 1), outcome - confidence)
    return float(np.abs(gaps).sum() / len(outcome))
