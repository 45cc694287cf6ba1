"""What a second process does in tests of runs; started processes import it from here."""

import os
import sys
import time
from threading import Event

from calmoe.commands import app
from calmoe.experiments.engines import nursery
from calmoe.experiments.engines.schedule import Schedule
from calmoe.training import Trainer
from forked import server
from sizes import at_size

HELD = Event()  # that `held_hear` waits


def command(arguments, checkpoint_seconds=0.0):
    """`calmoe ARGUMENTS`, silent, with a checkpoint after every epoch."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    Trainer.__init__.__defaults__ = (checkpoint_seconds,)
    app(arguments)


def started(*arguments, target=command):
    """A process that runs the command."""
    process = server().Process(target=target, args=(list(arguments),))
    process.start()
    return process


def held_command(arguments):
    """`command`, which waits for a signal once one of its workers has finished a node."""
    Schedule.hear = held_hear
    nursery.MODULE = at_size("warm_worker", nursery.MODULE)
    command(arguments)


def held_hear(schedule, node, message, hear=Schedule.hear):
    """So that a signal never comes too late, however slow the machine is."""
    hear(schedule, node, message)
    while message["kind"] == "finished":
        HELD.set()
        time.sleep(0.01)  # not signal.pause: it would wait for another one, had the signal just come
