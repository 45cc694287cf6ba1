"""A long study trains many models with one trainer; the memory that it takes does not grow with them."""

import gc
import weakref

import pytest
import torch

from calmoe.data import load_dataset
from calmoe.training import ModelSettings, Stage, Trainer, TrainingSettings
from calmoe.training import residents as room
from calmoe.training.resident import Resident
from calmoe.training.step import Step

STAGE = Stage(head="mixture", objective="erm", loss="cross_entropy", gradient="sharp", start=0, end=1)
SETTINGS = TrainingSettings(epochs=1, warmup=0, batch=400, rho=0.1)


@pytest.fixture
def alive(monkeypatch):
    """All residents and steps that were made and not freed."""
    gc.freeze()  # what is there already need not be looked through
    kept = weakref.WeakSet()
    for kind in (Resident, Step):
        make = kind.__init__

        def noting(self, *values, make=make, **named):
            make(self, *values, **named)
            kept.add(self)

        monkeypatch.setattr(kind, "__init__", noting)

    def count(kind):
        gc.collect()
        return sum(isinstance(each, kind) for each in kept)

    return count


def train(trainer, hidden, decay=1e-4, rho=0.1):
    training = TrainingSettings(epochs=1, warmup=0, batch=400, weight_decay=decay, rho=rho)
    other = trainer.for_settings(ModelSettings(hidden=(hidden,), router_hidden=4, experts=2), training)
    state = other.train(STAGE, 42, other.initial_state("mixture", 42))
    other.predict(state, "mixture")
    return state


def test_a_long_study_keeps_few_models(alive, monkeypatch):
    monkeypatch.setattr(room, "KEPT", 4)
    trainer = Trainer(load_dataset("digits"), ModelSettings(), SETTINGS, torch.device("cpu"))
    first = train(trainer, 1)
    for hidden in range(2, 7):
        train(trainer, hidden)
    assert alive(Resident) == len(trainer.residents) == room.KEPT
    assert alive(Step) == 2 * room.KEPT  # full batches, and the rest
    for decay in range(1, 7):
        train(trainer, 6, decay=decay / 100)
    assert alive(Resident) == room.KEPT
    again = train(trainer, 1)  # its resident is a new one
    assert all(torch.equal(again.tensors[name], value) for name, value in first.tensors.items())
    del trainer
    assert alive(Resident) == alive(Step) == 0


def test_a_long_study_keeps_few_steps(alive, monkeypatch):
    monkeypatch.setattr("calmoe.training.trainer.KEPT_STEPS", 6)
    trainer = Trainer(load_dataset("digits"), ModelSettings(), SETTINGS, torch.device("cpu"))
    for rho in range(1, 9):
        train(trainer, 4, rho=rho / 100)
    assert (alive(Resident), alive(Step)) == (1, 6)


def test_large_models_are_fewer_and_the_one_in_use_stays(monkeypatch):
    monkeypatch.setattr(room, "KEPT_PARAMETERS", 3000)
    trainer = Trainer(load_dataset("digits"), ModelSettings(), SETTINGS, torch.device("cpu"))
    kept = []
    for hidden in (1, 2, 3, 4, 40, 1):
        train(trainer, hidden)
        kept.append([key[0].hidden[0] for key in trainer.residents])
    assert kept[3] == [1, 2, 3, 4]
    assert kept[4:] == [[40], [1]]  # the large one has more than 3,000 alone


def test_what_is_used_again_is_not_made_again():
    trainer = Trainer(load_dataset("digits"), ModelSettings(), SETTINGS, torch.device("cpu"))
    models = [ModelSettings(hidden=(hidden,)) for hidden in range(1, room.KEPT + 1)]
    made = [trainer.for_settings(model, SETTINGS)._resident("mixture") for model in models]
    used = trainer.for_settings(models[0], SETTINGS)
    assert used._resident("mixture") is made[0]
    trainer.for_settings(ModelSettings(hidden=(100,)), SETTINGS)._resident("mixture")
    assert used._resident("mixture") is made[0]  # the second was the oldest
    assert trainer.for_settings(models[1], SETTINGS)._resident("mixture") is not made[1]
