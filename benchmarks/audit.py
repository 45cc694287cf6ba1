"""Is the audit honest? Random worlds of known truth, cell by cell: `python -m benchmarks.audit`.

Every claim of the audit is held against exact sums of its world; the table says how often it held. With
`--target` instead: what is predicted for a shifted target without labels. With `--speed` instead: seconds and
memory from 10,000 to 1,000,000 rows; with `--repair`: what a repair changes.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy.special import expit, logit, softmax

from calmoe.auditing import (
    Configurations,
    Estimate,
    aggregate,
    auditors,
    certificates,
    fragility,
    hidden,
    repair,
)
from calmoe.auditing.sections.auditors import levels
from calmoe.auditing.sections.calibration import equal_masses
from calmoe.auditing.statistics.gaps import GRID, smooth, smoothing
from calmoe.auditing.statistics.sequential import Lessons
from calmoe.auditing.target.predict import predict_target
from calmoe.defaults import BINS
from calmoe.mixture import combine
from calmoe.predictions import Predictions
from calmoe.worlds import WORLDS, World, cancellation, multiclass
from calmoe.worlds.binary import broken, confident, shifted
from calmoe.worlds.finite import Finite
from calmoe.worlds.multiclass import Multiclass

Judge = Callable[[str, int, int], dict[str, float]]
RADII = (0.0, 0.01, 0.05, 0.1, 0.3)
QUOTED = RADII.index(0.1)
KNOWN: dict[str, Callable[[int], Finite]] = {**WORLDS, "confident": confident, **multiclass.WORLDS}
BY_CLASS = {name: make for name, make in cancellation.WORLDS.items() if name.startswith("by class")}
TARGETS: dict[str, Callable[[int], World | Multiclass]] = {**WORLDS, **BY_CLASS}
COLUMNS = {
    "ece": "ECE",
    "adaptive": "ECE, bins of equal mass",
    "smooth": "smooth ECE",
    "classwise": "class-wise ECE",
    "accuracy": "accuracy",
    "balance": "balance",
    "average": "experts' ECE, on average",
    "excess": "mixture's ECE − expert's ≥ bound, each",
    "views": "experts' ECE, together",
    "regions": "experts' ECE where they lead, together",
    "indicator": "auditors (bins), together",
    "hat": "auditors (hats), together",
    "witness": "E\\|m − f\\| ≥ bound",
    "cancelled": "cancellation ≥ bound",
    "rejects_calibrated": "rejects m = f",
    "rejects_hidden": "rejects “nothing hidden”",
    **{f"honest_{i}": f"true curve ≥ lower end, KL {radius:g}" for i, radius in enumerate(RADII)},
    "honest_regions": "true region curve ≥ lower end, KL 0.1",
    "flat": "region curve flat: 0 in its interval, KL 0.1",
    "shown": "demonstrated error / true curve, KL 0.1, mean",
    "certified": "certified ECE ≥ the worst shift of rows, all radii together",
    "certified_square": "certified E[D²] ≥ the worst shift of rows, all radii together",
    "sandwich": "demonstrated ≤ true ≤ certified, at KL 0.1",
    "slack": "certified ECE less the worst shift of rows, at KL 0.1",
    "slack_square": "the same through √E[D²]",
}
REPAIR = {
    "none": "nothing recommended",
    "temperature": "one temperature recommended",
    "worse_than_none": "recommended, and worse NLL than without",
    "worse": "recommended beyond one temperature, and worse NLL than its",
    "nll": "NLL, change",
    "nll_temperature": "NLL, change by one temperature",
    "hidden_before": "E\\|m − f\\|, as it is",
    "hidden_after": "E\\|m − f\\|, after what is recommended",
    "ece_before": "ECE, as it is",
    "ece_after": "ECE, after what is recommended",
    "worst_before": "worst ECE at KL 0.1, as it is",
    "worst_after": "worst ECE at KL 0.1, after what is recommended",
    "promised": "NLL, change that was promised",
    "kept": "the promise's interval covers what the chosen repair does",
}
SHARES = {f"share_{i}": f"KL {radius:g}" for i, radius in enumerate(RADII)}


def holds(found: Estimate, true: float) -> bool:
    return bool(np.isnan(found.value) or found.low <= true + 1e-9 <= found.high + 2e-9)


def judge(name: str, rows: int, seed: int) -> dict[str, float]:
    """What held in one random world."""
    world = KNOWN[name](seed)
    predictions = world.sample(rows, seed=1_000_000 + seed)
    seen, drawn = Configurations.of(predictions), predictions.groups["configuration"]
    learned, told = Lessons(seen), aggregate(seen, predictions)
    veiled, fragile = hidden(seen, learned), fragility(seen, learned, radii=RADII)
    true, regions = (world.fragility(np.array(RADII), regions_only=only) for only in (False, True))
    led = [k for k, expert in enumerate(told.experts) if expert.leads.value > 0]
    views = [world.expert_ece(k) for k in range(len(told.experts))]
    shares = world.probability @ world.routing
    bandwidth = 0.03
    curve, lands = fragile.configurations, fragile.regions
    result: dict[str, float] = {
        "ece": holds(told.ece, world.ece()),
        "adaptive": holds(told.adaptive_ece, _ece_at_masses(world, seen, drawn)),
        "smooth": holds(smooth(seen, bandwidth=bandwidth), _smooth_ece(world, bandwidth)),
        "classwise": holds(told.classwise_ece, world.classwise_ece()),
        "accuracy": holds(told.accuracy, float(world.probability @ world.correct)),
        "balance": holds(told.balance, world.balance),
        "average": holds(told.experts_ece, float(shares @ views)),
        "excess": np.mean(
            [not e.excess.low > world.ece() - view for e, view in zip(told.experts, views, strict=True)]
        ),
        "views": all(holds(e.view, view) for e, view in zip(told.experts, views, strict=True)),
        "regions": all(holds(told.experts[k].region, world.expert_ece(k, region=True)) for k in led),
        "witness": veiled.witness.low <= world.hidden + 1e-9,
        "cancelled": veiled.cancelled.low <= world.cancellation() + 1e-9,
        "rejects_calibrated": veiled.p_calibrated < 0.05,
        "rejects_hidden": veiled.p_hidden < 0.05,
        # pointwise intervals
        **{f"honest_{i}": point.low <= true[i] + 1e-9 for i, point in enumerate(curve.error)},
        "honest_regions": lands.error[QUOTED].low <= regions[QUOTED] + 1e-9,
        "flat": holds(lands.error[QUOTED], 0.0) if regions[-1] < 1e-9 else np.nan,
        "shown": curve.error[QUOTED].value / true[QUOTED] if true[QUOTED] > 1e-3 else np.nan,
    }
    certified = certificates(seen, radii=RADII[QUOTED : QUOTED + 1]).signed.ece[0].high
    result |= certify(world, seen) | {"sandwich": result[f"honest_{QUOTED}"] and true[QUOTED] <= certified}
    for i, density in enumerate(curve.densities):
        result[f"share_{i}"] = (
            _forced(world, drawn[fragile.rows], density) / true[i] if true[i] > 1e-3 else np.nan
        )
    for kind in ("indicator", "hat"):
        found = auditors(seen, kind=kind)
        moments = world.moments(world.routing[:, :, None] * levels(world.confidence, BINS, kind)[:, None, :])
        result[kind] = not ((found.low > moments + 1e-9) | (found.high < moments - 1e-9)).any()
    return result


def certify(world: Finite, seen: Configurations) -> dict[str, float]:
    """Whether the certificates hold against the worst shifts that there are, labels included."""
    found = certificates(seen, radii=RADII)
    ece, square = world.worst_ece(np.array(RADII)), world.worst_square(np.array(RADII))
    high = np.array([point.high for point in found.signed.ece])
    return {
        "certified": bool((ece <= high).all()),
        "certified_square": all(t <= p.high for t, p in zip(square, found.squared.risk, strict=True)),
        "slack": high[QUOTED] - ece[QUOTED],
        "slack_square": found.squared.ece[QUOTED].high - ece[QUOTED],
    }


def mend(name: str, rows: int, seed: int) -> dict[str, float]:
    """What the recommended repair does to all rows there are, and whether it does what was promised."""
    world = WORLDS[name](2000 + seed)  # worlds that no setting was tried on
    told = repair(world.sample(rows, seed=1_000_000 + seed), seed=seed)
    after, tempered, chosen = (
        world.recalibrated(calibrator.transform)
        for calibrator in (told.fitted, told.fits["temperature"], told.fits[told.chosen])
    )
    radius = np.array([0.1])
    promised = told.choosing.nll.against_nothing
    return {
        "none": told.recommended is None,
        "temperature": told.recommended == "temperature",
        "worse_than_none": told.recommended is not None and after.nll > world.nll,
        "worse": told.recommended not in (None, "temperature") and after.nll > tempered.nll,
        "nll": after.nll - world.nll,
        "nll_temperature": tempered.nll - world.nll,
        "hidden_before": world.hidden,
        "hidden_after": after.hidden,
        "ece_before": world.ece(),
        "ece_after": after.ece(),
        "worst_before": world.fragility(radius)[0],
        "worst_after": after.fragility(radius)[0],
        "promised": promised.value,
        "kept": holds(promised, chosen.nll - world.nll),
    }


def _forced(world: Finite, drawn: np.ndarray, density: np.ndarray) -> float:
    """The population's ECE under a demonstrated reweighting: the density of each configuration, averaged."""
    counts = np.bincount(drawn, minlength=len(world.probability))
    sums = np.bincount(drawn, density, minlength=len(counts))
    weights = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)
    return world.ece(weights=weights / (world.probability @ weights))


def _ece_at_masses(world: Finite, seen: Configurations, drawn: np.ndarray) -> float:
    """The population's ECE at the bins of equal mass that the sample gave; all configurations were drawn."""
    index = np.zeros(len(world.probability), int)
    index[drawn] = equal_masses(seen.confidence, 15)
    return float(np.abs(np.bincount(index, world.probability * world.gap)).sum())


def _smooth_ece(world: Finite, bandwidth: float) -> float:
    position = world.confidence * GRID
    left = np.minimum(position.astype(int), GRID - 1)
    mass = world.probability * world.gap
    right = mass * (position - left)
    line = np.bincount(left, mass - right, minlength=GRID + 1) + np.bincount(
        left + 1, right, minlength=GRID + 1
    )
    return float(np.abs(smoothing(bandwidth) @ line).sum())


def honesty(names: Iterable[str], worlds: int, rows: int, processes: int, first: int) -> None:
    """How often the claims of parts 1 to 5 held, and how much of the true curve was reached."""
    table = _over(names, judge, worlds, rows, processes, first)
    _print("how often", COLUMNS, table, _mean)
    _print("share of the true curve, 5 % and 50 % quantile over worlds", SHARES, table, _quantiles)


def mending(names: Iterable[str], worlds: int, rows: int, processes: int, first: int) -> None:
    """What a repair changes."""

    def cell(values: np.ndarray, key: str) -> str:
        digits = 5 if "nll" in key or key == "promised" else 4 if "_" in key else 3
        return "–" if np.isnan(values).all() else f"{np.nanmean(values):.{digits}f}"

    _print("what", REPAIR, _over(names, mend, worlds, rows, processes, first), cell)


Table = dict[str, dict[str, np.ndarray]]


def _over(names: Iterable[str], judge: Judge, worlds: int, rows: int, processes: int, first: int) -> Table:
    print(f"{worlds} random worlds a column from seed {first}, {rows} rows each; levels 95 %", flush=True)
    table: Table = {}
    with ProcessPoolExecutor(processes) as pool:
        for name in names:
            start = time.perf_counter()
            found = list(pool.map(partial(judge, name, rows), range(first, first + worlds), chunksize=5))
            table[name] = {key: np.array([row[key] for row in found], dtype=float) for key in found[0]}
            print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    return table


def _print(what: str, rows: dict[str, str], table: Table, cell: Callable[[np.ndarray, str], str]) -> None:
    print(f"| {what} | {' | '.join(table)} |\n| --- |{' ---: |' * len(table)}")
    for key, title in rows.items():
        print(f"| {title} | {' | '.join(cell(column[key], key) for column in table.values())} |")


def _mean(values: np.ndarray, key: str) -> str:
    return "–" if np.isnan(values).all() else f"{np.nanmean(values):.3f}"


def _quantiles(values: np.ndarray, key: str) -> str:
    if np.isnan(values).all():
        return "–"
    low, middle = np.nanquantile(values, [0.05, 0.5])
    return f"{low:.2f}, {middle:.2f}"


TARGET_COLUMNS = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "nll": "NLL",
    "brier": "Brier score",
    "shifted": "ECE after `ShiftedTemperature`",
    "auc": "told apart: AUC above ½, by its interval",
    "rejects": "rejects a true assumption",
    "power": "rejects one broken by 0.1",
    "predicted": "predicts at all",
    "width": "width of the accuracy's interval",
    "ece_width": "width of the ECE's interval",
    "effective": "effective source rows",
}


def judge_target(epsilon: float, labels: int, name: str, rows: int, seed: int) -> dict[str, float]:
    """What held of one random world's predictions for a random shift of KL ε; power in every tenth world."""
    world = TARGETS[name](seed)
    target = _elsewhere(world, seed, epsilon) if epsilon else world
    source, there = world.sample(rows, seed=2_000_000 + seed), target.sample(2000, seed=3_000_000 + seed)
    there = replace(there, labels=None)
    few = target.sample(labels, seed=4_000_000 + seed)
    found = predict_target(source, there, few)
    result = dict.fromkeys(TARGET_COLUMNS, np.nan)
    result |= {
        "auc": found.ratio.auc.low > 0.5,
        "predicted": found.predicted is not None,
        "effective": found.ratio.effective,
    }
    if found.predicted is None:
        return result
    assert found.shifted is not None
    assert found.plausibility is not None
    for key, true in (
        ("accuracy", target.accuracy),
        ("ece", target.ece()),
        ("nll", target.nll),
        ("brier", target.brier),
    ):
        result[key] = holds(getattr(found.predicted, key), true)
    result["shifted"] = holds(found.shifted.ece, _tempered_ece(target, found.shifted.temperature.value))
    result["rejects"] = found.plausibility.p_value < 0.05
    result["width"], result["ece_width"] = (
        estimate.high - estimate.low for estimate in (found.predicted.accuracy, found.predicted.ece)
    )
    if seed % 10 == 0:
        other = predict_target(source, there, _broken(target).sample(labels, seed=5_000_000 + seed))
        assert other.plausibility is not None
        result["power"] = other.plausibility.p_value < 0.05
    return result


def _elsewhere(world: World | Multiclass, seed: int, epsilon: float) -> World | Multiclass:
    if isinstance(world, Multiclass):
        return multiclass.shifted(world, seed, epsilon)
    return shifted(world, seed, epsilon)


def _broken(world: World | Multiclass) -> World | Multiclass:
    """The same rows, right less often by 0.1."""
    if isinstance(world, Multiclass):
        return multiclass.with_correct(world, np.maximum(world.correct - 0.1, 0.01))
    return broken(world, 0.1)


def _tempered_ece(world: World | Multiclass, temperature: float) -> float:
    """The exact ECE after a temperature."""
    if isinstance(world, Multiclass):
        mixture = softmax(np.log(world.mixture) / temperature, axis=1)[:, None]
    else:
        mixture = expit(logit(world.mixture) / temperature)[:, None]
    return replace(world, experts=np.repeat(mixture, world.routing.shape[1], axis=1)).ece()


def targets(
    names: Iterable[str], worlds: int, rows: int, processes: int, first: int, epsilon: float, labels: int
) -> None:
    """What is predicted for targets that are shifted by KL ε."""

    def cell(values: np.ndarray, key: str) -> str:
        return _mean(values, key) if key != "effective" else f"{np.nanmean(values):.0f}"

    print(f"2,000 target rows, KL {epsilon:g}; {labels} labelled ones for the test")
    table = _over(names, partial(judge_target, epsilon, labels), worlds, rows, processes, first)
    _print("how often", TARGET_COLUMNS, table, cell)


def random_predictions(rows: int, classes: int = 10, experts: int = 4) -> Predictions:
    """Labels drawn from the mixture itself."""
    source = torch.Generator().manual_seed(0)
    routing = torch.randn(rows, experts, generator=source).log_softmax(1)
    output = combine(routing, torch.randn(rows, experts, classes, generator=source).mul(2).log_softmax(2))
    labels = torch.multinomial(output.probs, 1, generator=source).squeeze(1)
    return Predictions(output=output, labels=labels)


def speed() -> None:
    from calmoe.auditing import audit

    print("| rows x 10 classes x 4 experts | seconds | of CPU | peak, GB |\n| ---: | ---: | ---: | ---: |")
    for rows in (10_000, 100_000, 1_000_000):
        predictions = random_predictions(rows)
        start, busy = time.perf_counter(), time.process_time()
        audit(predictions)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"| {rows:,} | {seconds:.1f} | {busy:.1f} | {peak:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--target", action="store_true")
    parser.add_argument("--kl", type=float, default=0.3, help="of the target's shift")
    parser.add_argument("--labels", type=int, default=300, help="of the target, for the test")
    parser.add_argument(
        "--kinds", nargs="+", choices=KNOWN | TARGETS, metavar="KIND", help="of worlds; all if not given"
    )
    given = parser.parse_args()
    known = TARGETS if given.target else WORLDS if given.repair else KNOWN
    names = [name for name in known if name in (given.kinds or known)]
    where = (names, given.worlds, given.rows, given.processes, given.first)
    if given.speed:
        speed()
    elif given.target:
        targets(*where, given.kl, given.labels)
    else:
        (mending if given.repair else honesty)(*where)


if __name__ == "__main__":
    main()
