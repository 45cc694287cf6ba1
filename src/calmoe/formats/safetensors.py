"""A safetensors file: what `Predictions.save` wrote, or tensors under the names of npz arrays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from calmoe.arrays import as_numpy, as_tensor
from calmoe.errors import InputError, shown
from calmoe.formats.budget import Budget
from calmoe.formats.columns import Columns, check_there
from calmoe.formats.mapping import mapped
from calmoe.formats.naming import ARRAYS, Table, check_names
from calmoe.formats.text import repeat
from calmoe.formats.writing import TAUGHT
from calmoe.tensor_files import read_tensors
from calmoe.validation import unique_keys

FORMAT = "calmoe.predictions/1"
GROUP = "group."
DAMAGED = "damaged header: its JSON is not what Predictions.save writes; write the file again"


def read(path: Path, budget: Budget, wanted: Columns | None = None) -> Table:
    tensors, header = read_tensors(path)
    budget.spend_cells(sum(tensor.numel() for tensor in tensors.values()), len(tensors))
    if "calmoe" in header:
        return _chosen(_saved(tensors, header["calmoe"], budget), wanted or Columns())
    if not set(ARRAYS[:-1]) & set(tensors) and not (wanted and wanted.given):
        raise InputError(
            "not a predictions file: write it with Predictions.save, or give tensors `probs`, `labels`, …"
        )
    return mapped(
        {name: as_numpy(tensor) for name, tensor in tensors.items()}, wanted or Columns(), arrays=True
    )


def _chosen(table: Table, wanted: Columns) -> Table:
    """The table with the groups and the names of classes that the user gives; all else is in the file."""
    other = [option for option in wanted.given if option not in ("groups", "classes")]
    if other and not wanted.label_optional:  # options may be for the source of this target
        raise InputError(
            f"Predictions.save wrote this file, which says itself what it holds: leave out {other[0]}"
        )
    groups, metadata = table.groups, table.metadata
    if wanted.groups is not None:
        for name in () if wanted.label_optional else wanted.groups:
            check_there("group", name, groups)
        groups = {name: groups[name] for name in (*wanted.groups, TAUGHT) if name in groups}
    if wanted.classes is not None:
        metadata = metadata | {"classes": list(wanted.classes)}
    return Table(table.arrays, groups, metadata)


def _saved(tensors: dict[str, Tensor], note: str, budget: Budget) -> Table:
    """The table in a file that `Predictions.save` wrote."""
    try:
        saved = json.loads(note, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        raise InputError(DAMAGED) from None
    if not isinstance(saved, dict):
        raise InputError(DAMAGED)
    if saved.get("format") != FORMAT:
        raise InputError(
            f"not a predictions file of the format {FORMAT}: write it with Predictions.save, or give the "
            "same arrays as npz"
        )
    categories, metadata = saved.get("categories"), saved.get("metadata")
    if not isinstance(categories, dict) or not isinstance(metadata, dict):
        raise InputError(DAMAGED)
    groups = {
        name.removeprefix(GROUP): as_numpy(tensor)
        for name, tensor in tensors.items()
        if name.startswith(GROUP)
    }
    check_names(list(groups))
    known = {*ARRAYS, *(GROUP + name for name in groups)}
    if foreign := sorted(tensors.keys() - known):
        raise InputError(
            f"the tensor {shown(foreign[0])} does not belong to the format {FORMAT}: write the file again"
        )
    for name, values in categories.items():
        groups[name] = _named(name, groups.get(name), values, budget)
    arrays = {name: as_tensor(as_numpy(tensors[name])) for name in ARRAYS if name in tensors}
    return Table(arrays, groups, metadata)


def _named(name: str, codes: np.ndarray | None, values: Any, budget: Budget) -> np.ndarray:
    """The strings that the codes stand for."""
    if codes is None or not isinstance(values, list) or not {type(value) for value in values} <= {str}:
        raise InputError(DAMAGED)
    if codes.dtype.kind not in "iu" or (codes.size and not 0 <= codes.min() <= codes.max() < len(values)):
        raise InputError(f"group column {shown(name)} must point at its {len(values)} categories, from 0")
    return repeat(name, codes, values, budget)
