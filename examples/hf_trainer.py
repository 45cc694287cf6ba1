"""A mixture of experts on a text encoder, trained by transformers' Trainer with its default arguments.

    pip install 'calmoe[text]' accelerate
    python examples/hf_trainer.py distilbert-base-uncased

Without an argument it makes a tiny encoder with random weights, and needs no network.
"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import DistilBertConfig, DistilBertModel, Trainer, TrainingArguments

from calmoe import MixtureForSequenceClassification, MixtureOutput, Predictions
from calmoe.metrics import ece
from calmoe.objectives import ERM, Objective

WORDS, CLASSES = 50, 3


def texts(count: int, seed: int) -> list[dict]:
    """Token ids of random texts, whose second word tells the class; a tokenizer gives the same columns."""
    random = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        ids = torch.randint(10, WORDS, (8,), generator=random)
        label = int(torch.randint(CLASSES, (), generator=random))
        ids[1] = label + 1
        mask = torch.ones(8, dtype=torch.long)
        rows.append({"input_ids": ids, "attention_mask": mask, "labels": label, "site": number % 2})
    return rows  # Trainer drops the column `site`, which the model does not know


def tiny_encoder(folder: Path) -> Path:
    config = DistilBertConfig(vocab_size=WORDS, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(folder)
    return folder


def metrics(evaluation) -> dict[str, float]:
    log_probs, _, _ = evaluation.predictions  # all parts of the mixture are there
    probs = torch.as_tensor(log_probs).exp()
    right = probs.argmax(1) == torch.as_tensor(evaluation.label_ids)
    return {"accuracy": right.float().mean().item(), "ece": ece(probs, evaluation.label_ids)}


def main(encoder: str | None = None, objective: Objective = ERM()) -> Predictions:  # noqa: B008
    """objective: any of calmoe's, such as RobustMoE(eta=2.0)."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        weights = encoder or tiny_encoder(Path(folder))
        model = MixtureForSequenceClassification.from_encoder(weights, CLASSES, num_experts=4)
    trainer = Trainer(
        model,
        TrainingArguments("hf-trainer", gradient_accumulation_steps=2, report_to="none", learning_rate=3e-3),
        train_dataset=texts(300, seed=1),
        eval_dataset=texts(200, seed=2),
        compute_loss_func=objective,
        compute_metrics=metrics,
    )
    trainer.train()
    print(trainer.evaluate())
    answer = trainer.predict(texts(200, seed=3))
    output = MixtureOutput(*map(torch.as_tensor, answer.predictions))
    predictions = Predictions(output=output, labels=answer.label_ids)
    predictions.save("test.safetensors")  # calmoe audit test.safetensors
    return predictions


if __name__ == "__main__":
    main(*sys.argv[1:2])
