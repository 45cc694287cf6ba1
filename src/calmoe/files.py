"""Files are written whole or not at all."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_whole(path: str | Path, data: bytes) -> None:
    """Write `data` beside `path` under a temporary name, then rename: readers see all of it or none."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: str | Path, value: Any) -> None:
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
