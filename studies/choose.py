"""Settings chosen on validation rows: the mean NLL there of each method, by ρ, average and views."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from calmoe.methods import in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, count, label, number
from calmoe.report.rows_over_seeds import Rows
from studies.rows import DECIMALS, Place, by_key, place_of, read_lines

Choice = tuple[str, float, float, int]  # method, ρ (0: plain steps), average (0: last weights), views


def choose(
    rows: Annotated[Path, typer.Argument(help="Rows that `python -m studies cells` wrote.")],
) -> None:
    """Which settings have the lowest NLL on validation rows?

    Prints the mean over runs, after a temperature. The lowest of a method is in bold; a choice that lacks a
    seed or target which another choice of the method has is not compared. No test row counts.

    Example: python -m studies choose results/truer/hatexplain-choice.jsonl
    """
    print(choice_table(read_lines(rows)).markdown())


def choice_table(rows: Rows) -> Grid:
    """One row a choice; methods in the table's order."""
    by_choice: dict[Choice, dict[Place, float]] = {}
    for (choice, place), row in by_key(rows, lambda row: (choice_of(row), place_of(row))).items():
        by_choice.setdefault(choice, {})[place] = row["validation_nll"]
    means = {choice: mean(values.values()) for choice, values in by_choice.items()}

    def entries(choice: Choice, best: Choice | None) -> tuple[Entry, ...]:
        method, rho, average, views = choice
        return (
            label(method_title(method), method),
            number(rho, 3) if rho else label("–", ""),
            number(average, 4) if average else label("–", ""),
            count(views),
            count(len(by_choice[choice])),
            number(means[choice], DECIMALS)._replace(bold=choice == best),
        )

    sections = []
    for method in in_order(choice[0] for choice in means):
        of_method = sorted(choice for choice in means if choice[0] == method)
        places = {place for choice in of_method for place in by_choice[choice]}
        compared = [choice for choice in of_method if by_choice[choice].keys() == places]
        best = min(compared, key=means.__getitem__, default=None)
        sections.append(tuple(entries(choice, best) for choice in of_method))
    titles = ("Method", "ρ", "Average", "Views", "Runs", "Validation NLL+TS")
    return Grid("Validation NLL", tuple(Heading(t, (t.lower(),)) for t in titles), tuple(sections))


def choice_of(row: Mapping[str, Any]) -> Choice:
    return row["method"], row["rho"] or 0.0, row["average"], row["views"]
