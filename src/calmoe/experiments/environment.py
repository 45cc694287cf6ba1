"""Where results come from: code version, machine and command; and paths without that machine's folders."""

import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import calmoe

SOURCE = Path(__file__).resolve().parents[3]  # the repository, where calmoe runs from one


def describe(device: Any) -> dict[str, Any]:
    """This session, for `environment.json`; `device` is a torch.device."""
    import torch

    from calmoe.training.ranks import present

    commit, dirty = _commit()
    return {
        "calmoe": calmoe.__version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **({"ranks": present().size} if present().several else {}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["calmoe", *sys.argv[1:]],
    }


def _commit() -> tuple[str | None, bool | None]:
    """CALMOE_COMMIT if it is set, else the source tree's commit and whether files differ from it."""
    if given := os.environ.get("CALMOE_COMMIT"):
        return given, None
    if not (SOURCE / ".git").exists():
        return None, None
    commit, changes = _git("rev-parse", "--verify", "HEAD"), _git("status", "--porcelain")
    return commit, None if commit is None or changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(SOURCE), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _processor() -> str:
    """The CPU's name where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def portable(value: Any) -> Any:
    """Paths without the folders that one machine has, also inside of tables and lists; all else as it is.

    >>> portable({"command": ["run", "--data", "/home/me/PACS"], "seeds": [42]})
    {'command': ['run', '--data', 'PACS'], 'seeds': [42]}
    """
    if isinstance(value, dict):
        return {name: portable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [portable(inner) for inner in value]
    return re.sub(r'(^|=|")/.*/', r"\1", value) if isinstance(value, str) else value
