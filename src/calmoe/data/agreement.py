"""From an agreement in [0, 1] per test image to the hard and easy subsets and the figures' levels."""

import numpy as np

HARD_BELOW = 0.7
EASY_ABOVE = 0.9
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9)
ON_THE_EDGE = 1e-6  # shares of votes this near an edge are on it, but for float32 rounding
LEVELS = np.array(["0.0-0.5", "0.5-0.6", "0.6-0.7", "0.7-0.8", "0.8-0.9", "0.9-1.0"])


def agreement_columns(agreement: np.ndarray) -> dict[str, np.ndarray]:
    """Group columns; a level holds its lower edge, so the first three levels are the hard subset.

    >>> agreement_columns(np.array([0.3, 0.7, 1.0]))["agreement_level"].tolist()
    ['0.0-0.5', '0.7-0.8', '0.9-1.0']
    """
    return {
        "agreement": agreement,
        "agreement_level": LEVELS[np.digitize(agreement + ON_THE_EDGE, EDGES)],
        "hard": agreement < HARD_BELOW - ON_THE_EDGE,
        "easy": agreement > EASY_ABOVE + ON_THE_EDGE,
    }
