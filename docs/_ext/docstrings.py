"""Docstrings as the site shows them: their mathematics is no markup, and results have no constructor."""

import re
from collections import _tuplegetter
from typing import Any

QUOTED = re.compile(r"(`[^`]*`)")


def plain_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """|m − f| is an absolute value here, and not reStructuredText's sign for a substitution."""
    for number, line in enumerate(lines):
        if ">>>" not in line and "..." not in line[:12]:
            parts = QUOTED.split(line)
            lines[number] = "".join(p if p.startswith("`") else p.replace("|", r"\|") for p in parts)


def no_constructor(app: Any, what: str, name: str, thing: Any, options: Any, sign: str, back: str) -> Any:
    """A class that documents its attributes, and no arguments, is one that users get and do not build."""
    doc = thing.__doc__ or ""
    return ("", None) if what == "class" and "Attributes:" in doc and "Args:" not in doc else None


def no_aliases(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """The fields of a named tuple stand in its docstring already."""
    return True if isinstance(thing, _tuplegetter) else None


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("autodoc-process-docstring", plain_bars)
    app.connect("autodoc-process-signature", no_constructor)
    app.connect("autodoc-skip-member", no_aliases)
    return {"parallel_read_safe": True}
