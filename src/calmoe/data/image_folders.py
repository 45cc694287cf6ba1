"""Images in folders DIR/domain/class/image: which files count, and notes on the rest."""

import os
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from calmoe.data.card import given_folder
from calmoe.data.image_cache import SUFFIXES
from calmoe.errors import InputError
from calmoe.files import is_utf8, legible

Layout = dict[str, dict[str, list[Path]]]
"""Images by domain and class, all in order; a domain has only its own classes."""

NO_IMAGES = f"has no images in class folders (their names end in {', '.join(SUFFIXES)})"
MOST_NOTES = 5  # on classes that some domain lacks


def image_folder(name: str, data: Path | None) -> Path:
    """The folder that the user gives for the dataset `name`; an InputError if there is none."""
    folder = given_folder(name, data, "unpack it to DIR/domain/class/image")
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give the one with a folder per domain")
    return folder


def unpacked(name: str) -> str:
    """How a user gets a dataset of image folders."""
    return (
        f"{name} is not downloaded (docs/data.md has more): unpack it to DIR/domain/class/image, "
        f"then `calmoe run {name} --data DIR --target DOMAIN`"
    )


def find_images(root: Path) -> Layout:
    """All images under `root`; hidden files and folders, and files that are no images, do not count.

    Nor does a folder without images, such as the __MACOSX of some archives.
    """
    layout = {}
    for domain in _folders(root):
        classes = _folders(domain)
        images = {folder.name: files for folder in classes if (files := _images(folder))}
        if images:
            layout[domain.name] = images
    return layout


def empty_folders(root: Path) -> list[str]:
    """Folders that may have been meant as domains, and have no images in class folders."""
    return [folder.name for folder in _folders(root) if not any(map(_images, _folders(folder)))]


def deeper(root: Path, needed: Collection[str] = ()) -> str:
    """A hint where the domains, among them all `needed` ones, lie a folder deeper: DIR/inner/domain/class."""
    for folder in _folders(root):
        domains = find_images(folder)
        if len(domains) > 1 and domains.keys() >= set(needed):
            return f"; did you mean --data {shlex.quote(str(folder))}?"
    return ""


def layout_notes(root: Path, layout: Layout) -> tuple[str, ...]:
    """Notes on what may be missed: files and folders that do not count, classes that a domain lacks."""
    return (*_folders_passed_over(root, layout), *_files_passed_over(root, layout), *_lacking(root, layout))


def _folders_passed_over(root: Path, layout: Layout) -> Iterator[str]:
    empty = empty_folders(root)
    for folder in _folders(root):
        if folder.name not in layout:
            why = f"it {NO_IMAGES}" if folder.name in empty else "not one of the domains"
            yield f"folder {folder.name} passed over: {why}"


def _files_passed_over(root: Path, layout: Layout) -> Iterator[str]:
    """Hidden files never count; outside of the class folders only images are missed."""
    other: list[Path] = []
    misplaced = [p for folder in (root, *map(root.joinpath, layout)) for p in _named_as_images(folder)]
    unreadable: list[Path] = []
    for domain, images in layout.items():
        for label in _folders(root / domain):
            counted = {path.name for path in images.get(label.name, ())}
            for place, folders, names in os.walk(label):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                top = Path(place) == label
                for name in sorted(names):
                    if name.startswith(".") or (top and name in counted):
                        continue
                    path = Path(place, name)
                    image = path.suffix.lower() in SUFFIXES
                    (other if not image else unreadable if top else misplaced).append(path)
    yield from _passed_over(root, other, f"images end in {', '.join(SUFFIXES)}")
    yield from _passed_over(root, misplaced, "images count in DIR/domain/class, no higher and no deeper")
    yield from _passed_over(root, unreadable, "a broken link, or no plain file")


def _passed_over(root: Path, files: Sequence[Path], why: str) -> Iterator[str]:
    """A note on these files, if there are any."""
    if files:
        name = legible(files[0].relative_to(root))
        many = (
            f"1 file passed over, {name}"
            if len(files) == 1
            else f"{len(files)} files passed over, such as {name}"
        )
        yield f"{many}: {why}"


def _lacking(root: Path, layout: Layout) -> list[str]:
    """Notes on classes, by the names of their folders, that have no image in some domain."""
    notes = []
    for name in sorted({folder.name for domain in layout for folder in _folders(root / domain)}):
        without = [domain for domain in layout if name not in layout[domain]]
        if len(without) == len(layout):
            notes.append(f"class {name}: no image in any domain, so it is no class")
        elif without:
            notes.append(f"class {name}: no image in domain{'s' * (len(without) > 1)} {', '.join(without)}")
    more = len(notes) - MOST_NOTES
    return [*notes[:MOST_NOTES], *([f"{more} more such classes"] if more > 0 else [])]


def _folders(folder: Path) -> list[Path]:
    """Visible folders by name; the names go into results and reports, which are UTF-8."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in folders:
        if not is_utf8(path.name):
            raise InputError(
                f"{folder} has a folder whose name is not UTF-8, {os.fsencode(path.name)!r}: rename it"
            )
    return folders


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in _named_as_images(folder) if path.is_file())


def _named_as_images(folder: Path) -> list[Path]:
    """Paths named as images, without folders; some may not be readable."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and not path.is_dir()
    )
