"""The command line: thin, and quick to answer; a module a group of commands."""

from calmoe.commands import audits, data, models, repairs, results, sweeps, training
from calmoe.commands.program import app

__all__ = ["app", "audits", "data", "models", "repairs", "results", "sweeps", "training"]
