"""What each of two processes does in tests of distributed code; these processes import it from here."""

import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from calmoe import MixtureHead
from calmoe.objectives import ERM, CVaR, EntropicRisk, RobustFiltered, RobustMoE, brier, tilt_weights
from calmoe.sharpness import sharp_gradients
from forked import server

OBJECTIVES = {
    "erm": ERM(),
    "robust": RobustMoE(eta=2.0),
    "robust-brier": RobustMoE(eta=2.0, loss=brier),
    "filtered": RobustFiltered(eta=2.0, regret=0.05, disagreement=0.05),
    "filtered-empty-on-one-rank": RobustFiltered(eta=2.0, regret=0.9, disagreement=10.0),
    "filtered-empty": RobustFiltered(eta=2.0, regret=1e9, disagreement=1e9),
    "entropic": EntropicRisk(eta=2.0),
    "entropic-zero": EntropicRisk(eta=0.0),
    "cvar": CVaR(gamma=3.3),
    "cvar-all": CVaR(gamma=1000.0),
}
SPLITS = {"uneven": (23, 17), "one empty": (40, 0)}  # ranks need not have equal batches


LATE = 120  # seconds


def on_processes(size, function, arguments):
    """function(rank, *arguments) in `size` processes; a test that hangs fails."""
    method, deadline = server().get_start_method(), time.monotonic() + LATE
    context = mp.start_processes(function, arguments, nprocs=size, join=False, start_method=method)
    while not context.join(timeout=1):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            raise AssertionError(f"{function.__name__} hangs")


def part():
    """Leave the group together. What uses it must be gone by then: it may wait for the other for ever."""
    dist.barrier()
    dist.destroy_process_group()


def problem():
    torch.manual_seed(0)
    head = MixtureHead(8, num_classes=5).double()
    return head, 2 * torch.randn(40, 8, dtype=torch.float64), torch.randint(5, (40,))


def work(rank, init_file, results):
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=2)
    group = dist.group.WORLD
    head, all_x, all_y = problem()
    ddp = torch.nn.parallel.DistributedDataParallel(head)
    saved = {}
    for split, sizes in SPLITS.items():
        x, y = all_x.split(sizes)[rank], all_y.split(sizes)[rank]
        for name, objective in OBJECTIVES.items():
            head.zero_grad()
            output = ddp(x)
            value = objective(output, y, group)
            value.backward()
            saved[f"{split}/{name}"] = [value.detach(), *(p.grad.clone() for p in head.parameters())]
            head.zero_grad()
            weights = objective.gradient_weights(output.detach(), y, group)
            (weights * objective.loss(ddp(x), y)).sum().backward()
            saved[f"{split}/{name}/weights"] = [p.grad.clone() for p in head.parameters()]
        tilt = tilt_weights(ERM().loss(head(x), y), 2.0, group=group)
        assert not tilt.requires_grad  # a gradient through a rank's slice alone would be wrong
        saved[f"{split}/tilt"] = tilt
    torch.save(saved, f"{results}/{rank}.pt")
    del ddp
    part()


def sharpen(rank, init_file, results, wrapper):
    """SAM's gradients on each rank's share of the batch: each has the model whole, or in shards."""
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=2)
    head, all_x, all_y = problem()
    if wrapper == "DistributedDataParallel":
        model = torch.nn.parallel.DistributedDataParallel(head)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard  # a second to import

        model = fully_shard(head, mesh=init_device_mesh("cpu", (2,)))
    x, y = all_x.split((23, 17))[rank], all_y.split((23, 17))[rank]
    saved = {}
    for name in ("erm", "robust"):
        sharp_gradients(
            lambda name=name, model=model: OBJECTIVES[name](model(x), y, dist.group.WORLD), head, rho=0.3
        )
        saved[name] = [
            p.grad.full_tensor() if wrapper == "fully_shard" else p.grad.clone() for p in head.parameters()
        ]
    torch.save(saved, f"{results}/{rank}.pt")
    del model
    part()


def stream(rank, address, without, probs, labels, queue):
    """One of two: its share of the rows goes in, the value over both comes out."""
    if without:
        sys.modules["torchmetrics"] = None
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    from calmoe.metrics import CalibrationError

    metric = CalibrationError()
    assert (type(metric).__mro__[1].__module__ == "calmoe.metrics.streaming") == without
    metric.update(probs[rank], labels[rank])
    queue.put((float(metric.compute()), float(metric.compute())))
    dist.destroy_process_group()
