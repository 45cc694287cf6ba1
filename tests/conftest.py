"""Tests are deterministic, leave the second core to the other worker, and share one small finished run."""

import functools
import gc
import io
import os
import shutil
from contextlib import nullcontext

import hypothesis
import pytest
import torch
import typer.testing
from rich.console import Console

import chromium
import haste
from calmoe.experiments import environment
from calmoe.experiments.runner import run
from calmoe.experiments.spec import load_preset, narrowed, with_settings
from calmoe.experiments.sweep import make_sweep
from calmoe.experiments.watcher import Watcher
from calmoe.models import experts
from calmoe.registry import REGISTRIES, offered
from calmoe.render.drawing import Drawn, new_figure
from calmoe.report import curves, examples, write
from sizes import VARIABLE, at_size

torch.set_num_threads(1)

METHODS = ("single", "vanilla", "mocae", "robust")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="simulations at full size, as in `make test-slow`")


def pytest_configure(config):
    if config.getoption("--slow"):
        os.environ[VARIABLE] = "1"
    hypothesis.settings.register_profile(
        "calmoe", deadline=None, derandomize=True, print_blob=True, max_examples=at_size(30, 500)
    )
    hypothesis.settings.load_profile("calmoe")


def pytest_collection_finish():
    """What is imported stays: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    # hypothesis collects once more when it begins: now there is nothing to look through
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()


def pytest_report_header():
    return f"simulations: {at_size('small, pytest --slow for full', 'full')} size"


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _git_once():
    """What git says of this commit holds for all runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment, "_git", functools.cache(environment._git))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_once():
    """What typer makes of all commands holds for all of them that are called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _coarse_curves():
    """Eleven temperatures from 1/4 to 8, 1 among them, instead of 101."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "TEMPERATURES", curves.TEMPERATURES[:: at_size(10, 1)])
        yield


@pytest.fixture
def unrendered():
    with haste.unrendered():
        yield


@pytest.fixture
def undrawn(unrendered, monkeypatch):
    """Reports have no figures of curves and no example images, at the small size: those have own tests."""
    if at_size(True, False):
        from synthetic_curves import draw_without_curves

        monkeypatch.setattr(write, "draw_figures", draw_without_curves)
        monkeypatch.setattr(examples, "examples_figure", lambda _: Drawn(new_figure(1, 1), "an empty figure"))


@pytest.fixture
def hasty():
    with haste.hastily():
        yield


@pytest.fixture
def quick(monkeypatch):
    """At the small size audits learn little, and a mixture of models has few trees."""
    if at_size(True, False):
        monkeypatch.setitem(experts.TREES, "n_estimators", 10)
    with at_size(haste.hastily, nullcontext)():
        yield


@pytest.fixture
def brief():
    with haste.briefly():
        yield


@pytest.fixture(scope="session")
def tiny():
    settings = ["epochs=3", "warmup=1", "hidden=[8]", "router_hidden=4", *at_size(["batch=128"], [])]
    spec = with_settings(load_preset("digits"), settings)
    return narrowed(spec, methods=METHODS, seeds=(42,))


@pytest.fixture(scope="session")
def quiet():
    return Console(file=io.StringIO(), width=140)


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all pages; `open` forgets what the page before has said."""
    with chromium.Chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def reference(tiny, quiet, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "run"
    assert run(tiny, folder, console=quiet).exit_code == 0
    return folder


@pytest.fixture
def finished(reference, tmp_path):
    return shutil.copytree(reference, tmp_path / "run")


@pytest.fixture(scope="session")
def swept(tiny, quiet, tmp_path_factory):
    """A sweep of each setting, two seeds."""
    spec, folders = narrowed(tiny, methods=("robust",), seeds=(42, 43)), []
    for setting, values in (("eta", (1, 2)), ("warmup", (0, 2))):
        folders.append(tmp_path_factory.mktemp("sweep") / setting)
        run(spec, folders[-1], sweep=make_sweep(setting, values), console=quiet)
    return folders


@pytest.fixture
def beginnings(monkeypatch):
    """The nodes that a run begins, each time with the epochs that it has behind it."""
    begun, begin = [], Watcher.begin

    def noting(self, node, epoch):
        begun.append((node, epoch))
        begin(self, node, epoch)

    monkeypatch.setattr(Watcher, "begin", noting)
    return begun


@pytest.fixture
def forget():
    """A function that forgets all plug-ins, as another process knows none; it is called at the end too."""
    before = {kind: (dict(each), dict(each._origins)) for kind, each in REGISTRIES.items()}

    def forget():
        for kind, (things, origins) in before.items():
            REGISTRIES[kind].clear()
            REGISTRIES[kind].update(things)
            REGISTRIES[kind]._origins = dict(origins)
        offered.cache_clear()

    yield forget
    forget()
