"""Two sizes of every simulation, and bounds that follow from the size.

`make test` runs the small size, `make test-slow` (`pytest --slow`) the full one. What happened in some of n
independent worlds is held against the binomial law of what the code promises: a test fails where so many
misses, or more, have a chance below ALARM. Ten worlds and two hundred are judged alike.
"""

import os

import pytest
from scipy.stats import binom, chi2

ALARM = 1e-3  # the chance that code which just keeps its promise breaks a bound; seeds are fixed
VARIABLE = "CALMOE_SLOW"


def at_size(small, full):
    """The number of worlds, rows, kills or examples for this run."""
    return full if os.environ.get(VARIABLE) else small


def at_full_size_only():
    """Marks a test that has a quicker twin, or none that is quick."""
    return pytest.mark.skipif(at_size(True, False), reason="at full size only")


def most(times, chance=0.05):
    """The largest credible count of events that each have at most this chance."""
    return int(binom.isf(ALARM, times, chance))


def least(times, chance=0.95):
    """The smallest credible count of events that each have at least this chance."""
    return times - most(times, 1 - chance)


def most_square(count, variance=1.0):
    """The largest credible mean square of `count` independent normal errors of at most this variance."""
    return float(chi2.isf(ALARM, count)) / count * variance
