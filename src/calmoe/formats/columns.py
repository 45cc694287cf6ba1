"""What a user says about the columns of a file that calmoe did not write."""

import csv
import difflib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from calmoe.errors import InputError, refusal, shown

MOST_SHOWN = 6  # names in a message
NEAR = 0.75  # how alike two names are, from 0 to 1, where one may be a slip for the other
NOTE = "read_as"
"""Where the metadata say in one line how a file was read that calmoe did not write."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns (arrays, in npz files) by what they hold; None: what their names say.

    classes: names of the classes, in the order of the probabilities. positive: the class that a lone column
    of probabilities is about. routing: columns, or one weight an expert for all rows. experts: columns,
    expert first, then class, or the beginnings of their names, one an expert. logits: whether probabilities
    and experts are given before the softmax; routing_logits: whether the routing is.
    like: class names of other predictions, whose order these take where theirs are the same.
    label_optional: whether label and groups may be missing, as in a file without labels.
    """

    label: str | None = None
    probs: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    positive: str | None = None
    routing: tuple[str, ...] | tuple[float, ...] | None = None
    experts: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    logits: bool = False
    routing_logits: bool = False
    like: tuple[str, ...] | None = None
    label_optional: bool = False

    @property
    def given(self) -> list[str]:
        """The options that the user gave."""
        own = (field for field in fields(self) if field.name not in ("like", "label_optional"))
        return [field.name for field in own if getattr(self, field.name) != field.default]

    @property
    def words(self) -> list[str]:
        """The options that the user gave, as the words of a command.

        >>> Columns(label="y", probs=("p, no", "p_yes"), routing=(0.3, 0.7), logits=True).words
        ['--label', 'y', '--probs', '"p, no",p_yes', '--routing', '0.3,0.7', '--logits']
        """
        words = []
        for name in self.given:
            value, option = getattr(self, name), f"--{name.replace('_', '-')}"
            words += [option] if value is True else [option, _joined(value)]
        return words

    @property
    def numeric(self) -> set[str]:
        """Columns that must hold numbers."""
        return {
            name
            for part in (self.probs, self.routing, self.experts)
            for name in part or ()
            if isinstance(name, str)
        }


def _joined(value: str | tuple[object, ...]) -> str:
    """Names between commas, as the command line reads them."""
    if isinstance(value, str):
        return value
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue()


def asked(**options: Any) -> Columns:
    """The options as Python code or the command line gives them, checked.

    >>> asked(label="y", probs=["p_no", "p_yes"], classes=[0, 1], routing=np.array([0.5, 0.5])).given
    ['label', 'probs', 'classes', 'routing']
    """
    for name in ("label", "positive"):
        if options.get(name) is not None:
            options[name] = class_name(options[name]) if name == "positive" else _name(name, options[name])
    for name in ("probs", "experts", "groups", "classes", "routing", "like"):
        if options.get(name) is not None:
            options[name] = _several(name, options[name])
    for name in ("logits", "routing_logits"):
        if not isinstance(options.get(name, False), bool):
            raise refusal(name, "True or False", options[name])
    return Columns(**options)


def class_name(value: Any) -> str:
    """A class's name as text: whole numbers without a point, booleans as Python writes them.

    >>> class_name(np.float64(1.0)), class_name(np.True_), class_name(" yes ")
    ('1', 'True', 'yes')
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and plain.is_integer():
        plain = int(plain)
    return str(plain).strip()


def class_values(names: Sequence[str]) -> list[str] | list[int]:
    """Names of classes as whole numbers where all of them are some, in the same order.

    >>> class_values(["2", "10"]), class_values(["2", "x"]), class_values(["01", "2"])
    ([2, 10], ['2', 'x'], ['01', '2'])
    """
    try:
        if all(str(int(name)) == name and abs(int(name)) < 2**53 for name in names):
            return [int(name) for name in names]
    except ValueError:
        pass
    return list(names)


def listed(names: Iterable[object]) -> str:
    """Some names for a message.

    >>> listed(["a", "b"]), listed(range(9))
    ('a, b', '0, 1, 2, 3, 4, 5, … (9 in all)')
    """
    words = [shown(name, 60).removeprefix("'").removesuffix("'") for name in names]
    more = f", … ({len(words)} in all)" if len(words) > MOST_SHOWN else ""
    return ", ".join(words[:MOST_SHOWN]) + more


def check_there(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse a name that is not there; say which one is near, or some that are.

    >>> check_there("column", "Label", ["label", "p_0"])
    Traceback (most recent call last):
    calmoe.errors.InputError: there is no column 'Label': did you mean 'label'?
    """
    there = list(names)
    if name in there:
        return
    folded = {each.casefold(): each for each in there[:1000] if len(each) < 100}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=NEAR)
    hint = f"did you mean {shown(folded[near[0]])}?" if near else f"there are {listed(there) or 'none'}"
    raise InputError(f"there is no {kind} {shown(name, 60)}: {hint}")


def _name(option: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise refusal(option, "the name of a column", value)
    return value.strip()


def _several(option: str, value: Any) -> tuple[Any, ...]:
    """Names, or weights for the routing; one name may stand alone."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Iterable):
        raise refusal(option, "a list of names", value)
    given = [each.item() if hasattr(each, "item") else each for each in values]
    if option == "routing" and given and all(isinstance(each, Real) for each in given):
        return tuple(float(each) for each in given)
    if option in ("classes", "like"):
        given = [class_name(each) for each in given]
    names = tuple(_name(option, each) for each in given)
    if not names and option != "groups":
        raise InputError(f"{option} is empty: name at least one column, or leave the option out")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{option} names {shown(twice)} twice: name each one once")
    return names
