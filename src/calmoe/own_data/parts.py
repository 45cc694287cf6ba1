"""Which rows train, which stop the training, which are scored, and which are the shift that was held out."""

from typing import Any, NamedTuple

import numpy as np

from calmoe.auditing.repairs.repair import FEWEST
from calmoe.data.splits import stratified_holdout
from calmoe.errors import InputError, shown, some
from calmoe.formats.columns import class_values
from calmoe.models.columns import numbers_in
from calmoe.models.model import class_name
from calmoe.new_rows import one_row_each
from calmoe.own_data.source import DOMAIN, Source
from calmoe.own_data.spec import TrainSpec

FEWEST_ROWS = 20
SHARE = 0.2  # of the rows, held out
MOST_CLASSES = 200
HELD_OUT, SHIFT = "held out", "shift"
RARE = 0.05  # the share of a class below which accuracy says little
VALIDATION = 0.15  # of the rows that are not held out


class Parts(NamedTuple):
    """Rows by number. `fit` is train and validation together; `share` that of the rows held out.

    cases: how many there are beside the shift; as many as rows where no column names them.
    """

    train: np.ndarray
    validation: np.ndarray
    held_out: np.ndarray
    shift: np.ndarray
    share: float
    cases: int

    @property
    def fit(self) -> np.ndarray:
        return np.sort(np.concatenate([self.train, self.validation]))


class Labelled(NamedTuple):
    """The rows that have a label, their classes, and notes on what was left out."""

    source: Source
    classes: list[str] | list[int]
    codes: np.ndarray  # [N]
    parts: Parts
    notes: list[str]

    @property
    def shares(self) -> np.ndarray:
        """How often each class is among the rows to learn from. [C]"""
        return np.bincount(self.codes[self.parts.fit], minlength=len(self.classes)) / len(self.parts.fit)

    @property
    def rare(self) -> int | None:
        """The class, of two, that fewer than one row in twenty has."""
        rarest = int(self.shares.argmin())
        return rarest if len(self.classes) == 2 and self.shares[rarest] < RARE else None

    @property
    def judged(self) -> dict[str, np.ndarray]:
        """The rows that are scored, by part."""
        return {HELD_OUT: self.parts.held_out} | ({SHIFT: self.parts.shift} if len(self.parts.shift) else {})


def divide(source: Source, spec: TrainSpec) -> Labelled:
    """Leave out rows without a label, hold out the shift, split the rest by class at random.

    Where a column names cases, a case is whole on one side, and one row of it is scored.
    """
    notes = []
    known = np.array([label is not None for label in source.labels], dtype=bool)
    if not known.all():
        notes.append(f"{int((~known).sum()):,} rows have no label and are left out")
        source = source.take(np.flatnonzero(known))
    if len(source) < FEWEST_ROWS:
        where = f"have a value in {shown(spec.label)}" if spec.label else "have a label"
        raise InputError(f"{len(source)} rows of {source.name} {where}: at least {FEWEST_ROWS} are needed")
    shift = _shifted(source, spec)
    if source.cases is not None and shift.any():
        source, shift = _of_other_cases(source, shift, notes)
    usual = np.flatnonzero(~shift)
    if len(usual) < FEWEST_ROWS:
        raise InputError(
            f"{len(usual)} rows are left to learn from, at least {FEWEST_ROWS} are needed: hold out less"
        )
    classes = _classes(source.labels[usual], spec.label)
    unseen = shift & ~np.isin(source.labels.astype(str), [str(name) for name in classes])
    if unseen.any():
        notes.append(f"{int(unseen.sum()):,} rows of the shift have classes that no other row has: left out")
        kept = np.flatnonzero(~unseen)
        source, shift = source.take(kept), shift[kept]
        usual = np.flatnonzero(~shift)
    place = {str(name): i for i, name in enumerate(classes)}
    codes = np.array([place[label] for label in source.labels], dtype=np.int64)
    cases = source.case_numbers
    count = len(np.unique(cases[usual]))
    if count < FEWEST_ROWS:
        raise InputError(
            f"column {shown(spec.cluster)} names {count} cases: at least {FEWEST_ROWS} are needed"
        )
    share = held_out_share(count, len(classes)) if spec.held_out is None else spec.held_out
    fit, held_out = _holdout(codes[usual], cases[usual], share, spec.seed)
    train, validation = _holdout(codes[usual[fit]], cases[usual[fit]], VALIDATION, spec.seed + 1)
    counts = np.bincount(codes[usual], minlength=len(classes))
    if rare := [str(classes[i]) for i in np.flatnonzero(counts < 10)]:
        notes.append(f"fewer than 10 rows of {some(rare, 5)}: their probabilities will be rough")
    held_out, shifted = (
        at[one_row_each(cases[at], spec.seed)] for at in (usual[held_out], np.flatnonzero(shift))
    )
    parts = Parts(usual[fit[train]], usual[fit[validation]], held_out, shifted, share, count)
    if strange := np.setdiff1d(codes[usual], codes[parts.train]).tolist():
        raise InputError(
            f"too few cases of {shown(str(classes[strange[0]]))}: none is left to learn from; leave these "
            "rows out, or try another --seed"
        )
    return Labelled(source, classes, codes, parts, notes)


def _holdout(codes: np.ndarray, cases: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a share of the cases, whole, by their rarest class: as many of each."""
    cases = np.unique(cases, return_inverse=True)[1]
    rarest_first = np.argsort(np.bincount(codes)[codes], kind="stable")
    first = np.unique(cases[rarest_first], return_index=True)[1]
    kept, held_out = stratified_holdout(codes[rarest_first[first]], share, seed)
    return np.flatnonzero(np.isin(cases, kept)), np.flatnonzero(np.isin(cases, held_out))


def _of_other_cases(source: Source, shift: np.ndarray, notes: list[str]) -> tuple[Source, np.ndarray]:
    """Leave out rows of the shift whose case has other rows too: those would teach the model."""
    cases = source.case_numbers
    known = shift & np.isin(cases, cases[~shift])
    if (known == shift).all():
        raise InputError("every case of the shift has rows outside it too: leave out --cluster, or the shift")
    if known.any():
        notes.append(
            f"{int(known.sum()):,} rows of the shift are of cases that have other rows too: left out"
        )
    kept = np.flatnonzero(~known)
    return source.take(kept), shift[kept]


def held_out_share(rows: int, classes: int) -> float:
    """A fifth of the rows; where a third of them makes an audit possible, at least as many as that needs.

    >>> [round(rows * held_out_share(rows, classes=2)) for rows in (500, 606, 800, 5000)]
    [100, 202, 202, 1000]
    """
    enough = FEWEST + classes  # the share of every class is rounded
    return max(SHARE, enough / rows) if rows >= 3 * enough else SHARE


def _shifted(source: Source, spec: TrainSpec) -> np.ndarray:
    """Which rows are the shift."""
    column, values = spec.shifted
    if spec.domain:
        if column:
            raise InputError("give --shift or --domain, not both")
        if DOMAIN not in source.groups:
            raise InputError(f"{source.name} has no domains: put images in DIR/domain/class")
        column, values = DOMAIN, [spec.domain]
    if not column:
        return np.zeros(len(source), dtype=bool)
    texts = source.groups[column].astype(str)
    if source.groups[column].dtype.kind in "iuf":
        values = [_as_number(value) for value in values]
    mask = np.isin(texts, values)
    known, counts = np.unique(texts, return_counts=True)
    if strange := [value for value in values if value not in known]:
        common = some(known[np.argsort(-counts)], 8)
        raise InputError(f"{column} is never {shown(strange[0])}: its values are {common}")
    return mask


def _as_number(value: str) -> str:
    """A number as groups write it.

    >>> _as_number("0.0"), _as_number("1.50"), _as_number("north")
    ('0', '1.5', 'north')
    """
    number = numbers_in([value])
    return value if number is None else class_name(number[0])


def _classes(labels: np.ndarray, label: str) -> list[str] | list[int]:
    """The classes in order: whole numbers where all of them are."""
    names = sorted(set(labels.tolist()))
    what = f"the label {shown(label)}" if label else "the data"
    if len(names) < 2:
        only = f", {shown(names[0])}" if names else ""
        raise InputError(f"{what} has one class only{only}: at least two are needed")
    if len(names) > MOST_CLASSES or (len(names) > 20 and (2 * len(names) > len(labels) or _measured(names))):
        raise InputError(
            f"{what} has {len(names):,} different values in {len(labels):,} rows: calmoe predicts classes, "
            f"at most {MOST_CLASSES}; make ranges of numbers, or name another column with --label"
        )
    classes: list[Any] = class_values(names)
    return sorted(classes)


def _measured(names: list[str]) -> bool:
    """Whether the labels are numbers with decimals, which are measured rather than counted."""
    numbers = numbers_in(names)
    return numbers is not None and bool((numbers != numbers.round()).any())
