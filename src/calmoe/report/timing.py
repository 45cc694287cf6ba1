"""Training times: the median seconds of an epoch, by method."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from calmoe.methods import source as trained_as
from calmoe.report.sources import Source


def timing(runs: Sequence[Source]) -> dict[str, dict[str, float]]:
    """By trained method: the median seconds of an epoch after the warm-up, and over how many epochs.

    Over all seeds in all folders; of a model that a later folder replaces, that folder's.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    for each in runs:
        for model in each.run.finished():
            if trained_as(model.method) == model.method and (model.method, model.seed) in each.trained:
                history = each.run.folder.history(model.key)
                seconds[model.method] += [entry["seconds"] for entry in history if "seconds" in entry]
    return {
        method: {"median_epoch_seconds": round(statistics.median(times), 4), "epochs": len(times)}
        for method, times in sorted(seconds.items())
        if times
    }
