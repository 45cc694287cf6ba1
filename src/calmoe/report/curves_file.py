"""The file of curves: write it, and read it back with every value checked."""

import gzip
import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calmoe.errors import InputError, about
from calmoe.report.curve_checks import check_curves
from calmoe.report.curves import HISTOGRAM_BINS, QUANTILES, Curves
from calmoe.validation import parse_json

LARGE = 1_000_000  # bytes: a larger file is compressed
MOST_BYTES = 256 * 2**20  # of a file of curves


def curves_file(all_curves: Sequence[Curves]) -> tuple[str, bytes]:
    """The name and content of `curves.json`: numbers to six significant digits, a line for each dict.

    A large file is compressed and named `curves.json.gz`.
    """
    lines = ",\n".join(json.dumps(_rounded(c), allow_nan=False, separators=(",", ":")) for c in all_curves)
    data = f"[\n{lines}\n]\n".encode()
    if len(data) > LARGE:
        return "curves.json.gz", gzip.compress(data, mtime=0)
    return "curves.json", data


def read_curves(path: Path) -> list[Curves]:
    """The curves in such a file; they are all that the figures need."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: not a readable file of curves ({error})") from None
    with about(path):
        return parse_curves(path.name, data)


def parse_curves(name: str, data: bytes) -> list[Curves]:
    """The curves that `curves_file` wrote."""
    try:
        if name.endswith(".gz"):
            with gzip.open(io.BytesIO(data)) as stream:
                data = stream.read(MOST_BYTES + 1)
        all_curves = parse_json(data, MOST_BYTES)
    except (OSError, EOFError, zlib.error, InputError) as error:
        raise InputError(f"not a readable file of curves ({error})") from None
    if not isinstance(all_curves, list):
        raise InputError("not a file of curves (expected a list, a dict for each method and seed)")
    return check_curves(all_curves, HISTOGRAM_BINS, len(QUANTILES))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
