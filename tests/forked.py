"""Processes forked from one server a worker, which has imported for all of them what takes seconds."""

import multiprocessing

IMPORTED = ("torch", "torchmetrics", "calmoe.commands", "calmoe.experiments.runner", "calmoe.report.write")


def server():
    """The context to start them in."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context
