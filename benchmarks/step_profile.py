"""Where the time of a captured CIFAR step goes, against the counted floor. Needs a CUDA device.

    python -m benchmarks.step_profile

Synthetic images in CIFAR-10's shape (the kernels do not care). Prints the median epoch of Vanilla, FGR and
Sharp, their ratios, the kernels of one step by kind, and the floor: the step's counted floating-point
operations at the rate that a large bfloat16 matrix product reaches on this device in this run.
"""

import statistics
import sys
from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from calmoe.data import ShiftDataset, Split
from calmoe.training import ModelSettings, Stage, Trainer, TrainingSettings

ROWS, BATCH, EPOCHS, STEPS = 45_000, 128, 6, 20
KINDS = {
    "convolution": ("xmma", "convolve", "Convolution", "cudnn", "nchwToNhwc", "nhwcToNchw"),
    "batch norm and pointwise": ("triton",),
    "AdamW": ("multi_tensor_apply",),
    "matrix product (head)": ("gemm", "cutlass", "splitK", "gemv"),
}


def cifar_like() -> ShiftDataset:
    def split(rows: int) -> Split:
        images = torch.randint(0, 256, (rows, 3, 32, 32), dtype=torch.uint8)
        return Split(inputs=images, labels=torch.randint(10, (rows,)))

    return ShiftDataset(
        name="synthetic",
        train=split(ROWS),
        validation=split(100),
        test=split(100),
        class_names=tuple("0123456789"),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        crop_padding=4,
        flip=True,
    )


def matrix_rate(size: int = 8192, rounds: int = 20) -> float:
    """FLOP/s of a bfloat16 matrix product on random data."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(rounds):
        a @ b
    end.record()
    torch.cuda.synchronize()
    return rounds * 2 * size**3 / (start.elapsed_time(end) / 1e3)


def counted_flops(trainer: Trainer) -> int:
    """Forward and backward of one batch, counted operation by operation."""
    model = trainer._resident("mixture").model
    counter = FlopCounterMode(display=False)
    with counter:
        model(torch.randn(BATCH, 3, 32, 32, device="cuda")).log_probs.sum().backward()
    return counter.get_total_flops()


def kernels(step) -> dict[str, tuple[float, float]]:
    """Microseconds and launches a step, by kind."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in recorded.key_averages():
        kind = next((k for k, marks in KINDS.items() if any(m in event.key for m in marks)), "other")
        kinds[kind][0] += event.device_time_total / STEPS
        kinds[kind][1] += event.count / STEPS
    return {kind: (time, count) for kind, (time, count) in kinds.items()}


def main() -> None:
    if not torch.cuda.is_available():
        print("step profile: needs a CUDA device")
        return
    torch.manual_seed(0)
    trainer = Trainer(
        cifar_like(), ModelSettings(backbone="resnet18"), TrainingSettings(), torch.device("cuda")
    )
    rate = matrix_rate()
    medians = {}
    for name, gradient in (("Vanilla", "plain"), ("FGR", "rectified"), ("Sharp", "sharp")):
        stage = Stage(
            head="mixture", objective="erm", loss="cross_entropy", gradient=gradient, start=0, end=EPOCHS
        )
        seconds: list[float] = []
        trainer.train(
            stage,
            0,
            trainer.initial_state("mixture", 0),
            watch=lambda _, row, s=seconds: s.append(row["seconds"]),
        )
        medians[name] = statistics.median(seconds)
        print(f"{name}: median epoch {medians[name]:.3f} s of {EPOCHS} (batch {BATCH}, {ROWS:,} images)")
        trainer.cursor.zero_()
        found = kernels(trainer._step(stage, trainer._resident("mixture"), trainer.settings, BATCH))
        total = sum(time for time, _ in found.values())
        for kind, (time, count) in sorted(found.items(), key=lambda item: -item[1][0]):
            print(f"  {kind:<26} {time:8.1f} µs  {time / total:5.1%}  {count:5.0f} kernels a step")
        print(f"  {'sum':<26} {total:8.1f} µs")
    for name in ("FGR", "Sharp"):
        print(f"{name} / Vanilla: {medians[name] / medians['Vanilla']:.2f}")
    flops = counted_flops(trainer) * ROWS / BATCH
    floor = flops / rate
    print(f"counted: {flops / 1e12:.0f} TFLOP an epoch, at {rate / 1e12:.0f} TFLOP/s (a bf16 matrix product)")
    print(f"floor: {floor:.2f} s an epoch; Vanilla takes {medians['Vanilla'] / floor:.1f} times that")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
