"""One trial of a command: what it starts from, what it must end with, and what is not its own."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, Self

from attack.children import KILLED, Act, Child, End
from attack.figures import Tally

SETTINGS = "--set epochs=2 --set warmup=1 --set hidden=[8] --set router_hidden=4 --set batch=128"
FEW = f"--seeds 42 {SETTINGS}"
PATIENCE = 10.0  # seconds that a command may work, and as many times what it works undisturbed
LONG_AGO = 1_000_000_000
DECOYS = ("mine.png", ".notes.0123456789abcdef", "results.jsonl.bak", "state-mine.safetensors", "mine/notes")
LINK = "mine.link"
DATE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d[+]00:00")  # as an audit tells when it was made
TEXT = "the user's own\n"


class Command(NamedTuple):
    """A line for calmoe, the one folder that it may write, and the command after which it is given."""

    line: str
    output: str
    after: str = ""


COMMANDS = {
    "run": Command(f"run digits --methods vanilla,robust {FEW} --out run", "run"),
    "sweep": Command(f"sweep eta digits --values 0,1 {FEW} --out sweep", "sweep"),
    "run, methods added": Command(
        f"run digits --methods vanilla,mocae,fgr,robust {FEW} --out run", "run", "run"
    ),
    "report": Command("report run", "run/report", "run"),
    "report of a sweep": Command("report sweep --pdf", "sweep/report", "sweep"),
    "export": Command("export run --to predictions", "predictions", "run"),
    "audit": Command("audit predictions/robust-42/validation.safetensors --out audit", "audit", "export"),
    "audit of a target": Command(
        "audit predictions/robust-42/validation.safetensors --target predictions/robust-42/test.safetensors "
        "--out audit",
        "audit",
        "audit",
    ),
}
SLOW = ("report", "audit of a target")


class Library:
    """The trees that undisturbed commands leave, by the command's name, and the operations they took."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def tree(self, name: str) -> Path:
        return self.path / (name or "nothing")

    def facts(self, name: str) -> dict[str, Any]:
        """The `operations`, each a name and a path, and the seconds that it took and `worked`."""
        return json.loads(self.tree(name).with_suffix(".json").read_text())

    def begin(self) -> None:
        """The tree before the first command: foreign files only."""
        plant(self.tree(""))

    def add(self, name: str) -> None:
        """Run the command undisturbed, and keep what it leaves."""
        tree = shutil.copytree(self.tree(COMMANDS[name].after), self.tree(name), symlinks=True)
        noted = os.memfd_create("operations")

        def note(_: int, operation: str, file: str | int) -> None:
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file
            os.write(noted, json.dumps([operation, path]).encode() + b"\n")

        end = Child(COMMANDS[name].line, tree, note).wait(60)
        if end.code or end.stderr:
            raise RuntimeError(f"undisturbed, calmoe {COMMANDS[name].line} ends with {end}")
        lines = os.pread(noted, 1 << 24, 0).decode().splitlines()
        operations = [json.loads(line) for line in lines]
        facts = {"operations": operations, "seconds": end.seconds, "worked": end.worked}
        tree.with_suffix(".json").write_text(json.dumps(facts))
        os.close(noted)


class Trial:
    """A command in a copy of what it starts from; the tally says how that went."""

    def __init__(self, library: Library, name: str, root: Path | None = None) -> None:
        self.name, self.command, self.library = name, COMMANDS[name], library
        self.root = root or Path(tempfile.mkdtemp(dir=library.path))
        shutil.copytree(library.tree(self.command.after), self.root, symlinks=True, dirs_exist_ok=True)
        self.output = self.root / self.command.output
        self.limit = PATIENCE * (1 + library.facts(name)["worked"])
        self.tally = Tally(name, cases=1)
        self.what = name
        self.foreign = outside(self.root, self.output)
        self.sealed = sealed(self.output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def start(self, act: Act | None = None) -> Child:
        return Child(self.command.line, self.root, act)

    def run(self, act: Act | None = None) -> End:
        """The command to its end, noted in the tally."""
        return self.note(self.start(act).wait(self.limit))

    def note(self, end: End) -> End:
        self.tally.memory_mb = max(self.tally.memory_mb, end.memory_mb)
        self.tally.seconds += end.seconds
        if end.hung:
            self.fail("hangs", 1, f"not over after {end.seconds:.0f} s")
        elif not end.is_clean or (end.code not in (0, KILLED) and not end.is_refusal):
            last = (end.stderr.strip().splitlines() or ["no word"])[-1]
            self.fail("tracebacks", 1, f"ended with {end.code}: {last}")
        return end

    def fail(self, kind: str, count: int, reason: str) -> None:
        setattr(self.tally, kind, getattr(self.tally, kind) + count)
        self.tally.failures.append(f"{self.what}: {reason}")

    def resume(self) -> None:
        """The same command again, with foreign files beside its own, ends as if nothing had happened.

        It may refuse for the foreign files; then it must not once they are gone.
        """
        self.remember()
        folders = [path for path in (self.output, *self.output.rglob("*")) if _is_folder(path)]
        planted = [path for folder in folders for path in plant(folder)] if _has_visible(self.output) else []
        before = {str(path): portrait(path) for path in planted}
        end = self.run()
        changed = [path for path in planted if portrait(path) != before[str(path)]]
        if changed:
            names = ", ".join(str(path.relative_to(self.root)) for path in changed)
            self.fail("foreign", len(changed), f"changed or gone: {names}")
        if planted and end.is_refusal:
            self.tally.refused += 1
            for path in planted:
                _remove(path)
            planted, end = [], self.run()
        self.check_end(end, planted)

    def check_end(self, end: End, planted: Collection[Path] = ()) -> None:
        """The command is done, its output is that of an undisturbed one, and all else is as it was."""
        if end.code:
            self.fail("wrong", 1, f"the same command again ended with {end.code}: {end.stderr.strip()}")
        else:
            self.tally.loaded += 1
            reference = comparable(self.library.tree(self.name) / self.command.output)
            here = comparable(self.output, planted)
            different = [name for name in {*reference, *here} if reference.get(name) != here.get(name)]
            if different:
                listed = ", ".join(sorted(different)[:5])
                self.fail("wrong", 1, f"not as if undisturbed ({len(different)}): {listed}")
        self.check_foreign()
        self.check_sealed()

    def check_foreign(self) -> None:
        """What is not the command's is as it was, and nothing came to it."""
        now = outside(self.root, self.output)
        changed = [name for name in {*now, *self.foreign} if now.get(name) != self.foreign.get(name)]
        if changed:
            listed = ", ".join(sorted(changed)[:5])
            self.fail("foreign", len(changed), f"changed, gone or new outside the output: {listed}")

    def remember(self) -> None:
        """What is sealed by now must outlive all that follows, as what was sealed before must have."""
        self.check_sealed()
        self.sealed |= sealed(self.output)

    def check_sealed(self) -> None:
        """What was sealed is there, byte for byte; results may have got more rows."""
        for path, data in self.sealed.items():
            now = path.read_bytes() if path.is_file() else b""
            kept = data.splitlines() if path.name == "results.jsonl" else [data]
            rows = set(now.splitlines()) if path.name == "results.jsonl" else {now}
            if lost := sum(len(row) for row in kept if row not in rows):
                self.fail("lost", lost, f"{path.relative_to(self.root)} was sealed and is another")


def plant(folder: Path) -> list[Path]:
    """Foreign files in the folder, old and with modes of their own: they must stay as they are."""
    planted = [folder / name for name in DECOYS]
    for path in planted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT)
        path.chmod(0o640)
        os.utime(path, (LONG_AGO, LONG_AGO))
    (folder / LINK).symlink_to(DECOYS[0])
    return [*planted, folder / LINK, folder / "mine"]


def portrait(path: Path) -> tuple[int, int, str | bytes] | None:
    """Mode, time and content of a file, as far as they can show that somebody was there."""
    if not os.path.lexists(path):
        return None
    facts = path.lstat()
    if path.is_symlink():
        return facts.st_mode, facts.st_mtime_ns, os.readlink(path)
    if path.is_dir():
        return facts.st_mode, 0, b""
    return facts.st_mode, facts.st_mtime_ns, path.read_bytes()


def outside(root: Path, output: Path) -> dict[str, tuple[int, int, str | bytes] | None]:
    """All that is not in the output folder; locks may come and go, and the output's parents may be new."""
    return {
        str(path.relative_to(root)): portrait(path)
        for path in root.rglob("*")
        if not path.is_relative_to(output) and not output.is_relative_to(path) and path.name != ".lock"
    }


def comparable(folder: Path, but: Collection[Path] = ()) -> dict[str, Any]:
    """By path, what two runs of a command must share: all but times, and how many sessions it took."""
    paths = set(folder.rglob("*")).difference(but)
    return {str(path.relative_to(folder)): _timeless(path) for path in paths}


def _timeless(path: Path) -> Any:
    if path.is_symlink():
        return os.readlink(path)
    if path.is_dir() or path.name == ".lock":
        return path.name
    data = path.read_bytes()
    if path.name in ("audit.json", "report.html"):
        return DATE.sub(b"", data)
    if path.name not in ("history.json", "environment.json", "done.json"):
        return data
    try:
        facts = json.loads(data)
        if path.name == "history.json":
            return [{name: value for name, value in entry.items() if name != "seconds"} for entry in facts]
        if path.name == "environment.json":
            return {json.dumps({**entry, "date": "", "command": ""}) for entry in facts["sessions"]}
        files = {name: _digest(path.parent / name) == digest for name, digest in facts["files"].items()}
        return {**facts, "files": files, "digest": ""}
    except (ValueError, KeyError, TypeError, OSError):
        return data


def sealed(output: Path) -> dict[Path, bytes]:
    """The results and the files for which a whole done.json vouches; a hidden folder is not done."""
    kept = {}
    for mark in output.rglob("done.json"):
        facts = None if mark.parent.name.startswith(".") else _timeless(mark)
        if isinstance(facts, dict) and all(facts["files"].values()):
            names = [*facts["files"], *([] if mark.parent == output else [mark.name])]
            kept |= {mark.parent / name: (mark.parent / name).read_bytes() for name in names}
    return kept


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _has_visible(folder: Path) -> bool:
    return any(path.is_file() and not path.name.startswith(".") for path in folder.rglob("*"))


def _remove(path: Path) -> None:
    if _is_folder(path):
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
