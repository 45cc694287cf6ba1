"""Speed and memory of calmoe.metrics beside its neighbours: `python -m benchmarks.metrics`.

netcal takes part where it is installed; it is too heavy for the development extras.
"""

import importlib.util
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torchmetrics.classification import MulticlassCalibrationError
from torchmetrics.functional.classification import multiclass_calibration_error

from benchmarks.timing import interleaved
from calmoe.metrics import CalibrationError, bootstrap, ece

BINS = 15


def predictions(rows: int, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Softmax outputs in float32 and labels drawn from them."""
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(rows, classes, generator=generator).mul_(2).softmax(1)
    return probs, torch.multinomial(probs, 1, generator=generator).squeeze(1)


def ece_loop(probs: Tensor, labels: Tensor) -> float:
    """The ECE as most papers' code has it: a loop over bins with masks."""
    confidence, predicted = probs.max(1)
    correct, total = predicted.eq(labels), 0.0
    for i in range(BINS):
        inside = (confidence > i / BINS) & (confidence <= (i + 1) / BINS)
        if inside.any():
            gap = confidence[inside].mean() - correct[inside].float().mean()
            total += gap.abs().item() * inside.float().mean().item()
    return total


def contenders(probs: Tensor, labels: Tensor) -> dict[str, Callable[[], object]]:
    classes = probs.shape[1]
    module = MulticlassCalibrationError(classes, n_bins=BINS, norm="l1")
    found: dict[str, Callable[[], object]] = {
        "calmoe": lambda: ece(probs, labels, bins=BINS),
        "torchmetrics": lambda: multiclass_calibration_error(probs, labels, classes, n_bins=BINS, norm="l1"),
        "torchmetrics, module call": lambda: module(probs, labels),
        "loop over bins": lambda: ece_loop(probs, labels),
    }
    if importlib.util.find_spec("netcal"):
        from netcal.metrics import ECE

        arrays = probs.numpy(), labels.numpy()
        found["netcal"] = lambda: ECE(BINS).measure(*arrays)
    return found


def main() -> None:
    console = Console()
    table = Table("ece, float32", "rows x classes", "median", "times calmoe", title="Calibration error")
    for rows, repeats in ((10_000, 300), (1_000_000, 21)):
        times = interleaved(contenders(*predictions(rows)), repeats)
        for name, took in times.items():
            table.add_row(name, f"{rows:,} x 10", f"{took * 1e3:.3f} ms", f"{took / times['calmoe']:.1f}")
        if "netcal" not in times:
            table.add_row("netcal", f"{rows:,} x 10", "not installed", "")
    console.print(table)

    probs, labels = predictions(100_000)
    took = interleaved({"ece": lambda: bootstrap(ece, probs, labels, resamples=1000)}, 3, warm_up=1)["ece"]
    console.print(f"bootstrap of ece, 1,000 resamples of 100,000 x 10 rows: {took:.2f} s")

    metric = CalibrationError(bins=BINS)
    for chunk in range(1, 101):
        metric.update(probs, labels)
        if chunk in (1, 100):
            console.print(
                f"CalibrationError after {chunk * len(labels):>10,} rows: {metric.sums.nbytes} bytes"
            )


if __name__ == "__main__":
    main()
