"""Docstrings as the site shows them, and the blocks of names that pages ask for them with.

A block lists names of a module; each is shown with its docstring:

    ```{names} calmoe.metrics
    ece adaptive_ece Reliability
    ```
"""

import re
from collections import _tuplegetter
from importlib import import_module
from inspect import isclass
from typing import Any

QUOTED = re.compile(r"(`[^`]*`)")
NAMES = re.compile(r"^```\{names\} (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INHERITED = {  # what bases bring is shown as well, but for these bases
    "calmoe.CalibratedMoEClassifier": "ClassifierMixin, BaseEstimator",
    "calmoe.MixtureOfModels": "ClassifierMixin, BaseEstimator",
    "calmoe.worlds.World": "object",
}


def expand(app: Any, page: str, source: list[str]) -> None:
    """Write autodoc's directives for the blocks of names in a page."""
    source[0] = NAMES.sub(lambda block: _directives(block[1], block[2].split()), source[0])


def _directives(module: str, names: list[str]) -> str:
    lines = ["```{eval-rst}", f".. currentmodule:: {module}"]
    for name in names:
        full = f"{module}.{name}"
        lines.append(f".. auto{_kind(full)}:: {full}")
        if _kind(full) == "data":
            lines.append("   :no-value:")
        if full in INHERITED:
            lines.append(f"   :inherited-members: {INHERITED[full]}")
    return "\n".join([*lines, "```"])


def _kind(full: str) -> str:
    """What autodoc calls it."""
    module, _, name = full.rpartition(".")
    thing = getattr(import_module(module), name)
    if isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if callable(thing) and hasattr(thing, "__code__") else "data"


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
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", plain_bars)
    app.connect("autodoc-process-signature", no_constructor)
    app.connect("autodoc-skip-member", no_aliases)
    return {"parallel_read_safe": True}
