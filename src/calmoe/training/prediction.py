"""What a trained model says about validation and test; each of several ranks predicts its share of rows."""

from collections.abc import Sequence

import torch
from torch import nn

from calmoe.data import ShiftDataset, Split
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from calmoe.training.batches import Batches
from calmoe.training.ranks import Ranks
from calmoe.views import View, first_views

ROWS = 500  # at once, of all ranks


class Predictor:
    """A model in evaluation mode and the dataset whose splits it predicts."""

    def __init__(self, model: nn.Module, dataset: ShiftDataset, device: torch.device, ranks: Ranks) -> None:
        self.model, self.dataset, self.device, self.ranks = model.eval(), dataset, device, ranks

    @torch.no_grad()
    def splits(self, views: int) -> dict[str, Predictions]:
        """Validation, validation under the training augmentation, and test.

        With several views also "views_validation" and "views_test", pooled over them.
        """
        data = self.dataset
        looks = first_views(data.name, data.views, views)  # the image as it is comes first
        augmented = self._outputs(data.validation, [None])
        predictions = {"validation_augmented": self._as_predictions(data.validation, *augmented)}
        for name, split in (("validation", data.validation), ("test", data.test)):
            outputs = self._outputs(split, looks)
            predictions[name] = self._as_predictions(split, outputs[0])
            if len(outputs) > 1:
                predictions[f"views_{name}"] = self._as_predictions(split, MixtureOutput.pool(outputs))
        return predictions

    def _outputs(self, split: Split, views: Sequence[View | None]) -> list[MixtureOutput]:
        """What each view shows the model; None stands for the training augmentation."""
        batches = Batches(split, self.dataset, self.device)
        outputs = []
        for view in views:
            if view is not None:
                batches.look(view)
            else:
                batches.draw(torch.Generator(self.device).manual_seed(0), shuffle=False)
            outputs.append(self._output(batches))
        return outputs

    def _as_predictions(self, split: Split, output: MixtureOutput) -> Predictions:
        metadata = {"dataset": self.dataset.name, "classes": list(self.dataset.class_names)}
        return Predictions(output=output, labels=split.labels.cpu(), groups=split.groups, metadata=metadata)

    def _output(self, batches: Batches) -> MixtureOutput:
        """Of all rows, on every rank; in float32, on the CPU."""
        shares = [*map(self.ranks.own, torch.arange(len(batches), device=self.device).split(ROWS))]
        parts = []
        for at in shares:
            inputs, _ = batches.take(at)
            parts.append(self.model(batches.normalise(inputs)))
        at = torch.cat(shares)
        whole = (self.ranks.gathered(part, at, len(batches)) for part in MixtureOutput.cat(parts))
        return MixtureOutput(*(part.float().cpu() for part in whole))
