"""Which rows and cases taught a model, recognised without keeping any of them: a key of 8 bytes for each.

A key is made of what the model sees of a row, not of its label: another file, with other rows, columns and
labels beside it, gives the same row the same key.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
from scipy.special import bdtrc

from calmoe.arrays import as_numpy
from calmoe.errors import InputError
from calmoe.files import write_whole
from calmoe.models.columns import as_text, dates_in, numbers_in
from calmoe.models.saved import exactly
from calmoe.new_rows import named
from calmoe.prediction_checks import NO_VALUE
from calmoe.tensor_files import read_tensors
from calmoe.validation import number, parse_json

FORMAT = "calmoe.taught/1"
BYTES = 8  # of a key: two of a million rows have the same one by chance once in 37 million tables
KEY = np.dtype("<i8")
MISSING = np.int64(-(2**63))  # a cell without a value; NumPy's own NaT
TRUTHS = ("true", "false")
NUMERIC = frozenset("+-.0123456789")  # how a text that spells a number or a day begins
TIMES, MORE, RARE = 2, 0.01, 0.02
"""Rows are marked where more than TIMES coincidence + MORE of all rows are recognised; where rows do repeat,
only if chance, at that rate, rarely recognises as many.

Honest new rows repeat about as often as those that were held out did: twice as often, if they are of the more
usual kind. And a rate that some hundred rows tell may be 1 % though none of them repeats.
"""


class Taught(NamedTuple):
    """The keys of the rows that fitting saw, sorted, each once; and how often honest rows repeat one.

    keys: int64 [M]. coincidence: the share of the held-out rows whose key is among them: where columns are
    few and have few values, rows repeat by chance. cases: the keys of these rows' cases, if a column names
    them.

    >>> rows = table_keys({"age": np.array([31.0, 40.0, 52.0])})
    >>> Taught.of(rows[:1], held_out=rows[1:2]).recognises(rows)
    array([ True, False, False])
    """

    keys: np.ndarray
    coincidence: float
    cases: np.ndarray = np.empty(0, KEY)

    @classmethod
    def of(cls, fitted: np.ndarray, held_out: np.ndarray, cases: np.ndarray | None = None) -> "Taught":
        """From the keys of both; cases: what names the cases of the rows that fitting saw."""
        known = np.empty(0, KEY) if cases is None else np.unique(_case_keys(cases)[named(cases)])
        return cls(np.unique(fitted), float(np.isin(held_out, fitted).mean()), known)

    def recognises(self, keys: np.ndarray) -> np.ndarray:
        """Which of these rows are among them; none where no more are than chance explains. [N]"""
        among = np.isin(keys, self.keys)
        matches, rows, rate = among.sum(), len(among), min(TIMES * self.coincidence + MORE, 1.0)
        by_chance = self.coincidence > 0 and bdtrc(matches - 1, rows, rate) > RARE  # so many or more
        return among if matches > rate * rows and not by_chance else np.zeros_like(among)

    def knows_cases(self, names: np.ndarray) -> np.ndarray:
        """Which rows are of cases that taught the model. [N]"""
        return np.isin(_case_keys(names), self.cases) & named(names)

    def save(self, path: Path) -> None:
        """One file, whole or not at all."""
        note = json.dumps({"format": FORMAT, "coincidence": self.coincidence})
        tensors = {"keys": self.keys} | ({"cases": self.cases} if len(self.cases) else {})
        kept = {name: torch.from_numpy(keys.astype(np.int64)) for name, keys in tensors.items()}
        write_whole(path, safetensors.torch.save(kept, {"calmoe": note}))

    @classmethod
    def load(cls, path: Path) -> "Taught":
        """What `save` wrote, checked."""
        tensors, notes = read_tensors(path)
        saved = exactly("", parse_json(notes.get("calmoe", "{}").encode()), ("format", "coincidence"))
        if saved["format"] != FORMAT:
            raise InputError(f"its format is not {FORMAT}: update calmoe")
        share = number("coincidence", saved["coincidence"], least=0, most=1)
        if "keys" not in tensors or not {*tensors} <= {"keys", "cases"}:
            raise InputError("not what calmoe train writes, keys of rows: train again, or delete the file")
        for keys in tensors.values():
            if keys.dtype != torch.int64 or keys.ndim != 1 or not len(keys):
                raise InputError(
                    "not what calmoe train writes, keys of rows: train again, or delete the file"
                )
            if not (keys[1:] > keys[:-1]).all():
                raise InputError("its keys are not in order: train again, or delete the file")
        cases = as_numpy(tensors["cases"]) if "cases" in tensors else np.empty(0, KEY)
        return cls(as_numpy(tensors["keys"]), share, cases)


def table_keys(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """A key for each row of these columns, whatever their order; columns as `read_columns` gives them. [N]

    >>> whole, text = np.array([1.0, 2.0]), np.array(["1", "2.0"], dtype=object)
    >>> table_keys({"x": whole}) == table_keys({"x": text})
    array([ True,  True])
    """
    cells = [_cells(columns[name]).astype(KEY) for name in sorted(columns)]
    rows = np.stack(cells, axis=1) if cells else np.empty((0, 1), KEY)
    data, width = memoryview(rows.tobytes()), rows.shape[1] * KEY.itemsize
    return _keys(data[start : start + width] for start in range(0, len(data), width))


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """A key for each text; blanks around it do not count. [N]"""
    return _keys(text.strip().encode(errors="surrogatepass") for text in texts)


def _case_keys(names: np.ndarray) -> np.ndarray:
    """A key for each name of a case; 7 is the same as 7.0 and "7". [N]"""
    return text_keys([as_text(name) or "" for name in names.tolist()])


def file_keys(files: Sequence[Path]) -> np.ndarray:
    """A key for each file's bytes, whatever its name. [N]"""
    return _keys(file.read_bytes() for file in files)


def _keys(rows: Iterable[bytes | memoryview]) -> np.ndarray:
    return np.frombuffer(b"".join(blake2b(row, digest_size=BYTES).digest() for row in rows), KEY)


def _cells(values: np.ndarray) -> np.ndarray:
    """8 bytes for each value of a column: the same for the same value, in whatever kind it was read. [N]"""
    if values.dtype.kind == "f":
        return _numbers(values)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").view(np.int64)
    known = {value: _cell(value) for value in {*values.tolist()}}
    return np.array([known[value] for value in values.tolist()], dtype=np.int64)


def _cell(text: str | None) -> np.int64:
    """The same for a text: as the number or the day that it spells, which another file may hold as such."""
    if text is None or text.casefold() in NO_VALUE:
        return MISSING
    if text[0] in NUMERIC:
        for reading in (numbers_in([text]), dates_in([text])):
            if reading is not None:
                return _cells(reading)[0]
    plain = text.casefold() if text.casefold() in TRUTHS else text  # one file's "true" is another's True
    return _keys([plain.encode(errors="surrogatepass")])[0]


def _numbers(values: np.ndarray) -> np.ndarray:
    """The bits of numbers; of those that came in single precision, of the decimals that it stands for.

    >>> _numbers(np.array([0.1, -0.0])) == _numbers(np.array([0.1, 0.0], np.float32))
    array([ True,  True])
    """
    values = values.astype(np.float64) + 0.0  # −0 becomes 0
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    rounded = (single == values) & (values != np.round(values))
    values[rounded] = single[rounded].astype(str).astype(np.float64)
    return np.where(np.isnan(values), MISSING, values.view(np.int64))
