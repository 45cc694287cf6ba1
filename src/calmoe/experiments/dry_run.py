"""Draw the plan of a run as a tree, and what of it is done; train nothing."""

from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from calmoe.data import DATASETS
from calmoe.escaping import visible
from calmoe.experiments.plan import Node, to_do
from calmoe.experiments.preparation import check_size, describe_run, load_data, pick_device, recorded_run
from calmoe.experiments.run import Run
from calmoe.experiments.same_run import joined
from calmoe.experiments.spec import RunSpec
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import Sweep
from calmoe.methods import method_title
from calmoe.render.console import make_console, say_notes
from calmoe.render.wording import many


def unshared_epochs(nodes: Sequence[Node]) -> int:
    """What the same results would cost if nothing were shared."""
    return sum(node.stage.end for node in nodes if node.method)


def draw_plan(
    nodes: Sequence[Node], done: Collection[str], title: str, diverged: Collection[str] = ()
) -> Tree:
    """The plan, with what sharing saves and what is left to do."""
    remaining = to_do(nodes, {*done, *diverged})
    left = sum(node.epochs for node in remaining)
    tree = Tree(f"{escape(title)}: {_saving(nodes)}; {left} to do in {many(len(remaining), 'node')}")
    by_seed: dict[int, list[Node]] = {}
    for node in nodes:
        by_seed.setdefault(node.seed, []).append(node)
    for seed, of_seed in by_seed.items():
        branch = tree.add(f"seed {seed}: {_saving(of_seed)}")
        branches: dict[str, Tree] = {}
        for node in of_seed:
            grown = branches[node.parent.key] if node.parent else branch
            branches[node.key] = grown.add(_line(node, done, diverged))
    return tree


def _saving(nodes: Sequence[Node]) -> str:
    shared, unshared = sum(node.epochs for node in nodes), unshared_epochs(nodes)
    return f"{unshared} epochs become {shared}" if shared < unshared else many(shared, "epoch")


def _line(node: Node, done: Collection[str], diverged: Collection[str]) -> str:
    name = method_title(node.method) if node.method else f"{node.warmup_name} (ERM)"
    name += f", {node.value}" if node.value else ""
    state = "  [green]done[/]" if node.key in done else "  [red]diverged[/]" if node.key in diverged else ""
    return f"{name}  [dim]epochs {node.stage.start}–{node.stage.end}  {node.key[:8]}[/]{state}"


def show_plan(
    spec: RunSpec,
    out: Path,
    data: Path | None = None,
    device: str = "auto",
    *,
    sweep: Sweep | None = None,
    console: Console | None = None,
) -> None:
    """Draw the plan and what of it is done; only the data's cache is written.

    What a run would refuse is refused. Without the data, a folder that holds a run says what it knows.
    """
    console, folder, where = console or make_console(), RunFolder(out), pick_device(device)
    check_size(spec, sweep)
    if data is None and DATASETS[spec.dataset].needs_folder and folder.record() is not None:
        opened = recorded_run(folder, spec, sweep)
        say_notes(["data, weights, device and version were not checked: give --data DIR for that"], console)
    else:
        dataset = load_data(folder, spec, data, console)
        record = describe_run(spec, dataset, where.type, sweep)
        opened = Run(folder, joined(out, folder.record(), record))
    title = f"{spec.name}, {many(len(spec.methods), 'method')} x {many(len(spec.seeds), 'seed')}"
    if sweep:
        noun = "value" if len(sweep.settings) == 1 else "point"
        title += f" x {many(len(sweep.points), noun)} of {', '.join(sweep.settings)}"
    nodes = opened.nodes_for(spec, sweep)
    console.print(draw_plan(nodes, opened.done, visible(title), opened.diverged))
