"""The pass over all rows spread over a Ray cluster: a task a shard, merged as they come back.

The files must lie where every worker can read them.
"""

from functools import partial
from pathlib import Path
from typing import Any

from calmoe.auditing.streaming.files import Over
from calmoe.auditing.streaming.run import Passed, pass_over
from calmoe.auditing.streaming.shards import Place, Shard, Task, merged
from calmoe.auditing.streaming.source import Source
from calmoe.errors import InputError
from calmoe.formats import Columns

LOCAL = "local"
A_CORE = 4  # shards for each core, so that a slow worker does not keep the others waiting


def on_ray(address: str) -> Over:
    """Who passes over a table on the cluster at this address; "local" starts one on this machine."""
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray: install it with pip install 'calmoe[ray]'") from None
    return partial(_spread, ray, address)


def _spread(ray: Any, address: str, source: Source, task: Task, passed: Passed) -> Shard:
    alone = address == LOCAL
    try:
        ray.init(address=None if alone else address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"no Ray cluster at {address} ({reason})") from None
    try:
        shards = min(A_CORE * max(int(ray.cluster_resources().get("CPU", 1)), 1), task.rows)
        remote = ray.remote(num_cpus=1, max_retries=3)(_one)
        paths = [path.resolve() for path in source.paths]
        waiting = [remote.remote(paths, source.columns, task, Place(i, shards)) for i in range(1, shards + 1)]
        parts: list[tuple[str, Shard]] = []
        while waiting:
            (done,), waiting = ray.wait(waiting)
            shard = _result(ray, done)
            parts.append((f"shard {shard.place.number}", shard))
            passed(shard.sums.rows)
        return merged(parts)
    finally:
        ray.shutdown()


def _one(paths: list[Path], columns: Columns, task: Task, place: Place) -> Shard:
    """What a worker does."""
    return pass_over(Source(paths, columns), task, place)


def _result(ray: Any, done: Any) -> Shard:
    try:
        shard: Shard = ray.get(done)
        return shard
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(str(error.cause)) from None
        raise
