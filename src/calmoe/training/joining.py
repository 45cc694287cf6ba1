"""Join the other ranks for one command, and leave them: in order, or with one line if one of them is lost.

A rank that dies closes its connections, so that a gloo operation of another fails at once. torchrun notices
as well and sends SIGTERM to all that are left: they leave too, even those that wait for a GPU.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import torch.distributed as dist

from calmoe.launch import Launch
from calmoe.training.ranks import Ranks, connect, disconnect

LOST = 4  # the exit code of a rank that has lost another
GRACE = 5.0  # seconds that a rank has to leave by itself after SIGTERM


class Terminated(BaseException):
    """SIGTERM: another rank is lost, or the job ends."""


@contextmanager
def joined(launched: Launch, advice: str) -> Iterator[Ranks]:
    """This process as one of the ranks. `advice` says what to do where one of them is lost."""
    ranks = connect(launched)
    line = f"error: rank {ranks.rank} stops, as another rank is lost or the job was ended: {advice}"
    leaving = _Leaving(line)
    try:
        with leaving.on_sigterm():
            yield ranks
    except Terminated:
        leaving.now()
    except Exception as error:
        if is_loss(error):
            leaving.now()
        _part(ranks)
        raise
    _part(ranks)


def is_loss(error: Exception) -> bool:
    """Whether an operation failed because another rank is gone: gloo's errors have no type of their own."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _part(ranks: Ranks) -> None:
    """Go apart in order: the leader says that it is over, unless all know, and all do before one leaves.

    Where that cannot be, as a follower failed or the leader did within an order, the process just ends. The
    others then have lost it.
    """
    if ranks.at_work or not (ranks.leads or ranks.over):
        return
    with suppress(RuntimeError):  # lost at the very end: all is done
        if not ranks.over:
            ranks.order("end")
        ranks.meet()
        disconnect()


class _Leaving:
    """Leaves with one line, whoever is first to know: the main thread, or the one that waits for SIGTERM."""

    def __init__(self, line: str) -> None:
        self.line, self.first = line, threading.Lock()

    def now(self) -> None:
        """Say the line and end the process: a connection to a rank that is gone cannot be closed in order."""
        if not self.first.acquire(blocking=False):
            time.sleep(GRACE)  # the other thread is about to end the process
        sys.stdout.flush()
        print(self.line, file=sys.stderr, flush=True)
        os._exit(LOST)

    @contextmanager
    def on_sigterm(self) -> Iterator[None]:
        """Inside, SIGTERM raises `Terminated`; a main thread that waits for a GPU is given a few seconds."""

        def raise_terminated(number: int, frame: FrameType | None) -> None:
            raise Terminated

        reader, writer = socket.socketpair()
        writer.setblocking(False)
        before = signal.signal(signal.SIGTERM, raise_terminated)
        descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._wait, args=(reader,), daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            signal.signal(signal.SIGTERM, before)
            writer.close()

    def _wait(self, reader: socket.socket) -> None:
        with reader:
            while received := reader.recv(1):
                if received[0] == signal.SIGTERM:
                    time.sleep(GRACE)
                    self.now()
