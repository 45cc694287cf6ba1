"""A dataset's card: how to load it, where to get it, and what its pages must explain."""

import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calmoe.data.shift import ShiftDataset
from calmoe.errors import InputError, refusal


@dataclass(frozen=True, kw_only=True)
class DatasetCard:
    """What calmoe knows of a dataset before it is loaded.

    `load` takes (data, protocol) and, where the dataset has them, target= and encoder=.
    """

    load: Callable[..., ShiftDataset]
    get_it: str = "there is nothing to download"  # what `calmoe data NAME` prints where it downloads nothing
    fetch: Callable[[Path], Path] | None = None  # downloads it into a folder
    hard: str = ""  # what its hard rows are
    domains: tuple[str, ...] = ()  # all its domains, where they are always the same

    @property
    def needs_folder(self) -> bool:
        """Whether the user must give a folder with its files."""
        return self._parameters["data"].default is inspect.Parameter.empty

    @property
    def is_text(self) -> bool:
        """Whether its rows are token ids, for a text encoder."""
        return "encoder" in self._parameters

    @property
    def has_targets(self) -> bool:
        """Whether the user chooses one of its domains to test on."""
        return "target" in self._parameters

    @property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.load).parameters)


def check_card(name: str, card: Any) -> None:
    """Refuse what is no card of a dataset."""
    if not isinstance(card, DatasetCard) or not callable(card.load):
        raise refusal(f"the dataset {name!r}", "a DatasetCard(load=...)", card)
    if [*card._parameters][:2] != ["data", "protocol"]:
        raise InputError(f"the dataset {name!r}: load must take (data, protocol), and target= if it has any")


def given_folder(name: str, data: str | Path | None, get_it: str) -> Path:
    """The folder that the user gives for the dataset `name`; a file in it is easily given instead."""
    if data is None:
        raise InputError(f"{name} needs a folder: give it with --data DIR, or {get_it}")
    folder = Path(data)
    if folder.is_file():
        raise InputError(
            f"{folder} is a file: give the folder that it is in, --data {shlex.quote(str(folder.parent))}"
        )
    return folder
