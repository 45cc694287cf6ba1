"""README's figure: the shift is a tilt and nothing else, and the table is what the metrics say."""

from dataclasses import replace

import pytest
import torch

from calmoe.data import load_dataset
from calmoe.metrics import accuracy, ece
from studies import readme_figure
from studies.readme_figure import draw, table, tilted, trained, with_tilted_rows


@pytest.fixture(scope="module")
def digits():
    return with_tilted_rows(load_dataset("digits", None, "corrected"), 90.0)


def test_a_tilt_turns_pixels_and_keeps_all_else(digits):
    plain = load_dataset("digits", None, "corrected")
    n = len(plain.test)
    assert torch.equal(digits.test.inputs[:n], plain.test.inputs)
    assert torch.equal(digits.test.inputs[n:], plain.test.inputs.rot90(1, (2, 3)))
    assert torch.equal(digits.test.labels, plain.test.labels.repeat(2))
    assert digits.test.groups["tilted"].tolist() == [False] * n + [True] * n
    assert torch.equal(digits.train.inputs, plain.train.inputs)
    assert torch.equal(tilted(plain.test.inputs, 0.0), plain.test.inputs)


def test_mixture_and_recipe_are_asked_before_and_after(digits, monkeypatch):
    preset = readme_figure.load_preset("digits")
    short = replace(preset, training=replace(preset.training, epochs=2, warmup=1))
    monkeypatch.setattr(readme_figure, "load_preset", lambda name: short)
    seen, recipe = trained(digits, "vanilla", 42), trained(digits, "recommended", 42)
    assert len(seen.before) == len(seen.after) == 898
    assert seen.before.num_experts == 4
    assert recipe.after.num_experts == 5  # one expert, five views
    row, _ = table([seen, recipe]).rows
    expected = [seen.temperature]
    for part in (seen.before, seen.after):
        probs, labels = part.output.probs, part.known_labels
        expected += [float(part.output.confidence.mean()), accuracy(probs, labels), ece(probs, labels)]
    assert [entry.values[0] for entry in row[2:]] == pytest.approx(expected)
    assert expected[2] > expected[5] + 0.3  # a digit on its side is another matter
    drawn = draw(seen, recipe, digits, 90.0)
    assert f"ECE {expected[6]:.3f}" in drawn.alt
    last = ece(recipe.after.output.probs, recipe.after.known_labels)
    assert drawn.alt.endswith(f"ECE {last:.3f}.")
