"""Every file under examples/ runs, where the package that it is for is installed."""

import runpy
import sys
import types
from pathlib import Path

import pytest
import torch

from calmoe import Predictions
from calmoe.objectives import RobustMoE

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def test_every_example_is_run_here():
    run = {"hf_trainer", "lightning_module", "torchmetrics_collection"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == run


def test_hf_trainer(example):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    predictions = example("hf_trainer")()
    assert (predictions.output.predicted == predictions.labels).float().mean() > 0.5
    assert Predictions.load("test.safetensors").num_experts == 4


def test_torchmetrics_collection(example):
    pytest.importorskip("torchmetrics")
    assert set(example("torchmetrics_collection")()) == {"accuracy", "ece", "ece of class 2"}


class LightningModule(torch.nn.Module):
    """What the example needs of Lightning's."""

    current_epoch = 0

    def log(self, name, value, **_):
        assert torch.as_tensor(value).isfinite(), name


class Trainer:
    """Lightning's loop: epochs of training steps, each followed by validation."""

    def __init__(self, max_epochs, **_):
        self.max_epochs = max_epochs

    def fit(self, module, train, validation):
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            module.current_epoch = epoch
            for index, batch in enumerate(train):
                optimizer.zero_grad()
                module.training_step(batch, index).backward()
                optimizer.step()
            for index, batch in enumerate(validation):
                module.validation_step(batch, index)
            module.on_validation_epoch_end()

    @torch.no_grad()
    def predict(self, module, loader):
        return [module.predict_step(batch, index) for index, batch in enumerate(loader)]


def test_lightning_module(example, monkeypatch):
    """By Lightning where it is installed, else by a loop like its own."""
    try:
        import lightning  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("lightning")
        stand_in.LightningModule, stand_in.Trainer = LightningModule, Trainer
        monkeypatch.setitem(sys.modules, "lightning", stand_in)
    for options in ({}, {"objective": RobustMoE(eta=2.0), "epochs": 4}):
        predictions = example("lightning_module")(**options)
        assert (predictions.output.predicted == predictions.labels).float().mean() > 0.5
