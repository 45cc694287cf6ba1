"""What the docs say about a results folder beyond the tables of its report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import ttest_rel

from calmoe.errors import InputError
from calmoe.methods import card, in_order, method_title
from calmoe.render.grid import Entry, Grid, Heading, label, number
from calmoe.render.wording import shortest
from calmoe.report.columns import column_title
from calmoe.report.curves_file import read_curves
from calmoe.report.rows_over_seeds import Row, Rows
from calmoe.report.rows_over_targets import mean_over_targets
from calmoe.report.sweep_points import setting_title
from calmoe.report.tables import method_entry
from calmoe.validation import parse_json
from studies.curve_claims import curve_claims
from studies.rows import ALPHA, Difference, Values, differences_table, less, read_results, values

COLUMNS = ("accuracy", "hard_accuracy", "ece", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts", "hard_nll_ts")
SWEPT = ("accuracy", "ece", "hard_ece", "hard_ece_ts", "nll_ts")
TARGETS = ("accuracy", "ece", "ece_ts", "nll_ts")
MOMENTS = ("accuracy", "hard_accuracy", "ece", "ece_ts", "hard_ece", "hard_ece_ts", "nll_ts")
MOMENT_RUNS = ("plain", "forget_moments", "eta0", "eta0_forget_moments")

Pair = tuple[Values, Values]  # without moments forgotten, and with


def claims(
    folder: Annotated[
        Path, typer.Argument(help="With results.jsonl, or with the four runs of results/digits.")
    ],
    baseline: Annotated[str, typer.Option(help="The method that the others are compared with.")] = "vanilla",
) -> None:
    """Is a method better than the baseline?

    Prints differences within seeds, with 95 % intervals, the temperature frontier, routing and confidence.
    Reads results.jsonl and, where they are, curves.json, sweep_*.jsonl and sources.json. Rows of several
    targets are averaged over the targets within a seed. Of results/digits it reads the four runs, and says
    what forgetting AdamW's moments changes.

    Example: python -m studies claims results/cifar10h
    """
    for part in all_claims(folder, baseline):
        print(part.markdown() if isinstance(part, Grid) else f"{part}\n")


def all_claims(folder: Path, baseline: str = "vanilla") -> Iterator[Grid | str]:
    """Every table and sentence of the folder, in order."""
    if all((folder / run).is_dir() for run in MOMENT_RUNS):
        yield from moment_claims(folder)
        return
    rows, sources = read_results(folder / "results.jsonl"), _sources(folder)
    if not any(row["method"] == baseline for row in rows):
        raise InputError(f"{folder} has no rows of {baseline!r}: give another --baseline")
    if "target" in rows[0]:
        yield from target_claims(rows, sources, baseline)
        return
    protocols = dict.fromkeys(row["protocol"] for row in rows)
    for protocol in protocols:
        yield differences_table(
            f"Less {method_title(baseline)}, {protocol} protocol",
            against(rows, protocol, baseline, (*COLUMNS, "worst_group_ece_ts")),
        )
    if (folder / "curves.json").is_file():
        yield from curve_claims(read_curves(folder / "curves.json"), baseline)
    for path in sorted(folder.glob("sweep_*.jsonl")):
        if "setting" in (swept := read_results(path))[0]:  # those of several settings have no baseline
            yield from sweep_claims(rows, swept, sources, baseline)


def against(rows: Rows, protocol: str, baseline: str, columns: Sequence[str]) -> list[Difference]:
    """Every other method less the baseline, in the columns that some row has."""
    own = [row for row in rows if row["protocol"] == protocol]
    known = [column for column in columns if any(row.get(column) is not None for row in own)]
    others = [method for method in in_order(row["method"] for row in own) if method != baseline]
    return [
        less(method, column, *(values(own, name, column, protocol) for name in (method, baseline)))
        for method, column in product(others, known)
    ]


# --- sweeps


def sweep_claims(rows: Rows, swept: Rows, sources: Sequence[Row], baseline: str) -> Iterator[Grid]:
    """Every value of a sweep less the table's baseline, and less the value that the table's run has."""
    setting, protocol = swept[0]["setting"], "corrected"
    symbol, seeds = setting_title(setting), {row["seed"] for row in swept}
    table = [row for row in rows if row["seed"] in seeds]
    points = sorted({row["value"] for row in swept})
    default = sources[0]["spec"]["training"][setting] if sources else None
    for method in in_order(row["method"] for row in swept):
        runs = {f"{symbol} = {shortest(point)}": _at(swept, point) for point in points}
        named = {f"in the table, {symbol} = {shortest(default)}": table} if default is not None else {}
        yield differences_table(
            f"{method_title(method)}, sweep of {symbol}, less {method_title(baseline)} of the table",
            [
                less(
                    name,
                    column,
                    values(run, method, column, protocol),
                    values(rows, baseline, column, protocol),
                )
                for (name, run), column in product({**named, **runs}.items(), SWEPT)
            ],
            symbol,
        )
        if default is not None and default in points:
            own = {point: values(_at(swept, point), method, "hard_ece_ts", protocol) for point in points}
            yield differences_table(
                f"{method_title(method)}, sweep of {symbol}, less its own {symbol} = {shortest(default)}",
                [
                    less(f"{symbol} = {shortest(point)}", "hard_ece_ts", own[point], own[default])
                    for point in points
                    if point != default
                ],
                symbol,
            )


def _at(swept: Rows, point: float) -> list[Row]:
    return [row for row in swept if row["value"] == point]


# --- several targets


def target_claims(rows: Rows, sources: Sequence[Row], baseline: str) -> Iterator[Grid | str]:
    """Means over targets less the baseline's, which of them survive a correction, and each target alone."""
    targets, title = list(dict.fromkeys(row["target"] for row in rows)), method_title(baseline)
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        own = [row for row in rows if row["protocol"] == protocol]
        means = mean_over_targets(own, targets)
        robust = [m for m in in_order(row["method"] for row in own) if card(m).objective != "erm"]
        where = f"{protocol} protocol, mean over {', '.join(targets)}"
        yield differences_table(f"Less {title}, {where}", against(means, protocol, baseline, TARGETS))
        scaled = values(means, baseline, "ece_ts", protocol)
        yield differences_table(
            f"As trained, less {title} after its temperature, {where}",
            [less(m, "ece", values(means, m, "ece", protocol), scaled) for m in robust],
        )
        yield _means(means, protocol, [baseline, *robust], where)
        yield corrected(means, protocol, baseline, robust)
        alone = [row for row in own if row["method"] in (baseline, *robust)]
        for target in targets:
            there = [row for row in alone if row["target"] == target]
            yield differences_table(
                f"Less {title}, {protocol} protocol, {target}",
                against(there, protocol, baseline, ("accuracy", "ece_ts")),
            )
        if sources:
            yield warmups_apart(own, sources, baseline, robust)


def _means(means: Rows, protocol: str, methods: Sequence[str], where: str) -> Grid:
    def row(method: str) -> tuple[Entry, ...]:
        cells = [mean(values(means, method, column, protocol).values()) for column in TARGETS]
        return (method_entry(method), *map(number, cells))

    headings = (Heading(column_title(column), (column,)) for column in TARGETS)
    return Grid(
        f"Mean over seeds, {where}", (Heading("Method", ("method",)), *headings), (tuple(map(row, methods)),)
    )


def corrected(means: Rows, protocol: str, baseline: str, robust: Sequence[str]) -> Grid:
    """Student's paired p by method and metric; those that stay after Bonferroni's correction are in bold."""
    limit = ALPHA / (len(robust) * len(TARGETS))

    def row(method: str, column: str) -> tuple[Entry, ...]:
        a, b = (values(means, name, column, protocol) for name in (method, baseline))
        seeds = sorted(a.keys() & b.keys())
        p = (
            float(ttest_rel([a[s] for s in seeds], [b[s] for s in seeds]).pvalue)
            if len(seeds) > 1
            else np.nan
        )
        return method_entry(method), label(column_title(column), column), Entry(f"{p:.4f}", (p,), p < limit)

    return Grid(
        f"Less {method_title(baseline)}: p of each mean over targets, in bold below {limit:.4f} (Bonferroni, "
        f"{len(robust) * len(TARGETS)} tests)",
        (Heading("Method", ("method",)), Heading("Metric", ("metric",)), Heading("p", ("p",))),
        (tuple(row(*pair) for pair in product(robust, TARGETS)),),
    )


def warmups_apart(rows: Rows, sources: Sequence[Row], baseline: str, robust: Sequence[str]) -> str:
    """How many robust cells were trained in a sitting without the baseline, from a warm-up of its own."""
    sittings = [source["spec"] for source in sources if baseline not in source["spec"]["methods"]]
    apart = sum(len(spec["seeds"]) * len({*spec["methods"]} & {*robust}) for spec in sittings)
    cells = sum(row["method"] in robust for row in rows)
    return f"{apart} of {cells} robust cells have another warm-up than {method_title(baseline)}'s."


# --- AdamW's moments forgotten at the switch


def moment_claims(folder: Path) -> Iterator[Grid | str]:
    """What forgetting AdamW's moments changes in each objective, beside ERM (η = 0) with and without it."""
    plain, reset, erm, erm_reset = (read_results(folder / run / "results.jsonl") for run in MOMENT_RUNS)
    runs = {method: (plain, reset, method) for method in in_order(row["method"] for row in plain)}
    vanilla = runs.pop("vanilla")
    runs["ERM (η = 0)"] = (erm, erm_reset, "robust")
    own = {name: _by_column(*run) for name, run in runs.items()}
    control = own["ERM (η = 0)"]
    same = all(_by_column(*vanilla)[c][0] == control[c][0] for c in MOMENTS)
    yield f"Vanilla MoE and η = 0 agree in all rows: {'yes' if same else 'no'}."

    def table(caption: str, names: Sequence[str], pair: Callable[[Pair, Pair], Pair]) -> Grid:
        return differences_table(
            caption, [less(name, c, *pair(own[name][c], control[c])) for name, c in product(names, MOMENTS)]
        )

    objectives = [name for name in own if own[name] is not control]
    yield table("With moments forgotten, less without", list(own), lambda mine, _: (mine[1], mine[0]))
    yield table("Both with moments forgotten, less ERM", objectives, lambda mine, erm: (mine[1], erm[1]))
    yield table("Both without, less ERM", objectives, lambda mine, erm: (mine[0], erm[0]))
    yield table(
        "What forgetting changes, less what it changes in ERM",
        objectives,
        lambda mine, erm: (_change(*mine), _change(*erm)),
    )


def _by_column(plain: Rows, reset: Rows, method: str) -> dict[str, Pair]:
    """By column: the method's values without the reset, and with it."""
    return {
        c: (values(plain, method, c, "corrected"), values(reset, method, c, "corrected")) for c in MOMENTS
    }


def _change(plain: Values, reset: Values) -> Values:
    return {seed: reset[seed] - plain[seed] for seed in plain}


def _sources(folder: Path) -> list[Mapping[str, Any]]:
    """The runs behind the rows, where the folder names them."""
    path = folder / "sources.json"
    return parse_json(path.read_bytes()) if path.is_file() else []
