"""The report of a run: its tables, its figures, its page, and the paper's cells beside its own."""

from calmoe.render.grid import Grid
from calmoe.report.columns import columns_in
from calmoe.report.comparison import Comparison, beyond, compare, comparison_table
from calmoe.report.published import is_published, published
from calmoe.report.rows_over_seeds import Cell, PairedDifference, known_columns, paired, summarise
from calmoe.report.tables import main_table, paired_table

__all__ = [
    "Cell",
    "Comparison",
    "Grid",
    "PairedDifference",
    "beyond",
    "columns_in",
    "compare",
    "comparison_table",
    "is_published",
    "known_columns",
    "main_table",
    "paired",
    "paired_table",
    "published",
    "summarise",
]
