"""Wilson's interval of a share of rows."""

import numpy as np
from scipy.special import ndtri

from calmoe.arrays import as_number
from calmoe.defaults import LEVEL


def wilson(
    share: float | np.ndarray, rows: float | np.ndarray, level: float = LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper end; sound where the share is 0 or 1, and NaN where share or rows are.

    rows: how many rows the share was counted on, or Kish's effective number of them. The interval lies in
    [0, 1] and holds the share.

    >>> low, high = wilson(1.0, 50)
    >>> round(float(low), 4), float(high)
    (0.9287, 1.0)
    """
    z2 = float(ndtri((1 + as_number("level", level, 0, 1)) / 2)) ** 2
    centre = (share + z2 / rows / 2) / (1 + z2 / rows)
    half = np.sqrt(z2 * (share * (1 - share) / rows + z2 / rows**2 / 4)) / (1 + z2 / rows)
    low, high = np.minimum(centre - half, share), np.maximum(centre + half, share)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)
