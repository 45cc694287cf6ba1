"""What a second process does in tests of runs; started processes import it from here."""

import os
import sys

from calmoe.commands import app
from calmoe.training import Trainer
from forked import server


def command(arguments, checkpoint_seconds=0.0):
    """`calmoe ARGUMENTS`, silent, with a checkpoint after every epoch."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    Trainer.__init__.__defaults__ = (checkpoint_seconds,)
    app(arguments)


def started(*arguments):
    """A process that runs the command."""
    process = server().Process(target=command, args=(list(arguments),))
    process.start()
    return process
