"""Column cards: what each column of a table measures, which value is best, and where the column stands.

To put a column into one more table, add the table's name to the column's card.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

TABLES = {  # what a card's `tables` can name
    "paper": "the columns that the paper prints",
    "main": "a run's main table, and a sweep's",
    "sweep": "what chooses a sweep's point, before the columns of its main table",
    "scores": "a run's proper scores and worst groups",
    "paired": "differences to the baseline over the same seeds",
    "summary": "the sentences at the top of a run's page; the lower, the better",
    "targets": "the main table over several targets, with a block for each",
    "targets scores": "proper scores by target",
    "targets paired": "differences to the baseline by target",
}
KINDS = ("accuracy", "calibration", "proper", "views", "worst group")  # from left to right
PROPER_FIRST = ("accuracy", "proper", "calibration", "worst group")
ORDERS = {"paired": PROPER_FIRST, "summary": PROPER_FIRST}  # the tables with another order


class Column(NamedTuple):
    """One measure of a method and seed, under its name in a run's rows.

    kind: what the measure judges; best: max or min, whichever is better.
    """

    name: str
    title: str
    kind: str
    tables: tuple[str, ...]
    best: Callable[[Iterable[float]], float] = min


PAPER = ("paper", "main")
EVERYWHERE = ("main", "paired", "summary", "targets paired")
COLUMNS = {
    column.name: column
    for column in (
        Column("accuracy", "Accuracy", "accuracy", (*PAPER, "paired", "targets", "targets paired"), max),
        Column("hard_accuracy", "Hard Accuracy", "accuracy", PAPER, max),
        Column("ece", "ECE", "calibration", (*PAPER, "paired", "targets", "targets paired")),
        Column("ece_ts", "ECE+TS", "calibration", (*EVERYWHERE, "paper", "targets")),
        Column("hard_ece", "Hard ECE", "calibration", (*PAPER, "paired")),
        Column("hard_ece_ts", "Hard ECE+TS", "calibration", (*PAPER, "paired", "summary")),
        Column("nll", "NLL", "proper", ("scores",)),
        Column("nll_ts", "NLL+TS", "proper", (*EVERYWHERE, "scores", "targets scores")),
        Column("brier", "Brier", "proper", ("scores",)),
        Column(
            "brier_ts", "Brier+TS", "proper", ("main", "scores", "paired", "targets scores", "targets paired")
        ),
        Column("views_accuracy", "Accuracy+views", "views", ("main",), max),
        Column("views_ece_ts", "ECE+views+TS", "views", ("main",)),
        Column("views_hard_ece_ts", "Hard ECE+views+TS", "views", ("main",)),
        Column("views_nll_ts", "NLL+views+TS", "views", ("main",)),
        Column("worst_group_accuracy", "Worst-Group Accuracy", "worst group", ("scores",), max),
        Column("worst_group_ece", "Worst-Group ECE", "worst group", ("scores",)),
        Column("worst_group_ece_ts", "Worst-Group ECE+TS", "worst group", ("scores",)),
        Column("validation_nll_ts", "Validation NLL+TS", "proper", ("sweep",)),
    )
}


def columns_in(table: str) -> tuple[str, ...]:
    """The columns of a table, from left to right.

    >>> columns_in("paper")
    ('accuracy', 'hard_accuracy', 'ece', 'ece_ts', 'hard_ece', 'hard_ece_ts')
    """
    columns = [column for column in COLUMNS.values() if table in column.tables]
    order = ORDERS.get(table, KINDS)
    return tuple(column.name for column in sorted(columns, key=lambda column: order.index(column.kind)))


def column_title(column: str) -> str:
    """What tables and figures call a column; its name where it has no card."""
    return COLUMNS[column].title if column in COLUMNS else column
