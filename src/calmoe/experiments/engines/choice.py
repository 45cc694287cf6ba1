"""The engine that the options of a command ask for."""

from typing import TYPE_CHECKING

from calmoe.errors import InputError, check_known

if TYPE_CHECKING:
    from calmoe.experiments.engines.work import Engine

ENGINES = ("local", "ray")


def choose_engine(name: str, jobs: int | None, address: str | None, resources: str | None) -> "Engine":
    """The engine, begun: what takes time to start does so while this process imports the rest."""
    check_known("engine", name, ENGINES)
    if name == "ray":
        from calmoe.experiments.engines.cluster import Cluster, parse_resources

        return Cluster(address, jobs, parse_resources(resources or ""))
    for option, value in (("--address", address), ("--resources", resources)):
        if value is not None:
            raise InputError(f"{option} is for a Ray cluster: give --engine ray, too")
    if jobs is None or jobs == 1:
        from calmoe.experiments.engines.local import Local

        return Local()
    from calmoe.experiments.engines.nursery import Nursery

    nursery = Nursery()
    from calmoe.experiments.engines.processes import Processes

    return Processes(jobs, nursery)
