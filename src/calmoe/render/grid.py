"""A table without a format, and its five renderers: Markdown, LaTeX, CSV, HTML and the terminal."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from calmoe.escaping import latex, markdown, spreadsheet, visible
from calmoe.render.wording import decimal, telling


class Entry(NamedTuple):
    """The text that people read, and the value or values that a CSV file holds."""

    text: str
    values: tuple[str | float, ...]
    bold: bool = False

    @property
    def numeric(self) -> bool:
        return not isinstance(self.values[0], str)


class Heading(NamedTuple):
    """A column's title, a CSV name for each value of its entries, and the group above the title."""

    title: str
    names: tuple[str, ...]
    group: str = ""

    @property
    def whole(self) -> str:
        """The title where no group stands above it."""
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class Grid:
    """Sections of rows of entries.

    >>> row = label("Vanilla MoE", "vanilla"), estimate(0.055, 0.001, bold=True)
    >>> grid = Grid("ECE", (Heading("Method", ("method",)), Heading("ECE", ("ece", "ece_se"))), ((row,),))
    >>> print(grid.markdown())
    ECE
    <BLANKLINE>
    | Method | ECE |
    | --- | ---: |
    | Vanilla MoE | **0.055 ± 0.001** |
    <BLANKLINE>
    """

    caption: str
    headings: tuple[Heading, ...]
    sections: tuple[tuple[tuple[Entry, ...], ...], ...]

    @property
    def rows(self) -> list[tuple[Entry, ...]]:
        return [row for section in self.sections for row in section]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [any(row[i].numeric for row in self.rows) for i in range(len(self.headings))]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The groups above the headings, and how many columns each spans; empty where no column has one."""
        runs = [(group, len(list(own))) for group, own in groupby(self.headings, key=lambda h: h.group)]
        return runs if any(group for group, _ in runs) else []

    def markdown(self) -> str:
        """A paragraph with the caption, then a GitHub table."""

        def line(cells: Iterable[str]) -> str:
            return f"| {' | '.join(cells)} |"

        table = [
            line(markdown(heading.whole) for heading in self.headings),
            line("---:" if numeric else "---" for numeric in self.numeric),
            *(line(map(_markdown, row)) for row in self.rows),
        ]
        return "\n".join([markdown(self.caption), "", *table, ""])

    def latex(self) -> str:
        """A table environment; needs booktabs."""

        def line(cells: Iterable[str]) -> str:
            return " & ".join(cells) + r" \\"

        above = [rf"\multicolumn{{{n}}}{{c}}{{{latex(group)}}}" for group, n in self.groups]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex(self.caption)}}}",
            rf"\begin{{tabular}}{{{''.join('r' if numeric else 'l' for numeric in self.numeric)}}}",
            r"\toprule",
            *([line(above)] if above else []),
            line(latex(heading.title) for heading in self.headings),
        ]
        for section in self.sections:
            lines += [r"\midrule", *(line(map(_latex, row)) for row in section)]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def csv(self) -> str:
        """Numbers in full, a mean and its standard error in columns of their own; NaN is empty."""
        names = [name for heading in self.headings for name in heading.names]
        rows = ([value for entry in row for value in entry.values] for row in self.rows)
        return "".join(f"{line}\n" for line in (_csv(names), *map(_csv, rows)))

    def html(self) -> str:
        """A table with a body for each section; `page.js` sorts rows by `data-value`, or else by text."""
        kinds = [' class="number"' if numeric else "" for numeric in self.numeric]

        def body(section: Iterable[tuple[Entry, ...]]) -> str:
            rows = ("".join(map(_html, row, kinds, ["th", *["td"] * len(row)])) for row in section)
            return "<tbody>" + "".join(f"\n<tr>{row}</tr>" for row in rows) + "</tbody>"

        headings = (
            f'<th scope="col" aria-sort="none"{kind}><button type="button">{escape(title)}</button></th>'
            for (title, *_), kind in zip(self.headings, kinds, strict=True)
        )
        above = "".join(
            f'<th scope="colgroup" colspan="{n}">{escape(group)}</th>'
            if group
            else f'<td colspan="{n}"></td>'
            for group, n in self.groups
        )
        return "\n".join(
            [
                f"<table>\n<caption>{escape(self.caption)}</caption>",
                f"<thead>{above and f'<tr>{above}</tr>'}<tr>{''.join(headings)}</tr></thead>",
                *map(body, self.sections),
                "</table>",
            ]
        )

    def rich(self) -> Table:
        """A table for the terminal: `rich.print(grid.rich())`."""
        table = Table(
            title=Text(visible(self.caption)),
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
        )
        for i, (heading, numeric) in enumerate(zip(self.headings, self.numeric, strict=True)):
            words = visible(" ".join([heading.whole, *(row[i].text for row in self.rows)])).split()
            width = max(map(len, words), default=1)  # a narrow terminal breaks lines between words only
            justify: Literal["left", "right"] = "right" if numeric else "left"
            table.add_column(Text(visible(heading.whole)), justify=justify, min_width=width)
        for section in self.sections:
            for row in section:
                table.add_row(*(Text(visible(e.text), style="bold" if e.bold else "") for e in row))
            table.add_section()
        return table


def label(text: str, key: str) -> Entry:
    return Entry(text, (key,))


def count(n: int) -> Entry:
    return Entry(str(n), (n,))


def estimate(mean: float, standard_error: float, bold: bool = False, decimals: int = 3) -> Entry:
    """`0.055 ± 0.001`; the mean alone where there is no standard error."""
    spread = "" if math.isnan(standard_error) else f" ± {decimal(standard_error, decimals)}"
    return Entry(decimal(mean, decimals) + spread, (mean, standard_error), bold)


def number(value: float, decimals: int = 3) -> Entry:
    return Entry(decimal(value, decimals), (value,))


def signed(value: float, bold: bool = False, decimals: int = 3) -> Entry:
    return Entry(decimal(value, decimals, "+"), (value,), bold)


def interval(
    low: float, high: float, bold: bool = False, missing: str = "–", sign: str = "+", decimals: int = 3
) -> Entry:
    """A bold interval gets more decimals where a bound would look like zero without them."""
    if math.isnan(low) or math.isnan(high):
        return Entry(missing, (low, high), bold)
    decimals = max(decimals, telling(low, high)) if bold else decimals
    return Entry(f"[{decimal(low, decimals, sign)}, {decimal(high, decimals, sign)}]", (low, high), bold)


def _html(entry: Entry, kind: str, tag: str) -> str:
    """A cell; the first of a row is its heading. `data-value` holds a number in full, nothing for NaN."""
    first = entry.values[0]
    scope = ' scope="row"' if tag == "th" else ""
    value = "" if isinstance(first, str) else f' data-value="{_script_number(first)}"'
    text, plus_minus, spread = map(escape, entry.text.partition(" ± "))
    text += f"<small>{plus_minus}{spread}</small>" if spread else ""
    text = f"<strong>{text}</strong>" if entry.bold else text
    return f"<{tag}{scope}{kind}{value}>{text}</{tag}>"


def _script_number(value: float) -> str:
    """The number as JavaScript reads it."""
    return "" if math.isnan(value) else repr(value).replace("inf", "Infinity")


def _markdown(entry: Entry) -> str:
    text = markdown(entry.text)
    return f"**{text}**" if entry.bold else text


def _csv(values: Iterable[str | float]) -> str:
    """A line without its end; the writer quotes what breaks lines of either kind."""
    stream = io.StringIO()
    cells = (spreadsheet(value) if isinstance(value, str) else value for value in values)
    csv.writer(stream).writerow(["" if cell != cell else cell for cell in cells])
    return stream.getvalue().removesuffix("\r\n")


def _latex(entry: Entry) -> str:
    if not entry.numeric or entry.text == "–":
        return rf"\textbf{{{latex(entry.text)}}}" if entry.bold else latex(entry.text)
    text = entry.text.replace("±", r"\pm").replace("−", "-").replace("inf", r"\infty")
    text = text.replace("unknown", r"\mbox{unknown}")
    return rf"$\mathbf{{{text}}}$" if entry.bold else f"${text}$"
