"""The arms of the switch: trained small on digits, and the arithmetic on stored rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import study_rows
from calmoe.data import load_dataset
from calmoe.predictions import Predictions
from calmoe.training import Trainer
from studies.step_notes import StepNotes
from studies.switch import ARMS, TARGETS, all_arms, arm_settings, comparisons, train_arms
from study_rows import RESULTS, numbers, student


@pytest.fixture(scope="module")
def arms(tiny):
    trainer = Trainer(load_dataset("digits"), tiny.model, tiny.training, torch.device("cpu"))
    return dict(train_arms(trainer, 42, ARMS))


@pytest.mark.parametrize(("arm", "method"), [("ERM", "vanilla"), ("as it is", "robust")])
def test_an_arm_without_changes_is_the_run_s_own_model(arms, reference, arm, method):
    rows = study_rows.read(reference / "results.jsonl")
    (row,) = [row for row in rows if (row["method"], row["protocol"]) == (method, "corrected")]
    for name in ("accuracy", "ece", "ece_ts", "nll_ts", "temperature"):
        assert arms[arm][name] == row[name]
    for mark in reference.glob("nodes/*/history.json"):
        if Predictions.load(mark.parent / "test.safetensors").metadata["method"] == method:
            losses = [entry["loss"] for entry in json.loads(mark.read_text())]
    assert arms[arm]["losses"] == [round(loss, 6) for loss in losses]
    assert arms[arm]["worst_loss"] == max(losses[1:])


def test_every_arm_shares_the_warm_up_and_goes_its_own_way(arms):
    assert len({row["losses"][0] for row in arms.values()}) == 1
    assert len({tuple(row["losses"]) for row in arms.values()}) == len(ARMS)


def test_steps_after_the_switch_are_noted(arms, tiny):
    rows = len(load_dataset("digits").train.labels)
    steps = -(-rows // tiny.training.batch) * (tiny.training.epochs - tiny.training.warmup)
    noted = {arm: np.array([row["gradient_norm"], row["step_size"]]) for arm, row in arms.items()}
    for arm, notes in noted.items():
        assert (notes[:, :steps] > 0).all(), arm
    sizes = {arm: notes[1, 0] for arm, notes in noted.items()}
    assert sizes["moments forgotten"] == pytest.approx(
        1.0, abs=0.1
    )  # AdamW's first step is one learning rate
    assert sizes["as it is"] < 0.9
    gradients = {arm: notes[0, 0] for arm, notes in noted.items()}
    assert gradients["as it is"] == gradients["moments forgotten"] == gradients["learning rate / 3"]
    assert gradients["as it is"] != gradients["ERM"]


def test_an_arm_changes_one_setting(tiny):
    settings = tiny.training
    assert arm_settings(settings, "as it is") == arm_settings(settings, "ERM") == settings
    assert arm_settings(settings, "moments forgotten") == replace(settings, forget_moments=True)
    assert arm_settings(settings, "eta 0.5") == replace(settings, eta=0.5)
    slower = arm_settings(settings, "learning rate / 10")
    assert slower == replace(settings, learning_rate=settings.learning_rate / 10)


def test_notes_are_what_adamw_did():
    weights = [torch.nn.Parameter(torch.randn(size)) for size in ((3, 2), (5,))]
    optimizer = torch.optim.AdamW(weights, lr=0.01, weight_decay=0.0)
    steps, expected = 4, []
    with StepNotes(optimizer, most=steps) as notes:
        for _ in range(steps):
            before = torch.cat([weight.detach().flatten() for weight in weights])
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            optimizer.step()
            after = torch.cat([weight.detach().flatten() for weight in weights])
            gradient = torch.cat([weight.grad.flatten() for weight in weights])
            expected.append((float(gradient.norm()), float(((after - before) / 0.01).square().mean().sqrt())))
    assert pytest.approx(np.array(expected[1:]), rel=1e-3) == np.array(notes.between(1, steps)).T
    optimizer.step()
    assert pytest.approx(np.array(expected[:1]), rel=1e-3) == np.array(notes.between(0, 1)).T


# --- stored rows


@pytest.fixture(scope="module")
def stored():
    return study_rows.read(RESULTS / "pacs/switch.jsonl")


def test_every_stored_arm_is_a_row(stored):
    grid = all_arms(stored)
    assert len(grid.rows) == len(stored) == 43
    for row, entries in zip(stored, grid.rows, strict=True):
        cells = [entry.values[0] for entry in entries]
        assert cells[3:5] == [row["source_accuracy"], row["accuracy"]]
        assert cells[-3:] == [row["worst_loss"], max(row["gradient_norm"]), max(row["step_size"])]


def test_the_readme_has_the_table_of_arms(stored):
    _, _, table = all_arms(stored).markdown().partition("\n\n")
    assert table in (RESULTS / "pacs/README.md").read_text()


def test_means_over_targets_are_compared_within_seeds(stored):
    cells = {(row["arm"], row["target"], row["seed"]): row for row in stored}
    grids = {grid.caption.partition(";")[0]: grid for grid in comparisons(stored)}
    assert len(grids) == 11

    def mean(arm, name, seed, count):
        return np.mean([cells[arm, target, seed][name] for target in TARGETS[:count]])

    three = "moments forgotten, less as it is: art_painting, cartoon, photo"
    differences = [
        mean("moments forgotten", "accuracy", seed, 3) - mean("as it is", "accuracy", seed, 3)
        for seed in (42, 43, 44)
    ]
    interval = numbers(grids[three], "moments forgotten", "Target accuracy")
    assert interval == pytest.approx(student(differences))
    assert [round(value, 3) for value in interval] == [0.070, 0.013, 0.126]
    two = grids["as it is, less ERM: art_painting, cartoon"]
    differences = [mean("as it is", "ece", seed, 2) - mean("ERM", "ece_ts", seed, 2) for seed in (42, 43, 44)]
    assert numbers(two, "as it is", "ECE, less the other's ECE+TS") == pytest.approx(student(differences))
    four = grids["moments forgotten, less as it is: " + ", ".join(TARGETS)]
    assert {row[2].text for row in four.rows} == {"2"}  # Sketch lacks a seed
