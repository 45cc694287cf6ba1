"""README's figure: confidence against accuracy, of a mixture before and after a shift, and of the recipe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from matplotlib import rc_context
from matplotlib.axes import Axes
from scipy.ndimage import rotate

from calmoe.calibration import Temperature
from calmoe.data import load_dataset
from calmoe.data.shift import ShiftDataset, Split
from calmoe.experiments.export import rescaled
from calmoe.experiments.preparation import pick_device
from calmoe.experiments.spec import load_preset, parse_seeds
from calmoe.files import write_whole
from calmoe.methods import METHODS, method_title
from calmoe.metrics import accuracy, ece, reliability
from calmoe.predictions import Predictions
from calmoe.render.drawing import FULL, STYLE, Drawn, new_figure, rendered
from calmoe.render.grid import Entry, Grid, Heading, count, label, number
from calmoe.render.plots import draw_diagonal
from calmoe.training import Stage, Trainer

ANGLE = 20.0  # degrees
BINS, FEWEST = 8, 7  # bins of equal width; one with fewer rows is not drawn
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
SHOWN = ("vanilla", "recommended")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one model says of the test digits as they are and tilted, after its temperature."""

    method: str
    seed: int
    temperature: float
    before: Predictions
    after: Predictions


def readme_figure(
    to: Annotated[Path, typer.Option(help="The figure.")] = Path("docs/figures/shift.png"),
    seeds: Annotated[str, typer.Option(help="The first is drawn, all are in the table.")] = "42-46",
    angle: Annotated[float, typer.Option(help="By how many degrees the digits are tilted.")] = ANGLE,
) -> None:
    """What does a shift do to a model's confidence?

    Trains Vanilla MoE and the recommended recipe as `calmoe run digits` does, one of each a seed, and fits
    temperatures on validation rows. Then it asks for the test digits as they are, and tilted. Draws the first
    seed and prints a table of all.

    Example: python -m studies readme-figure
    """
    dataset = with_tilted_rows(load_dataset("digits", None, "corrected"), angle)
    models = [trained(dataset, method, seed) for seed in parse_seeds(seeds) for method in SHOWN]
    write_whole(to, rendered(draw(models[0], models[1], dataset, angle), "png"))
    print(f"{to}\n\n{table(models).markdown()}")


def with_tilted_rows(dataset: ShiftDataset, angle: float) -> ShiftDataset:
    """The same data, whose test split has every row twice: as it is, and later tilted."""
    test = dataset.test
    groups = {name: np.tile(column, 2) for name, column in test.groups.items()}
    both = Split(
        inputs=torch.cat([test.inputs, tilted(test.inputs, angle)]),
        labels=test.labels.repeat(2),
        groups=groups | {"tilted": np.repeat([False, True], len(test))},
    )
    return replace(dataset, test=both)


def tilted(images: torch.Tensor, angle: float) -> torch.Tensor:
    """Images [N, C, H, W] turned around their centre, anticlockwise; what comes in is background.

    >>> image = torch.tensor([[[[0, 0, 0], [0, 9, 9], [0, 0, 0]]]], dtype=torch.uint8)
    >>> tilted(image, 90.0)[0, 0].tolist()
    [[0, 9, 0], [0, 9, 0], [0, 0, 0]]
    """
    turned = rotate(images.numpy().astype(float), angle, axes=(2, 3), reshape=False, order=1)
    return torch.from_numpy(turned.round().clip(0, 255).astype(np.uint8))


def trained(dataset: ShiftDataset, method: str, seed: int) -> Seen:
    """The method as the preset trains it, after the temperature that validation chooses."""
    preset, card = load_preset("digits"), METHODS[method]
    settings = replace(preset.training, **card.fixed)
    trainer = Trainer(dataset, preset.model, settings, pick_device("cpu"))
    stage = Stage.of(card, 0, settings.epochs)
    state = trainer.train(stage, seed, trainer.initial_state(card.head, seed))
    predictions = trainer.predict(state, card.head, settings.views)
    pooled = "views_" if card.pools_views else ""
    validation, test = predictions[f"{pooled}validation"], predictions[f"{pooled}test"]
    temperature = Temperature().fit(validation.output.log_probs, validation.known_labels)
    scaled, later = rescaled(test, temperature), test.mask("tilted")
    return Seen(
        method=method,
        seed=seed,
        temperature=temperature.temperature_,
        before=scaled.take(~later),
        after=scaled.take(later),
    )


def table(models: Sequence[Seen]) -> Grid:
    """A row a model."""

    def row(seen: Seen) -> tuple[Entry, ...]:
        cells = [label(method_title(seen.method), seen.method), count(seen.seed), number(seen.temperature, 2)]
        for part in (seen.before, seen.after):
            probs, labels = part.output.probs, part.known_labels
            said = float(part.output.confidence.mean())
            cells += [number(value) for value in (said, accuracy(probs, labels), ece(probs, labels))]
        return tuple(cells)

    titles = [
        f"{what}, {when}" for when in ("before", "after") for what in ("mean confidence", "accuracy", "ECE")
    ]
    return Grid(
        f"{len(models[0].before)} digits, before and after they are tilted",
        tuple(Heading(title, (title,)) for title in ("method", "seed", "T", *titles)),
        (tuple(map(row, sorted(models, key=lambda seen: SHOWN.index(seen.method)))),),
    )


@rc_context(STYLE)
def draw(mixture: Seen, recipe: Seen, dataset: ShiftDataset, angle: float) -> Drawn:
    """How often a model is right, by what it says: a mixture before and after a shift, the recipe after."""
    figure = new_figure(FULL, 2.35)
    panels = figure.subplots(1, 3, sharey=True)
    images, half = dataset.test.inputs[:, 0], len(mixture.before)
    parts = (
        (mixture.before, BLUE, "A mixture, before the shift", images[0]),
        (mixture.after, ORANGE, f"The same, digits tilted by {angle:g}°", images[half]),
        (recipe.after, GREEN, "calmoe's recipe, tilted digits", images[half]),
    )
    told = []
    for axes, (part, colour, title, image) in zip(panels, parts, strict=True):
        probs, labels = part.output.probs, part.known_labels
        says, right = float(part.output.confidence.mean()), accuracy(probs, labels)
        _draw_reliability(axes, part, colour)
        axes.set_title(f"{title}\nsays {says:.0%}, is right in {right:.0%}", color=colour)
        inset = axes.inset_axes((0.05, 0.7, 0.25, 0.25))
        inset.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=255)
        inset.set(xticks=[], yticks=[])
        inset.spines[:].set_visible(False)
        told.append(
            f"{title}: it says {says:.3f} on average, is right in {right:.3f}, ECE {ece(probs, labels):.3f}"
        )
    panels[0].set_ylabel("how often it is right")
    return Drawn(figure, f"Confidence against accuracy on digits, seed {mixture.seed}. {'; '.join(told)}.")


def _draw_reliability(axes: Axes, part: Predictions, colour: str) -> None:
    curve = reliability(part.output.probs, part.known_labels, bins=BINS)
    shown = curve.count >= FEWEST
    said, right = curve.confidence[shown], curve.accuracy[shown]
    low, high = curve.interval()[shown].T
    draw_diagonal(axes)
    axes.errorbar(
        said,
        right,
        yerr=[right - low, high - right],
        fmt="o-",
        color=colour,
        capsize=2,
    )
    axes.set(xlim=(0, 1.03), ylim=(0, 1.03), xlabel="what the model says")
