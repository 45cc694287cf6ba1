import json

import numpy as np
import pytest
import torch

from calmoe.errors import InputError
from calmoe.render.drawing import FULL
from calmoe.report.domain_figure import domain_examples
from calmoe.report.examples import examples, examples_figure

NAMES = ["ant", "bee", "cow", "dog", "elk", "fox"]
LABELS = np.array([0, 0, 0, 1, 1, 2, 3, 0])


def answers(confidence, predicted):
    """Probabilities with these confidences in these classes, the rest spread evenly."""
    probs = np.repeat((1 - np.asarray(confidence))[:, None] / 5, 6, axis=1)
    probs[np.arange(len(probs)), predicted] = confidence
    return probs


# rows 0, 1, 2 and 7 are ants, of which only two may be shown; row 5 is right; row 6 is easy
VANILLA = answers([0.9, 0.95, 0.8, 0.7, 0.6, 0.99, 0.98, 0.95], [1, 2, 3, 0, 2, 2, 0, 4])
ROBUST = answers([0.5] * 8, [0, 2, 3, 0, 2, 2, 0, 4])
HARD = np.array([True] * 6 + [False, True])
HUMAN = answers([0.6] * 8, [0, 2, 0, 1, 2, 2, 3, 0])
IMAGES = np.arange(8 * 3 * 4 * 5, dtype=np.uint8).reshape(8, 3, 4, 5)


def chosen(**changes):
    given = {
        "images": IMAGES,
        "labels": LABELS,
        "class_names": NAMES,
        "predictions": {"robust": ROBUST, "vanilla": VANILLA},
        "human": HUMAN,
        "hard": HARD,
    }
    return examples(**(given | changes))


def test_the_worst_failures_of_the_baseline_two_of_a_class():
    data = chosen()
    assert data["baseline"] == "vanilla"
    assert [image["row"] for image in data["images"]] == [1, 7, 3, 4]  # equal confidences: the earlier first
    assert [image["row"] for image in chosen(n=3)["images"]] == [1, 7, 3]
    everywhere = chosen(hard=None)
    assert 6 in [image["row"] for image in everywhere["images"]]
    assert "the 5 test images on which" in examples_figure(everywhere).alt


def test_without_vanilla_the_first_method_is_the_baseline():
    data = chosen(predictions={"robust": ROBUST, "fgr": VANILLA})
    assert data["baseline"] == "robust"
    assert [image["row"] for image in data["images"]] == [1, 2, 3, 4]


def test_what_is_kept_of_an_image_is_plain():
    data = chosen(agreement=np.linspace(0, 0.7, 8), seed=42)
    image = json.loads(json.dumps(data, allow_nan=False))["images"][0]
    assert np.array_equal(image["pixels"], IMAGES[1].transpose(1, 2, 0))
    assert (image["label"], image["agreement"], data["seed"]) == (0, pytest.approx(0.1), 42)
    assert image["methods"]["vanilla"] == VANILLA[1].tolist()
    assert image["human"] == HUMAN[1].tolist()


def test_tensors_do_as_well():
    given = {"images": IMAGES, "labels": LABELS, "human": HUMAN, "hard": HARD}
    tensors = {name: torch.from_numpy(values) for name, values in given.items()}
    methods = {"robust": torch.from_numpy(ROBUST), "vanilla": torch.from_numpy(VANILLA)}
    assert chosen(**tensors, predictions=methods) == chosen()


def test_the_figure_has_a_row_an_image_and_bars_that_sum_to_one():
    figure, alt = examples_figure(chosen())
    grid = np.array(figure.axes).reshape(4, 4)  # the image, humans, two methods
    assert [axes.get_title() for axes in grid[0]] == ["", "Humans", "Robust\nMoE", "Vanilla\nMoE"]
    assert np.array_equal(grid[0, 0].images[0].get_array(), IMAGES[1].transpose(1, 2, 0))
    assert grid[0, 0].images[0].get_interpolation() == "nearest"
    for axes in grid[:, 1:].flat:
        assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(1)
    names = [text.get_text() for text in grid[0, 1].get_yticklabels()]
    assert names[:2] == ["ant", "cow"]  # the truth, then what anyone finds most probable
    assert names[-1] == "others"
    assert len(names) == 5
    widths = [bar.get_width() for bar in grid[0, 3].patches]
    assert widths[:2] == pytest.approx([0.01, 0.95])
    assert figure.get_figwidth() <= FULL
    assert alt.startswith(
        "The worst failures, not typical images: the 4 hard test images on which Vanilla MoE"
    )
    assert "row 1, truly ant: humans cow 0.60, Robust MoE cow 0.50, Vanilla MoE cow 0.95" in alt
    assert "On 2 of them the label is not the humans' first choice either." in alt  # rows 1 and 4


def test_the_true_class_is_bold_and_in_full_colour():
    axes = examples_figure(chosen()).figure.axes[1]
    assert [text.get_fontweight() for text in axes.get_yticklabels()] == ["bold"] + ["normal"] * 4
    assert [bar.get_alpha() == 1 for bar in axes.patches] == [True] + [False] * 4


def test_grey_images_without_humans_show_the_agreement():
    grey = IMAGES[:, :1]
    data = chosen(images=grey, human=None, agreement=np.linspace(0, 0.7, 8))
    figure, alt = examples_figure(data)
    assert np.array_equal(figure.axes[0].images[0].get_array(), grey[1, 0])
    assert len(figure.axes) == 4 * 3
    assert figure.axes[0].get_xlabel() == "agreement 0.10"
    assert "humans" not in alt
    assert "row 1 (agreement 0.10), truly ant" in alt


def test_two_classes_are_enough():
    probs = np.array([[0.9, 0.1], [0.8, 0.2]])
    data = examples(np.zeros((2, 1, 8, 8), np.uint8), np.array([1, 1]), ["no", "yes"], {"vanilla": probs})
    names = [text.get_text() for text in examples_figure(data).figure.axes[1].get_yticklabels()]
    assert names == ["yes", "no"]


def test_nine_methods_fit_and_no_text_is_smaller_than_7_points():
    figure = examples_figure(chosen(predictions={f"m{i}": VANILLA for i in range(9)})).figure
    assert len(figure.axes) == 4 * 11
    texts = figure.findobj(match=lambda a: hasattr(a, "get_fontsize"))
    assert min(text.get_fontsize() for text in texts if text.get_text()) >= 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"predictions": {}}, "no predictions"),
        ({"images": IMAGES.astype(float)}, r"images must be uint8 \[N, C, H, W\]"),
        ({"images": IMAGES.transpose(0, 2, 3, 1)}, "C = 1 or 3"),
        ({"human": HUMAN[:, :4]}, r"human must have shape \[8, 6\], not \[8, 4\]"),
        ({"predictions": {"vanilla": VANILLA[:5]}}, r"vanilla must have shape \[8, 6\]"),
        ({"hard": np.zeros(8, bool)}, "Vanilla MoE is right on every hard row"),
    ],
)
def test_bad_input_is_told(changes, said):
    with pytest.raises(InputError, match=said):
        chosen(**changes)


def test_domains_by_classes():
    def flat(value):
        return np.full((6, 6, 3), value, np.uint8)

    images = {"photo": {"dog": flat(1), "elk": flat(2)}, "art_painting": {"elk": flat(3)}}
    figure, alt = domain_examples(images)
    grid = np.array(figure.axes).reshape(2, 2)
    assert [axes.get_title() for axes in grid[0]] == ["dog", "elk"]
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["photo", "art\npainting"]
    assert [[int(i.get_array().max()) for i in axes.images] for axes in grid.flat] == [[1], [2], [], [3]]
    assert alt == "Example images: 2 domains (photo, art_painting) by 2 classes (dog, elk)."
    with pytest.raises(InputError, match="no images"):
        domain_examples({"photo": {}})
