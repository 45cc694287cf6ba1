"""Predictions in parquet files, some rows at a time, read as the whole table would be.

What a column means may hang on values: labels by name say what the classes are. So a batch is read together
with one more row for each label of the whole table, which is then left out again.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from calmoe.errors import InputError, about
from calmoe.files import legible
from calmoe.formats import Columns, Table
from calmoe.formats.mapping import as_written, is_standard, label_column, mended, without_answers
from calmoe.formats.naming import Named
from calmoe.formats.parquet_rows import MOST_ROWS, ParquetRows
from calmoe.formats.writing import PREDICTED, TAUGHT
from calmoe.new_rows import new_rows, taught_rows
from calmoe.predictions import Predictions, assemble

NORMALISED = ("probs", "expert_probs")  # rounded ones are made to sum to 1 where the whole table is in memory


class Source:
    """Parquet files as one table of predictions."""

    def __init__(self, paths: Sequence[Path], columns: Columns, most: int = MOST_ROWS) -> None:
        """most: rows that are read at a time."""
        self.paths, self.columns, self.most = list(paths), columns, most
        self.table = ParquetRows(paths, lenient=columns.groups is not None)
        self.labels = self._all_labels()

    def __len__(self) -> int:
        return len(self.table)

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Predictions]]:
        """Rows first to last, without the last: the number of a batch's first row, and the batch."""
        for start, columns in self.table.batches(first, len(self) if last is None else last, self.most):
            with about(self._place(start)):
                predictions = assemble(self._read(columns))
                predictions.known_labels  # noqa: B018 - refused where there are none
                if taught_rows(predictions).any():
                    raise InputError(
                        f"some rows taught the model ({TAUGHT}), and are left out only where the whole table "
                        "is read: take them out of the file, or audit without --stream"
                    )
            yield start, new_rows(predictions).predictions

    def head(self) -> Predictions:
        """The first row: it says how many classes and experts there are, and what they are called."""
        return next(self.batches(0, 1))[1]

    def _read(self, columns: Named) -> Table:
        rows = len(next(values for values in columns.values() if isinstance(values, np.ndarray)))
        written = as_written(columns if self.labels is None else self._with_labels(columns), self.columns)
        if self.columns.groups is None and PREDICTED in written.groups:
            written = without_answers(written)
            if PREDICTED in written.groups:
                raise InputError(
                    f"the column {PREDICTED!r} is not each row's most probable class: name the groups with "
                    "--groups"
                )
        table = mended(written)
        if any(table.arrays[name] is not written.arrays[name] for name in NORMALISED if name in table.arrays):
            raise InputError(
                "some rows are rounded and do not sum to 1, which is mended only where the whole table is "
                "read: normalise them, or audit without --stream"
            )
        return Table(
            {name: values[:rows] for name, values in table.arrays.items()},
            {name: values[:rows] for name, values in table.groups.items()},
            table.metadata,
        )

    def _all_labels(self) -> np.ndarray | None:
        """The different labels of the whole table; None where they do not decide what columns mean."""
        names = self.table.names
        label = label_column(names, self.columns)
        if label not in names or self.columns.classes is not None:
            return None
        _, columns = next(self.table.batches(0, 1))
        if is_standard(columns, self.columns):
            return None
        return self.table.distinct(str(label))

    def _with_labels(self, columns: Named) -> Named:
        """The columns, below them the first row once more for each label."""
        label, labels = label_column(columns, self.columns), self.labels
        assert labels is not None

        def longer(name: str, values: np.ndarray | InputError) -> np.ndarray | InputError:
            if isinstance(values, InputError):
                return values
            return np.concatenate([values, labels if name == label else np.repeat(values[:1], len(labels))])

        return {name: longer(name, values) for name, values in columns.items()}

    def _place(self, start: int) -> str:
        """The file that holds this row, and where messages begin to count its rows."""
        for file in self.table.files:
            if start < file.rows:
                return f"{legible(file.path)}{f', counted from row {start:,}' if start else ''}"
            start -= file.rows
        raise IndexError(start)
