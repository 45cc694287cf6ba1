"""Processes forked from one server a worker, which has imported for all of them what takes seconds."""

import importlib.util
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import pytest

from haste import hurry
from sizes import at_size

IMPORTED = (
    *("torch", "torch._dynamo", "torchmetrics"),  # the second: when training begins
    "pydantic.type_adapter",  # when a command's options are read
    *("sklearn.ensemble", "sklearn.datasets", "pyarrow.parquet"),
    *("calmoe.commands", "calmoe.experiments.runner", "calmoe.report.write", "calmoe.auditing.files"),
    "settled",
)
STARTING = Lock()


def server():
    """The context to start them in."""
    assert all(map(importlib.util.find_spec, IMPORTED))  # the server would pass over one that is gone
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with STARTING, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        forkserver.ensure_running()
    return context


def run(command, cwd=None, check=False, text=False, stdout=None, stderr=None, timeout=None, hasty=False, **_):
    """`subprocess.run` of `python -m MODULE …` or `python -c CODE …`; what it says is captured.

    `stdout` may be an open file of bytes, which is written as the process speaks; `hasty` processes' audits
    learn little.
    """
    assert command[0] == sys.executable
    with tempfile.TemporaryDirectory() as folder:
        names = ("stdout", "stdout" if stderr == subprocess.STDOUT else "stderr")
        files = [Path(folder, name) for name in names]
        if hasattr(stdout, "name"):
            files = [Path(stdout.name) if file.name == "stdout" else file for file in files]
        process = server().Process(target=_work, args=(command[1:], cwd or Path.cwd(), files, hasty))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        said = [file.read_text() if text else file.read_bytes() for file in files]
    ended = subprocess.CompletedProcess(command, process.exitcode, *said)
    if check:
        ended.check_returncode()
    return ended


def _work(arguments, cwd, files, hasty):
    os.chdir(cwd)
    if hasty:
        hurry()
    for name, file in zip(("stdout", "stderr"), files, strict=True):
        stream = file.open("a")
        os.dup2(stream.fileno(), getattr(sys, f"__{name}__").fileno())
        setattr(sys, name, stream)
    flag, what, *rest = map(str, arguments)
    sys.argv = [what, *rest]
    try:
        if flag == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def begin_hastily():
    """How processes of a study's pool begin, in place of `studies.processes._one_thread`."""
    from studies.processes import _one_thread

    _one_thread()
    hurry()


in_place_of_subprocess = SimpleNamespace(
    run=partial(run, hasty=at_size(True, False)),
    PIPE=subprocess.PIPE,
    STDOUT=subprocess.STDOUT,
    TimeoutExpired=subprocess.TimeoutExpired,
)
"""For modules that start commands: `monkeypatch.setattr("studies.X.subprocess", …)`. Hasty at small size."""
