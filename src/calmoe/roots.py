"""The root of a rising function of one number."""

import math
from collections.abc import Callable


def rising_root(
    value_and_slope: Callable[[float], tuple[float, float]],
    low: float,
    high: float,
    start: float,
    *,
    absolute: float = 0.0,
    relative: float = 0.0,
) -> float:
    """The x between `low` and `high` with value 0: by Newton's steps, and by halves where these lead out.

    It stops after a step shorter than absolute + relative |x|.

    >>> round(rising_root(lambda x: (x**3 - 8, 3 * x**2), 0.0, 5.0, start=4.0, absolute=1e-12), 9)
    2.0
    """
    point = start
    for _ in range(200):
        value, slope = value_and_slope(point)
        low, high = (point, high) if value < 0 else (low, point)
        proposed = point - value / slope if slope > 0 else math.inf
        previous, point = point, proposed if low <= proposed <= high else (low + high) / 2
        if abs(point - previous) < absolute + relative * abs(point):
            break
    return point
