"""Several models: side by side, paired where rows match, and which to deploy."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import calmoe
from calmoe import worlds
from calmoe.auditing.comparison import compare, faults
from calmoe.auditing.presentation.comparison_page import comparison_lines, deploy
from calmoe.auditing.presentation.words import action_line
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.verdict import Action
from calmoe.commands import app
from calmoe.errors import InputError
from calmoe.metrics import nll
from calmoe.predictions import Predictions
from haste import hastily


def scaled(given, power):
    """The same model with logits times `power`: overconfident above 1."""
    probs = given.output.probs.double().numpy() ** power
    return Predictions.from_probs(probs / probs.sum(axis=1, keepdims=True), given.labels.numpy())


@pytest.fixture(scope="module")
def samples():
    good = worlds.calibrated(1).sample(1500, seed=5)
    flat = np.tile(np.bincount(good.labels.numpy()) / len(good), (len(good), 1))
    return {
        "good": scaled(good, 1.0),
        "sharp": scaled(good, 3.0),
        "flat": Predictions.from_probs(flat, good.labels.numpy()),
    }


@pytest.fixture(scope="module")
def audited(samples):
    with hastily():
        return {name: (given, calmoe.audit(given)) for name, given in samples.items()}


def test_differences_are_paired_row_by_row(audited, samples):
    found = compare(audited)
    assert (found.chosen, found.basis, found.paired) == ("good", "log loss", True)
    sharp = next(model for model in found.models if model.name == "sharp")
    losses = {n: nll(s.output.log_probs.double(), s.labels) for n, s in samples.items()}
    assert sharp.difference.nll.value == pytest.approx(losses["sharp"] - losses["good"], abs=1e-6)
    assert sharp.difference.nll.low > 0
    assert (sharp.difference.accuracy.value, sharp.difference.accuracy.low) == (0, 0)
    alone = sharp.nll.high - sharp.nll.low
    assert sharp.difference.nll.high - sharp.difference.nll.low < alone
    assert sharp.difference.ece.low <= sharp.difference.ece.value <= sharp.difference.ece.high
    assert next(m for m in found.models if m.name == "good").difference is None


def test_a_useless_model_is_never_deployed(audited):
    flat = {"flat": audited["flat"], "other": audited["flat"]}
    found = compare(flat)
    assert found.chosen is None
    assert "none" in deploy(found)
    assert compare(audited).chosen != "flat"


def test_the_only_model_worth_using_is_not_praised_for_its_log_loss(audited):
    """Overconfident, it has the higher log loss; the other knows nothing."""
    wild = scaled(audited["good"][0], 12.0)
    found = compare({"wild": (wild, hasty_audit(wild)), "flat": audited["flat"]})
    assert found.models[0].nll.value > found.models[1].nll.value
    assert (found.chosen, found.basis) == ("wild", "skill")
    assert "surely lower" not in deploy(found)


def hasty_audit(given):
    with hastily():
        return calmoe.audit(given)


def test_among_equals_the_one_with_fewer_faults_is_chosen(audited):
    given, report = audited["good"]
    hides = replace(
        report, aggregate=replace(report.aggregate, ece=report.aggregate.ece._replace(low=0.05, high=0.2))
    )
    assert faults(hides.verdict) > faults(report.verdict)
    found = compare({"first": (given, hides), "second": (given, report)})
    assert (found.chosen, found.basis) == ("second", "fewer faults")


def test_other_rows_are_not_paired(audited):
    given, report = audited["good"]
    other = given.take(np.arange(len(given))[::-1])
    found = compare({"a": (given, report), "b": (other, report)})
    assert not found.paired
    assert all(model.difference is None for model in found.models)
    assert any("different rows" in line for line in comparison_lines(found))


@pytest.mark.parametrize("most", [0.02, 0.06])
@pytest.mark.parametrize("worse", [{}, {"hidden": "hidden"}, {"fragility": "fragile"}])
def test_nothing_is_deployed_that_is_not_to_be_relied_on(audited, worse, most):
    """ "Deploy b", and below, of b: "Do not rely on the numbers"."""
    ece = Estimate(most / 2, 0.001, most, most / 4)
    clean = {"hidden": "nothing found", "fragility": "steady", "groups_off": (), "groups_worse": ()}
    known = {"truth": "off", "mended": None, "ece": ece, "balance": ece, "action": Action("watch", "")}
    verdict = replace(audited["good"][1].verdict, **(clean | known | worse))
    found = compare(audited)
    models = tuple(replace(model, report=SimpleNamespace(verdict=verdict)) for model in found.models)
    told, sound = deploy(replace(found, models=models)), not worse and most < 0.03
    assert told.startswith("Deploy good") == action_line(verdict).startswith("Use them where") == sound
    assert ("do not rely" in told) == action_line(verdict).startswith("Do not rely")


def test_two_models_are_needed(audited):
    with pytest.raises(InputError, match="at least two"):
        compare({"good": audited["good"]})


@pytest.mark.usefixtures("hasty", "unrendered")
def test_the_command_compares(tmp_path, samples):
    paths = [tmp_path / f"{name}.safetensors" for name in ("good", "sharp")]
    for name, path in zip(("good", "sharp"), paths, strict=True):
        samples[name].save(path)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["audit", *map(str, paths), "--out", str(out)])
    assert result.exit_code == 0, result.output
    lines = result.output.strip().splitlines()
    assert lines[0].startswith("Deploy good: ")
    assert len(lines) <= 12
    saved = json.loads((out / "audit.json").read_text(), parse_constant=pytest.fail)
    assert saved["chosen"] == "good"
    assert saved["models"]["sharp"]["difference"]["nll"]["low"] > 0
    page = (out / "report.html").read_text()
    assert 'href="model-1/report.html"' in page
    for i in (1, 2):
        assert (out / f"model-{i}" / "report.html").is_file()
        assert (out / f"model-{i}" / "audit.json").is_file()
    refused = CliRunner().invoke(app, ["audit", *map(str, paths), "--target", str(paths[0])])
    assert refused.exit_code == 2
    assert "--target goes with one file" in refused.output


@pytest.mark.usefixtures("hasty", "unrendered")
def test_the_command_of_the_page_names_the_cases(tmp_path, samples):
    person = np.arange(1500) // 2
    for name in ("good", "sharp"):
        replace(samples[name], groups={"person": person}).save(tmp_path / f"{name}.csv")
    files = [str(tmp_path / f"{name}.csv") for name in ("good", "sharp")]
    result = CliRunner().invoke(app, ["audit", *files, "--cluster", "person", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    page = re.sub("<[^>]*>", "", (tmp_path / "out" / "report.html").read_text())
    assert re.search(r"calmoe (audit|repair)[^\n]* --cluster person", page)
