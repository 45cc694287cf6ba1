"""What a run found: tables beside what the paper published."""

from calmoe.report.grid import Grid
from calmoe.report.published import published
from calmoe.report.tables import (
    Cell,
    Comparison,
    PairedDifference,
    beyond,
    compare,
    comparison_table,
    main_table,
    paired,
    paired_table,
    summarise,
)

__all__ = [
    "Cell",
    "Comparison",
    "Grid",
    "PairedDifference",
    "beyond",
    "compare",
    "comparison_table",
    "main_table",
    "paired",
    "paired_table",
    "published",
    "summarise",
]
