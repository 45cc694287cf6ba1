"""Several processes that train as one, as torchrun starts them: ranks 0 to N − 1.

Rank 0 leads. It alone reads and writes the run's folder, prints and shows how far it is. The others follow:
they wait for its orders and do their share of every step. Orders are JSON, on the CPU; tensors go the fastest
way there is: NCCL between GPUs, gloo between CPUs.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calmoe.errors import InputError
from calmoe.launch import Launch
from calmoe.reducers import Group

MEETING = timedelta(minutes=10)  # how long ranks wait for each other, to meet or within a step
WORDS = timedelta(days=7)  # and for an order: the leader may be reading data or writing results


class Ranks:
    """This process among those that train together. One that is alone leads, and nobody follows."""

    def __init__(self, rank: int = 0, size: int = 1, group: Group = None, words: Group = None) -> None:
        self.rank, self.size = rank, size
        self.group = group  # of tensors
        self.words = words  # of orders, through gloo
        self.at_work = False  # whether the followers are within an order, and hear no other
        self.over = False  # whether this rank knows, as all others do, that no order follows

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.size > 1

    def share(self, rows: int) -> range:
        """This rank's of `rows` rows, in order; all ranks' shares together are all rows, each once.

        >>> [list(Ranks(rank, 4).share(6)) for rank in range(4)]
        [[0], [1, 2], [3], [4, 5]]
        """
        return range(rows * self.rank // self.size, rows * (self.rank + 1) // self.size)

    def check_batch(self, batch: int) -> None:
        """Refuse more ranks than rows in a batch: some would never have any."""
        if batch < self.size:
            raise InputError(
                f"batches of {batch} rows are too few for {self.size} ranks: start fewer, or raise batch"
            )

    # --- words

    def order(self, name: str, **facts: Any) -> None:
        """Tell the followers what to do, if there are any and this is the leader."""
        if self.several and self.leads:
            data = torch.frombuffer(bytearray(json.dumps({"do": name, **facts}).encode()), dtype=torch.uint8)
            dist.broadcast(torch.tensor(len(data)), 0, group=self.words)
            dist.broadcast(data, 0, group=self.words)
            self.at_work = name != "end"

    def heard(self) -> dict[str, Any]:
        """The leader's next order, as a follower hears it."""
        size = torch.tensor(0)
        dist.broadcast(size, 0, group=self.words)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0, group=self.words)
        order: dict[str, Any] = json.loads(bytes(data.tolist()))
        self.over = order["do"] == "end"
        return order

    def finish_order(self) -> None:
        """All ranks are at the end of an order: the followers listen again."""
        self.at_work = False

    def agree(self, wanted: bool) -> bool:
        """What the leader wants, on every rank."""
        if not self.several:
            return wanted
        word = torch.tensor(wanted)
        dist.broadcast(word, 0, group=self.words)
        return bool(word)

    def everywhere(self, true: bool) -> bool:
        """Whether it is true on every rank."""
        if not self.several:
            return true
        word = torch.tensor(int(true))
        dist.all_reduce(word, dist.ReduceOp.MIN, group=self.words)
        return bool(word)

    def meet(self) -> None:
        """Wait until every rank is here, however long its data take."""
        if self.several:
            dist.barrier(group=self.words)

    def meet_alike(self, facts: Mapping[str, str]) -> None:
        """Meet; every rank refuses where one has other facts, which go by what a message calls them."""
        if not self.several:
            return
        digests = [list(hashlib.sha256(fact.encode()).digest()) for fact in facts.values()]
        own = torch.tensor(digests, dtype=torch.uint8)
        everyones = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(everyones, own, group=self.words)
        for name, rows in zip(facts, torch.stack(everyones, dim=1), strict=True):
            others = (rows != rows[0]).any(dim=1).nonzero()
            if len(others):
                rank, self.at_work, self.over = int(others[0]), False, True
                raise InputError(f"rank {rank} has other {name} than rank 0: give all ranks the same")

    # --- tensors

    def own(self, rows: Tensor) -> Tensor:
        """This rank's share of them."""
        share = self.share(len(rows))
        return rows[share.start : share.stop]

    def gathered(self, own: Tensor, at: Tensor, rows: int) -> Tensor:
        """All rows on every rank, out of those that each has at positions `at`: others add nothing there."""
        if not self.several:
            return own
        return self.add(own.new_zeros(rows, *own.shape[1:]).index_copy_(0, at, own))

    def add(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.several:
            dist.all_reduce(values, group=self.group)
        return values

    def average(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Their mean over all ranks, by one all-reduce.

        An objective that knows its group gives each rank the gradient of the global batch's value by its own
        rows, times the number of ranks. Their mean is the global batch's gradient, whatever the shares.
        """
        if not self.several:
            return list(gradients)
        flat = self.add(torch.cat([gradient.reshape(-1) for gradient in gradients])).div_(self.size)
        pieces = flat.split([gradient.numel() for gradient in gradients])
        return [piece.view(g.shape).to(g.dtype) for piece, g in zip(pieces, gradients, strict=True)]

    def spread(self, place: Tensor, value: Tensor | None) -> None:
        """Copy the leader's value into a place of every rank; followers have none to give."""
        sent = torch.empty_like(place, memory_format=torch.contiguous_format) if self.several else place
        if value is not None:
            sent.copy_(value)
        if self.several:
            dist.broadcast(sent, 0, group=self.group)
            place.copy_(sent)


ALONE = Ranks()
_present = ALONE


def present() -> Ranks:
    """The ranks that this process is one of; alone unless `connect` was called."""
    return _present


def connect(launched: Launch) -> Ranks:
    """Meet the other ranks; an InputError says where they did not."""
    global _present
    if torch.cuda.is_available() and launched.local < torch.cuda.device_count():
        torch.cuda.set_device(launched.local)
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, rank=launched.rank, world_size=launched.size, timeout=MEETING)
        words = dist.new_group(backend="gloo", timeout=WORDS)
    except (RuntimeError, ValueError, OSError) as error:  # the network's, the store's, or a wrong port
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"rank {launched.rank} of {launched.size} did not meet the others at {place} ({cause}): "
            "start all of them with torchrun, at a free port"
        ) from None
    _present = Ranks(launched.rank, launched.size, dist.group.WORLD, words)
    return _present


def disconnect() -> None:
    """Alone again."""
    global _present
    _present = ALONE
    dist.destroy_process_group()
