"""The failures drawn are the run's worst."""

import numpy as np
import pytest
from PIL import Image

from calmoe.errors import InputError
from calmoe.experiments.run import Run
from studies.failures import failures


def test_the_surest_errors_of_vanilla_are_drawn_and_told(reference, tmp_path, capsys):
    failures([reference], to=tmp_path / "drawn")
    path = tmp_path / "drawn/failures-digits.png"
    assert min(Image.open(path).size) > 100
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: The worst failures, not typical images: the 6 hard test images")
    (model,) = Run.open(reference).read_models(methods=["vanilla"])
    probs, labels = model.test.output.probs.numpy(), model.test.known_labels.numpy()
    wrong = np.flatnonzero((probs.argmax(1) != labels) & model.test.mask("hard").numpy())
    surest = wrong[np.argmax(probs[wrong].max(1))]
    assert f"row {surest} (agreement" in said
    assert f"Vanilla MoE {probs[surest].argmax()} {probs[surest].max():.2f}" in said


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="none"):
        failures([tmp_path / "none"], to=tmp_path)
