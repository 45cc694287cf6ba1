"""A mixture of experts as a LightningModule: objectives, a metric over all batches, predictions to audit.

pip install calmoe lightning
python examples/lightning_module.py
"""

import torch
from lightning import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

from calmoe import MixtureClassifier, MixtureHead, MixtureOutput, Predictions
from calmoe.metrics import CalibrationError
from calmoe.objectives import ERM, Objective


class Mixture(LightningModule):
    """Trains by ERM for `warmup` epochs, then by another objective."""

    def __init__(self, model: MixtureClassifier, objective: Objective, warmup: int = 2) -> None:
        super().__init__()
        self.model, self.objective, self.warmup = model, objective, warmup
        self.ece = CalibrationError()  # a torchmetrics.Metric, which Lightning moves to the module's device

    def forward(self, x: torch.Tensor) -> MixtureOutput:
        return self.model(x)

    def training_step(self, batch, index: int) -> torch.Tensor:
        x, y = batch
        objective = ERM() if self.current_epoch < self.warmup else self.objective
        loss = objective(self(x), y)  # over several processes: group=torch.distributed.group.WORLD
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index: int) -> None:
        x, y = batch
        output = self(x)
        self.log("val_nll", ERM()(output, y), prog_bar=True)
        self.ece.update(output.probs, y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_ece", self.ece.compute().float(), prog_bar=True)
        self.ece.reset()

    def predict_step(self, batch, index: int) -> MixtureOutput:
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def rows(count: int, seed: int) -> TensorDataset:
    """Points around three corners."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=random)
    return TensorDataset(torch.eye(3)[y] + 0.6 * torch.randn(count, 3, generator=random), y)


def main(objective: Objective = ERM(), epochs: int = 8) -> Predictions:  # noqa: B008
    """objective: any of calmoe's, such as RobustMoE(eta=2.0)."""
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU())
    head = MixtureHead(16, num_classes=3, num_experts=4, router_hidden=8)
    module = Mixture(MixtureClassifier(backbone, head), objective)
    train, validation, test = rows(600, 1), rows(300, 2), rows(300, 3)
    trainer = Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.fit(module, DataLoader(train, 64, shuffle=True), DataLoader(validation, 64))
    output = MixtureOutput.cat(trainer.predict(module, DataLoader(test, 64)))
    predictions = Predictions(output=output, labels=test.tensors[1])
    predictions.save("test.safetensors")  # calmoe audit test.safetensors
    return predictions


if __name__ == "__main__":
    main()
