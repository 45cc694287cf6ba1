"""Methods, objectives, losses, datasets and backbones from files and packages outside of calmoe."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calmoe import registry
from calmoe.commands import app
from calmoe.errors import InputError
from calmoe.experiments.plan import leaves, make_plan
from calmoe.experiments.plugins import CARD
from calmoe.experiments.run import Run
from calmoe.experiments.sealing import write_sealed
from calmoe.experiments.spec import load_preset, narrowed, with_settings
from calmoe.experiments.store import read_results
from calmoe.methods import LOSSES, METHODS, OBJECTIVES, Method, Recipe, Setting, register
from calmoe.objectives import ERM
from calmoe.plugins import load_plugin
from calmoe.registry import REGISTRIES
from calmoe.report.write import write_report

ROOT = Path(__file__).parents[1]
METHOD = """
from dataclasses import dataclass
from calmoe.methods import LOSSES, OBJECTIVES, Method, Recipe, Setting, register
from calmoe.objectives import Objective, cross_entropy

@dataclass(frozen=True)
class Weighed(Objective):
    weight: float = 1.0

    def reduce(self, losses, output, labels, group=None):
        return self.weight * losses.mean()

def focal(output, labels):
    losses = cross_entropy(output, labels)
    return (1 - (-losses).exp()).square() * losses

OBJECTIVES.register("weighed", Recipe(Weighed, own={"weight": Setting(1.0, low=0.1, high=100)}))
LOSSES.register("focal", focal)
register(Method(name="mine", title="My Method & $co_{", objective="weighed", loss="focal", colour="#123456"))
"""
DATASET = """
import numpy as np
import torch
from torch import nn
from calmoe.backbones import BACKBONES, Backbone
from calmoe.data import DATASETS, DatasetCard, ShiftDataset, Split

def load(data=None, protocol="corrected"):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 300)
    rows = (draw.normal(size=(300, 4)) + labels[:, None]).astype(np.float32)
    def part(start, end):
        return Split(inputs=torch.from_numpy(rows[start:end]), labels=torch.from_numpy(labels[start:end]))
    return ShiftDataset(
        name="blobs", train=part(0, 150), validation=part(150, 220), test=part(220, 300),
        class_names=("a", "b", "c"), protocol=protocol,
    )

class Line(Backbone):
    def __init__(self, input_shape, hidden=(8,), slope=0.1):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], hidden[-1])
        self.slope, self.out_features = slope, hidden[-1]

    def forward(self, rows):
        return nn.functional.leaky_relu(self.layer(rows), self.slope)

DATASETS.register("blobs", DatasetCard(load=load))
BACKBONES.register("line", Line)
"""
SPEC = """
plugins = ["mine.py", "blobs.py"]
dataset = "blobs"
methods = ["vanilla", "mine"]
seeds = [1]

[model]
backbone = "line"
hidden = [8]
router_hidden = 4

[training]
epochs = 3
warmup = 1
weight = 4
"""
TINY = ["--seeds", "42", "--set", "epochs=2", "--set", "warmup=1", "--set", "hidden=[8]"]


def calmoe(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(*arguments):
    result = calmoe(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


pytestmark = pytest.mark.usefixtures("forget")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of the user's with two plug-ins and a spec; the commands run in it."""
    for name, content in {"mine.py": METHOD, "blobs.py": DATASET, "my.toml": SPEC}.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(folder):
    return {node.name for node in (folder / "nodes").iterdir()}


def nll(folder):
    return {row["method"]: row["nll"] for row in read_results(folder)}


def test_all_of_ones_own_runs_resumes_and_is_reported(here, undrawn):
    first = calmoe("run", "my.toml")
    assert first.exit_code == 0, first.output
    assert "My Method & $co_{" in first.stdout
    run = here / "runs/my"
    trained, values = keys(run), nll(run)
    assert len(trained) == 3  # the warm-up, Vanilla, one's own
    assert values["mine"] != values["vanilla"]
    again = calmoe("run", "my.toml")
    assert "epoch" not in again.stdout
    assert keys(run) == trained

    plugins = {(p.kind, p.name): p for p in Run.open(run).record.plugins}
    assert set(plugins) == {
        ("objective", "weighed"), ("loss", "focal"), ("method", "mine"), ("dataset", "blobs"),
        ("backbone", "line"),
    }  # fmt: skip
    assert plugins["method", "mine"].origin == "mine.py"
    assert plugins["loss", "focal"].digest == plugins["objective", "weighed"].digest
    page = write_report([run]).page.read_text()
    assert page.count("My Method &amp; $co_{") > 2
    assert "What comes from outside of calmoe" in page
    assert "--set weight=4.0 --plugin mine.py --plugin blobs.py" in page
    assert "My Method" in (run / "report/tables.md").read_text()

    swept = calmoe("sweep", "weight", "my.toml", "--values", "1,4", "--methods", "mine")
    assert swept.exit_code == 0, swept.output
    rows = {row["value"]: row["nll"] for row in read_results(here / "runs/my-weight")}
    assert rows[4] == values["mine"] != rows[1]


def test_another_parameter_or_other_code_trains_again(here):
    calmoe("run", "my.toml")
    run = here / "runs/my"
    first, values = keys(run), nll(run)
    assert "training.own.weight is 4.0 there, 5.0 here" in refused("run", "my.toml", "--set", "weight=5")
    assert calmoe("run", "my.toml", "--set", "weight=50", "--out", "other").exit_code == 0
    assert len(keys(here / "other") - first) == 1  # one's own alone reads it
    assert nll(here / "other")["mine"] != values["mine"]

    (here / "mine.py").write_text(METHOD.replace("self.weight * losses", "9 * self.weight * losses"))
    changed = calmoe("run", "my.toml")
    assert "the code behind objective weighed, loss focal has changed" in changed.stdout
    assert len(keys(run) - first) == 1  # Vanilla and the warm-up know nothing of it
    assert nll(run)["mine"] != values["mine"]
    assert nll(run)["vanilla"] == values["vanilla"]

    (here / "blobs.py").write_text(DATASET.replace("slope=0.1", "slope=0.3"))
    assert calmoe("run", "my.toml").exit_code == 0
    assert nll(run)["vanilla"] != values["vanilla"]  # the backbone has changed; the data have not
    (here / "blobs.py").write_text(DATASET.replace("default_rng(0)", "default_rng(1)"))
    assert "the data differ" in refused("run", "my.toml")


def test_keys_of_calmoes_own_do_not_change(here):
    spec = load_preset("digits")
    before = leaves(make_plan(spec, "data", "cpu"))["vanilla", 42].key
    load_plugin("mine.py")
    with_own = narrowed(spec, methods=("vanilla", "mine"))
    after = leaves(make_plan(with_own, "data", "cpu"))
    assert after["vanilla", 42].key == before
    same = leaves(make_plan(with_settings(with_own, ["weight=1"]), "data", "cpu"))
    assert same["mine", 42].key == after["mine", 42].key
    other = leaves(make_plan(with_settings(with_own, ["weight=2"]), "data", "cpu"))
    assert other["mine", 42].key != after["mine", 42].key


def test_what_a_card_fixes_is_trained_and_recorded(here, forget):
    assert {"name", "on_texts", *CARD} == {each.name for each in fields(Method)}
    fixed = METHOD.replace('loss="focal", ', "fixed={'batch': 8}, on_texts={'batch': 4}, ")
    (here / "mine.py").write_text(fixed)
    command = ["run", "blobs", "--methods", "mine", *TINY, "--plugin", "mine.py", "--plugin", "blobs.py"]
    assert calmoe(*command, "--out", "fixed").exit_code == 0
    forget()
    (opened,) = Run.open(here / "fixed").finished()
    assert {node.training.batch for node in Run.open(here / "fixed").nodes} == {8}
    assert opened.method == "mine"
    assert (METHODS["mine"].fixed, METHODS["mine"].on_texts) == ({"batch": 8}, {"batch": 4})  # as recorded
    for wrong in ("'batsh': 8", "'batch': 'x'", "'batch': 0"):
        (here / "mine.py").write_text(fixed.replace("'batch': 8", wrong).replace("'batch': 4", ""))
        assert "training.bat" in refused(*command, "--out", "none")
    assert not (here / "none").exists()


def test_a_run_is_read_without_its_plugins_and_names_them(here, forget, undrawn):
    marks = "from pathlib import Path\nPath('ran').touch()\n"
    (here / "mine.py").write_text(marks + METHOD)
    (here / "blobs.py").write_text(marks + DATASET)
    calmoe("run", "my.toml")
    rows = read_results(here / "runs/my")
    forget()
    (here / "ran").unlink()
    result = calmoe("report", "runs/my")
    assert result.exit_code == 0, result.output
    assert (
        "note: the plug-in mine.py is not loaded (objective weighed, loss focal, method mine)"
        in result.stdout
    )
    assert "no figure examples: the dataset 'blobs' comes from a plug-in that is not loaded" in result.stdout
    page = (here / "runs/my/report/report.html").read_text()
    assert "My Method &amp; $co_{" in page
    assert "not loaded" in page
    assert "--set weight=4.0 --plugin mine.py --plugin blobs.py" in page
    assert calmoe("run", "blobs", "--only-report", "--out", "runs/my").exit_code == 0
    assert calmoe("export", "runs/my", "--methods", "mine", "--to", "exported").exit_code == 0
    assert read_results(here / "runs/my") == rows
    forget()
    told = refused("run", "blobs", "--out", "runs/my")
    assert "the plug-in mine.py is not loaded" in told
    assert "give --plugin mine.py" in told
    assert "not loaded" in refused("run", "digits", "--methods", "mine", "--out", "runs/my")
    assert not (here / "ran").exists()  # no code of a folder's plug-ins has run

    loaded = calmoe("report", "runs/my", "--plugin", "mine.py", "--plugin", "blobs.py")
    assert "no figure examples: the data are not images" in loaded.stdout
    assert "note: the plug-in" not in loaded.stdout
    (here / "mine.py").write_text(METHOD.replace("Setting(1.0", "Setting(2.0").replace('loss="focal", ', ""))
    assert calmoe("report", "runs/my", "--plugin", "mine.py").exit_code == 0  # read as it was trained
    assert len(read_results(here / "runs/my")) == len(Run.open(here / "runs/my").finished()) == 2


FAULTS = {
    "def (": "line 1",
    "import no_such_module": "No module named 'no_such_module' (line 1 of ",
    "1 / 0": "ZeroDivisionError: division by zero (line 1 of ",
    "import sys; sys.exit(0)": "SystemExit",
    "x = 1": "registers nothing",
    "from calmoe.methods import *\nregister(Method(name='m'))\nregister(Method(name='fgr'))": (
        "there is another method called 'fgr', of calmoe"
    ),
    "from calmoe.methods import *\nregister('mine')": "cannot be called ''",
    "from calmoe.methods import *\nregister(Method(name='mine', objective='no'))": "objective must be one of",
    "from calmoe.methods import *\nregister(Method(name='m', weights_of='no'))": "unknown method 'no'",
    "from calmoe.methods import *\nregister(Method(name='m', colour='red'))": "give colour='#0072b2'",
    "from calmoe.methods import *\nregister(Method(name='m', colour='#0072B2', marker='^'))": (
        "m looks like Robust MoE in figures"
    ),
    "from calmoe.methods import *\nOBJECTIVES.register('o', print)": "the objective 'o' must be a Recipe",
    "from calmoe.methods import *\nLOSSES.register('l', 3)": "the loss 'l' must be a function",
    "from calmoe.data import *\nDATASETS.register('d', print)": "the dataset 'd' must be a DatasetCard",
    "from calmoe.data import *\nDATASETS.register('d', DatasetCard(load=print))": "load must take (data",
    "from calmoe.backbones import *\nBACKBONES.register('b', 3)": "the backbone 'b' must be a function",
    "from calmoe.backbones import *\nBACKBONES.register('b', lambda x: x)": "must take input_shape",
}


@pytest.mark.parametrize("source", FAULTS)
def test_a_broken_plugin_is_one_line_and_leaves_nothing(here, source):
    (here / "broken.py").write_text(source)
    before = {kind: list(each) for kind, each in REGISTRIES.items()}
    told = refused("run", "digits", "--plugin", "mine.py", "--plugin", "broken.py", "--out", "run")
    assert told.startswith("error: the plug-in broken.py does not load: ")
    assert FAULTS[source] in told
    assert not (here / "run").exists()
    added = {kind: set(each) - set(before[kind]) for kind, each in REGISTRIES.items()}
    assert added["method"] == {"mine"}  # of the plug-in that loads
    assert not added["dataset"] | added["backbone"]


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("losses.mean()", "losses", "it must give one number that gradients flow through"),
        ("self.weight * losses", "self.wait * losses", "AttributeError"),
        ("square() * losses", "square()[:, None] * losses", "the loss must give one value a row"),
        ("leaky_relu(self.layer", "leaky_relu(self.lay", "AttributeError"),
        ("hidden[-1]\n\n", "3\n\n", "its features must be [N, 3]"),
        ("slope=0.1", "*, slope", "missing 1 required"),
        ("labels = draw", "labels = drew", "the dataset 'blobs' of blobs.py does not load: NameError"),
        ("return ShiftDataset", "return dict", "must be a ShiftDataset"),
    ],
)
def test_code_that_fails_is_one_line_before_anything_is_written(here, right, wrong, told):
    for name, content in (("mine.py", METHOD), ("blobs.py", DATASET)):
        (here / name).write_text(content.replace(right, wrong))
    assert told in refused("run", "my.toml")
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("dataset = ", "not a readable TOML file"),
        ("seeds = [1]", "the setting 'dataset' is missing"),
        ('dataset = "digits"\nepochs_ = 3', "unknown setting 'epochs_'"),
        ('dataset = "digits"\n[training]\nepoch = 3', "unknown setting 'training.epoch'"),
        ('dataset = "digits"\n[plugin]\na = 1', "unknown setting 'plugin.a'"),
        ('dataset = "digits"\nplugins = "mine.py"', "plugins must be a list"),
        ('dataset = "digits"\nplugins = ["none.py"]', "there is no plug-in none.py"),
        ('dataset = "digit"', "unknown dataset 'digit'"),
        ('dataset = "digits"\nmethods = ["mine"]', "unknown method 'mine'"),
        ('dataset = "digits"\nmodel = 3', "unknown setting 'model'"),
    ],
)
def test_a_wrong_spec_file_is_one_line(here, content, told):
    (here / "wrong.toml").write_text(content)
    line = refused("run", "wrong.toml")
    assert line.startswith("error: wrong.toml: ")
    assert told in line
    assert not (here / "runs").exists()
    assert "there is no file none.toml" in refused("run", "none.toml")


def test_what_a_spec_file_leaves_out_is_the_presets(here):
    from calmoe.experiments.spec_file import read_spec_file

    (here / "short.toml").write_text('dataset = "digits"\nseeds = [7]\n[training]\nepochs = 10\n')
    expected = narrowed(with_settings(load_preset("digits"), ["epochs=10"]), seeds=(7,))
    assert read_spec_file(here / "short.toml") == expected


# --- where code comes from


def test_two_plugins_do_not_share_a_name_and_one_may_be_loaded_again(here):
    load_plugin("mine.py")
    digest = METHODS.origin("mine").digest
    load_plugin("mine.py")
    assert METHODS.origin("mine").digest == digest
    (here / "theirs.py").write_text(METHOD.replace("My Method", "Theirs"))
    with pytest.raises(InputError, match=r"another objective called 'weighed', of mine\.py"):
        load_plugin("theirs.py")
    assert METHODS["mine"].title == "My Method & $co_{"


def test_modules_of_ones_own_count_with_the_plugin(here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    (here / "helping.py").write_text("FACTOR = 1\ndef factor():\n    return FACTOR\n")
    (here / "mine.py").write_text("from helping import factor\n" + METHOD)
    digests = []
    for value in (1, 2, 1):
        (here / "helping.py").write_text(f"FACTOR = {value}\ndef factor():\n    return FACTOR\n")
        sys.modules.pop("helping", None)
        load_plugin("mine.py")
        digests.append(METHODS.origin("mine").digest)
    assert digests[0] == digests[2] != digests[1]
    sys.modules.pop("helping")


def test_python_registers_with_the_file_that_calls_or_for_the_session():
    OBJECTIVES.register("doubled", Recipe(ERM, own={"twice": Setting(2.0)}))
    register(Method(name="doubled", objective="doubled"))
    origin = OBJECTIVES.origin("doubled")
    assert origin.where == __file__
    assert METHODS.origin("doubled") == origin
    typed = "from calmoe.methods import LOSSES; LOSSES.register('typed', lambda output, labels: labels)"
    tokens = set()
    for _ in range(2):
        exec(compile(typed, "<typed>", "exec"), {"__name__": "__main__"})
        assert LOSSES.origin("typed").where == "this session"
        tokens.add(LOSSES.origin("typed").digest)
    assert len(tokens) == 2  # typed again, it counts as changed
    assert OBJECTIVES.origin("erm") is None


@pytest.fixture
def installed(here, monkeypatch):
    """A distribution with a method, a dataset and a backbone, and one that is broken."""
    packages = here / "packages"
    for name, version, entries in (
        (
            "their_kit", "1.2",
            "[calmoe.methods]\nmine = their_kit.parts:MINE\n[calmoe.datasets]\nblobs = their_kit.data:CARD\n"
            "[calmoe.backbones]\nline = their_kit.data:Line\n",
        ),
        ("broken_kit", "0.1", "[calmoe.methods]\nbroken = broken_kit:METHOD\nvanilla = broken_kit:METHOD\n"),
    ):  # fmt: skip
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text("")
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(entries)
    (packages / "broken_kit/__init__.py").write_text("import no_such_module\n")
    data = DATASET.replace('DATASETS.register("blobs", ', "CARD = (").replace(
        'BACKBONES.register("line", Line)', ""
    )
    (packages / "their_kit/data.py").write_text(data)
    parts = METHOD.replace("register(Method", "MINE = (Method").replace(
        "OBJECTIVES.MINE", "OBJECTIVES.register"
    )
    (packages / "their_kit/parts.py").write_text(parts)
    monkeypatch.syspath_prepend(packages)
    registry.offered.cache_clear()
    yield packages
    for name in [name for name in sys.modules if name.partition(".")[0] in ("their_kit", "broken_kit")]:
        del sys.modules[name]


def test_installed_plugins_are_loaded_when_their_names_are_looked_up(here, installed, forget, undrawn):
    assert calmoe("run", "digits", "--methods", "vanilla", "--dry-run").exit_code == 0
    assert not any(name.startswith(("their_kit", "broken_kit")) for name in sys.modules)
    told = refused("run", "digits", "--methods", "broken", "--out", "run")
    assert "the plug-in 'broken' of broken_kit 0.1 (calmoe.methods) does not load" in told
    assert "No module named 'no_such_module'" in told
    assert "did you mean 'broken'" in refused("run", "digits", "--methods", "brokn", "--out", "run")
    assert not (here / "run").exists()

    command = [
        "run",
        "blobs",
        "--methods",
        "vanilla,mine",
        *TINY,
        "--set",
        "backbone=line",
        "--set",
        "weight=3",
    ]
    result = calmoe(*command, "--out", "run")
    assert result.exit_code == 0, result.output
    plugins = {p.kind: p for p in Run.open(here / "run").record.plugins}
    assert {p.origin for p in plugins.values()} == {"their_kit 1.2"}
    assert len({p.digest for p in plugins.values()}) == 1
    forget()
    for name in [name for name in sys.modules if name.startswith("their_kit")]:
        del sys.modules[name]
    (installed / "their_kit/parts.py").write_text("import no_such_module\n")
    report = calmoe("report", "run")  # what is broken by now is named, and not needed
    assert report.exit_code == 0, report.output
    assert (
        "note: the plug-in their_kit 1.2 is not loaded (objective weighed, loss focal, method mine"
        in report.stdout
    )
    assert "'mine' of their_kit 1.2 (calmoe.methods) does not load" in refused(*command, "--out", "run")


def test_the_example_in_the_docs_runs(here):
    page = (ROOT / "docs/extend.md").read_text()
    blocks = {
        kind: re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        for kind in ("python", "toml")
    }
    (here / "mine.py").write_text("\n".join(blocks["python"]))
    (here / "docs.toml").write_text(blocks["toml"][0])
    result = calmoe("run", "docs.toml")
    assert result.exit_code == 0, result.output
    assert {row["method"] for row in read_results(here / "runs/docs")} == {
        "vanilla",
        "gentle",
        "gentle_focal",
    }


# --- records


def test_a_record_with_wrong_plugins_is_one_line(here, forget):
    calmoe("run", "my.toml")
    document = Run.open(here / "runs/my").record.as_json()
    path = here / "runs/my/spec.json"
    for change in (
        lambda p: p.update(kind="gradient"),
        lambda p: p.update(name="../up"),
        lambda p: p.update(digest="12"),
        lambda p: p.update(facts=3),
        lambda p: p.pop("origin"),
        lambda p: p["facts"].update(own={"weight": [1, 2]}),
        lambda p: p["facts"].update(own={"eta": [1, 0, 2]}),
        lambda p: p["facts"].update(settings=["nothing"]),
        lambda p: p["facts"].update(robust="yes"),
    ):
        broken = json.loads(json.dumps(document))
        change(broken["plugins"][0])
        write_sealed(path, broken)
        forget()
        assert "spec.json: " in refused("report", "runs/my")
    wrong = {"fixed": {"rho": "far"}, "pools_views": 1, "title": "a\nb", "colour": "red", "marker": "$"}
    wrong |= {"weights_of": "none", "objective": 3, "family": "x", "on_texts": {"rho": 0.1}}
    for name, value in wrong.items():
        broken = json.loads(json.dumps(document))
        next(p for p in broken["plugins"] if p["kind"] == "method")["facts"][name] = value
        write_sealed(path, broken)
        forget()
        assert "spec.json: " in refused("report", "runs/my")


def test_import_stays_quick_and_looks_for_no_plugins(here):
    code = "import sys, calmoe.commands; print('calmoe.registry' in sys.modules, 'torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"False False\s*", told)
