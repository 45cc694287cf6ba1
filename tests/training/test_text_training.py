"""Training an encoder: dropout, too, follows from (seed, epoch), so that forks and resumes stay exact."""

from dataclasses import replace

import pytest
import torch

from calmoe.data import civilcomments, load_dataset
from calmoe.errors import InputError
from calmoe.training import ModelSettings, Stage, Trainer, TrainingSettings, latest_state
from encoders import save_encoder, write_comments

SETTINGS = TrainingSettings(epochs=4, warmup=1, batch=32, learning_rate=3e-3)


def stage(objective="erm", rectified=False, start=0, end=4, head="mixture"):
    return Stage(
        head=head, objective=objective, loss="cross_entropy", rectified=rectified, start=start, end=end
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("encoder"), dropout=0.3))


@pytest.fixture(scope="module")
def data(folder, tmp_path_factory):
    comments = tmp_path_factory.mktemp("comments")
    write_comments(comments, 200)
    dataset = civilcomments.load(comments, encoder=folder)
    splits = {
        name: replace(split, inputs=split.inputs[:, :24].contiguous())
        for name, split in dataset.splits.items()
    }
    return replace(dataset, **splits)


@pytest.fixture
def trainer(data, folder):
    return Trainer(data, ModelSettings(backbone="encoder", weights=folder), SETTINGS, torch.device("cpu"))


def same(a, b):
    return a.history == b.history and all(torch.equal(a.tensors[k], b.tensors[k]) for k in a.tensors)


@pytest.mark.parametrize(("objective", "rectified"), [("erm", False), ("filtered", False), ("tilted", True)])
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(
    trainer, data, folder, tmp_path, objective, rectified
):
    class Stop(Exception):
        pass

    def watch(epoch, _):
        if epoch == 1:
            raise Stop

    start = trainer.initial_state("mixture", 42)
    whole = trainer.train(stage(objective, rectified), 42, start)
    with pytest.raises(Stop):
        trainer.train(stage(objective, rectified), 42, start, tmp_path, watch)
    torch.rand(7)  # whatever else happened to the default generator
    other = Trainer(data, trainer.model_settings, SETTINGS, torch.device("cpu"))
    resumed = other.train(stage(objective, rectified), 42, latest_state(tmp_path))
    assert same(whole, resumed)


def test_dropout_differs_by_seed_and_by_epoch(trainer):
    """The same weights and the same rows, in another epoch or under another seed: another loss."""
    resident = trainer._resident("mixture")
    resident.model.train()
    ids = trainer.batches.inputs[:8]
    drawn = []
    for seed, epoch in ((1, 0), (1, 1), (2, 0), (1, 0)):
        trainer._begin(seed, epoch, resident, trainer.settings)
        drawn.append(resident.features(ids))
    assert torch.equal(drawn[0], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_training_leaves_the_default_generator_as_it_was(trainer):
    start = trainer.initial_state("mixture", 0)
    before = torch.get_rng_state()
    trainer.train(stage(end=1), 0, start)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_learns_to_tell_words_apart(data, folder):
    settings = replace(SETTINGS, epochs=12, learning_rate=1e-2)
    model = ModelSettings(backbone="encoder", weights=folder, pooling="mean")
    trainer = Trainer(data, model, settings, torch.device("cpu"))
    start = trainer.initial_state("mixture", 0)
    end = trainer.train(stage(end=12), 0, start)
    assert end.history[-1]["loss"] < 0.3
    name = "model.backbone.model.embeddings.word_embeddings.weight"
    assert not torch.equal(start.tensors[name], end.tensors[name])
    predictions = trainer.predict(end, "mixture")
    test = predictions["test"]
    assert (test.output.predicted == test.labels).double().mean() > 0.9
    clean, augmented = (predictions[k].output.log_probs for k in ("validation", "validation_augmented"))
    assert torch.equal(clean, augmented)  # texts are not augmented


def test_seeds_share_the_pretrained_encoder_and_differ_in_the_head(trainer):
    a, b = (trainer.initial_state("mixture", seed).tensors for seed in (1, 2))
    encoder = [name for name in a if name.startswith("model.backbone.")]
    assert encoder
    assert all(torch.equal(a[name], b[name]) for name in encoder)
    assert any(not torch.equal(a[name], b[name]) for name in a if name.startswith("model.head."))


@pytest.mark.parametrize("kind", ["text for an mlp", "images for an encoder"])
def test_texts_and_encoders_go_together(data, folder, kind):
    dataset, model = (
        (data, ModelSettings(backbone="mlp"))
        if kind == "text for an mlp"
        else (load_dataset("digits"), ModelSettings(backbone="encoder", weights=folder))
    )
    with pytest.raises(InputError, match="do not go together: texts need 'encoder'"):
        Trainer(dataset, model, SETTINGS, torch.device("cpu")).initial_state("mixture", 0)
