"""The tables of results/audit/README.md, from the rows that `audits` wrote."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calmoe.methods import method_title
from calmoe.render.grid import Entry, Grid, Heading, label, number, signed
from calmoe.render.wording import decimal
from studies.rows import ALPHA, read_lines, span

KINDS = {"raw": "as trained", "scaled": "after a temperature"}

Row = dict[str, Any]
Cells = dict[str, Entry]  # by the title of the column


def audit_tables(
    folder: Annotated[Path, typer.Argument(help="With the rows of `audits`.")] = Path("results/audit"),
) -> None:
    """What did the audits find?

    Prints the tables of results/audit/README.md. Reads cifar10h.jsonl, hard.jsonl, pacs.jsonl and
    targets.jsonl; prints a table of each: means over seeds with the smallest and largest, counts of rejected
    tests, and of predicted intervals that held.

    Example: python -m studies audit-tables
    """
    for name, table in TABLES.items():
        print(table(read_lines(folder / f"{name}.jsonl")).markdown())


def labelled(rows: Sequence[Row]) -> Grid:
    """Every mixture on labelled test rows, over seeds."""

    def cells(own: Sequence[Row]) -> Cells:
        return {
            "ECE": span(row["ece"][0] for row in own),
            "E|m − f| at least": span(max(row["witness"][1], 0.0) for row in own),
            "hidden, p < 0.05": share(row["p_hidden"] < ALPHA for row in own),
            "error forced at KL 0.1": span(row["fragile"][0] for row in own),
            "by regions alone": span(row["fragile_regions"][0] for row in own),
            "certified at KL 0.1": span(row["certified"][2] for row in own),
            "repair: NLL": signed(float(np.mean([row["repair_nll"][0] for row in own])), decimals=4),
            "kept": kept(own),
        }

    caption = "CIFAR-10H: labelled test rows, mean (smallest to largest) over seeds"
    return mixtures_grid(caption, "mixture", rows, cells)


def hard(rows: Sequence[Row]) -> Grid:
    """One seed's mixtures: validation with labels, the hard test rows without."""

    def cells(own: Sequence[Row]) -> Cells:
        (row,) = own
        forecast = {
            f"{metric} {what}": _score(row, what, metric)
            for metric in ("accuracy", "ECE")
            for what in ("source", "predicted", "actual")
        }
        return {
            "AUC": number(row["auc"][0]),
            "effective rows": Entry(f"{row['effective']:.0f}", (row["effective"],)),
            **forecast,
            "p": Entry(f"{row['p_assumption']:.0e}", (row["p_assumption"],)),
        }

    return mixtures_grid("CIFAR-10H: the hard test rows without labels", "mixture", rows, cells)


def _score(row: Row, what: str, metric: str) -> Entry:
    value, low, high = row[f"{what}_{metric.lower()}"]
    if what == "source":
        return number(value)
    return Entry(f"{decimal(value)} [{decimal(low)}, {decimal(high)}]", (value, low, high))


def unlabelled(rows: Sequence[Row]) -> Grid:
    """Every mixture with labelled source rows, and a domain that it was not trained on without labels."""

    def cells(own: Sequence[Row]) -> Cells:
        given = [row for row in own if not row["verdict"]]
        columns = {
            "AUC": span(row["auc"][0] for row in own),
            "refused": share(bool(row["verdict"]) for row in own),
        }
        for metric in ("accuracy", "ECE"):
            name = metric.lower()
            columns |= {
                f"{metric} source": span(row[f"source_{name}"][0] for row in own),
                f"{metric} predicted": span(row[f"predicted_{name}"][0] for row in given),
                f"{metric} actual": span(row[f"actual_{name}"][0] for row in own),
                f"{metric} held": share(held(row, name) for row in given),
            }
        return columns | {"rejected": share(row["p_assumption"] < ALPHA for row in given)}

    caption = "PACS: the target domain without labels, mean (smallest to largest) over seeds"
    return mixtures_grid(caption, "target, mixture", rows, cells)


def held(row: Row, metric: str) -> bool:
    """Whether the interval predicted from the source holds what came true."""
    _, low, high = row[f"predicted_{metric}"]
    return bool(low <= row[f"actual_{metric}"][0] <= high)


def unseen(rows: Sequence[Row]) -> Grid:
    """Every mixture on the labelled rows of a domain that it was not trained on."""

    def cells(own: Sequence[Row]) -> Cells:
        return {
            "ECE": span(row["ece"][0] for row in own),
            "E|m − f| at least": span(max(row["witness"][1], 0.0) for row in own),
            "cancelled inside the bins at least": span(max(row["cancelled"][1], 0.0) for row in own),
            "hidden, p < 0.05": share(row["p_hidden"] < ALPHA for row in own),
            "error forced at KL 0.1": span(row["fragile"][0] for row in own),
            "by regions alone": span(row["fragile_regions"][0] for row in own),
            "repair: NLL": signed(float(np.mean([row["repair_nll"][0] for row in own]))),
            "kept": kept(own),
        }

    caption = "PACS: the target domain with labels, mean (smallest to largest) over seeds"
    return mixtures_grid(caption, "target, mixture", rows, cells)


def mixtures_grid(
    caption: str, first: str, rows: Sequence[Row], cells: Callable[[Sequence[Row]], Cells]
) -> Grid:
    """One row a mixture, in the order in which the rows come: as trained first."""
    mixtures: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: "target" not in row and list(KINDS).index(row["kind"])):
        domain = row.get("target", "hard")
        where = "" if domain == "hard" else f"{domain}, "
        mixtures.setdefault(f"{where}{method_title(row['method'])}, {KINDS[row['kind']]}", []).append(row)
    table = {name: cells(own) for name, own in mixtures.items()}
    columns = next(iter(table.values()))
    return Grid(
        caption,
        (Heading(first, (first,)), *(Heading(title, (title,)) for title in columns)),
        (tuple((label(name, name), *row.values()) for name, row in table.items()),),
    )


def share(outcomes: Iterable[bool]) -> Entry:
    """How many of how many; a dash where there are none."""
    known = list(outcomes)
    return Entry(f"{sum(known)} of {len(known)}", (sum(known), len(known))) if known else label("–", "")


def kept(rows: Sequence[Row]) -> Entry:
    """In how many folds a repair beat the temperature."""
    folds, blocks = (sum(row["repair_kept"][i] for row in rows) for i in (0, 1))
    return Entry(f"{folds} of {blocks}", (folds, blocks))


TABLES: dict[str, Callable[[Sequence[Row]], Grid]] = {
    "cifar10h": labelled,
    "hard": hard,
    "pacs": unlabelled,
    "targets": unseen,
}
