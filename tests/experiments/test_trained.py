"""A run's models as models that predict: what training reported, to the last digit."""

import sys

import numpy as np
import pytest
import torch

import calmoe
import forked
from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments.evaluation import as_method_reads
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.trained import KNOWN, load
from calmoe.metrics import ece
from calmoe.models.inputs import dataset_inputs


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def stored(folder, method):
    opened = Run.open(folder)
    (planned,) = [model for model in opened.finished() if model.method == method]
    return opened.folder.predictions(planned.key)


@pytest.mark.parametrize("method", ["single", "vanilla", "mocae", "robust"])
def test_a_loaded_model_predicts_what_training_reported(reference, digits, method):
    predictions = stored(reference, method)
    _, test, _ = as_method_reads(method, predictions["validation"], predictions["test"], "corrected")
    output = load(reference, method, 42, scaled=False).output(digits.test.inputs)
    for ours, theirs in zip(output, test.output, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    model = load(reference, method, 42)
    (row,) = [row for row in Run.open(reference).rows if row["method"] == method]
    probs = model.predictions(digits.test.inputs).output.probs
    assert ece(probs, digits.test.labels) == pytest.approx(row["ece_ts"], abs=1e-6)
    assert model.card.scores["test"]["ece"] == row["ece_ts"]


@pytest.mark.parametrize("views", [5, 0])  # 0: all, and the digits have five
def test_averaged_weights_and_pooled_views(tiny, quiet, digits, tmp_path, views):
    spec = with_settings(narrowed(tiny, methods=("vanilla", "mocae")), ["average=0.9", f"views={views}"])
    outcome = run(spec, tmp_path / "run", console=quiet)
    assert outcome.exit_code == 0
    rows = {row["method"]: row for row in outcome.rows}
    for method in ("vanilla", "mocae"):
        model = load(tmp_path / "run", method)
        assert model.temperature == rows[method]["views_temperature"]
        assert model.card.scores["test"]["log_loss"] == rows[method]["views_nll_ts"]
        probs = model.predictions(digits.test.inputs).output.probs
        assert ece(probs, digits.test.labels) == pytest.approx(rows[method]["views_ece_ts"], abs=1e-5)
        pair = [stored(tmp_path / "run", method)[f"views_{split}"] for split in ("validation", "test")]
        _, test, _ = as_method_reads(method, *pair, "corrected", views=5)
        output = load(tmp_path / "run", method, scaled=False).output(digits.test.inputs)
        torch.testing.assert_close(output.log_probs, test.output.log_probs, rtol=0, atol=1e-6)


def test_another_process_in_another_folder_predicts_the_same(reference, digits, tmp_path):
    model = calmoe.load(reference, method="mocae", seed=42)
    model.save(tmp_path / "model")
    (tmp_path / "moved").mkdir()
    (tmp_path / "model").rename(tmp_path / "moved" / "digits")
    np.save(tmp_path / "moved" / "x.npy", digits.test.inputs.numpy())
    code = (
        "import calmoe, numpy as np; m = calmoe.load('digits'); x = np.load('x.npy');"
        "np.save('p.npy', m.predict_proba(x)); print(m.kind, m.classes[3], *m.predict(x[:2]))"
    )
    told = forked.run([sys.executable, "-c", code], cwd=tmp_path / "moved", text=True, check=True)
    assert told.stdout.split() == ["images", "3", *map(str, model.predict(digits.test.inputs[:2]))]
    assert model.classes_.tolist() == list(range(10))
    probs = np.load(tmp_path / "moved" / "p.npy")
    np.testing.assert_allclose(probs, model.predict_proba(digits.test.inputs), rtol=0, atol=1e-6)


def test_only_one_model_can_be_meant(reference, swept, finished):
    for arguments, told in (
        ((), "several models: give method and seed"),
        (("robust", 43), "no finished robust seed 43"),
        (("nothing",), "no finished nothing"),
    ):
        with pytest.raises(InputError, match=told):
            load(reference, *arguments)
    with pytest.raises(InputError, match="is a sweep"):
        load(swept[0], "robust", 42)
    with pytest.raises(InputError, match="there is no folder"):
        load(reference / "nowhere")
    for path in finished.glob("nodes/*/model.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="no finished vanilla"):
        load(finished, "vanilla", 42)


def test_runs_of_earlier_versions_are_prepared_alike(digits):
    assert KNOWN["digits"] == dataset_inputs(digits)
