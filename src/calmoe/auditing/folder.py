"""The folder of an audit: the files it may have, and how one that has no mark is known."""

from pathlib import Path

from calmoe.errors import InputError
from calmoe.ownership import PAGE, Kind
from calmoe.validation import read_document

FIGURES = ("reliability", "experts", "fragility", "auditors", "hats", "certificates", "target")
FILES = (
    *(PAGE, "audit.json", "repair.json", "reweightings.safetensors"),
    *(f"figures/{name}.png" for name in FIGURES),
)


def _unmarked(folder: Path) -> set[str]:
    """The files of an audit by a calmoe that left no marks; none where audit.json is not its own."""
    try:
        numbers = read_document(folder / "audit.json")
    except (OSError, InputError):
        return set()
    own = isinstance(numbers, dict) and numbers.keys() >= {"classes", "num_experts", "aggregate", "left_out"}
    return {name for name in FILES if own and (folder / name).is_file()}


AUDIT = Kind("audit", "--out", _unmarked)
