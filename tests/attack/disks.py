"""The attack by what the folders are: full, unwritable, or with links and files where calmoe's would be."""

import errno
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

from attack.figures import Tally
from attack.trials import COMMANDS, LONG_AGO, SLOW, TEXT, Library, Trial, portrait

GROWS = ("open", "os.mkdir", "fsync")  # the operations that a full disk does not let through
FAULTS = {"full": errno.ENOSPC, "unwritable": errno.EACCES}
SHARES = (0, 0.2, 0.4, 0.6, 0.8)  # of what a command writes, and of its largest file
FEWER = 8  # of a slow command, one case in so many
LIKE_RUN = ("sweep", "run, methods added")  # they write what a run does
VICTIM = "victim"

Case = Callable[[], Tally]


def all_cases(library: Library, names: Iterable[str]) -> dict[str, list[Case]]:
    """By kind of attack: every operation, every name that is written."""
    families: dict[str, list[Case]] = {"full or unwritable": [], "small disks": [], "read-only disks": []}
    for name in names:
        if name not in LIKE_RUN:
            step = FEWER if name in SLOW else 1
            families["full or unwritable"] += faults(library, name)[::step]
            families["small disks"] += [
                partial(function, library, name, share)
                for share in SHARES
                for function in (small_disk, small_files)
            ][::step]
            families["read-only disks"].append(partial(read_only_disk, library, name))
            families[f"planted: {name}"] = [
                partial(planted, library, name, *place) for place in places(library, name)
            ][::step]
    return families


# --- full and unwritable


def faults(library: Library, name: str) -> list[Case]:
    """At every operation one of the faults, by turns."""
    turns = zip(range(len(library.facts(name)["operations"])), cycle(FAULTS), strict=False)
    return [partial(fail_from, library, name, number, fault) for number, fault in turns]


def fail_from(library: Library, name: str, number: int, fault: str) -> Tally:
    """From that operation on the disk is full, or nothing may be changed: one line, and then as if never."""
    with Trial(library, name) as trial:
        trial.what = f"{name}, {fault} from operation {number} on"
        _fails_then_works(trial, partial(_refuse, number, fault))
        return trial.tally


def small_files(library: Library, name: str, share: float) -> Tally:
    """No file may grow beyond a share of the largest: the write itself fails, halfway."""
    with Trial(library, name) as trial:
        sizes = [path.stat().st_size for path in _files(library.tree(name) / trial.command.output)]
        most = max(1000, int(share * max(sizes)))  # the line that says so goes into a file too
        trial.what = f"{name}, no file larger than {most} bytes"

        def limit(number: int, *_: object) -> None:
            if number == 0:
                resource.setrlimit(
                    resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
                )

        _fails_then_works(trial, limit)
        return trial.tally


def small_disk(library: Library, name: str, share: float) -> Tally:
    """A disk with room for a share of what the command writes; then it gets larger."""
    with tempfile.TemporaryDirectory(dir=library.path) as folder:
        if not _mount(folder, "size=1g"):
            return Tally(name)  # not permitted here: `small_files` is what is left
        try:
            trial = Trial(library, name, Path(folder))
            before, after = (_used(library.tree(tree)) for tree in (trial.command.after, name))
            size = _used(trial.root) + int(share * (after - before))
            trial.what = f"{name}, a disk of {size} bytes"
            _mount(folder, f"remount,size={size}")
            end = trial.run()
            trial.tally.refused += end.is_refusal
            _mount(folder, "remount,size=1g")
            trial.resume()
            return trial.tally
        finally:
            subprocess.run(["umount", folder], check=True)


def read_only_disk(library: Library, name: str) -> Tally:
    """A disk that may only be read: one line; then it may be written."""
    with tempfile.TemporaryDirectory(dir=library.path) as folder:
        if not _mount(folder, "size=1g"):
            return Tally(name)
        try:
            trial = Trial(library, name, Path(folder))
            trial.what = f"{name}, a disk that is only read"
            _mount(folder, "remount,ro")
            end = trial.run()
            trial.tally.refused += end.is_refusal
            if not end.is_refusal:
                trial.fail("wrong", 1, f"ended with {end.code} where nothing can be written")
            _mount(folder, "remount,rw")
            trial.resume()
            return trial.tally
        finally:
            subprocess.run(["umount", folder], check=True)


def _fails_then_works(trial: Trial, act: Callable[..., None]) -> None:
    end = trial.run(act)
    trial.tally.refused += end.is_refusal
    trial.check_foreign()
    trial.resume()


def _refuse(first: int, fault: str, number: int, operation: str, file: str | int) -> None:
    if number >= first and (fault == "unwritable" or operation in GROWS):
        code = FAULTS[fault]
        raise OSError(code, os.strerror(code), *([file] if isinstance(file, str) else []))


def _mount(folder: str, options: str) -> bool:
    line = ["mount", "-t", "tmpfs", "-o", options, "attack", folder]
    return subprocess.run(line, check=False, capture_output=True).returncode == 0


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _used(folder: Path) -> int:
    """Bytes in whole pages, as tmpfs counts them."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in _files(folder))


# --- planted


def places(library: Library, name: str) -> Iterator[tuple[str, str, bool]]:
    """Each name that the command writes, what is planted there, and whether the folder is its own."""
    command = COMMANDS[name]
    output = library.tree(name) / command.output
    is_new = not (library.tree(command.after) / command.output).exists()
    for path in sorted(output.rglob("*")):
        where = str(path.relative_to(output))
        yield from ((where, kind, True) for kind in ("link", "link to nothing"))
        if is_new:
            yield from ((where, kind, False) for kind in ("link", "link to nothing", "file"))


def planted(library: Library, name: str, where: str, kind: str, own: bool) -> Tally:
    """A link or a file of the user's where calmoe writes: what it is or points to stays as it is."""
    with Trial(library, name) as trial:
        trial.what = f"{name}, {kind} as {where} in {'its own' if own else 'a foreign'} folder"
        reference = library.tree(name) / trial.command.output
        if own:
            shutil.rmtree(trial.output, ignore_errors=True)
            shutil.copytree(reference, trial.output, symlinks=True)
        path = trial.output / where
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        if kind == "file":
            path.write_text(TEXT)
            os.utime(path, (LONG_AGO, LONG_AGO))
        else:
            _victim(trial.root / VICTIM, (reference / where).is_dir(), kind)
            path.symlink_to(trial.root / VICTIM)
        trial.foreign = {**trial.foreign, **_within(trial.root, trial.root / VICTIM)}
        before = portrait(path)
        end = trial.run()
        trial.tally.refused += end.is_refusal
        if own and end.code == 0 and not path.is_symlink():
            trial.check_end(end)
        else:  # a link where calmoe had nothing to write stays
            trial.check_foreign()
        if not own and portrait(path) != before:
            trial.fail("foreign", 1, "it was replaced, in a folder that is not calmoe's")
        return trial.tally


def _victim(path: Path, is_folder: bool, kind: str) -> None:
    if kind == "link to nothing":
        return
    if is_folder:
        path.mkdir()
        path = path / "mine.png"
    path.write_text(TEXT)
    os.utime(path, (LONG_AGO, LONG_AGO))


def _within(root: Path, path: Path) -> dict[str, object]:
    """The victim as it is before; one that does not exist must not come to be."""
    paths = [path, *path.rglob("*")] if path.exists() else []
    return {str(each.relative_to(root)): portrait(each) for each in paths}


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
