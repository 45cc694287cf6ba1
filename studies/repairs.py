"""What the recommended repair does to real predictions: fitted on half of a file, judged on the other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calmoe.auditing import Estimate
from calmoe.auditing.repairs.answers import Answers, answer
from calmoe.auditing.repairs.candidates import NOTHING, TEMPERATURE
from calmoe.auditing.repairs.repair import repair
from calmoe.auditing.statistics.estimates import binned_gap, mean
from calmoe.defaults import BINS
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, number, signed
from studies.rows import read_lines, write_lines

NAMES = {NOTHING: "as it is", TEMPERATURE: "one temperature", "recommended": "recommended"}


def repairs(
    files: Annotated[list[Path] | None, typer.Argument(help="Predictions with labels.")] = None,
    rows: Annotated[Path, typer.Option(help="Written with files, else read.")] = Path(
        "results/audit/repairs.jsonl"
    ),
    seed: Annotated[int, typer.Option(help="Says which half teaches.")] = 0,
) -> None:
    """What does a repair gain on rows that are new to it?

    Chooses and fits a repair on a random half of each file, and judges it on the other half, beside no repair
    and one temperature. Writes a row a file and prints the table; without files, that of the rows kept.

    Example: python -m studies repairs results/cifar10h/predictions/*-test.npz
    """
    if files:
        write_lines(rows, [row(path, seed) for path in files])
    print(table(read_lines(rows)).markdown())


def row(path: Path, seed: int = 0) -> dict[str, Any]:
    """One file's numbers."""
    predictions = Predictions.load(path)
    order = np.random.default_rng(seed).permutation(len(predictions))
    taught, judged = (predictions.take(half) for half in np.array_split(order, 2))
    found = repair(taught)
    fits = {name: found.fits[name] for name in (NOTHING, TEMPERATURE)} | {"recommended": found.fitted}
    answers = {name: answer(one, judged.output, judged.known_labels) for name, one in fits.items()}
    losses = {name: each.loss for name, each in answers.items()}
    return {
        "file": path.name,
        "rows": len(judged),
        "recommended": found.recommended or NOTHING,
        "nll": {name: round(float(loss.mean()), 5) for name, loss in losses.items()},
        "ece": {name: _rounded(_ece(each)) for name, each in answers.items()},
        "promised": _rounded(found.after.nll.against_temperature),
        "change": _rounded(mean(losses["recommended"] - losses[TEMPERATURE])),
    }


def table(rows: Sequence[dict[str, Any]]) -> Grid:
    """A row a file."""

    def cells(one: dict[str, Any]) -> tuple[Entry, ...]:
        _, low, high = one["change"]
        return (
            label(one["file"], one["file"]),
            count(one["rows"]),
            label(one["recommended"], one["recommended"]),
            *(number(one["nll"][name], decimals=4) for name in NAMES),
            signed(one["change"][0], decimals=4),
            interval(low, high, bold=low > 0 or high < 0, decimals=4),
            signed(one["promised"][0], decimals=4),
            *(number(one["ece"][name][0]) for name in NAMES),
        )

    titles = [
        *("file", "rows", "recommended"),
        *(f"NLL, {title}" for title in NAMES.values()),
        *("less one temperature's", "interval", "promised"),
        *(f"ECE, {title}" for title in NAMES.values()),
    ]
    headings = tuple(Heading(title, (title,)) for title in titles)
    return Grid("Repairs of half of a file, on the other half", headings, (tuple(map(cells, rows)),))


def _ece(answers: Answers) -> Estimate:
    noise = answers.confidence * (1 - answers.confidence)
    return binned_gap(answers.outcome - answers.confidence, answers.bins(BINS), BINS, noise=noise)


def _rounded(estimate: Estimate) -> list[float]:
    return [round(float(value), 5) for value in estimate[:3]]
