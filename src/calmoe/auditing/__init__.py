"""The audit: the paper's theory as an instrument."""

from calmoe.auditing.worlds import WORLDS, World

__all__ = ["WORLDS", "World"]
