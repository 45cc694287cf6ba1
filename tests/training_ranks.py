"""What each of several processes does in tests of training on ranks; these processes import it from here."""

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from calmoe.backbones import Backbone
from calmoe.commands import app
from calmoe.data import ShiftDataset, Split
from calmoe.methods import METHODS
from calmoe.mixture import MixtureClassifier, MixtureHead
from calmoe.training import Diverged, ModelSettings, Stage, Trainer, TrainingSettings, latest_state
from calmoe.training.following import follow
from calmoe.training.ranks import ALONE, WORDS, Ranks
from forked import server

ROWS, BATCH = 121, 12  # eleven steps an epoch; the last batch is one row: all ranks but one have none
MODEL = ModelSettings(experts=2, router_hidden=8)
SETTINGS = TrainingSettings(epochs=5, warmup=0, batch=BATCH, learning_rate=1e-2, rho=0.05)
CASES = {  # objective, rule for the gradient, other settings
    "erm": ("erm", "plain", {}),
    "tilted": ("tilted", "plain", {}),
    "filtered": ("filtered", "plain", {"regret": 0.05, "disagreement": 0.02}),
    "fgr": ("erm", "rectified", {"filter_fraction": 0.3}),
    "sharp": ("erm", "sharp", {"average": 0.9}),
}
GROUPS = {  # by name: dtype and settings of a trainer, and what it trains
    "float64": (torch.float64, {}, tuple(CASES)),
    "float32": (torch.float32, {"learning_rate": 1e-3}, tuple(CASES)),
    "sharded": (torch.float64, {"sharding": "full"}, ("fgr", "sharp")),
}


class Tiny(Backbone):
    """A convolution, batch norm and a smooth activation: rounding flips no ReLU."""

    def __init__(self):
        super().__init__()
        self.out_features = 6
        self.layers = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.Tanh())

    def forward(self, images):
        return self.layers(images.to(self.layers[0].weight.dtype)).mean(dim=(2, 3))


def tiny_images():
    """Random 8 x 8 images with a dark corner that says their class."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (ROWS, 1, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.randint(3, (ROWS,), generator=generator)
    for row, label in enumerate(labels.tolist()):
        pixels[row, :, 4 * (label // 2) :, 4 * (label % 2) :] //= 3
    split = Split(inputs=pixels, labels=labels, groups={})
    few = split.take(range(30))
    return ShiftDataset(
        name="tiny", train=split, validation=few, test=few, class_names=("a", "b", "c"), mean=(0.5,),
        std=(0.3,), crop_padding=1, flip=True,
    )  # fmt: skip


class TinyTrainer(Trainer):
    def __init__(self, dtype, ranks=ALONE, **settings):
        self.dtype = dtype
        super().__init__(
            tiny_images(), MODEL, replace(SETTINGS, **settings), torch.device("cpu"), ranks=ranks
        )
        self.losses = self.losses.to(dtype)

    def _build(self, head):
        return MixtureClassifier(Tiny(), MixtureHead(6, 3, MODEL.experts, MODEL.router_hidden)).to(self.dtype)


def trained(trainer, name, epochs):
    """The state after all epochs of a case; the averaged one, where an average is kept."""
    objective, gradient, changes = CASES[name]
    settings = replace(trainer.settings, **changes)
    stage = Stage(
        head="mixture", objective=objective, loss="cross_entropy", gradient=gradient, start=0, end=epochs
    )
    state = trainer.train(stage, 1, trainer.initial_state("mixture", 1), settings=settings)
    return trainer.averaged(state, "mixture", 1) if settings.average else state


def trained_group(name, epochs, ranks=ALONE):
    """Every case of a group: its tensors and losses, and what the last one predicts."""
    dtype, settings, cases = GROUPS[name]
    trainer, results = TinyTrainer(dtype, ranks, **settings), {}
    if not ranks.leads:
        follow(trainer)
        return results
    for case in cases:
        state = trained(trainer, case, epochs)
        losses = torch.tensor([entry["loss"] for entry in state.history], dtype=torch.float64)
        tensors = state.tensors | {"losses": losses}
        results |= {f"{name}/{case}/{key}": value for key, value in tensors.items()}
    output = trainer.predict(state, "mixture")["validation_augmented"].output
    results |= {f"{name}/predictions/{key}": value for key, value in output._asdict().items()}
    ranks.order("end")
    return results


def train_on_ranks(rank, size, folder, epochs):
    """One of `size` processes that train the groups, each for its epochs; the first writes what came out."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{size}.init", rank=rank, world_size=size)
    ranks = Ranks(rank, size, dist.group.WORLD, dist.new_group(backend="gloo", timeout=WORDS))
    results = {}
    for group in epochs:
        results |= trained_group(group, epochs[group], ranks)
    results |= stop_and_diverge(ranks, folder)
    if ranks.leads:
        torch.save(results, f"{folder}/{size}.pt")
    dist.destroy_process_group()


def stop_and_diverge(ranks, folder):
    """Each rank's own batch norm: stopped after an epoch and continued; then a loss that is not finite."""
    trainer = TinyTrainer(torch.float64, ranks, batch_norm="per_rank")
    if not ranks.leads:
        follow(trainer)
        return {}
    stage = Stage.of(METHODS["robust"], 0, 2)
    start = trainer.initial_state("mixture", 1)
    whole = trainer.train(stage, 1, start)
    with pytest.raises(ZeroDivisionError):
        trainer.train(stage, 1, start, Path(folder), lambda epoch, _: 1 / epoch)
    resumed = trainer.train(stage, 1, latest_state(Path(folder)))
    bad = {"model.head.experts.bias": torch.full((MODEL.experts * 3,), torch.inf, dtype=torch.float64)}
    with pytest.raises(Diverged, match="epoch 1"):
        trainer.train(stage, 1, replace(start, tensors=start.tensors | bad))
    ranks.order("end")
    return {"whole": whole.tensors, "resumed": resumed.tensors}


# --- commands, as torchrun would start them


def start_ranks(size, arguments, folder):
    """`calmoe ARGUMENTS` in `size` processes; what each says goes to RANK.out and RANK.err in `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        server().Process(target=rank_command, args=(rank, size, port, list(arguments), str(folder)))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    return processes


def rank_command(rank, size, port, arguments, folder):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.stdout = open(f"{folder}/{rank}.out", "w")  # noqa: SIM115
    sys.stderr = open(f"{folder}/{rank}.err", "w")  # noqa: SIM115
    torch.set_num_threads(1)
    Trainer.__init__.__defaults__ = (0.0,)  # a checkpoint after every epoch
    app(arguments)
