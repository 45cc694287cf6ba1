"""A worker: a process that is given nodes and trains them; `python -m calmoe.experiments.engines.worker FD`.

The process that this starts is the nursery of `nursery.py`. Each worker is a fork of it, and talks with the
process that started the nursery over a socket of its own: JSON, a line a message.
"""

import json
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import torch

from calmoe.errors import InputError
from calmoe.experiments.engines.node import train_node
from calmoe.experiments.engines.work import Work, node_from_json
from calmoe.experiments.plan import Node
from calmoe.experiments.store import RunFolder
from calmoe.experiments.watcher import TimeUp
from calmoe.training.trainer import Diverged, Trainer

Message = dict[str, Any]
ENDED = 1  # how a worker exits whose parent is gone


class Worker:
    """Trains nodes of one run, one after the other, and says how each gets on."""

    def __init__(self, work: Work) -> None:
        self.work = work

    @cached_property
    def trainer(self) -> Trainer:
        torch.set_num_threads(self.work.threads)
        return self.work.trainer

    def train(
        self, node: Node, folder: RunFolder, seconds: float | None, send: Callable[[Message], None]
    ) -> None:
        """Train the node in the folder, for at most so many seconds; the last message says how it ended."""
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        try:
            train_node(node, self.trainer, folder, Teller(send, deadline), self.work.spec.keep_weights)
            send({"kind": "finished"})
        except TimeUp:
            send({"kind": "time up"})
        except Diverged as error:
            send({"kind": "diverged", "reason": str(error)})


class Teller:
    """Tells of a node's epochs, and ends its training when the time is up."""

    def __init__(self, send: Callable[[Message], None], deadline: float) -> None:
        self.send, self.deadline = send, deadline

    def begin(self, node: Node, epoch: int) -> None:
        self.send({"kind": "began", "epoch": epoch})

    def epoch(self, node: Node, epoch: int, horizon: int, entry: dict[str, float]) -> None:
        self.send({"kind": "epoch", "epoch": epoch, "entry": entry})
        if time.monotonic() > self.deadline:
            raise TimeUp


# --- what goes wrong, as a message and back


def trouble(error: Exception) -> Message:
    """The message that stands for an exception that ends the run."""
    if isinstance(error, InputError):
        return {"kind": "refused", "line": str(error)}
    if isinstance(error, OSError) and error.errno is not None:
        return {"kind": "no file", "error": [error.errno, error.strerror, str(error.filename or "")]}
    return {"kind": "broken", "trace": "".join(traceback.format_exception(error))}


def raise_trouble(message: Message) -> None:
    """Raise the exception that a message stands for, if it stands for one."""
    if message["kind"] == "refused":
        raise InputError(message["line"])
    if message["kind"] == "no file":
        number, text, name = message["error"]
        raise OSError(number, text, name or None)
    if message["kind"] == "broken":
        raise RuntimeError(f"a worker failed:\n{message['trace']}")


# --- messages over a socket


def send_line(connection: socket.socket, message: Message) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def read_lines(connection: socket.socket) -> Iterator[Message]:
    """The messages that come, until the other side is gone."""
    with connection.makefile("rb") as stream:
        for line in stream:
            yield json.loads(line)


# --- the processes


def main(control: socket.socket) -> None:
    """Be a nursery: read what is to be done, then fork a worker for every socket that comes."""
    children: list[int] = []

    def end(*_: Any) -> NoReturn:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
        os._exit(0)

    with _parent_gone(end):
        size, (_lock, *_), _, _ = socket.recv_fds(control, 8, 1)  # an open lock is held, by every fork
        text = control.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL).decode()
    try:
        torch.set_num_threads(1)
        worker = Worker(Work.from_text(text))
    except Exception as error:
        send_line(control, trouble(error))
        os._exit(ENDED)
    signal.signal(signal.SIGTERM, end)
    while True:
        with _parent_gone(end):
            _, (handle, *_), _, _ = socket.recv_fds(control, 1, 1)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            control.close()
            _serve(worker, socket.socket(fileno=handle))
        children.append(child)
        os.close(handle)


@contextmanager
def _parent_gone(end: Callable[[], NoReturn]) -> Iterator[None]:
    """`end` where a read finds nothing more: the process that started this one is gone."""
    try:
        yield
    except (ValueError, OSError):
        end()


def _serve(worker: Worker, connection: socket.socket) -> NoReturn:
    """Train what the connection asks for, until it ends."""

    def send(message: Message) -> None:
        try:
            send_line(connection, message)
        except OSError:  # nobody listens any more: what is trained now counts from its last checkpoint
            os._exit(ENDED)

    try:
        for message in read_lines(connection):
            if "environment" in message:  # before anything touches a GPU
                os.environ.update(message["environment"])
            else:
                folder, node = RunFolder(Path(message["folder"])), node_from_json(message["node"])
                worker.train(node, folder, message["seconds"], send)
    except Exception as error:
        send(trouble(error))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
