"""The engine of a Ray cluster: `calmoe run … --engine ray`; every node is a task with its resources."""

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from calmoe.errors import InputError, check_known, shown
from calmoe.experiments.engines.remote import Files, train_remotely
from calmoe.experiments.engines.schedule import Schedule
from calmoe.experiments.engines.work import Work, node_as_json
from calmoe.experiments.engines.worker import Message, raise_trouble
from calmoe.experiments.environment import describe
from calmoe.experiments.plan import Node
from calmoe.experiments.run import Run
from calmoe.experiments.watcher import Watcher
from calmoe.render.console import say_notes
from calmoe.render.wording import many
from calmoe.validation import parse_number

RETRIES = 3  # of a node whose machine was lost: on a cluster that is no surprise
MOST_SUBMITTED = 512  # nodes that Ray knows at once; more would only wait there instead of here
LOST = (
    "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError", "OwnerDiedError",
    "LocalRayletDiedError", "ObjectFetchTimedOutError",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a node is given: cores (if not said, one a thread), GPUs (a share is possible), memory in GB."""

    cores: float | None = None
    gpus: float | None = None
    memory: float | None = None


def parse_resources(text: str) -> Resources:
    """Names and numbers by commas.

    >>> parse_resources("gpus=0.25,memory=8")
    Resources(cores=None, gpus=0.25, memory=8.0)
    """
    given: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        check_known("resource", name, ("cores", "gpus", "memory"))
        try:
            given[name] = parse_number(value)
        except ValueError:
            given[name] = -1.0
        if not 0 <= given[name] < math.inf:
            raise InputError(f"resources {shown(text)}: write numbers, such as gpus=0.25,cores=2,memory=8")
    return Resources(**given)


class Cluster:
    """Trains in tasks of a Ray cluster, or of a Ray that it starts on this machine and ends again."""

    def __init__(
        self,
        address: str | None = None,
        jobs: int | None = None,
        resources: Resources | None = None,
        checkpoint_seconds: float | None = None,
    ) -> None:
        self.ray = _import_ray()
        self.address, self.jobs, self.resources = address, jobs, resources or Resources()
        self.checkpoint_seconds = checkpoint_seconds
        self.starts = address is None and "RAY_ADDRESS" not in os.environ and not self.ray.is_initialized()
        self.ends = not self.ray.is_initialized()

    # --- the cluster

    def device(self, name: str) -> torch.device:
        """As `pick_device`, but by what the cluster has: this machine may have no GPU."""
        if name not in ("auto", "cpu", "cuda"):
            raise InputError(f"unknown device {name!r}: give auto, cpu or cuda")
        self._connect()
        has_gpu = self.ray.cluster_resources().get("GPU", 0) > 0
        if name == "cuda" and not has_gpu:
            raise InputError("the Ray cluster has no GPU: give --device cpu or auto")
        return torch.device("cuda" if name != "cpu" and has_gpu else "cpu")

    def session(self, device: torch.device) -> dict[str, Any]:
        machines = many(len([node for node in self.ray.nodes() if node["Alive"]]), "machine")
        gpus = int(self.ray.cluster_resources().get("GPU", 0))
        named = f"Ray, {machines}" + (f", {many(gpus, 'GPU')}" if gpus else "")
        return describe(torch.device("cpu")) | {"device": named}

    def _connect(self) -> None:
        if self.ray.is_initialized():
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if self.starts:
                each = self._cores(torch.get_num_threads())  # a node has as many threads, or one
                cores = None if self.jobs is None else max(1, math.ceil(self.jobs * each))
                self.ray.init(include_dashboard=False, num_cpus=cores, **quiet)
            else:
                self.ray.init(address=self.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(f"there is no Ray at {self.address or 'RAY_ADDRESS'} ({line})") from None

    def _cores(self, threads: int) -> float:
        """Of a node with so many threads."""
        return float(threads) if self.resources.cores is None else self.resources.cores

    def _needs(self, work: Work) -> dict[str, float]:
        """The resources of a node, as Ray names them."""
        cuda, asked = work.device.type == "cuda", self.resources
        needs = {
            "CPU": self._cores(work.threads),
            "GPU": float(cuda) if asked.gpus is None else asked.gpus,
            "memory": (asked.memory or 0) * 1e9,
        }
        return {name: amount for name, amount in needs.items() if amount}

    def _check_room(self, needs: dict[str, float], watcher: Watcher) -> None:
        """Say so where no machine could ever take a node; a cluster may grow, a Ray of our own does not."""
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if any(all(has.get(name, 0) >= amount for name, amount in needs.items()) for has in machines):
            return
        wanted = ", ".join(f"{name} {amount:g}" for name, amount in needs.items())
        if self.starts:
            raise InputError(f"this machine does not have what a model is to get ({wanted}): ask for less")
        say_notes([f"no machine of the cluster has {wanted}: waiting for one that joins it"], watcher.console)

    # --- training

    def train(self, nodes: Sequence[Node], work: Work, opened: Run, watcher: Watcher) -> dict[str, str]:
        """Train the nodes as tasks; this process alone writes into the folder."""
        self._connect()
        needs = self._needs(work)
        self._check_room(needs, watcher)
        schedule = Schedule(nodes, opened, watcher, RETRIES)
        text = replace(work, checkpoint_seconds=self.checkpoint_seconds).as_text(opened.record.weights)
        tasks = _Tasks(self.ray, schedule, self.ray.put(text), needs)
        try:
            tasks.work(self.jobs or MOST_SUBMITTED)
        finally:
            tasks.cancel()
            if self.ends:
                self.ray.shutdown()
        return schedule.failed()


class _Tasks:
    """The tasks that train now, each a generator of messages and files."""

    def __init__(self, ray: Any, schedule: Schedule, work: Any, needs: dict[str, float]) -> None:
        self.ray, self.schedule, self.work_reference = ray, schedule, work
        names = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
        self.task = ray.remote(
            **{names[name]: amount for name, amount in ({"CPU": 0.0} | needs).items()},
            num_returns="streaming",
            max_retries=0,
            max_calls=0,  # a process on a GPU, too, goes on with the next node, and its compiled steps
        )(train_remotely)
        self.nodes: dict[Any, Node] = {}  # by generator
        self.states: dict[str, Any] = {}  # references to what forks go on from, by key of the warm-up
        self.lost = tuple(getattr(ray.exceptions, name) for name in LOST)

    def work(self, most: int) -> None:
        """Until nothing is left that could begin."""
        while self.nodes or self.schedule.waits:
            while self.schedule.waits and len(self.nodes) < most:
                self._submit(self.schedule.next())
            ready, _ = self.ray.wait(
                list(self.nodes), num_returns=len(self.nodes), timeout=0.1, fetch_local=False
            )
            if not ready:
                ready, _ = self.ray.wait(list(self.nodes), num_returns=1, timeout=5, fetch_local=False)
            for generator in ready:
                self._hear(generator)

    def cancel(self) -> None:
        for generator in self.nodes:
            self.ray.cancel(generator, force=True)

    def _submit(self, node: Node) -> None:
        folder, deadline = self.schedule.opened.folder, self.schedule.watcher.deadline
        until = None if deadline == math.inf else time.time() + deadline - time.monotonic()
        own = folder.state_files(node.key)
        states: Any = {node.key: own}
        if not own and node.parent is not None:
            key = node.parent.key
            if key not in self.states:
                self.states = {}  # of the warm-up before: its forks are submitted
                self.states[key] = self.ray.put({key: folder.state_files(key)})
            states = self.states[key]
        generator = self.task.remote(self.work_reference, json.dumps(node_as_json(node)), states, until)
        self.nodes[generator] = node

    def _hear(self, generator: Any) -> None:
        node = self.nodes[generator]
        try:
            message, files = self._next(generator)
        except StopIteration:
            del self.nodes[generator]
            if node.key in self.schedule.training:
                self.schedule.lost(node)
            return
        except self.lost:
            del self.nodes[generator]
            self.schedule.lost(node)
            return
        except self.ray.exceptions.RayError as error:
            line = " ".join(str(error).split())[-300:]
            raise InputError(f"a machine of the Ray cluster cannot run calmoe: {line}") from None
        raise_trouble(message)
        folder = self.schedule.opened.folder
        if files:
            folder.begin(node)
            folder.keep(node.key, files)
        if message["kind"] == "finished" and folder.sealed_files(node.key) is None:
            raise InputError(f"what came back of {node} is not what was sent: run the same command again")
        self.schedule.hear(node, message)

    def _next(self, generator: Any) -> tuple[Message, Files]:
        said: tuple[Message, Files] = self.ray.get(next(generator))
        return said


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers of every start
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'calmoe[ray]'") from None
    return ray
