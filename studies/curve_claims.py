"""What the docs say from a folder's curves: the temperature frontier, routing and confidence."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import mean
from typing import Any

from calmoe.methods import in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, label, number
from calmoe.render.wording import shortest
from calmoe.report.curves import Curves
from calmoe.report.frontier import reachable
from calmoe.report.tables import method_entry
from studies.rows import Values, differences_table, less, listed

BUDGETS = (0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.08)  # of the ECE over all rows
VIEWS = {"raw": "as trained", "scaled": "after a temperature"}

Seeds = Mapping[int, Curves]


def curve_claims(curves: Sequence[Curves], baseline: str) -> Iterator[Grid]:
    """Every table of the curves, in order."""
    methods = {method: _seeds(curves, method) for method in in_order(c["method"] for c in curves)}
    others = {method: seeds for method, seeds in methods.items() if method != baseline}
    if all("hard_ece" in run["frontier"] for run in curves):
        if baseline in methods:
            yield frontier(others, methods[baseline], baseline)
            yield raw_points(others, methods[baseline], baseline)
        yield confidence(methods)
    yield routing(methods)


def _seeds(curves: Sequence[Curves], method: str) -> dict[int, Curves]:
    return {run["seed"]: run for run in curves if run["method"] == method}


def frontier(others: Mapping[str, Seeds], baseline: Seeds, name: str) -> Grid:
    """The lowest hard ECE of any temperature within each budget of ECE, less the baseline's."""
    own = _reached(baseline)
    return differences_table(
        f"Lowest hard ECE of any temperature whose ECE stays within a budget, less {method_title(name)}'s",
        [
            less(method, f"ECE ≤ {shortest(budget)}", _reached(seeds)[budget], own[budget])
            for (method, seeds), budget in product(others.items(), BUDGETS)
        ],
    )


def _reached(seeds: Seeds) -> dict[float, Values]:
    """By budget and seed; NaN where no temperature stays within the budget."""
    reached = {seed: reachable(run["frontier"], BUDGETS) for seed, run in seeds.items()}
    return {budget: {seed: float(v[i]) for seed, v in reached.items()} for i, budget in enumerate(BUDGETS)}


def raw_points(others: Mapping[str, Seeds], baseline: Seeds, name: str) -> Grid:
    """In how many seeds the baseline's curve passes at or below a method's point without a temperature."""

    def row(method: str) -> tuple[Entry, ...]:
        passes = [_passes(baseline[seed], run) for seed, run in others[method].items() if seed in baseline]
        return method_entry(method), count(sum(passes)), count(len(passes))

    return Grid(
        f"Seeds in which {method_title(name)}'s frontier reaches a method's hard ECE and ECE as trained",
        (Heading("Method", ("method",)), Heading("Reached", ("reached",)), Heading("Seeds", ("seeds",))),
        (tuple(map(row, others)),),
    )


def _passes(baseline: Curves, run: Curves) -> bool:
    everywhere, hard = (run["raw"]["reliability"][part]["ece"] for part in ("all", "hard"))
    return bool(reachable(baseline["frontier"], (everywhere,))[0] <= hard)


def confidence(methods: Mapping[str, Seeds]) -> Grid:
    """Mean confidence beside accuracy on easy and hard rows, over seeds."""

    def cell(seeds: Seeds, view: str, part: str, name: str) -> Entry:
        return number(mean(run[view]["histogram"][part][name] for run in seeds.values()))

    pairs = list(product(VIEWS, ("confidence", "accuracy")))
    return Grid(
        "Mean confidence and accuracy over seeds",
        (
            Heading("Method", ("method",)),
            Heading("Rows", ("rows",)),
            *(Heading(name, (f"{view}_{name}",), VIEWS[view]) for view, name in pairs),
        ),
        (
            tuple(
                (
                    method_entry(method),
                    label(part, part),
                    *(cell(seeds, view, part, name) for view, name in pairs),
                )
                for (method, seeds), part in product(methods.items(), ("easy", "hard"))
            ),
        ),
    )


def routing(methods: Mapping[str, Seeds]) -> Grid:
    """Routing entropy as a share of log K, of the methods that route."""

    def entropies(seeds: Mapping[int, Any]) -> list[float]:
        return [run["routing"]["entropy"]["all"]["mean"] for run in seeds.values() if run["routing"]]

    routed = {method: entropies(seeds) for method, seeds in methods.items() if entropies(seeds)}
    return Grid(
        "Routing entropy / log K, mean over all rows",
        (Heading("Method", ("method",)), Heading("By seed", ("by_seed",)), Heading("Mean", ("mean",))),
        (tuple((method_entry(m), listed(shares), number(mean(shares))) for m, shares in routed.items()),),
    )
