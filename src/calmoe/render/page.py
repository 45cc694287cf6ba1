"""One self-contained page: a summary in words, sections of tables and figures, and where it all comes from.

The page knows nothing about runs: whoever has tables and figures fills a `Page`. It needs no network, escapes
everything that it shows, and has the same bytes for the same content.
"""

import re
import struct
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from calmoe import __version__
from calmoe.errors import InputError
from calmoe.escaping import visible
from calmoe.render.grid import Grid

if TYPE_CHECKING:
    from jinja2 import Environment

PNG = b"\x89PNG\r\n\x1a\n"


class Html(str):
    """Markup that is whole and safe: whoever makes it has escaped what it shows."""

    def __html__(self) -> str:
        return self


class Point(NamedTuple):
    """A part of the summary: two or three leading words, then a paragraph, a list, or both."""

    lead: str
    text: str = ""
    bullets: Sequence[str] = ()


class Picture(NamedTuple):
    """The bytes of a PNG file, a text for those who cannot see it, and a caption."""

    name: str
    png: bytes
    alt: str
    caption: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        if not self.png.startswith(PNG) or len(self.png) < 24:
            raise InputError(f"the figure {self.name!r} is not a PNG file")
        width, height = struct.unpack(">2I", self.png[16:24])
        return width, height

    @property
    def uri(self) -> str:
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


@dataclass(frozen=True, kw_only=True)
class Section:
    """Tables and figures on one subject, with how to read them before and notes after.

    `folded` tables stay shut until a reader opens them, as does all of a section that is `shut`; `links` lead
    to files beside the page, by name. `body` is markup of its own before the tables.
    """

    heading: str
    how: str | Html = ""
    body: Html | None = None
    tables: Sequence[Grid] = ()
    figures: Sequence[Picture] = ()
    folded: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    shut: bool = False


class Code(str):
    """A fact that a reader types, such as a command."""


Fact: TypeAlias = str | Code | Grid
"""A line beside its name; a table, which stays shut until a reader opens it."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page from top to bottom. opening: markup before everything; style, script: of `opening` and `body`s.

    >>> page = Page(title="Mine & yours", summary=[Point("Found", "Nothing yet.")], facts={"seeds": "42"})
    >>> "<h1>Mine &amp; yours</h1>" in page.html()
    True
    """

    title: str
    subtitle: str = ""
    opening: Html | None = None
    summary: Sequence[Point] = ()
    sections: Sequence[Section] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    footer: str = ""
    style: Html | None = None
    script: Html | None = None

    def html(self) -> str:
        """The whole file, with its style and its script in it."""
        return (
            templates(__package__)
            .get_template("page.html")
            .render(
                page=self,
                lines={name: fact for name, fact in self.facts.items() if not isinstance(fact, Grid)},
                tables={name: fact for name, fact in self.facts.items() if isinstance(fact, Grid)},
                is_code=lambda fact: isinstance(fact, Code),
                anchors=_anchors([section.heading for section in self.sections]),
            )
        )


def footer() -> str:
    """The line at the foot of every page that calmoe writes."""
    return f"Written by calmoe {__version__}. This file is whole: it needs no network."


def _anchors(headings: Sequence[str]) -> list[str]:
    """A name for each heading that a link can point to; no two are alike.

    >>> _anchors(["The ECE, by group", "ECE?", "Résumé", "ECE!"])
    ['the-ece-by-group', 'ece', 'résumé', 'ece-2']
    """
    anchors: list[str] = []
    for heading in headings:
        base = re.sub(r"[^\w]+", "-", heading.lower()).strip("-") or "section"
        names = [base, *(f"{base}-{i}" for i in range(2, len(anchors) + 3))]
        anchors.append(next(name for name in names if name not in (*anchors, *TAKEN)))
    return anchors


TAKEN = ("top", "opening", "summary", "facts", "enlarged")  # by the template itself


def _printable(value: Any) -> Any:
    """Text with its control characters made visible; our own markup as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "\n".join(map(visible, value.split("\n")))


def asset(package: str, name: str) -> Html:
    """A style or a script that lies in a package."""
    return Html((resources.files(package) / name).read_text("utf-8"))


@cache
def templates(package: str) -> "Environment":
    """The templates that lie in a package; they escape everything but `Html`."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # only once a page is made

    def source(name: str) -> str:
        return (resources.files(package) / name).read_text("utf-8")

    return Environment(
        loader=FunctionLoader(source),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
