"""A calmoe command in a forked child: what happens to it happens there, at the operation that is chosen."""

import ctypes
import gc
import importlib
import io
import os
import pkgutil
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

KILLED = 128 + signal.SIGKILL
NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
CHANGES = frozenset(
    f"os.{name}"
    for name in (
        "rename",
        "remove",
        "mkdir",
        "rmdir",
        "truncate",
        "link",
        "symlink",
        "chmod",
        "chown",
        "utime",
    )
)
NEEDS = {"os.mkdir": False, "os.remove": True}  # whether the path is there before, if anything changes
IDLE = 10.0  # seconds of the clock in which a process that does not hang works
AT_LEAST = 0.1  # seconds, however busy the machine is
LATE = ("sklearn.datasets", "torch._dynamo", "torch._inductor")  # what training imports when it begins
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

Act = Callable[[int, str, str | int], None]
"""What to do before an operation: given its number, its name, and the file's path (fsync: the handle)."""


class End(NamedTuple):
    """How a child ended; the code as a shell tells it, 137 after SIGKILL."""

    code: int
    stderr: str
    seconds: float
    worked: float  # seconds of a processor
    memory_mb: float
    hung: bool

    @property
    def is_clean(self) -> bool:
        """Whether calmoe, if it was not killed, ended as documented: a code that it knows, no traceback."""
        return self.code in (0, 1, 2, 3, KILLED) and "Traceback" not in self.stderr

    @property
    def is_refusal(self) -> bool:
        """Whether one line says why nothing came of it."""
        lines = self.stderr.strip().splitlines()
        return self.code == 2 and len(lines) == 1 and lines[0].startswith("error: ")


class Child:
    """A process that works in `folder`; its standard error is kept."""

    def __init__(self, line: str, folder: Path, act: Act | None = None) -> None:
        self._stderr = os.memfd_create("stderr")
        self._began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            _become(line, folder, act, self._stderr)

    def wait(self, limit: float) -> End:
        """Until it ends; killed if it works for more than `limit` seconds, or not at all for ten."""
        handle, worked = os.pidfd_open(self.pid), 0.0
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while hung := not poll.poll(IDLE * 1000):
            before, worked = worked, _worked(self.pid)
            if worked > limit or worked - before < AT_LEAST:
                os.kill(self.pid, signal.SIGKILL)
                break
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        stderr = os.pread(self._stderr, 1 << 20, 0).decode(errors="replace")
        os.close(handle)
        os.close(self._stderr)
        return End(
            128 - code if code < 0 else code,
            stderr,
            seconds=time.monotonic() - self._began,
            worked=usage.ru_utime + usage.ru_stime,
            memory_mb=usage.ru_maxrss / 1024,
            hung=hung,
        )


def _worked(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _become(line: str, folder: Path, act: Act | None, stderr: int) -> None:
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(stderr, 2)
        os.chdir(folder)
        os.environ["TMPDIR"] = str(folder.parent)  # what is killed may leave files there
        tempfile.tempdir = None
        if act is not None:
            intercept(act)
        code = calmoe(line)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def calmoe(line: str) -> int:
    """The command's exit code."""
    from calmoe.commands import app

    sys.argv = ["calmoe", *shlex.split(line)]
    try:
        app(sys.argv[1:])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def intercept(act: Act) -> None:
    """Call `act` before every operation by which this process changes files below its working folder."""
    here, number, fsync = os.getcwd() + os.sep, 0, os.fsync
    acting = False

    def before(operation: str, file: str | int) -> None:
        nonlocal number, acting
        acting = True
        try:
            act(number, operation, file)
        finally:
            acting = False
            number += 1

    def is_here(path: str) -> bool:
        return not os.path.isabs(path) or path.startswith(here)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        opens = event == "open" and arguments[2] & WRITES  # type: ignore[operator]
        if acting or not (opens or event in CHANGES) or isinstance(arguments[0], int):
            return
        path = os.fsdecode(arguments[0])  # type: ignore[arg-type]
        idle = event in NEEDS and os.path.lexists(path) is not NEEDS[event]
        if is_here(path) and not idle:
            before(event, path)

    def audited_fsync(handle: int) -> None:
        if is_here(os.readlink(f"/proc/self/fd/{handle}")):
            before("fsync", handle)
        fsync(handle)

    sys.addaudithook(hook)
    os.fsync = audited_fsync


def prepare(draws: bool) -> None:
    """Make this process the parent of many: all is imported, one thread, mounts of its own if permitted.

    draws: whether figures are rendered, or one picture stands for all of them.
    """
    import torch
    from matplotlib.figure import Figure

    import calmoe
    from calmoe.training import Trainer
    from haste import hurry

    torch.set_num_threads(1)
    hurry()  # files, not findings, are attacked
    Trainer.__init__.__defaults__ = (0.0,)  # a checkpoint after every epoch
    os.environ["CALMOE_COMMIT"] = "attacked"  # git is not asked
    modules = [module.name for module in pkgutil.walk_packages(calmoe.__path__, "calmoe.")]
    for name in (*modules, *LATE):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    figure = Figure()
    figure.text(0, 0, "$x$")
    picture = io.BytesIO()
    figure.savefig(picture)  # fonts are found and read once
    if not draws:
        Figure.savefig = lambda _, file, **__: file.write(picture.getvalue())
    gc.freeze()  # a child need not look through what it inherits
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS) == 0:
        subprocess.run(["mount", "--make-rprivate", "/"], check=False, capture_output=True)
