"""Audits that learn little, and pages without pictures, for tests of all but these."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib.figure import Figure
from PIL import Image
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting

from calmoe.auditing.repairs import candidates, choosing
from calmoe.auditing.sections import certificates, explorer, fragility
from calmoe.auditing.statistics import demonstration, estimates, splits, worst_mix
from calmoe.auditing.target import assumption
from calmoe.defaults import LEVEL
from sizes import at_size

ROUNDS = 3  # of boosting, instead of 20 to 100
RADII = demonstration.RADII[:8]  # of the curves' twelve: up to the one that sentences speak of
SMALL = (  # repeated cross-validations of a repair, and random splits
    (choosing, "REPEATS", 1),
    (splits, "SPLITS", 3),
)
COARSE = (  # the same curves and the same explorer, from fewer points; one split tests a target's assumption
    *(
        (section, "__kwdefaults__", section.__kwdefaults__ | {"radii": RADII})
        for section in (fragility.fragility, certificates.certificates)
    ),
    (explorer, "BUDGETS", (0.01, 0.02, 0.05, 0.1, 0.2)),
    (assumption, "FEWER", 1),
)
ROUGH = (  # one split leaves nothing undecided; the law of an ECE is drawn 500 times, not 2,000
    (splits, "SPLITS", 1),
    (choosing, "FOLDS", 3),
    (worst_mix, "ROUNDS", 1),
    (estimates.total_gap, "__defaults__", (LEVEL, 500)),
)


def hurry(rough: bool = True) -> Callable[[], None]:
    """From here on audits take half of their time, or less if rough; what is returned undoes it."""
    fit = BaseHistGradientBoosting.fit

    def stop_early(self: Any, *arguments: Any, **options: Any) -> Any:
        self.max_iter = min(self.max_iter, ROUNDS)
        return fit(self, *arguments, **options)

    learning = (candidates, "ROUNDS", (ROUNDS,)), (BaseHistGradientBoosting, "fit", stop_early)
    smaller = at_size((*COARSE, *ROUGH) if rough else COARSE, ())
    return _replace(*learning, *SMALL, *smaller)


def _replace(*changes: tuple[Any, str, Any]) -> Callable[[], None]:
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for change in changes:
        setattr(*change)

    def undo() -> None:
        for place, name, value in before:
            setattr(place, name, value)

    return undo


@contextmanager
def hastily(rough: bool = True) -> Iterator[None]:
    undo = hurry(rough)
    try:
        yield
    finally:
        undo()


@contextmanager
def briefly() -> Iterator[None]:
    """Audits that learn all they can, from few splits at the small size: half of the time."""
    undo = _replace(*at_size((*SMALL, *COARSE), ()))
    try:
        yield
    finally:
        undo()


@contextmanager
def unrendered() -> Iterator[None]:
    """Figures are drawn and become pictures of one pixel: most of a page's time goes into the others."""
    pixel = Image.new("RGB", (1, 1))
    undo = _replace((Figure, "savefig", lambda _, file, **__: pixel.save(file, "PNG")))
    try:
        yield
    finally:
        undo()
