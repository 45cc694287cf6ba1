"""What the user's data are: a table, texts or images, with labels and groups; one object, read once."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calmoe.data.image_cache import SUFFIXES as IMAGES
from calmoe.data.text import text_notes
from calmoe.errors import InputError, about, shown
from calmoe.files import file_digest, is_utf8, legible
from calmoe.formats.columns import check_there
from calmoe.models.columns import Columns
from calmoe.models.model import class_name, group_column
from calmoe.models.taught import file_keys, table_keys, text_keys
from calmoe.new_rows import numbered_cases
from calmoe.own_data.tables import Table

DOMAIN = "domain"


@dataclass(frozen=True, kw_only=True)
class Source:
    """N rows. `labels` are names of classes, None where one is missing; empty where there are none at all."""

    kind: str  # "tables", "texts" or "images"
    name: str
    columns: Columns = field(default_factory=dict)
    texts: Sequence[str] = ()
    files: Sequence[Path] = ()
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=object))
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    cases: np.ndarray | None = None  # the name of each row's case
    others: Columns = field(default_factory=dict)  # not learned from
    digest: str = ""
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()  # columns of a table of texts that nobody asked for

    def __len__(self) -> int:
        if self.kind == "tables":
            return len(next(iter(self.columns.values())))
        return len(self.texts) if self.kind == "texts" else len(self.files)

    def take(self, rows: np.ndarray) -> "Source":
        """These rows, in this order."""
        return replace(
            self,
            columns={name: values[rows] for name, values in self.columns.items()},
            texts=[self.texts[i] for i in rows] if self.kind == "texts" else (),
            files=[self.files[i] for i in rows] if self.kind == "images" else (),
            labels=self.labels[rows] if len(self.labels) else self.labels,
            groups={name: values[rows] for name, values in self.groups.items()},
            cases=None if self.cases is None else self.cases[rows],
            others={name: values[rows] for name, values in self.others.items()},
        )

    @property
    def inputs(self) -> Any:
        """The rows as a model takes them."""
        return {"tables": self.columns, "texts": self.texts, "images": self.files}[self.kind]

    @property
    def case_numbers(self) -> np.ndarray:
        """A number for each row's case; a row that names none is a case of its own. [N]"""
        return np.arange(len(self)) if self.cases is None else numbered_cases(self.cases)[0]

    def keys(self, columns: Collection[str]) -> np.ndarray:
        """A key for each row, of its text, its file, or these columns of a table (`models.taught`). [N]"""
        if self.kind == "tables":
            return table_keys({name: self.columns[name] for name in columns if name in self.columns})
        return text_keys(self.texts) if self.kind == "texts" else file_keys(self.files)


def rows_of(
    table: Table,
    path: Path,
    *,
    label: str = "",
    text: str = "",
    groups: Iterable[str] = (),
    drop: Iterable[str] = (),
    cluster: str = "",
) -> Source:
    """The table in `path`, or texts where `text` names their column; columns that are named must be there."""
    columns, groups, drop = dict(table.columns), tuple(dict.fromkeys(groups)), tuple(drop)
    with about(legible(path)):
        for name in (*filter(None, (label, text, cluster)), *groups, *drop):
            check_there("column", name, columns)
    grouped = {name: group_column(columns[name], name) for name in groups}
    cases = group_column(columns[cluster], cluster) if cluster else None
    drop = (*drop, *([cluster] if cluster else []))  # it tells cases apart, and those to come are others
    labels = (
        np.array([None if _missing(v) else class_name(v) for v in columns.pop(label)], dtype=object)
        if label
        else np.empty(0, dtype=object)
    )
    digest, notes = file_digest(path), tuple(table.notes)
    if text:
        texts = [value or "" for value in table.texts]
        notes += text_notes(texts)
        unused = tuple(name for name in columns if name not in (text, *groups, *drop))
        kind: dict[str, Any] = {"kind": "texts", "texts": texts, "unused": unused}
    else:
        kept = {name: values for name, values in columns.items() if name not in drop}
        if not kept:
            raise InputError(f"{legible(path)} has no column to learn from beside {shown(label)}")
        kind = {"kind": "tables", "columns": kept}
    return Source(
        name=legible(path.stem),
        labels=labels,
        groups=grouped,
        cases=cases,
        others={name: values for name, values in columns.items() if name in drop or (text and name != text)},
        digest=digest,
        notes=notes,
        **kind,
    )


def read_images(root: Path, labelled: bool = True) -> Source:
    """DIR/class/image or DIR/domain/class/image; without labels also DIR/image, or one image."""
    if root.is_file():
        return Source(kind="images", name=legible(root.stem), files=[root], digest=_digest([root]))
    flat = _images(root)
    classes = {folder: _images(folder) for folder in _folders(root)}
    domains = {folder: {inner: _images(inner) for inner in _folders(folder)} for folder in classes}
    domains = {folder: inner for folder, inner in domains.items() if any(inner.values())}
    classes = {folder: files for folder, files in classes.items() if files}
    if classes and domains:
        raise InputError(
            f"{legible(root)} holds images in {min(classes).name} and deeper in {min(domains).name}: "
            "put all in DIR/class or all in DIR/domain/class"
        )
    rows: list[tuple[Path, str | None, str]] = [
        *((file, folder.name, "") for folder, files in classes.items() for file in files),
        *(
            (file, inner.name, folder.name)
            for folder, inners in domains.items()
            for inner, files in inners.items()
            for file in files
        ),
    ]
    if not rows and not labelled:
        rows = [(file, None, "") for file in flat]
    if not rows:
        raise InputError(
            f"{legible(root)} has no images in folders of classes (DIR/class/image, names that end in "
            f"{', '.join(IMAGES)})"
        )
    labels = np.array([label for _, label, _ in rows], dtype=object)
    notes = [f"{len(flat)} images outside of class folders are passed over"] if flat and labels[0] else []
    used = {part for file, _, _ in rows for part in file.parents}
    notes += [f"{folder.name} holds no images: left out" for folder in _folders(root) if folder not in used]
    return Source(
        kind="images",
        name=legible(root.resolve().name),
        files=[file for file, _, _ in rows],
        labels=labels if labels[0] is not None else np.empty(0, dtype=object),
        groups={DOMAIN: np.array([domain for _, _, domain in rows])} if domains else {},
        digest=_digest([file for file, _, _ in rows]),
        notes=tuple(notes),
    )


def _missing(value: Any) -> bool:
    return value is None or value != value or str(value) == "NaT"


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode(errors="surrogateescape") + b"\0")
        digest.update(bytes.fromhex(file_digest(file)))
    return digest.hexdigest()


def _folders(folder: Path) -> list[Path]:
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in folders:
        if not is_utf8(path.name):
            raise InputError(f"{legible(path)}: the folder's name is not UTF-8: rename it")
    return folders


def _images(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGES and not path.name.startswith(".") and path.is_file()
    )
