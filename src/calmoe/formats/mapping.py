"""From columns of any name to arrays: by what the user says, or by what the names make certain.

Certain are: the names that calmoe itself uses; columns named like the values of the labels, with or without
`prob_`, `p_` or `proba_` before them; a lone `y_score`, or a lone column of that kind, of two classes.
Without labels, the column `predicted` says what the classes are called. Everything else is asked for.
"""

import re
import shlex
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calmoe.arrays import as_tensor
from calmoe.errors import InputError, shown
from calmoe.formats.classes import Match, Truth, counted, match, truth_of, two_classes
from calmoe.formats.columns import NOTE, Columns, check_there, class_name, listed
from calmoe.formats.naming import LABELS, Named, Table, check_names, from_arrays, from_columns, is_numeric
from calmoe.formats.parts import Remaining, Scores, expert_scores, readable, routing_weights
from calmoe.formats.rounding import renormalised, without_zeros
from calmoe.formats.writing import PREDICTED, TAUGHT

PREFIXES = ("prob_", "p_", "proba_")
LOGITS = ("logit_", "logits_")
LONE = "y_score"
TRUTH = (*LABELS, "y_true")
ARRAYS = ("log_probs", "probs")
TIE = 1e-6  # by which a predicted class may be behind the most probable one: rounding


def mapped(columns: Named, asked: Columns, arrays: bool = False) -> Table:
    """The table in these columns; arrays: whether they are arrays of any shape, as in npz files."""
    table = as_written(columns, asked, arrays)
    return mended(table if asked.groups is not None else without_answers(table))


def as_written(columns: Named, asked: Columns, arrays: bool = False) -> Table:
    """The same before anything is repeated or normalised."""
    check_names(list(columns))
    if is_standard(columns, asked, arrays):
        plain = {name: readable(columns, name) for name in columns}
        return from_arrays(plain) if arrays else from_columns(plain)
    return _Reading(columns, asked, arrays).table()


def without_answers(table: Table) -> Table:
    """The table without the column `predicted`, where that is each row's most probable class: no group.

    However the classes are called there: each name must stand for a class of its own, which is no row's
    second best.
    """
    column, probs = table.groups.get(PREDICTED), table.arrays.get("probs")
    if (
        column is None
        or probs is None
        or probs.ndim != 2
        or not len(probs)
        or column.shape != probs.shape[:1]
    ):
        return table
    names, which = np.unique(column, return_inverse=True)
    if len(names) > probs.shape[1]:
        return table
    behind = (probs.amax(dim=1, keepdim=True) - probs).double().numpy()
    most = np.stack([behind[which == place].max(axis=0) for place in range(len(names))])
    if len(set(most.argmin(axis=1))) < len(names) or most.min(axis=1).max() > TIE:
        return table
    return table._replace(groups={name: each for name, each in table.groups.items() if name != PREDICTED})


def mended(table: Table) -> Table:
    """One routing for all rows repeated, rounded probabilities normalised; the metadata say so."""
    parts, notes = dict(table.arrays), []
    experts = next((parts[name] for name in ("expert_log_probs", "expert_probs") if name in parts), None)
    for name in ("log_routing", "routing"):
        if experts is None or experts.ndim != 3 or name not in parts:
            continue
        if parts[name].shape == experts.shape[1:2]:  # [K]
            parts[name] = parts[name].expand(len(experts), -1).contiguous()
            notes.append("one routing for all rows")
    for name in ("probs", "routing", "expert_probs"):
        if name in parts and (fixed := renormalised(parts[name])) is not None:
            zeros = name != "routing" and bool((parts[name] == 0).any())
            parts[name] = without_zeros(parts[name], fixed[1]) if zeros else fixed[0]
            hidden = ", with zeros taken for what rounding hides" if zeros else ""
            notes.append(f"{name}, rounded to {fixed[1]} decimals, made to sum to 1{hidden}")
    if not notes:
        return table
    before = [table.metadata[NOTE]] if NOTE in table.metadata else []
    return Table(parts, table.groups, table.metadata | {NOTE: "; ".join([*before, *notes])})


def is_standard(columns: Named, asked: Columns, arrays: bool = False) -> bool:
    """Whether names and labels are as `naming` reads them, and the user says nothing else."""
    if asked.given:
        return False
    labels = [columns[name] for name in LABELS if name in columns]
    if len(labels) == 1 and isinstance(labels[0], np.ndarray) and labels[0].dtype.kind in "bU":
        return False
    if arrays:
        return any(
            name in columns
            for name in (*ARRAYS, "routing", "log_routing", "expert_probs", "expert_log_probs")
        )
    counts_classes = any(is_numeric(name) and "prob_" in name for name in columns)
    return counts_classes and not _without_class_0(columns)


def _without_class_0(columns: Named) -> bool:
    """Whether columns prob_1, … are there, but no prob_0: a lone one, or classes that count from 1."""
    numbers = [numbered[1] for name in columns if (numbered := re.fullmatch(r"prob_([0-9]{1,9})", name))]
    return bool(numbers) and all(int(number) for number in numbers)


def label_column(names: Iterable[str], asked: Columns) -> str | None:
    """The column of labels: the one that the user names, or the one whose name says it."""
    if asked.label is not None:
        return asked.label
    there = set(names)
    present = [name for name in LABELS if name in there] or [name for name in TRUTH if name in there]
    if len(present) > 1:
        raise InputError("there are both `label` and `labels`: keep one, or say which with --label")
    return present[0] if present else None


class _Reading:
    """One file, from its columns to a table; what was not used are groups."""

    def __init__(self, columns: Named, asked: Columns, arrays: bool) -> None:
        self.parts, self.asked = Remaining(columns, asked, arrays), asked

    def table(self) -> Table:
        truth = self._truth()
        scores = self._scores(truth)
        experts = expert_scores(self.parts, scores)
        leading = scores or experts
        if leading is None:
            raise InputError(self._nothing())
        if experts is not None and experts.values.ndim != 3:
            shape = list(experts.values.shape)
            raise InputError(
                f"{listed(experts.columns)} must be [N, K, C], expert first, then class, not {shape}"
            )
        for each in (scores, experts):
            if each is not None and 0 in each.values.shape:
                rows = "there are no rows" if each.values.shape[0] == 0 else "there are no classes"
                raise InputError(f"{rows} in {listed(each.columns)}")
        matched = self._match(leading, truth)
        arrays: dict[str, Tensor] = {}
        for each, name in ((scores, "probs"), (experts, "expert_probs")):
            if each is not None:
                arrays |= _probabilities(each, name, matched, self.asked.logits)
        answers = next(
            (arrays[name] for name in ("expert_log_probs", "expert_probs") if name in arrays), None
        )
        arrays |= routing_weights(self.parts, answers)
        metadata: dict[str, Any] = {NOTE: self._note(leading, truth, matched)}
        if matched.names != [str(number) for number in range(len(matched.names))]:
            metadata["classes"] = matched.names
        if matched.labels is not None:
            arrays["labels"] = as_tensor(matched.labels.astype(np.int64))
        return Table(arrays, self._groups(), metadata)

    def _truth(self) -> Truth | None:
        named = label_column(self.parts.columns, self.asked)
        if named is None or (named not in self.parts.columns and self.asked.label_optional):
            return None
        return truth_of(named, self.parts.take(named))

    def _scores(self, truth: Truth | None) -> Scores | None:
        """The mixture's probabilities; None where only its experts are there."""
        parts, arrays = self.parts, self.parts.arrays
        if self.asked.probs is not None:
            names = list(self.asked.probs)
            values = [parts.take_numbers(name) for name in names]
            if len(values) == 1 and values[0].ndim == 2:
                numbers = [str(number) for number in range(values[0].shape[1])]
                return Scores(names, numbers, values[0], by_place=True)
            return _of_columns(names, values, by_place=True)
        if arrays or not _without_class_0(parts.columns):
            logits = ("logits",) if arrays and self.asked.logits else ()
            if (numbered := parts.numbered((*ARRAYS, *logits))) is not None:
                if numbered.values.ndim != 2:
                    raise InputError(
                        f"{listed(numbered.columns)} must be [N, C], a row per example, a column per class, "
                        f"not {list(numbered.values.shape)}"
                    )
                return numbered._replace(by_place=arrays)
        certain = self._certain(truth)
        if certain is None:
            return None if arrays else parts.numbered(ARRAYS)  # which says what is wrong with their numbers
        columns, prefix = certain
        scores = _of_columns(columns, [parts.take_numbers(name) for name in columns])
        return scores._replace(names=[name.removeprefix(prefix) for name in columns])

    def _certain(self, truth: Truth | None) -> tuple[list[str], str] | None:
        """The columns that are the classes' probabilities without a doubt, and how their names begin."""
        names = list(self.parts.columns)
        classes = set(self.asked.classes or self.asked.like or self._known_classes(truth))
        candidates = []
        for prefix in (*PREFIXES, *(LOGITS if self.asked.logits else ())):
            own = [name for name in names if name.startswith(prefix) and len(name) > len(prefix)]
            after = [name[len(prefix) :] for name in own]
            if own and (counted(after) or (classes & set(after)) or (after == ["1"])):
                candidates.append((own, prefix))
        if len(classes) > 1 and classes <= set(names):
            candidates.append(([name for name in names if name in classes], ""))
        if LONE in names:
            candidates.append(([LONE], ""))
        if len(candidates) > 1:
            several = " or ".join(listed(own) for own, _ in candidates)
            raise InputError(f"either of {several} may be the probabilities: say which with --probs")
        return candidates[0] if candidates else None

    def _known_classes(self, truth: Truth | None) -> list[str]:
        """The classes of the labels, or else of the predictions."""
        if truth is not None:
            return truth.names
        predicted = self.parts.columns.get(PREDICTED)
        if not isinstance(predicted, np.ndarray) or predicted.dtype.kind not in "biuU":
            return []
        return [class_name(value) for value in np.unique(predicted)]

    def _match(self, scores: Scores, truth: Truth | None) -> Match:
        asked = self.asked
        if scores.lone:
            after = next(
                (scores.columns[0].removeprefix(p) for p in PREFIXES if scores.columns[0].startswith(p)), None
            )
            like = asked.like if asked.like and len(asked.like) == 2 else None
            known = like is not None and (truth is None or set(truth.names) <= set(like))
            classes = asked.classes or (like if known else None)
            lone = two_classes(scores.columns[0], truth, classes, asked.positive, after)
            return _like(lone, asked.like)
        matched = match(scores.names, truth, asked.classes, scores.by_place, scores.columns)
        if asked.positive is not None:
            check_there("class", asked.positive, matched.names)
        return _like(matched, asked.like)

    def _groups(self) -> dict[str, np.ndarray]:
        if self.asked.groups is None:
            return {name: readable(self.parts.columns, name) for name in self.parts.columns}
        named = [
            name for name in self.asked.groups if name in self.parts.columns or not self.asked.label_optional
        ]
        if TAUGHT in self.parts.columns and TAUGHT not in named:  # an audit must know, whatever is named
            named.append(TAUGHT)
        return {name: self.parts.take(name) for name in named}

    def _note(self, scores: Scores, truth: Truth | None, matched: Match) -> str:
        """In one line how the columns were read."""
        kind = "logits" if self.asked.logits else "probabilities"
        parts = [f"labels {shown(truth.column)}"] if truth is not None else []
        if scores.lone:
            one = "log-odds" if self.asked.logits else "the probability"
            parts.append(f"{shown(scores.columns[0])} is {one} of {shown(matched.names[-1])}")
        else:
            parts.append(f"{kind} {listed(scores.columns)}")
        if not counted(matched.names):
            named = listed(f"{number} = {name}" for number, name in enumerate(matched.names))
            parts.append(f"classes {named}")
        return "; ".join(parts)

    def _nothing(self) -> str:
        names = listed(self.parts.columns)
        said = f": this one has {names}" if names else ""
        if not self.asked.logits and any(name.startswith((*LOGITS, "logits")) for name in self.parts.columns):
            return "no probabilities, but logits: say so with --logits"
        if self.parts.arrays:
            return f"no probabilities: expected `log_probs` or `probs`{said}; name yours with --probs"
        for prefix in PREFIXES:
            alike = [name for name in self.parts.columns if name.startswith(prefix)]
            if len(alike) > 1:
                return (
                    f"{listed(alike)} may be probabilities, but no column of labels has these classes: name "
                    "it with --label, or the probabilities with --probs"
                )
        if (labels := self._like_labels()) is not None:
            return (
                f"column {shown(labels)} holds names of other columns: if these are the labels, say so with "
                f"--label {shlex.quote(labels)}"
            )
        return (
            "no probability columns: expected `prob_0`, `prob_1`, … (and `label`), columns named like the "
            f"labels, or `y_score`{said}; name yours with --probs (and --label); raw data? first run "
            "`calmoe predict MODEL DATA --out predictions.csv`"
        )

    def _like_labels(self) -> str | None:
        """A column of text whose values are names of columns of numbers; None unless it is the only one."""
        columns = {name: each for name, each in self.parts.columns.items() if isinstance(each, np.ndarray)}
        numbers = {name for name, each in columns.items() if each.dtype.kind in "fiu"}
        text = {name: {*np.unique(each).tolist()} for name, each in columns.items() if each.dtype.kind == "U"}
        fitting = [name for name, values in text.items() if len(values) > 1 and values <= numbers]
        return fitting[0] if len(fitting) == 1 else None


def _of_columns(names: list[str], values: list[np.ndarray], by_place: bool = False) -> Scores:
    for name, column in zip(names, values, strict=True):
        if column.shape != values[0].shape or column.ndim != 1:
            raise InputError(f"{shown(name)} must be one value a row, not {list(column.shape)}")
    stack = np.stack([column.astype(np.float64) for column in values], axis=1)
    return Scores(names, names, stack, by_place=by_place, lone=len(names) == 1)


def _like(matched: Match, like: tuple[str, ...] | None) -> Match:
    """The same classes in the order of others."""
    if like is None or list(like) == matched.names or set(like) != set(matched.names):
        return matched
    places = [matched.names.index(name) for name in like]
    back = np.argsort(places)
    labels = None if matched.labels is None else back[matched.labels]
    return Match(list(like), [matched.order[place] for place in places], labels)


def _probabilities(scores: Scores, name: str, matched: Match, logits: bool) -> dict[str, Tensor]:
    """The scores as probabilities or logarithms, classes in their order."""
    log_name = {"probs": "log_probs", "expert_probs": "expert_log_probs"}[name]
    values = as_tensor(scores.values)
    if scores.log and logits:
        raise InputError(f"{listed(scores.columns)} are logarithms by name: leave out --logits")
    if scores.lone:
        values = values.double()
        if logits:
            both = [torch.nn.functional.logsigmoid(-values), torch.nn.functional.logsigmoid(values)]
            return {log_name: torch.cat(both, dim=-1)[..., matched.order]}
        if not bool(((values >= 0) & (values <= 1) | values.isnan()).all()):
            row = int(((values < 0) | (values > 1)).flatten(1).any(1).nonzero()[0, 0])
            raise InputError(
                f"{shown(scores.columns[0])} must lie between 0 and 1, row {row} does not: give "
                "probabilities, or log-odds with --logits"
            )
        return {name: torch.cat([1 - values, values], dim=-1)[..., matched.order]}
    if values.shape[-1] != len(matched.order):
        raise InputError(f"{name} have {values.shape[-1]} classes, {len(matched.order)} are named")
    in_order = matched.order == list(range(len(matched.order)))
    values = values if in_order else values[..., matched.order]
    if logits:
        return {log_name: values.double().log_softmax(dim=-1)}
    return {log_name if scores.log else name: values}
