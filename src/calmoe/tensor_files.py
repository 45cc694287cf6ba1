"""Reading safetensors files, whoever wrote them."""

from pathlib import Path

import safetensors
from torch import Tensor

from calmoe.errors import InputError
from calmoe.validation import parse_json

LONGEST_HEADER = 100_000_000  # bytes, the library's own limit


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors by name, and the header's own notes.

    The library compares lengths, offsets and shapes with the file. Where two tensors share a name it would
    keep the last; this function refuses them.
    """
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            parse_json(stream.read(min(length, LONGEST_HEADER)), LONGEST_HEADER)
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            notes = file.metadata() or {}
    except (safetensors.SafetensorError, AttributeError, InputError) as error:
        # AttributeError: a kind of number that this torch does not know
        reason = " ".join(str(error).split())
        raise InputError(f"not a readable safetensors file ({reason}): write or fetch it again") from None
    return tensors, notes
