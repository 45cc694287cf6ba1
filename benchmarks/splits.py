"""What do several splits cost and gain? `python -m benchmarks.splits`

Each world's rows are split anew several times; what the middle of the first R splits says is held against the
truth. R = 1 is a single split. "scatter" is the standard deviation over the worlds' splits, in normal scores
(probits), of the p-value of "nothing hidden": what another seed would change.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from scipy.special import ndtri

from calmoe import worlds
from calmoe.auditing import Configurations, hidden
from calmoe.auditing.statistics.estimates import at_least
from calmoe.auditing.statistics.splits import level_each, one_bound, one_p_value
from calmoe.worlds import multiclass
from calmoe.worlds.finite import Finite

COUNTS = (1, 3, 5)
KNOWN: dict[str, Callable[[int], Finite]] = {
    "calibrated, 5 classes": multiclass.WORLDS["calibrated, 5 classes"],
    "miscalibrated": worlds.miscalibrated,
    "cancelling, δ = 0.04": partial(worlds.cancelling, delta=0.04),
    "calibrated experts": worlds.calibrated_experts,
}


def judge(name: str, rows: int, seed: int) -> dict[str, float]:
    """What the middle of the first R splits says of one random world."""
    world = KNOWN[name](seed)
    seen = Configurations.of(world.sample(rows, seed=1_000_000 + seed))
    alone = [hidden(seen, seed=split, splits=1) for split in range(max(COUNTS))]
    result: dict[str, float] = {}
    for count in COUNTS:
        first, level = alone[:count], level_each(0.95, count)
        bound = one_bound([at_least(e.witness.value, e.witness.standard_error, level) for e in first])
        result[f"rejects “nothing hidden”, {count}"] = one_p_value([e.p_hidden for e in first]) < 0.05
        result[f"E\\|m − f\\| ≥ bound, {count}"] = bound.low <= world.hidden + 1e-9
        result[f"bound / E\\|m − f\\|, mean, {count}"] = (
            max(bound.low, 0.0) / world.hidden if world.hidden > 1e-9 else np.nan
        )
    scores = ndtri(np.clip([each.p_hidden for each in alone], 1e-16, 1 - 1e-16))
    return result | {"scatter of one split": float(np.var(scores, ddof=1))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    given = parser.parse_args()
    table = {}
    with ProcessPoolExecutor(given.processes) as pool:
        for name in KNOWN:
            start, seeds = time.perf_counter(), range(given.first, given.first + given.worlds)
            table[name] = list(pool.map(partial(judge, name, given.rows), seeds, chunksize=5))
            print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"| what, splits | {' | '.join(table)} |\n| --- |{' ---: |' * len(table)}")
    for key in sorted(table[name][0], key=lambda key: key.rpartition(", ")[0]):
        cells = [np.array([each[key] for each in found], float) for found in table.values()]
        means = [np.nan if np.isnan(cell).all() else np.nanmean(cell) for cell in cells]
        shown = ("–" if np.isnan(m) else f"{m**0.5 if 'scatter' in key else m:.3f}" for m in means)
        print(f"| {key} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
