"""The folder of an audit: whose it is, and how to recognise one that an older calmoe left without a mark."""

from pathlib import Path

from calmoe.errors import InputError
from calmoe.ownership import PAGE, Kind
from calmoe.validation import read_document

_FIGURES = ("reliability", "experts", "fragility", "auditors", "hats", "certificates", "target")
UNMARKED = (
    *(PAGE, "audit.json", "repair.json", "reweightings.safetensors"),
    *(f"figures/{name}.png" for name in _FIGURES),
)
"""All that audits wrote before folders had marks: new sections add nothing here."""


def _unmarked(folder: Path) -> set[str]:
    """The files of an older audit in the folder; none where audit.json is not an audit's."""
    try:
        numbers = read_document(folder / "audit.json")
    except (OSError, InputError):
        return set()
    own = isinstance(numbers, dict) and numbers.keys() >= {"classes", "num_experts", "aggregate", "left_out"}
    return {name for name in UNMARKED if own and (folder / name).is_file()}


AUDIT = Kind("audit", "--out", _unmarked)
