"""What a Ray task does: train one node in a folder of its own, and send home what it leaves there.

The run's folder stays where the command runs. A task is given the states that the node goes on from, and
gives back checkpoints while it trains and the sealed files at the end; so machines need to share no disk but
the one that the data are on.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from calmoe.experiments.engines.work import Work, node_from_json
from calmoe.experiments.engines.worker import Message, Worker, trouble
from calmoe.experiments.plan import Node
from calmoe.experiments.store import RunFolder

Files = dict[str, bytes]


def train_remotely(
    work: str, node: str, states: Mapping[str, Files], until: float | None
) -> Iterator[tuple[Message, Files]]:
    """Train the node: each message of its worker, with the files that are new since the one before.

    states: files of the node itself or of its warm-up, by key; until: by the wall clock.
    """
    messages: SimpleQueue[tuple[Message, Files] | None] = SimpleQueue()
    with TemporaryDirectory(prefix="calmoe-") as place:
        folder = RunFolder(Path(place))
        for key, files in states.items():
            folder.keep(key, files)
        thread = threading.Thread(
            target=_train, args=(work, node_from_json(json.loads(node)), folder, until, messages), daemon=True
        )
        thread.start()
        while (said := messages.get()) is not None:
            yield said
        thread.join()


def _train(
    work: str,
    node: Node,
    folder: RunFolder,
    until: float | None,
    messages: "SimpleQueue[tuple[Message, Files] | None]",
) -> None:
    sent = set(folder.state_files(node.key))

    def send(message: Message) -> None:
        files = folder.node_files(node.key, but=sent)
        sent.update(files)
        messages.put((message, files))

    seconds = None if until is None else until - time.time()
    try:
        if seconds is not None and seconds <= 0:
            send({"kind": "time up"})
        else:
            _worker(work).train(node, folder, seconds, send)
    except Exception as error:
        send(trouble(error))
    finally:
        messages.put(None)


@lru_cache(maxsize=1)
def _worker(work: str) -> Worker:
    """The worker of this process: data are loaded and steps compiled once for all nodes that it is given."""
    return Worker(Work.from_text(work))
