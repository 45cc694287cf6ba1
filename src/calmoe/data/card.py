"""A dataset's card: how to load it, where to get it, and what its pages must explain."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calmoe.data.shift import ShiftDataset


@dataclass(frozen=True, kw_only=True)
class DatasetCard:
    """What calmoe knows of a dataset before it is loaded.

    `load` takes (data, protocol) and, where the dataset has them, target= and encoder=.
    """

    load: Callable[..., ShiftDataset]
    get_it: str  # what `calmoe data NAME` says where nothing is downloaded
    fetch: Callable[[Path], Path] | None = None  # downloads it into a folder
    hard: str = ""  # what its hard rows are
    domains: tuple[str, ...] = ()  # all that it has, where they are always the same

    @property
    def needs_folder(self) -> bool:
        """Whether it is read from files of the user's."""
        return self._parameters["data"].default is inspect.Parameter.empty

    @property
    def is_text(self) -> bool:
        """Whether its rows are token ids, for a text encoder."""
        return "encoder" in self._parameters

    @property
    def has_targets(self) -> bool:
        """Whether one of its domains is the one to test on."""
        return "target" in self._parameters

    @property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.load).parameters)
