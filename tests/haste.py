"""Audits that learn little, and pages without pictures, for tests of all but these."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib.figure import Figure
from PIL import Image
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting

from calmoe.auditing.repairs import candidates, choosing
from calmoe.auditing.statistics import splits
from sizes import at_size

ROUNDS = 3  # of boosting, instead of 20 to 100
SMALL = (  # repeated cross-validations of a repair, and random splits
    (choosing, "REPEATS", 1),
    (splits, "SPLITS", 3),
)


def hurry() -> Callable[[], None]:
    """From here on audits take a third of their time; what is returned undoes it."""
    fit = BaseHistGradientBoosting.fit

    def stop_early(self: Any, *arguments: Any, **options: Any) -> Any:
        self.max_iter = min(self.max_iter, ROUNDS)
        return fit(self, *arguments, **options)

    return _replace(*SMALL, (candidates, "ROUNDS", (ROUNDS,)), (BaseHistGradientBoosting, "fit", stop_early))


def _replace(*changes: tuple[Any, str, Any]) -> Callable[[], None]:
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for change in changes:
        setattr(*change)

    def undo() -> None:
        for place, name, value in before:
            setattr(place, name, value)

    return undo


@contextmanager
def hastily() -> Iterator[None]:
    undo = hurry()
    try:
        yield
    finally:
        undo()


@contextmanager
def briefly() -> Iterator[None]:
    """Audits that learn all they can, from few splits at the small size: half of the time."""
    undo = _replace(*at_size(SMALL, ()))
    try:
        yield
    finally:
        undo()


@contextmanager
def unrendered() -> Iterator[None]:
    """Figures are drawn and become pictures of one pixel: most of a page's time goes into the others."""
    stream = io.BytesIO()
    Image.new("RGB", (1, 1)).save(stream, "PNG")
    undo = _replace((Figure, "savefig", lambda _, file, **__: file.write(stream.getvalue())))
    try:
        yield
    finally:
        undo()
