"""The folder of a report: the files it may have, and what an older report left there."""

import re
from collections.abc import Collection
from pathlib import Path

from calmoe.data import PROTOCOLS
from calmoe.errors import InputError
from calmoe.experiments.sweep import sweepable
from calmoe.ownership import Kind
from calmoe.report.figure_list import figure_names
from calmoe.validation import read_document

_protocol, _setting = "|".join(PROTOCOLS), "|".join(sweepable())
_figure = "|".join(figure_names(sweepable()))
FILES = re.compile(
    "|".join(
        [
            r"report\.html|tables\.md|(sources|timing|examples)\.json|curves\.json(\.gz)?|results\.jsonl",
            rf"sweep_({_setting})\.jsonl",
            rf"tables/(comparison|eta_gamma|sweep_({_setting})-({_protocol}))\.(tex|csv)",
            rf"tables/({_protocol})(-scores|-paired|-mean|-comparison)?\.(tex|csv)",
            rf"figures/({_figure})\.(png|pdf)",
        ]
    )
)


KEYS = {"sources.json": {"spec", "fingerprint"}, "curves.json": {"dataset", "protocol", "seed", "method"}}


def left_over(to: Path, now: Collection[str] = ()) -> list[str]:
    """Folders that an older report on targets wrote in `to`, but for those that are written `now`.

    The command names them and removes nothing: whoever keeps notes beside a page keeps them.
    """
    older = []
    for sources in to.glob("*/sources.json"):
        folder = sources.parent
        try:
            target = read_document(sources)[0]["spec"]["target"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        own = bool(target) and re.fullmatch(f"(target-)*{re.escape(str(target))}", folder.name)
        if own and folder.name not in now and (folder / "report.html").is_file():
            older.append(folder.name)
    return sorted(older)


def _unmarked(folder: Path) -> set[str]:
    """The files of a report by a calmoe that left no marks; none where nothing is surely its own."""
    own = any(_is_own(folder / name, keys) for name, keys in KEYS.items())
    paths = (path for place in (".", "tables", "figures") for path in (folder / place).glob("*"))
    names = (path.relative_to(folder).as_posix() for path in paths if path.is_file())
    return {name for name in names if own and FILES.fullmatch(name)}


def _is_own(path: Path, keys: set[str]) -> bool:
    try:
        entries = read_document(path)
    except (OSError, InputError):
        return False
    return isinstance(entries, list) and any(isinstance(e, dict) and e.keys() >= keys for e in entries)


REPORT = Kind("report", "--to", _unmarked)
