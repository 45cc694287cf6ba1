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
from calmoe.errors import about
from calmoe.predictions import Predictions
from calmoe.render.grid import Entry, Grid, Heading, count, interval, label, number, signed
from studies.rows import read_lines, write_lines

NAMES = {NOTHING: "as it is", TEMPERATURE: "one temperature", "recommended": "recommended"}


def repairs(
    files: Annotated[list[Path] | None, typer.Argument(help="Predictions with labels.")] = None,
    rows: Annotated[Path, typer.Option(help="Written with files, else read.")] = Path(
        "results/audit/repairs.jsonl"
    ),
    halves: Annotated[int, typer.Option(min=1, help="Random cuts of each file into halves.")] = 3,
    seed: Annotated[int, typer.Option(help="Says which half teaches.")] = 0,
) -> None:
    """What does a repair gain on rows that are new to it?

    Cuts each file into random halves, several times: chooses and fits a repair on one half and judges it on
    the other, then the other way round, beside no repair and one temperature. So every row is judged once a
    cut; its losses are averaged over cuts, and intervals are over rows. Writes a row a file and prints the
    table; without files, that of the rows kept.

    Example: python -m studies repairs results/cifar10h/predictions/*-test.npz
    """
    if files:
        names = _names(files)
        write_lines(rows, [row(path, names[path], halves, seed) for path in files])
    print(table(read_lines(rows)).markdown())


def row(path: Path, name: str, halves: int = 3, seed: int = 0) -> dict[str, Any]:
    """One file's numbers."""
    predictions = Predictions.load(path)
    with about(path):
        predictions.known_labels  # noqa: B018 - refused where there are none
        cuts = [judged(predictions, one) for one in np.random.SeedSequence(seed).generate_state(halves)]
    answers = {name: [answers[name] for answers, _, _ in cuts] for name in NAMES}
    losses = {name: np.mean([each.loss for each in own], axis=0) for name, own in answers.items()}
    picked = [one for _, taken, _ in cuts for one in taken]
    promises = [one for _, _, promised in cuts for one in promised]
    return {
        "file": name,
        "rows": len(predictions),
        "recommended": {each: picked.count(each) for each in dict.fromkeys(sorted(picked))},
        "nll": {name: round(float(loss.mean()), 5) for name, loss in losses.items()},
        "change": _rounded(mean(losses["recommended"] - losses[TEMPERATURE])),
        "promised": round(float(np.mean(promises)), 5),
        "ece": {name: round(float(np.mean([_ece(one) for one in own])), 5) for name, own in answers.items()},
    }


def judged(predictions: Predictions, seed: int) -> tuple[dict[str, Answers], list[str], list[float]]:
    """Both halves of a cut, each judged by fits on the other; what they recommend, and promise to gain."""
    order = np.random.default_rng(int(seed)).permutation(len(predictions))
    first, second = np.array_split(order, 2)
    answers = {name: Answers.empty(len(predictions)) for name in NAMES}
    picked, promised = [], []
    for taught, other in ((first, second), (second, first)):
        choice, rest = repair(predictions.take(taught)), predictions.take(other)
        for name in NAMES:
            fitted = choice.fitted if name == "recommended" else choice.fits[name]
            answers[name].put(other, answer(fitted, rest.output, rest.known_labels))
        picked.append(choice.recommended or NOTHING)
        promised.append(choice.after.nll.against_temperature.value)
    return answers, picked, promised


def table(rows: Sequence[dict[str, Any]]) -> Grid:
    """A row a file."""

    def cells(one: dict[str, Any]) -> tuple[Entry, ...]:
        _, low, high = one["change"]
        picked = ", ".join(f"{name} {times}" for name, times in one["recommended"].items())
        return (
            label(one["file"], one["file"]),
            count(one["rows"]),
            label(picked, picked),
            *(number(one["nll"][name], decimals=4) for name in NAMES),
            signed(one["change"][0], decimals=4),
            interval(low, high, bold=low > 0 or high < 0, decimals=4),
            signed(one["promised"], decimals=4),
            *(number(one["ece"][name]) for name in NAMES),
        )

    titles = [
        *("file", "rows", "recommended"),
        *(f"NLL, {title}" for title in NAMES.values()),
        *("less one temperature's", "interval", "promised"),
        *(f"ECE, {title}" for title in NAMES.values()),
    ]
    headings = tuple(Heading(title, (title,)) for title in titles)
    return Grid("Repairs of half of a file, on the other half", headings, (tuple(map(cells, rows)),))


def _names(files: Sequence[Path]) -> dict[Path, str]:
    """What tells the files apart: their names, with the folder where two have the same."""
    names = [path.name for path in files]
    return {path: path.name if names.count(path.name) == 1 else "/".join(path.parts[-2:]) for path in files}


def _ece(answers: Answers) -> float:
    """The population's, corrected for the bias of a sample's."""
    noise = answers.confidence * (1 - answers.confidence)
    return binned_gap(answers.outcome - answers.confidence, answers.bins(BINS), BINS, noise=noise).value


def _rounded(estimate: Estimate) -> list[float]:
    return [round(float(value), 5) for value in estimate[:3]]
