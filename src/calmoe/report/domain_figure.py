"""The figure of domains: one image of every class in every domain."""

import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib import rc_context

from calmoe.errors import InputError
from calmoe.render.drawing import FULL, STYLE, Drawn, new_figure
from calmoe.report.figure_cards import FigureCard, RunNumbers
from calmoe.report.sections import DOMAINS


@rc_context(STYLE)
def domain_examples(images: Mapping[str, Mapping[str, np.ndarray]]) -> Drawn:
    """A row for each domain, a column for each class, one image [H, W, 3] each; a missing class stays empty.

    >>> drawn = domain_examples({"photo": {"dog": np.zeros((8, 8, 3), np.uint8)}})
    >>> drawn.alt
    'Example images: 1 domain (photo) by 1 class (dog).'
    """
    classes = list(dict.fromkeys(name for by_class in images.values() for name in by_class))
    if not classes:
        raise InputError("there are no images to show: give {domain: {class: image}}")
    side = (FULL - 0.6) / max(len(classes), 5)
    figure = new_figure(0.6 + side * len(classes), side * len(images) + 0.2)
    grid = figure.subplots(len(images), len(classes), squeeze=False)
    for panels, (domain, by_class) in zip(grid, images.items(), strict=True):
        for axes, name in zip(panels, classes, strict=True):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if name in by_class:
                axes.imshow(by_class[name])
        label = textwrap.fill(domain.replace("_", " "), 9)
        panels[0].set_ylabel(label, rotation=0, ha="right", va="center")
    for axes, name in zip(grid[0], classes, strict=True):
        axes.set_title(name)
    counts = [
        f"{len(names)} {one if len(names) == 1 else many} ({', '.join(names)})"
        for one, many, names in (("domain", "domains", list(images)), ("class", "classes", classes))
    ]
    return Drawn(figure, f"Example images: {' by '.join(counts)}.")


def _draw_domains(numbers: RunNumbers) -> Drawn:
    assert numbers.domain_images is not None
    return domain_examples(numbers.domain_images())


CARD: FigureCard[RunNumbers] = FigureCard(
    name="domains",
    section=DOMAINS,
    caption="Example images; the target domain was not trained on.",
    draw=_draw_domains,
    applies=lambda numbers: numbers.domain_images is not None,
)
