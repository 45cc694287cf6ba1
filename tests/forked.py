"""Processes forked from one server a worker, which has imported for all of them what takes seconds."""

import importlib.util
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

IMPORTED = (
    *("torch", "torch._dynamo", "torchmetrics"),  # the second: when training begins
    *("sklearn.ensemble", "sklearn.datasets", "pyarrow.parquet"),
    *("calmoe.commands", "calmoe.experiments.runner", "calmoe.report.write", "calmoe.auditing.files"),
)


def server():
    """The context to start them in."""
    assert all(map(importlib.util.find_spec, IMPORTED))  # the server would pass over one that is gone
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def run(command, cwd=None, check=False, text=False, stdout=None, stderr=None, timeout=None, **_):
    """`subprocess.run` of `python -m MODULE …` or `python -c CODE …`; what it says is captured.

    `stdout` may be an open file of bytes, which is written as the process speaks.
    """
    assert command[0] == sys.executable
    with tempfile.TemporaryDirectory() as folder:
        names = ("stdout", "stdout" if stderr == subprocess.STDOUT else "stderr")
        files = [Path(folder, name) for name in names]
        if hasattr(stdout, "name"):
            files = [Path(stdout.name) if file.name == "stdout" else file for file in files]
        process = server().Process(target=_work, args=(command[1:], cwd or Path.cwd(), files))
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


def _work(arguments, cwd, files):
    os.chdir(cwd)
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


in_place_of_subprocess = SimpleNamespace(
    run=run, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT, TimeoutExpired=subprocess.TimeoutExpired
)
"""For modules that start commands: `monkeypatch.setattr("studies.NAME.subprocess", …)`."""
