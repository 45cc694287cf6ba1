"""The rows of a sweep by method and point, and the point that validation chooses.

The rows of a sweep are those of a run with its point (`setting` and `value`; `point` where several settings
are swept) and the `batch` size, which is the number of rows where the data have fewer. Where the objective
tilts, they also have the mean `perplexity` of its weights over batches.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from calmoe.errors import InputError
from calmoe.experiments.sweep import Point, Value, may_read, rising, row_point, value_text
from calmoe.methods import in_order
from calmoe.render.grid import Entry, estimate
from calmoe.render.wording import count_range, listed
from calmoe.report.rows_over_seeds import MISSING, Cell, Row, Rows, summarise

Cells: TypeAlias = Mapping[str, Cell]  # by column
Swept: TypeAlias = dict[str, dict[Point, Cells]]  # by method and point

CHOOSES = "validation_nll_ts"  # the column whose lowest mean chooses a point: no test row takes part
CHOICE = "validation NLL+TS"  # what sentences and axes call it
TITLES = {"eta": "η", "warmup": "warm-up epochs"}  # of settings that have a better title than their name
LONGEST = 8  # characters of a value that is shown in full


def setting_title(setting: str) -> str:
    """What tables and figures call the setting.

    >>> setting_title("warmup"), setting_title("learning_rate")
    ('warm-up epochs', 'learning_rate')
    """
    return TITLES.get(setting, setting)


def sweep_title(settings: Sequence[str]) -> str:
    """What headings and captions call the sweep.

    >>> sweep_title(["eta", "learning_rate"])
    'η and learning_rate'
    """
    return listed([setting_title(setting) for setting in settings])


def settings_of(rows: Rows) -> tuple[str, ...]:
    """The settings that the rows sweep."""
    if not rows:
        raise InputError("the sweep has no rows: there is nothing to show")
    if any(not row_point(row) for row in rows):
        raise InputError("these rows are not of a sweep: they name no setting")
    swept = {tuple(row_point(row)) for row in rows}
    if len(swept) > 1:
        named = ", ".join(sorted("-".join(settings) for settings in swept))
        raise InputError(f"rows of several sweeps ({named}): show one at a time")
    return swept.pop()


def by_point(rows: Rows, protocol: str) -> Swept:
    """[method][point][column], methods in the paper's order, points rising."""
    at_points: dict[Point, list[Row]] = {}
    for row in rows:
        at_points.setdefault(tuple(row_point(row).values()), []).append(row)
    at = {point: summarise(at_points[point], protocol) for point in sorted(at_points, key=rising)}
    methods = in_order(sorted({method for summary in at.values() for method in summary}))
    if not methods:
        raise InputError(f"the sweep has no rows under protocol {protocol!r}")
    return {m: {point: summary[m] for point, summary in at.items() if m in summary} for m in methods}


def read_by(method: str, settings: Sequence[str]) -> list[int]:
    """The places of the settings that the method reads.

    >>> read_by("robust", ["rho", "eta"]), read_by("vanilla", ["eta"])
    ([1], [])
    """
    return [place for place, setting in enumerate(settings) if may_read(method, setting)]


def distinct(method: str, settings: Sequence[str], points: Mapping[Point, Cells]) -> dict[Point, Cells]:
    """Of points that differ only in what the method does not read, the first with the most seeds."""
    places, first = read_by(method, settings), dict[Point, Point]()
    for point in sorted(points, key=lambda point: -cell_at(points[point], CHOOSES).n):
        first.setdefault(tuple(point[place] for place in places), point)
    return {point: cells for point, cells in points.items() if point in first.values()}


def chosen(method: str, settings: Sequence[str], points: Mapping[Point, Cells]) -> Point | None:
    """The point with the lowest mean validation NLL+TS, among those with the most seeds.

    A mean over fewer seeds may be lucky: it never chooses. Where two are equal, the first one stands. None:
    nobody knows it, or the method reads nothing that is swept.
    """
    if not read_by(method, settings):
        return None
    known = {point: cell_at(cells, CHOOSES) for point, cells in points.items()}
    most = max((cell.n for cell in known.values()), default=0)
    whole = {point: cell.mean for point, cell in known.items() if cell.n == most}
    return min(whole, key=lambda point: whole[point]) if most else None


def best_first(points: Mapping[Point, Cells]) -> list[Point]:
    """The points by their mean validation NLL+TS, those with the most seeds first: the chosen one leads."""
    known = {point: cell_at(cells, CHOOSES) for point, cells in points.items()}
    return sorted(known, key=lambda point: (-known[point].n, known[point].mean))


def cell_at(cells: Cells, column: str) -> Cell:
    return cells.get(column, MISSING)


def cell_text(cell: Cell, decimals: int = 3) -> str:
    return estimate(cell.mean, cell.standard_error, decimals=decimals).text


def error_column(swept: Swept) -> tuple[str, str]:
    """The column and title of the error to show: hard ECE, or ECE where nothing is hard."""
    hard = any(cell_at(cells, "hard_ece").n for by in swept.values() for cells in by.values())
    return ("hard_ece", "hard ECE") if hard else ("ece", "ECE")


def seeds_at_points(swept: Swept) -> str:
    """How many seeds there are at a point."""
    cells = (cells for by in swept.values() for cells in by.values())
    return count_range((max(cell.n for cell in columns.values()) for columns in cells), "seed")


def point_text(settings: Sequence[str], point: Point, method: str = "") -> str:
    """The point in a sentence; with a method, without settings that it does not read.

    >>> point_text(["eta", "hidden", "rho"], (2, (8, 8), 0.1), "robust")
    'η = 2, hidden = [8,8]'
    """
    named = [(settings[place], point[place]) for place in read_by(method, settings)]
    return ", ".join(f"{setting_title(setting)} = {value_text(value)}" for setting, value in named)


def value_entries(values: Sequence[Value]) -> dict[Value, Entry]:
    """The values as tables have them: in full, or with so many digits that no two look alike.

    >>> [entry.text for entry in value_entries([0.5, 0.123456789123]).values()]
    ['0.5', '0.123457']
    """
    unique = [*dict.fromkeys(values)]
    full = {value: value_text(value) for value in unique}
    for digits in range(6, 17):
        texts = {
            value: f"{value:.{digits}g}" if isinstance(value, float) and len(text) > LONGEST else text
            for value, text in full.items()
        }
        if len({*texts.values()}) == len(unique):
            break
    else:
        texts = full
    return {
        value: Entry(text, (value if isinstance(value, int | float) else text,))
        for value, text in texts.items()
    }
