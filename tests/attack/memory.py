"""The memory of this process: a limit, and the peak of what it had."""

import resource
from pathlib import Path


def starved(error: BaseException | None) -> bool:
    """Whether memory ran out at its root, whatever became of it."""
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def limit_data(most: int) -> None:
    """Let malloc fail beyond `most` bytes more than now; the hard limit stays, so that it can be raised."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(_status("VmData")) * 1024 + most, hard))


def start_measuring() -> float:
    """Forget the peak of the process's memory, and say what it has now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """The most since then, in MB."""
    return _status("VmHWM") / 1000


def _status(name: str) -> float:
    with open("/proc/self/status") as stream:
        return next(float(line.split()[1]) for line in stream if line.startswith(name))
