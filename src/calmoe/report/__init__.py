"""What a run found: tables beside what the paper published."""

from calmoe.render.grid import Grid
from calmoe.report.comparison import Comparison, beyond, compare, comparison_table
from calmoe.report.published import is_published, published
from calmoe.report.tables import (
    PAPER_COLUMNS,
    Cell,
    PairedDifference,
    known_columns,
    main_table,
    paired,
    paired_table,
    summarise,
)

__all__ = [
    "PAPER_COLUMNS",
    "Cell",
    "Comparison",
    "Grid",
    "PairedDifference",
    "beyond",
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
