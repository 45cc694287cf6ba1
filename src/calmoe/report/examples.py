"""Images that a baseline gets wrong with the most confidence, and the answers of methods and humans.

Compute first: `examples` gives what JSON can hold. Draw second: `examples_figure`.
"""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from calmoe.arrays import Array, as_tensor
from calmoe.errors import InputError
from calmoe.escaping import drawable
from calmoe.methods import method_title
from calmoe.render.drawing import FULL, GREY, STYLE, Drawn, draw_legend, new_figure
from calmoe.report.figure_cards import FigureCard, RunNumbers
from calmoe.report.looks import looks
from calmoe.report.sections import EXAMPLES

BASELINE = "vanilla"
PER_CLASS = 2  # images of one true class at most
CLASSES = 4  # bars for an image at most; the other classes share one more
OTHERS = "others"
HUMANS = "Humans"
PALE = 0.45  # opacity of the bars of wrong classes
SIDE = 64  # pixels on the longer side of a kept image, about
LEGEND = 3.6  # inches: the width of the legend
PICTURE, MARGIN = 0.62, 1.45  # inches: an image, and the image with the names of the classes


def examples(
    images: Array,
    labels: Array,
    class_names: Sequence[str],
    predictions: Mapping[str, Array],
    human: Array | None = None,
    hard: Array | None = None,
    n: int = 6,
    agreement: Array | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """The n hard images on which the baseline is wrong with the most confidence, two of a class at most.

    images: uint8 [N, C, H, W], C = 1 or 3, as a dataset keeps them; predictions: by method the probabilities
    [N, C] of one model; human: the annotators' shares [N, C]; hard: mask [N], all rows if None; agreement:
    any other measure of it [N]; seed: the models' seed, for the text. The baseline is Vanilla MoE, else the
    first method. Among equal confidences the earlier row comes first.

    >>> images, labels = np.zeros((3, 1, 8, 8), np.uint8), np.array([0, 1, 1])
    >>> probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.8, 0.2]])
    >>> [image["row"] for image in examples(images, labels, ["no", "yes"], {"vanilla": probs})["images"]]
    [2, 1]
    """
    pixels, truth = (as_tensor(values).cpu().numpy() for values in (images, labels))
    answers = {method: as_tensor(probs).double().cpu().numpy() for method, probs in predictions.items()}
    columns = {"hard": hard, "agreement": agreement, "human": human}
    known = {name: as_tensor(v).cpu().numpy() for name, v in columns.items() if v is not None}
    _check(pixels, truth, class_names, answers, known)
    baseline = BASELINE if BASELINE in answers else next(iter(answers))
    rows = _worst(answers[baseline], truth, known.get("hard", np.ones(len(truth), bool)), n)
    if not rows:
        where = "every row" if hard is None else "every hard row"
        title = method_title(baseline)
        raise InputError(f"{title} is right on {where}: there is no failure to show")
    return {
        "baseline": baseline,
        "class_names": list(class_names),
        "seed": seed,
        "hard": hard is not None,
        "images": [
            {
                "row": row,
                "pixels": _drawable(pixels[row]).tolist(),
                "label": int(truth[row]),
                "agreement": float(known["agreement"][row]) if "agreement" in known else None,
                "human": known["human"][row].tolist() if "human" in known else None,
                "methods": {method: probs[row].tolist() for method, probs in answers.items()},
            }
            for row in rows
        ],
    }


def _check(
    pixels: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    answers: Mapping[str, np.ndarray],
    columns: Mapping[str, np.ndarray],
) -> None:
    rows, classes = len(labels), len(class_names)
    if not answers:
        raise InputError("there are no predictions to show: give at least one method's")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or len(pixels) != rows or pixels.shape[1] not in (1, 3):
        raise InputError(
            f"images must be uint8 [N, C, H, W] with N = {rows} and C = 1 or 3, not {pixels.dtype} "
            f"{list(pixels.shape)}"
        )
    for name, values in (*answers.items(), *columns.items()):
        expected = (rows,) if name in ("hard", "agreement") else (rows, classes)
        if values.shape != expected:
            raise InputError(f"{name} must have shape {list(expected)}, not {list(values.shape)}")


def _drawable(pixels: np.ndarray) -> np.ndarray:
    """[C, H, W] as [H, W] if grey, else [H, W, C]; a large image is thinned to about SIDE pixels."""
    step = max(1, max(pixels.shape[1:]) // SIDE)
    kept = pixels[:, ::step, ::step]
    return kept[0] if len(kept) == 1 else kept.transpose(1, 2, 0)


def _worst(probs: np.ndarray, labels: np.ndarray, hard: np.ndarray, n: int) -> list[int]:
    """Rows by falling confidence in a wrong class, at most PER_CLASS of a true class."""
    wrong = np.flatnonzero(hard & (probs.argmax(1) != labels))
    taken: Counter[int] = Counter()
    rows: list[int] = []
    for row in wrong[np.argsort(-probs.max(1)[wrong], kind="stable")]:
        if taken[labels[row]] < PER_CLASS and len(rows) < n:
            taken[labels[row]] += 1
            rows.append(int(row))
    return rows


@rc_context(STYLE)
def examples_figure(data: Mapping[str, Any]) -> Drawn:
    """A row for each image: its pixels, the humans' answer where known, and each method's probabilities.

    The bars are the true class, in full colour, and the classes that anyone finds most probable; the other
    classes share the last bar, so that the bars of a panel sum to one.
    """
    images = data["images"]
    humans = [(HUMANS, GREY)] if images[0]["human"] is not None else []
    columns = humans + [(look.title, look.colour) for look in looks(images[0]["methods"]).values()]
    width = min(FULL, max(LEGEND, MARGIN + 1.2 * len(columns)))
    figure = new_figure(width, 0.76 * len(images) + 0.65)
    ratios = [PICTURE, *[(width - MARGIN) / len(columns)] * len(columns)]
    grid = figure.subplots(len(images), len(ratios), squeeze=False, width_ratios=ratios)
    for panels, image in zip(grid, images, strict=True):
        _draw_image(panels[0], image)
        answers = [image["human"]] * len(humans) + list(image["methods"].values())
        classes = _classes(answers, image["label"])
        for axes, answer, (_, colour) in zip(panels[1:], answers, columns, strict=True):
            _draw_bars(axes, answer, classes, image["label"], colour)
        names = [data["class_names"][c] for c in classes] + [OTHERS] * (len(answers[0]) > len(classes))
        panels[1].tick_params(labelleft=True)
        panels[1].set_yticks(range(len(names)), map(drawable, names))
        panels[1].get_yticklabels()[0].set_fontweight("bold")  # the true class
    for axes, (title, _) in zip(grid[0, 1:], columns, strict=True):
        axes.set_title(textwrap.fill(title, 9, break_long_words=False))
    for axes in grid[-1, 1:]:
        axes.tick_params(labelbottom=True)
        for text, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
            text.set_horizontalalignment(side)  # inside the panel: the next one's labels are near
    bars = {"probability of the true class": 1.0, "of another class": PALE}
    draw_legend(figure, [Patch(color=GREY, alpha=alpha, lw=0, label=name) for name, alpha in bars.items()])
    return Drawn(figure, _examples_text(data))


def _draw_image(axes: Axes, image: Mapping[str, Any]) -> None:
    axes.imshow(np.array(image["pixels"], np.uint8), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if image["human"] is None and image["agreement"] is not None:
        axes.set_xlabel(f"agreement {image['agreement']:.2f}", x=0, ha="left")


def _draw_bars(axes: Axes, answer: Sequence[float], classes: Sequence[int], label: int, colour: str) -> None:
    widths = [answer[c] for c in classes]
    if len(answer) > len(classes):
        widths.append(1 - sum(widths))
    for y, width in enumerate(widths):
        right = y < len(classes) and classes[y] == label
        axes.barh(y, width, 0.8, color=colour, alpha=1 if right else PALE, lw=0)
    axes.set(xlim=(0, 1), ylim=(len(widths) - 0.4, -0.6), yticks=[])
    axes.set_xticks([0, 1], ["0", "1"])
    axes.tick_params(labelbottom=False, labelleft=False, axis="both", length=0)


def _classes(answers: Sequence[Sequence[float]], label: int) -> list[int]:
    """The true class and the others with the largest probability in anyone's answer, most first."""
    most = np.max(answers, axis=0)
    order = [int(c) for c in np.argsort(-most, kind="stable") if c != label][: CLASSES - 1]
    return [label, *order]


def _examples_text(data: Mapping[str, Any]) -> str:
    names, images = data["class_names"], data["images"]
    baseline = method_title(data["baseline"])

    def top(answer: Sequence[float]) -> str:
        return f"{names[int(np.argmax(answer))]} {max(answer):.2f}"

    def answers(image: Mapping[str, Any]) -> str:
        methods = [f"{method_title(m)} {top(p)}" for m, p in image["methods"].items()]
        humans = [f"humans {top(image['human'])}"] if image["human"] is not None else []
        agreement = f" (agreement {image['agreement']:.2f})" if image["agreement"] is not None else ""
        return f"row {image['row']}{agreement}, truly {names[image['label']]}: {', '.join(humans + methods)}"

    judged = [i for i in images if i["human"] is not None]
    against = sum(int(np.argmax(i["human"])) != i["label"] for i in judged)
    doubt = f" On {against} of them the label is not the humans' first choice either." if judged else ""
    hard = "hard " if data["hard"] else ""
    model = f" trained with seed {data['seed']}" if data["seed"] is not None else ""
    return (
        f"The worst failures, not typical images: the {len(images)} {hard}test images on which {baseline}"
        f"{model} is wrong with the most confidence, at most {PER_CLASS} of a class.{doubt} Most probable "
        f"class and its probability: {'; '.join(map(answers, images))}."
    )


def _draw_examples(numbers: RunNumbers) -> Drawn:
    assert numbers.examples is not None
    return examples_figure(numbers.examples())


CARD: FigureCard[RunNumbers] = FigureCard(
    name="examples",
    section=EXAMPLES,
    caption="Each method's probabilities for the true class and the likeliest others, from one seed.",
    draw=_draw_examples,
    applies=lambda numbers: numbers.examples is not None,
)
