"""Timing on a noisy machine: rivals take turns within one run, and each is judged by its median."""

import statistics
import time
from collections.abc import Callable


def interleaved(
    rivals: dict[str, Callable[[], object]], rounds: int = 100, warm_up: int = 3
) -> dict[str, float]:
    """Median seconds a call of each rival, taking turns, after a warm-up."""
    for call in rivals.values():
        for _ in range(warm_up):
            call()
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, call in rivals.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}
