"""Strange mixtures: a report that says what does not apply, or one clear line; never a traceback or a nan."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import calmoe
from calmoe import worlds
from calmoe.auditing import Configurations, Estimate, hidden
from calmoe.commands import app
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from sizes import at_size


def mixture(n=400, routing=None, experts=None, labels=None, k=2, c=3, seed=0):
    """A mixture whose labels are drawn from it, where they are not given."""
    random = np.random.default_rng(seed)
    routing = random.dirichlet(np.ones(k), n) if routing is None else routing
    experts = random.dirichlet(np.ones(c), (n, routing.shape[1])) if experts is None else experts
    probs = (routing[:, :, None] * experts).sum(axis=1)
    if labels is None:
        labels = (random.random((n, 1)) * probs.sum(axis=1, keepdims=True) > probs.cumsum(axis=1)).sum(axis=1)
    elif callable(labels):
        labels = labels(probs)
    return Predictions.from_probs(probs, labels, routing=routing, expert_probs=experts)


def silent_expert(n):
    return np.column_stack([np.random.default_rng(1).dirichlet([1, 1], n), np.zeros(n)])


def one_hot(classes, *shape):
    return np.eye(classes)[np.random.default_rng(1).integers(0, classes, shape)]


CASES = {
    "one row": (lambda: mixture(1), {"truth": "not decided", "not_looked_at": "few rows"}),
    "two rows": (lambda: mixture(2), {"not_looked_at": "few rows"}),
    "50 rows": (lambda: mixture(50), {"hidden": "not looked at", "not_looked_at": "few rows"}),
    "50 rows, an expert that is never asked": (
        lambda: mixture(50, silent_expert(50)),
        {"not_looked_at": "few rows"},
    ),
    "the fewest rows": (lambda: mixture(200), {"not_looked_at": None}),
    "one expert": (lambda: mixture(k=1), {"mixed": False, "routed": False}),
    "one class": (lambda: mixture(c=1), {"truth": "may be true", "worth": "not decided"}),
    "one label": (lambda: mixture(labels=np.zeros(400, int)), {"worth": "not decided"}),
    "a constant router": (lambda: mixture(routing=np.tile([0.75, 0.25], (400, 1))), {"routed": False}),
    "probabilities 0 and 1": (
        lambda: mixture(routing=one_hot(2, 400), experts=one_hot(3, 400, 2)),
        {"truth": "may be true", "worth": "useful"},
    ),
    "certain, and wrong at times": (
        lambda: mixture(experts=np.tile(np.eye(3)[0], (400, 2, 1)), labels=np.arange(400) % 2),
        {"truth": "off", "side": "too high", "worth": "none"},
    ),
    "all right": (
        lambda: mixture(labels=lambda probs: probs.argmax(axis=1)),
        {"truth": "off", "side": "too low"},
    ),
    "all wrong": (
        lambda: mixture(labels=lambda probs: probs.argmin(axis=1)),
        {"truth": "off", "side": "too high"},
    ),
    "one confidence": (lambda: mixture(experts=np.tile([0.6, 0.3, 0.1], (400, 2, 1))), {"mixed": True}),
    "one row 400 times": (lambda: mixture(1).take(np.zeros(400, int)), {"routed": False}),
}


USUAL = (
    "50 rows",
    "two rows",
    "the fewest rows",
    "one expert",
    "a constant router",
    "all right",
    "all wrong",
)
"""Their figures are like any other's, and rendered at full size only."""


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("case", CASES)
def test_a_strange_mixture_gets_a_report(case, tmp_path, request):
    if case in at_size(USUAL, ()):
        request.getfixturevalue("unrendered")
    make, expected = CASES[case]
    path, out = tmp_path / "p.safetensors", tmp_path / "out"
    make().save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CliRunner().invoke(app, ["audit", str(path), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "nan" not in result.output
    assert len(result.output.strip().splitlines()) <= 12
    assert ">nan<" not in (out / "report.html").read_text()
    saved = json.loads((out / "audit.json").read_text(), parse_constant=pytest.fail)
    assert {name: saved["verdict"][name] for name in expected} == expected
    told = saved["aggregate"]
    for name in ("ece", "accuracy", "smooth_ece"):
        assert told[name]["low"] <= told[name]["value"] <= told[name]["high"]


@pytest.mark.usefixtures("brief")
def test_what_never_varies_hides_nothing():
    """Rounding is not evidence: one row many times once gave p = 1e-77."""
    for labels in (0, 1):
        probs = np.tile([[0.8, 0.2]], (400, 1))
        given = Predictions.from_probs(
            probs,
            np.full(400, labels),
            routing=np.full((400, 2), 0.5),
            expert_probs=np.stack([probs, probs], axis=1),
        )
        assert hidden(Configurations.of(given)).p_hidden == 1


RANGES = {"accuracy": (0, 1), "share": (0, 1), "balance": (-1, 1), "bound": (0, 1)}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("rows", [1, 2, 20])
def test_few_rows_tell_nothing_and_no_interval_leaves_its_range(rows):
    for seed in range(at_size(3, 10)):
        report = calmoe.audit(worlds.calibrated(seed).sample(rows, seed=seed))
        assert report.verdict.truth in ("off", "not decided")
        told = report.aggregate, *report.aggregate.experts, report.indicators
        for part in told:
            for name, found in vars(part).items():
                if isinstance(found, Estimate) and name != "excess":
                    lowest, highest = RANGES.get(name, (0, 1))
                    assert not found.low < lowest, (name, found)
                    assert not found.high > highest, (name, found)


@pytest.mark.usefixtures("hasty")
def test_more_rows_tell_more():
    assert calmoe.audit(worlds.calibrated(0).sample(500, seed=0)).verdict.truth == "may be true"


GOOD = "prob_0,prob_1,label\n0.4,0.6,1\n0.7,0.3,0\n"
BAD = {
    "rows that do not sum to 1": ("prob_0,prob_1,label\n0.4,0.7,1\n", [], "sum to 1.1 in row 0"),
    "NaN": ("prob_0,prob_1,label\n0.4,nan,1\n", [], "NaN in 1 rows"),
    "a label out of range": ("prob_0,prob_1,label\n0.4,0.6,2\n", [], "between 0 and 1: row 0 has 2"),
    "no labels": ("prob_0,prob_1\n0.4,0.6\n", [], "carry no labels"),
    "no rows": ("prob_0,prob_1,label\n", [], "p.csv: "),
    "an empty file": ("", [], "p.csv: "),
    "a class that is not there": (GOOD, ["--of", "2"], "class in 0..1, got 2"),
    "a seed that is none": (GOOD, ["--seed", str(2**32)], "seed must be a whole number between"),
    "a file for a folder": (GOOD, ["--out", __file__], "--out must be a folder"),
    "a class that is no number": (
        GOOD,
        ["--of", "cat"],
        "got 'cat': none has a name",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_in_one_line(tmp_path, case):
    text, options, why = BAD[case]
    (tmp_path / "p.csv").write_text(text)
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "p.csv"), *options])
    assert result.exit_code == 2
    assert why in result.output
    assert result.output.startswith("error: ")
    assert len(result.output.strip().splitlines()) == 1


def test_a_file_that_does_not_go_with_the_other_is_named(tmp_path):
    files = {
        "source": mixture(),
        "unlabelled": replace(
            mixture(seed=1), labels=None, groups={"hard": np.ones(400, bool), "site": ["a"] * 400}
        ),
        "classes": mixture(c=4),
        "experts": mixture(k=3),
        "few": mixture(30),
    }
    for name, predictions in files.items():
        predictions.save(tmp_path / f"{name}.safetensors")

    def refused(*arguments):
        result = CliRunner().invoke(app, ["audit", *(str(a) for a in arguments)])
        assert result.exit_code == 2
        (line,) = result.output.strip().splitlines()
        return line

    paths = {name: tmp_path / f"{name}.safetensors" for name in files}
    line = refused(paths["unlabelled"])
    assert line.startswith(f"error: {paths['unlabelled']}: these predictions carry no labels")
    assert line.endswith("the other columns are named 'hard', 'site'")
    for name, why in {
        "classes": "the source has 3 classes and the target 4",
        "experts": "the source has 2 experts and the target 3",
        "source": "100% of the target's rows are rows of the source",
        "few": "the target has 30 rows",
    }.items():
        assert f"error: {paths[name]}: {why}" in refused(paths["source"], "--target", paths[name])
    line = refused(paths["source"], "--target", paths["unlabelled"], "--labelled-target", paths["classes"])
    assert f"{paths['classes']}: the source has 3 classes and the labelled target 4" in line


@pytest.mark.parametrize("of", [-1, 3, 1.0, "bottom", None])
def test_an_event_that_is_not_there_is_refused(of):
    with pytest.raises(InputError, match=r'of must be "top" or a class in 0\.\.2'):
        calmoe.audit(mixture(50), of=of)


@pytest.mark.usefixtures("hasty")
def test_infinite_logarithms():
    """log 0 = −∞ is a probability of zero; −∞ everywhere in a row is not a row of probabilities."""
    sure, labels = np.random.default_rng(0).integers(0, 2, (2, 300))
    logs = torch.where(torch.eye(2)[sure] > 0, 0.0, -torch.inf)
    given = Predictions(output=MixtureOutput(logs, torch.zeros(300, 1), logs[:, None]), labels=labels)
    assert calmoe.audit(given).aggregate.ece.value == pytest.approx((labels != sure).mean(), abs=0.02)
    nothing = torch.full((3, 2), -torch.inf)
    with pytest.raises(InputError, match="sum to 0 in row 0"):
        Predictions(output=MixtureOutput(nothing, torch.zeros(3, 1), nothing[:, None]))


@pytest.mark.usefixtures("hasty")
def test_an_expert_that_is_never_asked_is_not_judged():
    asked, again, never = calmoe.audit(mixture(routing=silent_expert(400))).aggregate.experts
    assert (never.share.value, never.leads.value) == (0.0, 0.0)
    assert np.isnan([never.view.value, never.region.value, never.excess.value]).all()
    assert not np.isnan([asked.view.value, again.view.value]).any()
