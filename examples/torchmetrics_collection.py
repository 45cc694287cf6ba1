"""CalibrationError beside other metrics of torchmetrics: one pass, O(bins) memory, exact over processes.

pip install calmoe torchmetrics
python examples/torchmetrics_collection.py
"""

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from calmoe import MixtureHead
from calmoe.metrics import CalibrationError, ece


def main() -> dict[str, float]:
    torch.manual_seed(0)
    head, x, y = MixtureHead(8, num_classes=3), torch.randn(1000, 8), torch.randint(3, (1000,))
    metrics = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(3, average="micro"),
            "ece": CalibrationError(bins=15),  # of the predicted class
            "ece of class 2": CalibrationError(bins=15, of=2),
        }
    )
    with torch.no_grad():
        for rows, labels in zip(x.split(64), y.split(64), strict=True):
            metrics.update(head(rows).probs, labels)
        whole = ece(head(x).probs, y)
    values = {name: float(value) for name, value in metrics.compute().items()}
    print(values)
    assert abs(values["ece"] - whole) < 1e-6  # batches change nothing
    return values


if __name__ == "__main__":
    main()
