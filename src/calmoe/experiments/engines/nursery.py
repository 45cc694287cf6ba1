"""A process that imports calmoe once and then forks workers, as many as are wanted.

It begins to import when it is started, while its parent still does. It never has a second thread
and never touches a GPU, so that forks of it are safe where forks of the user's process are not.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from calmoe.errors import InputError

VARIABLE = "CALMOE_WORKER"  # set in workers
MODULE = "calmoe.experiments.engines.worker"


class Nursery:
    """Forks workers on demand; they and it end with `close`, and when the process that made it ends.

    This module imports nothing that takes time: a command can start a nursery before anything else.
    """

    def __init__(self) -> None:
        if VARIABLE in os.environ:
            raise InputError(
                "a worker cannot start workers: put the call that trains under `if __name__ == '__main__':`"
            )
        self.control, theirs = socket.socketpair()
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        single["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # pyarrow's allocator would start one
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno())],
                env=os.environ | single | {VARIABLE: "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__ if sys.__stderr__ else None,
                start_new_session=True,  # Ctrl-C is for the parent: it ends the nursery
            )

    def begin(self, work: str, lock: int) -> None:
        """Say what workers are to do; they hold the open file `lock`, the folder's, while they live."""
        data = work.encode()
        with _alive():
            socket.send_fds(self.control, [len(data).to_bytes(8, "big")], [lock])
            self.control.sendall(data)

    def fork(self) -> socket.socket:
        """A new worker: the socket to talk to it, which ends when it does."""
        ours, theirs = socket.socketpair()
        with theirs, _alive():
            socket.send_fds(self.control, [b"\0"], [theirs.fileno()])
        return ours

    def close(self) -> None:
        """End it and all workers at once; when this returns, they are gone."""
        self.control.close()
        self.process.terminate()
        self.process.wait()


@contextmanager
def _alive() -> Iterator[None]:
    """One line where the nursery ended, as if killed, before it was told what to do."""
    try:
        yield
    except OSError:
        raise InputError("the process that starts workers ended (was memory short?): try again") from None
