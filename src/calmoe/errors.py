"""The one exception for bad input: a line that says what is wrong and what to do."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """Something the user gave is wrong. The message is one line: cause and remedy.

    The command line prints it and exits with code 2; no traceback.
    """


@contextmanager
def about(path: str | Path) -> Iterator[None]:
    """Put the path before the message of every InputError that is raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not among `known`; say which one is near, whatever its case, or list them all."""
    names = list(known)
    if name not in names:
        folded = {known.casefold(): known for known in names}
        near = difflib.get_close_matches(name.casefold(), folded, n=1)
        hints = [f"did you mean {folded[near[0]]!r}?"] if near else []
        if len(names) <= 12 or not near:
            hints.append(f"known: {', '.join(sorted(names))}")
        raise InputError(f"unknown {kind} {shown(name)}: {'; '.join(hints)}")


def refusal(name: str, wanted: str, value: object) -> InputError:
    """The error for an argument or a field that must be something else."""
    return InputError(f"{name} must be {wanted}, not {shown(value)}")


def shown(value: object, most: int = 200) -> str:
    """A value as Python writes it, in one line; a long one without its middle.

    >>> shown("north"), shown("x" * 1000, most=9)
    ("'north'", "'xxx…xxx'")
    """
    try:
        return cut(repr(value), most)
    except RecursionError:
        return "something deeply nested"


def cut(text: str, most: int) -> str:
    """Text in one line; a long one without its middle.

    >>> cut("it's", 60), cut("x" * 1000, 7)
    ("it's", 'xxx…xxx')
    """
    line = " ".join(text.splitlines())
    return line if len(line) <= most else f"{line[: most // 2]}…{line[-(most // 2) :]}"


def some(names: Iterable[object], most: int) -> str:
    """The first names, for a message.

    >>> some("abc", 3), some([1, 2, 3], 2)
    ('a, b, c', '1, 2, …')
    """
    given = [*map(str, names)]
    return ", ".join(given if len(given) <= most else [*given[:most], "…"])
