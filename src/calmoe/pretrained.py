"""Pretrained models on disk: what a text encoder's folder must hold, and digests of what it does hold.

An encoder is a folder in the layout of transformers (config.json, model.safetensors, a tokenizer) or the name
of one on the Hugging Face hub, which becomes such a folder. Its tokenizer and its weights are read apart: the
data layer needs the one, the backbones need the other.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from calmoe.errors import InputError

PADDING = -1  # fills up rows of token ids; no tokenizer's own, so that no model can disagree on it
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
TOKENIZER = (
    *VOCABULARIES,
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def encoder_folder(name: str) -> Path:
    """The folder `name`, or the one that the hub's model of that name was downloaded to."""
    return Path(name) if Path(name).is_dir() else _from_hub(name)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in VOCABULARIES)


def tokenizer_files(folder: Path) -> list[Path]:
    """All that decides how the folder's tokenizer cuts a text; without a vocabulary it is an error."""
    if not has_tokenizer(folder):
        raise InputError(
            f"{folder} has no tokenizer: {folder / VOCABULARIES[0]} (or {VOCABULARIES[1]}) is missing; "
            "save it there with the model's own tokenizer.save_pretrained"
        )
    return [folder / name for name in TOKENIZER if (folder / name).is_file()]


def load_tokenizer(folder: Path) -> Any:
    """The folder's tokenizer."""
    check_config(folder)
    with transformers() as library:
        try:
            return library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # damaged files may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"the tokenizer in {folder} cannot be read ({reason}): save it again") from None


def check_config(folder: Path) -> None:
    """Where there is a configuration, it must be a JSON table; the tokenizer's reader looks at it too."""
    path = folder / CONFIG
    try:
        whole = not path.is_file() or isinstance(json.loads(path.read_bytes()), dict)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise InputError(f"{path} is no whole JSON table: save the model again with model.save_pretrained")


def weights_files(folder: Path) -> list[Path]:
    """The folder's configuration and its weights, in one file or several; without either it is an error."""
    weights = sorted(folder.glob("model*.safetensors"))
    for path, present in ((folder / CONFIG, (folder / CONFIG).is_file()), (folder / WEIGHTS, bool(weights))):
        if not present:
            raise InputError(
                f"{path} is missing: a text encoder is a folder with {CONFIG}, {WEIGHTS} and a tokenizer; "
                "write it with model.save_pretrained (pickled .bin files are not read)"
            )
    check_config(folder)
    return [folder / CONFIG, *weights]


def encoder_digest(name: str) -> str:
    """SHA-256 of an encoder's configuration and weights, wherever its folder lies."""
    return files_digest(weights_files(encoder_folder(name)))


def files_digest(paths: Iterable[Path]) -> str:
    """SHA-256 over the contents of some files and, where they are several, over their names."""
    digests = {}
    for path in paths:
        with path.open("rb") as stream:
            digests[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    if len(digests) == 1:
        return next(iter(digests.values()))
    return hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()


@contextmanager
def transformers() -> Iterator[Any]:
    """The transformers library, silent meanwhile; that it is not installed is an InputError."""
    try:
        import transformers as library
    except ImportError:
        raise InputError("text needs transformers: pip install 'calmoe[text]'") from None
    logging = library.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield library
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


@cache
def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise InputError(f"there is no folder {name}; for hub names: pip install 'calmoe[text]'") from None
    try:
        return Path(snapshot_download(name, allow_patterns=[*TOKENIZER, CONFIG, "model*.safetensors*"]))
    except Exception as error:  # of the network, of the hub, of the name: no such model
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"there is no folder {name}, and the Hugging Face hub gave no model of that name ({reason}): "
            "give a folder with a model and its tokenizer"
        ) from None
