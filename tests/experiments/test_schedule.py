"""Which node comes next, whoever trains it, and how nodes travel to other processes."""

import io
import json
import random
from types import SimpleNamespace

import pytest
from rich.console import Console

from calmoe.experiments.engines.schedule import Schedule
from calmoe.experiments.engines.work import node_as_json, node_from_json
from calmoe.experiments.plan import make_plan, merge
from calmoe.experiments.spec import load_preset, narrowed
from calmoe.experiments.sweep import make_sweep
from calmoe.experiments.watcher import TimeUp, Watcher
from calmoe.methods import METHODS


class Silent:
    """A watcher that shows nothing."""

    time_is_up = False

    def begin(self, *_):
        pass

    def end(self, *_):
        pass

    def epoch(self, *_):
        if self.time_is_up:
            raise TimeUp


def schedule_of(nodes, retries=1):
    opened = SimpleNamespace(note_finished=lambda _: None, folder=SimpleNamespace(tidy=lambda _: None))
    return Schedule(nodes, opened, Silent(), retries)


def a_plan(seeds=(42, 43)):
    return make_plan(narrowed(load_preset("digits"), seeds=seeds, methods=tuple(METHODS)), "", "cpu")


def a_chain():
    """A sweep over warm-ups: each goes on where the next shorter one ended."""
    spec = narrowed(load_preset("digits"), seeds=(42,), methods=("robust",))
    variants = make_sweep("warmup", (5, 10, 20)).variants(spec)
    return merge({f"warmup {value}": make_plan(variant, "", "cpu") for value, variant in variants.items()})


@pytest.mark.parametrize("plan", [a_plan(), a_chain()], ids=["run", "sweep of warm-ups"])
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_every_node_is_trained_once_and_after_its_parent(plan, workers):
    schedule, chance, begun, done = schedule_of(plan), random.Random(workers), [], set()
    while schedule.waits or schedule.training:
        while schedule.waits and len(schedule.training) < workers:
            node = schedule.next()
            assert node.parent is None or node.parent.key in done
            begun.append(node.key)
        node = chance.choice([*schedule.training.values()])
        schedule.hear(node, {"kind": "finished"})
        done.add(node.key)
    assert sorted(begun) == sorted(node.key for node in plan)
    assert schedule.failed() == {}


def test_warm_ups_come_first_and_then_what_takes_longest():
    schedule = schedule_of(a_plan())
    order = []
    while schedule.waits:
        order.append(schedule.next())
        schedule.hear(order[-1], {"kind": "finished"})
    kinds = [node.method is None for node in order]
    assert kinds == sorted(kinds, reverse=True)
    assert order[kinds.count(True)].method == "recommended"  # 50 epochs with two gradients a step


def test_what_diverges_takes_its_forks_along_and_nothing_else():
    plan = a_plan(seeds=(42,))
    schedule = schedule_of(plan)
    warmup = schedule.next()
    schedule.hear(warmup, {"kind": "diverged", "reason": "the loss is nan"})
    while schedule.waits:
        schedule.hear(schedule.next(), {"kind": "finished"})
    forks = {str(node) for node in plan if node.parent is warmup}
    assert schedule.failed() == {
        str(warmup): "the loss is nan",
        **dict.fromkeys(forks, "its warm-up diverged"),
    }
    assert [*schedule.failed()] == [str(node) for node in plan if str(node) in schedule.failed()]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_lost_node_begins_again_so_many_times(retries):
    single = [node for node in a_plan(seeds=(42,)) if node.method == "single"]
    schedule, begun = schedule_of(single, retries), 0
    while schedule.waits:
        schedule.lost(schedule.next())
        begun += 1
    assert begun == retries + 1
    (reason,) = schedule.failed().values()
    assert f"died {begun} times" in reason
    assert "\n" not in reason


def test_when_time_is_up_nothing_new_begins_and_what_trains_may_end():
    schedule = schedule_of(a_plan())
    first, second = schedule.next(), schedule.next()
    schedule.watcher.time_is_up = True
    schedule.hear(first, {"kind": "epoch", "epoch": 1, "entry": {"loss": 1.0, "seconds": 1.0}})
    assert not schedule.waits
    assert [*schedule.training.values()] == [first, second]
    schedule.hear(first, {"kind": "time up"})
    schedule.hear(second, {"kind": "finished"})
    assert not schedule.training
    with pytest.raises(TimeUp):
        schedule.failed()


@pytest.mark.parametrize("plan", [a_plan(), a_chain()], ids=["run", "sweep of warm-ups"])
def test_nodes_travel_as_json(plan):
    assert [node_from_json(json.loads(json.dumps(node_as_json(node)))) for node in plan] == plan


def test_one_view_shows_all_nodes_that_train_and_counts_no_epoch_twice():
    plan = [node for node in a_plan() if node.method == "single"]
    console = Console(file=io.StringIO(), width=140, force_terminal=True)
    with Watcher(console, sum(node.epochs for node in plan)) as watcher:
        for node in plan:
            watcher.begin(node, 0)
            for epoch in range(1, 31):
                watcher.epoch(node, epoch, 50, {"loss": 1.0, "seconds": 0.0})
        total, *rows = watcher.bar.tasks
        assert [(row.completed, row.total) for row in rows] == [(30, 50), (30, 50)]
        assert (total.completed, total.total) == (60, 100)
        watcher.end(plan[0])  # its worker died; another goes on from the checkpoint after epoch 20
        watcher.begin(plan[0], 20)
        assert total.completed == 50
        for node in plan:
            watcher.epoch(node, 50, 50, {"loss": 1.0, "seconds": 0.0})
            watcher.end(node)
        assert total.completed == 100
        assert len(watcher.bar.tasks) == 1
