"""How a mixture routes a row, in two numbers: how undecided the router is, how far apart the experts are."""

import numpy as np


def routing_entropy(routing: np.ndarray) -> np.ndarray:
    """−Σ_k r_k log r_k as a share of log K, for routing weights [N, K]; zero for one expert. [N]

    >>> routing_entropy(np.array([[0.5, 0.5], [1.0, 0.0]]))
    array([ 1., -0.])
    """
    safe = np.where(routing > 0, routing, 1.0)
    return -(safe * np.log(safe)).sum(axis=1) / max(np.log(routing.shape[1]), 1e-9)


def expert_variance(routing: np.ndarray, experts: np.ndarray) -> np.ndarray:
    """Σ_k r_k ‖f_k − f‖², f = Σ_k r_k f_k, for experts [N, K] (one number each) or [N, K, C]. [N]

    >>> expert_variance(np.array([[0.5, 0.5]]), np.array([[0.2, 0.8]])).round(6)
    array([0.09])
    """
    if experts.ndim == 2:
        mean = (routing * experts).sum(axis=1, keepdims=True)
        return (routing * (experts - mean) ** 2).sum(axis=1)
    mean = (routing[:, :, None] * experts).sum(axis=1, keepdims=True)
    return (routing * ((experts - mean) ** 2).sum(axis=2)).sum(axis=1)
