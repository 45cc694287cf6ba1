"""Is the audit honest? Random worlds of known truth, cell by cell: `python -m benchmarks.audit`.

Every claim of the audit is held against exact sums of its world; the table says how often it held. With
`--speed` instead: seconds and memory from 10,000 to 1,000,000 rows; with `--repair`: what a repair changes.
"""

import argparse
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import torch

from calmoe.auditing import (
    WORLDS,
    Configurations,
    Estimate,
    World,
    aggregate,
    auditors,
    certificates,
    fragility,
    hidden,
    repair,
)
from calmoe.auditing.auditors import levels
from calmoe.auditing.learning import learn
from calmoe.auditing.repair import later_fits
from calmoe.mixture import combine
from calmoe.predictions import Predictions
from calmoe.recalibration import RoutingRecalibration

Judge = Callable[[str, int, int], dict[str, float]]
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
    "certified": "certified ECE ≥ the worst shift of rows, all radii together",
    "certified_square": "certified E[D²] ≥ the worst shift of rows, all radii together",
    "sandwich": "demonstrated ≤ true ≤ certified, at KL 0.1",
    "slack": "certified ECE less the worst shift of rows, at KL 0.1",
    "slack_square": "the same through √E[D²]",
}
REPAIR = {
    "temperature": "returned the temperature",
    "worse": "worse NLL than the temperature's",
    "nll": "NLL, change",
    "hidden_before": "E\\|m − f\\|, temperature",
    "hidden_after": "E\\|m − f\\|, repair",
    "ece_before": "ECE, temperature",
    "ece_after": "ECE, repair",
    "worst_before": "worst ECE at KL 0.1, temperature",
    "worst_after": "worst ECE at KL 0.1, repair",
    "covers_nll": "the audit's interval covers the change of NLL",
    "covers_ece": "the audit's interval covers the change of ECE",
    "witness": "the audit's witness, change",
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
    result |= certify(world, seen) | {
        "sandwich": result["honest"] and true[2] <= certificates(seen, radii=RADII[2:3]).signed.ece[0].high
    }
    for kind in ("indicator", "hat"):
        found = auditors(seen, kind=kind)
        moments = world.moments(world.routing[:, :, None] * levels(world.confidence, 15, kind)[:, None, :])
        result[kind] = not ((found.low > moments + 1e-9) | (found.high < moments - 1e-9)).any()
    return result


def certify(world: World, seen: Configurations) -> dict[str, float]:
    """Whether the certificates hold against the worst shifts that there are, labels included."""
    found = certificates(seen, radii=RADII)
    ece, square = world.worst_ece(np.array(RADII)), world.worst_square(np.array(RADII))
    high = np.array([point.high for point in found.signed.ece])
    return {
        "certified": bool((ece <= high).all()),
        "certified_square": all(t <= p.high for t, p in zip(square, found.squared.risk, strict=True)),
        "slack": high[2] - ece[2],
        "slack_square": found.squared.ece[2].high - ece[2],
    }


def mend(name: str, rows: int, seed: int) -> dict[str, float]:
    """What a repair does to all rows there are; in every fifth world, whether the audit tells it rightly."""
    world = WORLDS[name](2000 + seed)  # worlds that no setting was tried on
    sample = world.sample(rows, seed=1_000_000 + seed)

    def both(fitted: RoutingRecalibration) -> tuple[World, World]:
        plain = fitted.temperature_.transform
        tempered = world.recalibrated(lambda output: output._replace(log_probs=plain(output.log_probs)))
        return tempered, world.recalibrated(fitted.transform)

    fitted = RoutingRecalibration().fit(sample.output, sample.known_labels)
    before, after = both(fitted)
    radius = np.array([0.1])
    result: dict[str, float] = {
        "temperature": not fitted.repaired,
        "worse": after.nll > before.nll,
        "nll": after.nll - before.nll,
        "hidden_before": before.hidden,
        "hidden_after": after.hidden,
        "ece_before": before.ece(),
        "ece_after": after.ece(),
        "worst_before": before.fragility(radius)[0],
        "worst_after": after.fragility(radius)[0],
    }
    if seed % 5:
        return result | dict.fromkeys(("covers_nll", "covers_ece", "witness"), np.nan)

    def gaps(answered: World) -> np.ndarray:
        return np.bincount(answered.bins(), answered.probability * answered.gap, minlength=15)

    fits = later_fits(sample)
    told, pairs = repair(sample, fits), [both(fitted) for _, fitted in fits]
    share = np.array([len(part) for part, _ in fits]) / told.rows
    nll = share @ [b.nll - a.nll for a, b in pairs]
    ece = [np.abs(share @ np.stack([gaps(pair[i]) for pair in pairs])).sum() for i in (0, 1)]
    return result | {
        "covers_nll": holds(told.nll.change, nll),
        "covers_ece": holds(told.ece.change, ece[1] - ece[0]),
        "witness": told.witness.change.value,
    }


def honesty(worlds: int, rows: int, processes: int, judge: Judge, columns: dict[str, str]) -> None:
    print(f"{worlds} random worlds a column, {rows} rows each; levels 95 %", flush=True)
    table: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(processes) as pool:
        for name in WORLDS:
            start = time.perf_counter()
            found = list(pool.map(partial(judge, name, rows), range(worlds), chunksize=5))
            table[name] = {key: float(np.nanmean([row[key] for row in found])) for key in columns}
            print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"| how often | {' | '.join(table)} |\n| --- |{' ---: |' * len(table)}")
    for key, title in columns.items():
        digits = 5 if key == "nll" else 4 if columns is REPAIR and "_" in key else 3
        cells = ("–" if np.isnan(cell[key]) else f"{cell[key]:.{digits}f}" for cell in table.values())
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
    parser.add_argument("--repair", action="store_true")
    given = parser.parse_args()
    if given.speed:
        speed()
    elif given.repair:
        honesty(given.worlds, given.rows, given.processes, mend, REPAIR)
    else:
        honesty(given.worlds, given.rows, given.processes, judge, COLUMNS)


if __name__ == "__main__":
    main()
