"""Rows that a calibrator was fitted on are recognised, others are not, and no row is kept."""

import json

import numpy as np
import pytest
import torch

from calmoe.calibration import Calibrator, Temperature
from calmoe.calibration.calibrator import FLATTERED
from calmoe.calibration.seen_rows import SeenRows
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from small_calibrators import overconfident


def test_order_precision_and_a_table_do_not_matter(tmp_path):
    output, labels = overconfident(300)
    seen = SeenRows.of(output, labels)
    order = torch.as_tensor(np.random.default_rng(0).permutation(300))
    assert seen.recognises(output.take(order), labels[order])
    single = MixtureOutput(*(part.float() for part in output))
    assert seen.recognises(single, labels)
    assert seen.recognises(output)
    Predictions(output=single, labels=labels).save(tmp_path / "p.csv")
    read = Predictions.load(tmp_path / "p.csv")
    assert seen.recognises(read.output, read.labels)


def test_other_rows_are_others():
    output, labels = overconfident(300)
    seen = SeenRows.of(output, labels)
    assert not seen.recognises(output.take(slice(1, None)), labels[1:])
    swapped = torch.cat([torch.arange(299), torch.tensor([0])])  # one row twice, one missing
    assert not seen.recognises(output.take(swapped), labels[swapped])
    assert not seen.recognises(output._replace(log_probs=output.log_probs.flip(1)), labels)
    assert not seen.recognises(output, labels.roll(1))


def test_predictions_that_it_was_fitted_on_are_marked():
    output, labels = overconfident(300)
    fitted = Temperature().fit(output.log_probs, labels)
    calibrator = Calibrator(fitted, seen=SeenRows.of(output, labels))
    own, other = Predictions(output=output, labels=labels), Predictions(output=output.take(slice(200)))
    assert calibrator.transform(own).metadata[FLATTERED]
    assert FLATTERED not in calibrator.transform(other).metadata
    assert FLATTERED not in Calibrator(fitted).transform(own).metadata


def test_a_file_keeps_it_and_is_checked(tmp_path):
    output, labels = overconfident(300)
    path, seen = tmp_path / "c.json", SeenRows.of(output, labels)
    Calibrator(Temperature().fit(output.log_probs, labels), seen=seen).save(path)
    assert Calibrator.load(path).seen == seen
    saved = json.loads(path.read_text())
    assert len(json.dumps(saved["seen"])) < 300  # means, and no rows
    for wrong in (3, [], {}, saved["seen"] | {"rows": 0}, saved["seen"] | {"place": "x"}):
        path.write_text(json.dumps(saved | {"seen": wrong}))
        with pytest.raises(InputError):
            Calibrator.load(path)
    del saved["seen"]
    path.write_text(json.dumps(saved))
    assert Calibrator.load(path).seen is None  # a file of an earlier version
