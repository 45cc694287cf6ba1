"""Processes forked from one server a worker, which has imported for all of them what takes seconds."""

import importlib.util
import multiprocessing

IMPORTED = (
    *("torch", "torchmetrics", "torch._dynamo"),  # a first step of AdamW imports the last
    *("calmoe.commands", "calmoe.experiments.runner", "calmoe.report.write"),
)


def server():
    """The context to start them in."""
    assert all(map(importlib.util.find_spec, IMPORTED))  # the server would pass over one that is gone
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context
