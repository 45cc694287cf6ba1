"""Is the audit honest? Random worlds of known truth, cell by cell: `python -m benchmarks.audit`.

Every claim of the audit is held against exact sums of its world; the table says how often it held. With
`--speed` instead: seconds and memory from 10,000 to 1,000,000 rows.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import torch

from calmoe.auditing import WORLDS, Configurations, Estimate, aggregate, auditors, fragility, hidden
from calmoe.auditing.auditors import levels
from calmoe.auditing.learning import learn
from calmoe.mixture import combine
from calmoe.predictions import Predictions

RADII = (0.0, 0.02, 0.1, 0.3)
COLUMNS = {
    "ece": "ECE",
    "balance": "balance",
    "views": "experts' ECE, together",
    "regions": "experts' ECE where they lead, together",
    "indicator": "auditors (bins), together",
    "hat": "auditors (hats), together",
    "witness": "E\\|m − f\\| ≥ bound",
    "cancelled": "cancellation ≥ bound",
    "rejects_calibrated": "rejects m = f",
    "rejects_hidden": "rejects “nothing hidden”",
    "honest": "fragility curve within its interval of the truth",
    "share": "share of the true curve reached at KL 0.1",
    "honest_regions": "region curve within its interval of the truth",
}


def holds(found: Estimate, true: float) -> bool:
    return bool(np.isnan(found.value) or found.low <= true + 1e-9 <= found.high + 2e-9)


def judge(name: str, rows: int, seed: int) -> dict[str, float]:
    """What held in one random world."""
    world = WORLDS[name](seed)
    seen = Configurations.of(world.sample(rows, seed=1_000_000 + seed))
    learned, told = learn(seen), aggregate(seen)
    veiled, fragile = hidden(seen, learned), fragility(seen, learned, radii=RADII)
    true, regions = (world.fragility(np.array(RADII), regions_only=only) for only in (False, True))
    led = [k for k, expert in enumerate(told.experts) if expert.leads > 0]
    result: dict[str, float] = {
        "ece": holds(told.ece, world.ece()),
        "balance": holds(told.balance, world.balance),
        "views": all(holds(expert.view, world.expert_ece(k)) for k, expert in enumerate(told.experts)),
        "regions": all(holds(told.experts[k].region, world.expert_ece(k, region=True)) for k in led),
        "witness": veiled.witness.low <= world.hidden + 1e-9,
        "cancelled": veiled.cancelled.low <= world.cancellation() + 1e-9,
        "rejects_calibrated": veiled.p_calibrated < 0.05,
        "rejects_hidden": veiled.p_hidden < 0.05,
        # pointwise intervals, at the radius quoted
        "honest": fragile.configurations.error[2].low <= true[2] + 1e-9,
        "honest_regions": fragile.regions.error[2].low <= regions[2] + 1e-9,
        "share": fragile.configurations.error[2].value / true[2] if true[2] > 1e-3 else np.nan,
    }
    for kind in ("indicator", "hat"):
        found = auditors(seen, kind=kind)
        moments = world.moments(world.routing[:, :, None] * levels(world.confidence, 15, kind)[:, None, :])
        result[kind] = not ((found.low > moments + 1e-9) | (found.high < moments - 1e-9)).any()
    return result


def honesty(worlds: int, rows: int, processes: int) -> None:
    print(f"{worlds} random worlds a column, {rows} rows each; levels 95 %", flush=True)
    table: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(processes) as pool:
        for name in WORLDS:
            start = time.perf_counter()
            found = list(pool.map(partial(judge, name, rows), range(worlds), chunksize=5))
            table[name] = {key: float(np.mean([row[key] for row in found])) for key in COLUMNS}
            print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"| how often | {' | '.join(table)} |\n| --- |{' ---: |' * len(table)}")
    for key, title in COLUMNS.items():
        cells = ("–" if np.isnan(cell[key]) else f"{cell[key]:.3f}" for cell in table.values())
        print(f"| {title} | {' | '.join(cells)} |")


def random_predictions(rows: int, classes: int = 10, experts: int = 4) -> Predictions:
    """Labels drawn from the mixture itself."""
    source = torch.Generator().manual_seed(0)
    routing = torch.randn(rows, experts, generator=source).log_softmax(1)
    output = combine(routing, torch.randn(rows, experts, classes, generator=source).mul(2).log_softmax(2))
    labels = torch.multinomial(output.probs, 1, generator=source).squeeze(1)
    return Predictions(output=output, labels=labels)


def speed() -> None:
    from calmoe.auditing import audit

    print("| rows x 10 classes x 4 experts | seconds | peak memory, GB |\n| ---: | ---: | ---: |")
    for rows in (10_000, 100_000, 1_000_000):
        predictions = random_predictions(rows)
        start = time.perf_counter()
        audit(predictions)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"| {rows:,} | {seconds:.1f} | {peak:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    if given.speed:
        speed()
    else:
        honesty(given.worlds, given.rows, given.processes)


if __name__ == "__main__":
    main()
