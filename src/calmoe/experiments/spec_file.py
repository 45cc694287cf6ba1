"""A run of one's own as a TOML file: dataset, methods, seeds, model, training, and the plug-ins it needs."""

import tomllib
from pathlib import Path

from calmoe.errors import InputError, about
from calmoe.experiments.spec import RunSpec, dotted, load_preset, with_values
from calmoe.files import legible
from calmoe.methods import METHODS
from calmoe.plugins import load_plugin
from calmoe.validation import items, text

MOST_BYTES = 2**20
MOST_PLUGINS = 100


def is_spec_file(name: str) -> bool:
    """Whether a command's word names a file rather than a dataset.

    >>> is_spec_file("my.toml"), is_spec_file("digits")
    (True, False)
    """
    return name.endswith(".toml")


def read_spec_file(path: Path) -> RunSpec:
    """The run that the file describes; what it leaves out is the dataset's preset, or calmoe's defaults.

    `plugins` names Python files, relative to the file's folder: they are run.
    """
    if not path.is_file():
        raise InputError(f"there is no file {legible(path)}")
    data = path.read_bytes()
    with about(legible(path)):
        if len(data) > MOST_BYTES:
            raise InputError(f"it is longer than {MOST_BYTES:,} bytes")
        try:
            table = tomllib.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a readable TOML file ({error})") from None
        for plugin in items("plugins", table.pop("plugins", []), most=MOST_PLUGINS):
            load_plugin(path.parent / text("plugins", plugin, most=5000))
        if "dataset" not in table:
            raise InputError("the setting 'dataset' is missing: name one, such as dataset = \"digits\"")
        spec = load_preset(text("dataset", table.pop("dataset"), most=200))
        methods = table.get("methods")
        for name in methods if isinstance(methods, list) else ():
            if isinstance(name, str):
                METHODS.check(name)  # loads installed plug-ins, which declare settings
        return with_values(spec, dotted(table).items())
