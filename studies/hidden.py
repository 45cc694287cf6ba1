"""In how many mixtures miscalibration hides behind the ECE: every method, with and without a temperature."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calmoe.auditing import Configurations
from calmoe.auditing import hidden as measure
from calmoe.calibration import Temperature
from calmoe.errors import InputError
from calmoe.experiments.evaluation import as_method_reads
from calmoe.experiments.export import rescaled
from calmoe.methods import in_order
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid
from studies.audit_tables import Cells, mixtures_grid, share
from studies.rows import ALPHA, read_lines, span, write_lines

READ_OTHERWISE = {"vanilla": "mocae"}  # one file, two methods

Pair = tuple[Predictions, Predictions]  # validation and test


def hidden(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Of predictions, as `pack` writes them; named by the seed.")
    ] = None,
    rows: Annotated[Path, typer.Option(help="Written with folders, else read.")] = Path(
        "results/audit/hidden.jsonl"
    ),
) -> None:
    """How many mixtures hide miscalibration?

    Tests every mixture of the folders on its labelled test rows, as trained and after a temperature that
    validation chooses: does the configuration say more than the confidence does? Writes a row a model and
    prints the count of rejections by method. Without folders it prints the count of the rows that are kept.

    Example: python -m studies hidden packed/42 packed/43
    """
    if folders:
        write_lines(rows, [row for folder in folders for row in rows_of(folder)])
    print(counted(read_lines(rows)).markdown())


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for every mixture of one seed, as trained ("raw") and after a temperature ("scaled")."""
    if not folder.name.isdigit():
        raise InputError(f"{folder}: name the folder by the seed of its models, such as packed/42")
    for method, (validation, test) in mixtures(folder).items():
        temperature = Temperature().fit(validation.output.log_probs, validation.known_labels)
        for kind, judged in (("raw", test), ("scaled", rescaled(test, temperature))):
            errors = measure(Configurations.of(judged))
            yield {
                "method": method,
                "seed": int(folder.name),
                "kind": kind,
                "rows": len(judged),
                "ece": round(errors.level_set.value, 5),
                "witness": round(errors.witness.low, 5),
                "p_hidden": errors.p_hidden,
            }


def mixtures(folder: Path) -> dict[str, Pair]:
    """Validation and test predictions of every method with more than one expert."""
    pairs: dict[str, Pair] = {}
    for path in sorted(folder.glob("*-test.npz")):
        method = path.name.removesuffix("-test.npz")
        pair = (Predictions.load(folder / f"{method}-validation.npz"), Predictions.load(path))
        if pair[1].num_experts > 1:
            pairs[method] = pair
            if method in READ_OTHERWISE:
                other = READ_OTHERWISE[method]
                pairs[other] = as_method_reads(other, *pair, "corrected")[:2]
    if not pairs:
        raise InputError(
            f"{folder} has no METHOD-test.npz of a mixture: `python -m studies pack` writes them"
        )
    return {method: pairs[method] for method in in_order(pairs)}


def counted(rows: Sequence[dict[str, Any]]) -> Grid:
    """By mixture: in how many seeds the test rejects, and how far the configurations are off at least."""

    def cells(own: Sequence[dict[str, Any]]) -> Cells:
        return {
            "hidden, p < 0.05": share(row["p_hidden"] < ALPHA for row in own),
            "E|m − f| at least": span(max(row["witness"], 0.0) for row in own),
            "ECE": span(row["ece"] for row in own),
        }

    seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))
    caption = f"Labelled test rows, seeds {seeds}; mean (smallest to largest)"
    return mixtures_grid(caption, "mixture", rows, cells)
