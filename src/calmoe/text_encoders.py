"""Pretrained models on disk: what a text encoder's folder must hold, and digests of what it does hold.

An encoder is a folder in the layout of transformers (config.json, model.safetensors, a tokenizer) or the name
of one on the Hugging Face hub, which becomes such a folder. Its tokenizer and its weights are read apart: the
data layer needs the one, the backbones need the other.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from calmoe.errors import InputError, about
from calmoe.validation import read_json, whole

PADDING = -1  # fills up rows of token ids; no tokenizer has it, so that no model can disagree
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
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
WITH_CODE = (CONFIG, "tokenizer_config.json")
LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
MOST = dict.fromkeys(LAYERS, 1000)
SIZES = (  # what a model builds before it reads its weights, under the names that transformers uses
    *LAYERS,
    *("vocab_size", "type_vocab_size", "max_position_embeddings", "n_positions", "n_ctx"),
    *("hidden_size", "dim", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim"),
    *("intermediate_size", "hidden_dim", "n_inner", "d_ff", "ffn_dim", "num_labels"),
    *("num_attention_heads", "n_heads", "n_head", "num_heads", "num_key_value_heads", "head_dim"),
)


def encoder_folder(name: str) -> Path:
    """The folder `name`, or the one that the hub's model of that name was downloaded to."""
    return Path(name) if Path(name).is_dir() else _from_hub(name)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in VOCABULARIES)


def tokenizer_files(folder: Path) -> list[Path]:
    """All files that decide how the folder's tokenizer cuts a text; an InputError if it has no vocabulary."""
    if not has_tokenizer(folder):
        raise InputError(
            f"{folder} has no tokenizer: {folder / VOCABULARIES[0]} (or {VOCABULARIES[1]}) is missing; "
            "save it there with the model's own tokenizer.save_pretrained"
        )
    return [folder / name for name in TOKENIZER if (folder / name).is_file()]


def load_tokenizer(folder: Path) -> Any:
    """The folder's tokenizer."""
    check_config(folder)
    with reading(f"the tokenizer in {folder}") as library:
        return library.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def check_config(folder: Path) -> None:
    """Refuse configurations that are not JSON tables, or that name code in the folder.

    Reading a tokenizer reads the model's configuration too.
    """
    for path in (folder / name for name in WITH_CODE):
        try:
            config = read_json(path) if path.is_file() else {}
        except InputError:
            config = None
        if not isinstance(config, dict):
            raise InputError(
                f"{path} is no whole JSON table: save the model again with model.save_pretrained"
            )
        if "auto_map" in config:
            raise InputError(
                f"{path}: auto_map names code to run, and code in a model's folder is never run: give a "
                "model that transformers knows, such as distilbert-base-uncased"
            )


def weights_files(folder: Path) -> list[Path]:
    """The folder's configuration and weights, in one file or several; an InputError if either is missing."""
    weights = sorted(folder.glob("model*.safetensors"))
    for path, present in ((folder / CONFIG, (folder / CONFIG).is_file()), (folder / WEIGHTS, bool(weights))):
        if not present:
            raise InputError(
                f"{path} is missing: a text encoder is a folder with {CONFIG}, {WEIGHTS} and a tokenizer; "
                "write it with model.save_pretrained (pickled .bin files are not read)"
            )
    check_config(folder)
    _check_sizes(folder, weights)
    _check_index(folder, weights)
    return [folder / CONFIG, *weights]


def _check_sizes(folder: Path, weights: Iterable[Path]) -> None:
    """Refuse sizes in the configuration beyond the length of the weights, and an absurd number of layers."""
    path, length = folder / CONFIG, sum(file.stat().st_size for file in weights)
    with about(path):
        for name, value in read_json(path).items():
            if name in SIZES and value is not None:
                whole(name, value, most=min(MOST.get(name, length), length))


def _check_index(folder: Path, weights: Iterable[Path]) -> None:
    """Refuse a list of parts that names anything but the folder's own weights."""
    path = folder / INDEX
    if path.is_file() and not (folder / WEIGHTS).is_file():
        index, known = read_json(path), {file.name for file in weights}
        parts = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(parts, dict) or not all(isinstance(p, str) and p in known for p in parts.values()):
            raise InputError(
                f"{path}: weight_map must name files like model-00001-of-00002.safetensors that are there: "
                "save the model again with model.save_pretrained"
            )


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
    """The transformers library, silenced meanwhile; an InputError if it is not installed."""
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


@contextmanager
def reading(what: str) -> Iterator[Any]:
    """The transformers library, to read `what`; a damaged file may raise anything, even Rust's panics."""
    with transformers() as library:
        try:
            yield library
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{what} cannot be read ({reason}): save it again") from None


@cache
def _from_hub(name: str) -> Path:
    if Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise InputError(f"there is no folder {name}: give one with a model and its tokenizer")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise InputError(f"there is no folder {name}; for hub names: pip install 'calmoe[text]'") from None
    try:
        return Path(snapshot_download(name, allow_patterns=[*TOKENIZER, CONFIG, "model*.safetensors*"]))
    except Exception as error:  # no network, no hub, no such model
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"there is no folder {name}, and the Hugging Face hub gave no model of that name ({reason}): "
            "give a folder with a model and its tokenizer"
        ) from None
