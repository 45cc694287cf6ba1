"""Reading predictions that calmoe or other tools wrote, as named arrays and group columns.

- `.safetensors`, written by `Predictions.save`: tensors `log_probs` [N, C], `log_routing` [N, K],
  `expert_log_probs` [N, K, C], `labels` [N] (absent for unlabelled data) and `group.NAME` [N]; the header
  holds the names of categories and the metadata as JSON. Written by other tools: tensors as in npz.
- `.npz`: arrays `log_probs` or `probs`; optionally `log_routing` or `routing` (of each row, or one for all)
  with `expert_log_probs` or `expert_probs` (these two suffice); optionally `labels`; any other array is a
  group column.
- `.csv` and `.parquet`: columns `prob_0`, `prob_1`, … (or `log_prob_0`, …); optionally `routing_0`, … (or
  `log_routing_0`, …) with `expert_0_prob_0`, … (or `expert_0_log_prob_0`, …), the expert first, then the
  class; optionally `label`; any other column is a group column. In a csv file group columns are booleans
  (true, True, TRUE), integers, numbers or, failing these or with leading zeros, text.

`label` and `labels` mean the same. Messages about the text of a csv file count lines from 1, as editors do;
messages about its values count rows from 0, after the header.

Files with other names are read through `mapping`: what their names make certain is taken, what the user says
(`columns.Columns`) is taken, the rest is asked for.

Each kind of file has a module that turns it into columns by name; `naming` turns columns into arrays;
`budget` bounds what a file may unpack to.
"""

from pathlib import Path
from typing import Any

from calmoe.errors import InputError
from calmoe.files import legible
from calmoe.formats.budget import Budget
from calmoe.formats.columns import NOTE, Columns, asked
from calmoe.formats.naming import LABELS, Table, is_numeric
from calmoe.formats.safetensors import FORMAT

__all__ = [
    "FORMAT",
    "HELD_OUT",
    "NOTE",
    "SAVED",
    "Columns",
    "Table",
    "asked",
    "name_of",
    "read_table",
    "table_in_memory",
]

KINDS = (".safetensors", ".npz", ".csv", ".parquet")
SAVED = (".safetensors", ".csv", ".parquet")  # as which predictions are written
HELD_OUT = "held_out.safetensors"  # in a model's folder: its predictions of rows that it has not seen


def name_of(path: Path) -> str:
    """What a file of predictions is called on pages; what a model held out goes by the model's name.

    >>> name_of(Path("runs/test.csv")), name_of(Path("credit-0.1/held_out.safetensors"))
    ('test.csv', 'credit-0.1')
    """
    return legible(path.absolute().parent.name if path.name == HELD_OUT else path.name)


def read_table(path: Path, limit: int | None = None, columns: Columns | None = None) -> Table:
    """The contents of a predictions file of any kind we read; limit: bytes in memory, see `budget`."""
    wanted = columns or Columns()
    if path.is_dir():
        raise InputError("this is a folder: give a file in it")
    if not path.exists():
        raise InputError("no such file")
    if path.suffix not in KINDS:
        raise InputError(f"unknown kind of file; expected one of {', '.join(KINDS)}")
    if not path.is_file():
        raise InputError("not a regular file: copy what it gives into one")
    budget = Budget(path.stat().st_size, limit)
    # readers are imported where they are needed: pyarrow takes its time
    if path.suffix == ".safetensors":
        from calmoe.formats import safetensors

        return safetensors.read(path, budget, wanted)
    from calmoe.formats.mapping import mapped

    if path.suffix == ".csv":
        from calmoe.formats import csv

        labels = () if wanted.classes else LABELS
        numbers = wanted.numeric
        cells = csv.read(path, budget, lambda name: is_numeric(name) or name in numbers, labels)
        return mapped({**cells}, wanted)
    if path.suffix == ".parquet":
        from calmoe.formats import parquet

        return mapped(parquet.read(path, budget, lenient=wanted.groups is not None), wanted)
    from calmoe.formats import npz

    return mapped({**npz.read(path, budget)}, wanted, arrays=True)


def table_in_memory(source: Any, columns: Columns, limit: int | None = None) -> Table:
    """The same from a DataFrame, an Arrow table or a dict of arrays."""
    from calmoe.formats.arrow import columns_of
    from calmoe.formats.mapping import mapped

    named = columns_of(source, limit, lenient=columns.groups is not None)
    return mapped(named, columns, arrays=isinstance(source, dict))
