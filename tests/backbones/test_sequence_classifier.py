"""The mixture in transformers' Trainer: nothing is dropped, and the defaults work."""

import pytest
import torch

from calmoe.mixture import MixtureClassifier, MixtureHead, MixtureOutput
from calmoe.objectives import ERM, EntropicRisk, RobustFiltered, RobustMoE
from encoders import save_encoder

transformers = pytest.importorskip("transformers", reason="the text extra is not installed")
from calmoe.backbones.sequence_classifier import MixtureForSequenceClassification  # noqa: E402


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), dropout=0.0)


@pytest.fixture
def model(encoder):
    return MixtureForSequenceClassification.from_encoder(encoder, 3, num_experts=2, router_hidden=4)


def rows(count, seed=0):
    source = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 19, (count, 6), generator=source)
    labels = torch.randint(3, (count,), generator=source)
    mask = (torch.arange(6) < torch.randint(2, 7, (count, 1), generator=source)).long()
    return [
        {"input_ids": i, "attention_mask": m, "labels": y, "site": "north"}
        for i, m, y in zip(ids, mask, labels.tolist(), strict=True)
    ]


def batch(data):
    columns = ("input_ids", "attention_mask")
    inputs = {name: torch.stack([row[name] for row in data]) for name in columns}
    return inputs, torch.tensor([row["labels"] for row in data])


def trainer(model, folder, **options):
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    named = ("train_dataset", "eval_dataset", "compute_loss_func", "optimizers", "compute_metrics")
    given = {name: options.pop(name) for name in named if name in options}
    arguments = {"report_to": "none", "disable_tqdm": True, "use_cpu": True} | options
    return transformers.Trainer(model, transformers.TrainingArguments(str(folder), **arguments), **given)


def test_loss_first_and_every_part_after_it(model):
    inputs, labels = batch(rows(5))
    output = model(**inputs, labels=labels)
    assert list(output) == ["loss", *MixtureOutput._fields]
    assert output.loss == ERM()(output.mixture, labels)
    assert list(model(**inputs)) == list(MixtureOutput._fields)  # without labels no loss
    torch.testing.assert_close(output.logits.softmax(1), output.mixture.probs)
    own = {"input_ids": torch.where(inputs["attention_mask"] > 0, inputs["input_ids"], -1)}
    torch.testing.assert_close(model(**own).log_probs, output.log_probs)  # calmoe's own padding


@pytest.mark.parametrize("objective", [ERM(), RobustMoE(), RobustFiltered(), EntropicRisk()])
def test_objectives_have_the_signature_of_compute_loss_func(model, objective):
    inputs, labels = batch(rows(6))
    output = model(**inputs)
    expected = objective(output.mixture, labels)
    for items in (None, 6, torch.tensor(6), torch.tensor([6])):
        torch.testing.assert_close(objective(output, labels, num_items_in_batch=items), expected)
    torch.testing.assert_close(objective(output, labels, num_items_in_batch=24), expected / 4)


def test_training_evaluation_and_prediction_with_defaults(model, tmp_path):
    seen = []
    user = trainer(
        model,
        tmp_path,
        train_dataset=rows(20),
        eval_dataset=rows(12, seed=1),
        compute_loss_func=RobustMoE(eta=2.0),
        compute_metrics=lambda given: seen.append(given.predictions) or {},
        num_train_epochs=1,
    )
    user.train()
    assert user.evaluate()["eval_loss"] > 0
    assert [part.shape for part in seen[0]] == [(12, 3), (12, 2), (12, 2, 3)]
    answer = user.predict(rows(12, seed=1))
    inputs, labels = batch(rows(12, seed=1))
    with torch.no_grad():
        expected = model.eval()(**inputs).mixture
    for part, own in zip(answer.predictions, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(part), own, rtol=0, atol=1e-5)
    assert answer.label_ids.tolist() == labels.tolist()
    unlabelled = [{k: v for k, v in row.items() if k != "labels"} for row in rows(5)]
    assert user.predict(unlabelled).predictions[0].shape == (5, 3)


@pytest.mark.parametrize("objective", [None, ERM()], ids=["the model's own loss", "compute_loss_func"])
def test_accumulated_gradients_are_those_of_the_whole_batch(encoder, tmp_path, objective):
    """Seven rows in micro-batches of four and three: a mean of means would be another gradient."""
    weights = []
    for size, steps in ((7, 1), (4, 2)):
        torch.manual_seed(1)
        model = MixtureForSequenceClassification.from_encoder(encoder, 3, num_experts=2, router_hidden=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        user = trainer(
            model,
            tmp_path,
            train_dataset=rows(7),
            compute_loss_func=objective,
            optimizers=(optimizer, None),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            num_train_epochs=1,
            max_grad_norm=0.0,
            save_strategy="no",
        )
        user.train()
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-6)


def test_saved_and_loaded(model, tmp_path):
    model.save_pretrained(tmp_path / "model")
    again = MixtureForSequenceClassification.from_pretrained(tmp_path / "model", model.backbone)
    inputs, _ = batch(rows(3))
    torch.testing.assert_close(again.eval()(**inputs).log_probs, model.eval()(**inputs).log_probs)


def test_trainer_gives_a_plain_mixture_no_arguments_of_a_loss():
    model = MixtureClassifier(torch.nn.Identity(), MixtureHead(4, num_classes=2))
    assert model.accepts_loss_kwargs is False
