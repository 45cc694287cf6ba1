"""Predictions packed for git, and figures drawn again from stored numbers."""

import shutil

import numpy as np
import pytest

import study_rows
from calmoe.errors import InputError
from calmoe.experiments.run import Run
from calmoe.predictions import Predictions
from studies import figures as study
from studies.figures import figures, redrawn
from studies.pack import pack
from study_rows import RESULTS


def test_packed_predictions_are_the_run_s_in_half_precision(reference, tmp_path, capsys):
    pack(reference, 42, to=tmp_path)
    names = {f"{m}-{split}.npz" for m in ("single", "vanilla", "robust") for split in ("validation", "test")}
    assert {path.name for path in tmp_path.iterdir()} == names
    sizes = dict(line.rsplit(" ", 2)[:2] for line in capsys.readouterr().out.splitlines())
    for path in tmp_path.iterdir():
        assert sizes[str(path)] == f"{path.stat().st_size:,}"
    (model,) = Run.open(reference).read_models(methods=["robust"])
    packed = Predictions.load(tmp_path / "robust-test.npz")
    assert packed.known_labels.tolist() == model.test.known_labels.tolist()
    assert packed.output.probs.numpy() == pytest.approx(model.test.output.probs.numpy(), abs=2e-3)
    assert packed.mask("hard").tolist() == model.test.mask("hard").tolist()


def test_another_seed_packs_nothing(reference, tmp_path):
    pack(reference, 43, to=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_s_figures_are_those_of_its_report(monkeypatch):
    monkeypatch.setattr(study, "draw_figures", applying)
    drawn, numbers = redrawn(RESULTS / "cifar10h")
    assert {"reliability", "frontier", "levels", "examples", "sweep_eta", "eta_gamma"} <= drawn
    assert "domains" not in drawn
    assert (numbers.dataset, numbers.hard, numbers.defaults) == ("cifar10h", True, {"eta": 2.0, "warmup": 20})
    assert len(numbers.curves) == 45
    drawn, _ = redrawn(RESULTS / "hatexplain")
    assert "frontier" in drawn
    assert "examples" not in drawn  # texts
    drawn, numbers = redrawn(RESULTS / "pacs")
    assert drawn == {"targets", "targets_scatter", "targets_reliability", "targets_reliability_scaled"}
    assert list(numbers.titles.values()) == ["Photo", "Art", "Cartoon", "Sketch"]
    drawn, numbers = redrawn(RESULTS / "pacs/sketch")
    assert "reliability" in drawn
    assert not numbers.hard


def applying(cards, numbers):
    return {card.name for card in cards if card.applies(numbers)}, numbers


def test_a_sweep_is_drawn_from_its_rows(tmp_path, capsys):
    for name in ("sweep_eta.jsonl", "sources.json"):
        shutil.copy(RESULTS / "cifar10h" / name, tmp_path)
    figures(tmp_path, to=tmp_path / "drawn")
    printed = [tmp_path / f"drawn/{name}.png" for name in ("sweep_eta", "eta_gamma")]
    assert capsys.readouterr().out.splitlines() == list(map(str, printed))
    rows = study_rows.read(tmp_path / "sweep_eta.jsonl")
    at_two = [row["accuracy"] for row in rows if (row["value"], row["protocol"]) == (2, "corrected")]
    assert f"{np.mean(at_two):.3f}" in redrawn(tmp_path)[0]["sweep_eta"].drawn.alt


def test_a_folder_without_numbers_is_refused(tmp_path):
    with pytest.raises(InputError, match="nothing to draw"):
        redrawn(tmp_path)
