"""The commands that an audit prints: with the file, the options that say how to read it, and its cases."""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from calmoe.auditing.verdict import FILE, LABELLED, SINGLE, Verdict

DATA = {"NEW_PREDICTIONS": "NEW_DATA", LABELLED: "LABELLED_DATA", "MORE_ROWS": "MORE_DATA", SINGLE: "CASES"}
"""Predictions that commands ask for, and what a model makes them from."""


class Asked(NamedTuple):
    """What a reader's commands name: the file, the folder of the model behind it, the options that say how to
    read the file, and the column of its cases.
    """

    file: str | None = None
    model: str | None = None
    options: Sequence[str] = ()
    cluster: str | None = None

    @classmethod
    def on_page(cls, facts: Mapping[str, str], file: str | None) -> "Asked":
        """As the facts of a page have it."""
        return cls(file, None, shlex.split(facts.get("options", "")), facts.get("cluster"))


ANY_FILE = Asked()


def command(verdict: Verdict, asked: Asked) -> str:
    """The recommended command, for this file."""
    return _completed(verdict, asked, {})


def commands(verdict: Verdict, asked: Asked) -> list[str]:
    """The recommended command; where it needs predictions of a known model, first the one that makes them."""
    needed = [word for word, is_place in _words(verdict.action.command) if is_place and word in DATA]
    if asked.model is None or not needed:
        return [command(verdict, asked)]
    data = DATA[needed[0]]
    made = f"{data.partition('_')[0].lower()}-predictions.csv"
    predict = f"calmoe predict {shlex.quote(asked.model)} {data} --out {made}"
    return [predict, _completed(verdict, asked, {needed[0]: made})]


def _completed(verdict: Verdict, asked: Asked, values: dict[str, str]) -> str:
    """The recommended command with these values, the file and the options in their places."""
    named = values | ({FILE: asked.file} if asked.file else {})
    return with_options(_filled(verdict.action.command, named), asked.options, asked.cluster)


def with_options(command: str, options: Sequence[str], cluster: str | None = None) -> str:
    """The command with options behind its files, where it reads predictions; with the cases where it judges.

    >>> with_options("calmoe repair a.csv --of yes --out calibrator.json", ["--label", "y"], "person")
    'calmoe repair a.csv --label y --cluster person --of yes --out calibrator.json'
    >>> with_options("calmoe apply calibrator.json b.csv --out c.csv", ["--label", "y"], "person")
    'calmoe apply calibrator.json b.csv --label y --out c.csv'
    """
    words = shlex.split(command)
    if words[1] not in ("audit", "repair", "apply"):
        return command
    place = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    judges = words[1] != "apply" and "--cluster" not in words
    cases = ["--cluster", cluster] if judges and cluster is not None else []
    return shlex.join([*words[:place], *options, *cases, *words[place:]])


def _filled(command: str, values: Mapping[str, str]) -> str:
    """The command with a value in each place that has one.

    >>> _filled("calmoe audit FILE --of FILE", {"FILE": "my rows.csv"})
    "calmoe audit 'my rows.csv' --of FILE"
    """
    return shlex.join(values.get(word, word) if is_place else word for word, is_place in _words(command))


def _words(command: str) -> list[tuple[str, bool]]:
    """The words of a command, and whether each may be a place: a class after --of is none."""
    words = shlex.split(command)
    return [(word, before != "--of") for before, word in zip(["", *words[:-1]], words, strict=True)]


def next_step(verdict: Verdict) -> tuple[str, str, str] | None:
    """What goes with the recommended command: its title, why, and a second command; None if nothing does."""
    if verdict.action.kind == "repair" or verdict.offered is not None:
        return (
            "And then?",
            "Use it on new predictions, or without options on a model's folder; audit rows that it has not "
            "seen:",
            "calmoe apply calibrator.json NEW_PREDICTIONS --out repaired.csv",
        )
    for name, rows in (
        ("NEW_PREDICTIONS", "new data, labels not needed"),
        (LABELLED, "labelled rows from there"),
    ):
        if (name, True) in _words(verdict.action.command):
            predict = f"calmoe predict MODEL DATA --out {name}"
            return f"What are {name}?", f"What the same model says about {rows}:", predict
    return None
