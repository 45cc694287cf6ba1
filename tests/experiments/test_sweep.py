import io
import json
from dataclasses import fields, replace

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from calmoe.commands import app
from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments.dry_run import show_plan, unshared_epochs
from calmoe.experiments.plan import leaves, make_plan, merge, to_do
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.search_space import grid, parse_space, parse_values, random_points
from calmoe.experiments.spec import load_preset, narrowed, with_settings
from calmoe.experiments.store import RunFolder, read_results
from calmoe.experiments.sweep import OF_RANKS, make_sweep, unread
from calmoe.methods import METHODS
from calmoe.report.eta_gamma import eta_gamma
from calmoe.report.sources import read_targets
from calmoe.report.terminal import show_results
from calmoe.report.titles import changes
from calmoe.report.write import tables, write_report
from calmoe.training import Trainer
from calmoe.training.diagnostics import tilt_diagnostics
from calmoe.training.settings import TrainingSettings
from run_folders import record_of
from sizes import at_size


def plans(setting, values, **changes):
    spec = narrowed(load_preset("digits"), methods=("robust",), seeds=(42, 43), **changes)
    sweep = make_sweep(setting, values)
    return {sweep.label(p): make_plan(spec, "data", "cpu") for p, spec in sweep.variants(spec).items()}


def test_a_warm_up_sweep_walks_the_trunk_once():
    nodes = merge(plans("warmup", (0, 5, 10, 15, 20, 25, 30, 40)))
    assert unshared_epochs(nodes) == 2 * 8 * 50
    assert sum(node.epochs for node in nodes) == 2 * (40 + 50 + 45 + 40 + 35 + 30 + 25 + 20 + 10)
    trunk = [node for node in nodes if node.seed == 42 and not node.method]
    assert [(node.stage.start, node.stage.end) for node in trunk] == [
        (0, 5), (5, 10), (10, 15), (15, 20), (20, 25), (25, 30), (30, 40),
    ]  # fmt: skip
    seen = set()
    for node in nodes:
        assert node.parent is None or node.parent.key in seen
        seen.add(node.key)


def test_an_eta_sweep_shares_one_warm_up():
    nodes = merge(plans("eta", (0.5, 1, 2)))
    assert sum(node.epochs for node in nodes) == 2 * (20 + 3 * 30)
    assert [str(node) for node in nodes if node.seed == 43] == [
        "seed 43 warm-up", "seed 43 robust eta 0.5", "seed 43 robust eta 1", "seed 43 robust eta 2",
    ]  # fmt: skip
    assert [node.training.eta for node in nodes if node.method] == [0.5, 1.0, 2.0] * 2


def test_values_that_agree_to_six_digits_are_all_trained(tiny):
    spec, values = narrowed(tiny, methods=("robust",)), (1, 1.0000001, 1.0000002)
    record = record_of(spec, sweep=make_sweep("eta", values))
    nodes = record.merged(record.plans())
    assert [node.training.eta for node in nodes if node.method] == list(values)
    assert [node.value for node in nodes if node.method] == ["eta 1", "eta 1.0000001", "eta 1.0000002"]


def test_merging_changes_no_key():
    of_values = plans("warmup", (0, 5, 10))
    assert {node.key for node in merge(of_values)} == {n.key for plan in of_values.values() for n in plan}


def test_a_method_without_the_setting_is_trained_once_and_bears_no_value():
    spec = narrowed(load_preset("digits"), methods=("vanilla", "robust"), seeds=(42,))
    variants = make_sweep("eta", (1, 2)).variants(spec)
    nodes = merge({f"eta {v}": make_plan(s, "data", "cpu") for (v,), s in variants.items()})
    assert [str(node) for node in nodes][:3] == ["seed 42 warm-up", "seed 42 vanilla", "seed 42 robust eta 1"]


def test_only_the_trunk_that_an_open_method_needs_is_to_do():
    nodes = [node for node in merge(plans("warmup", (5, 10))) if node.seed == 42]
    five, robust_five, ten, robust_ten = nodes
    assert to_do(nodes, {five.key, robust_five.key}) == [ten, robust_ten]
    assert to_do(nodes, {ten.key, robust_five.key}) == [robust_ten]  # the longer one is there
    assert to_do(nodes, {robust_five.key}) == [five, ten, robust_ten]


@pytest.mark.parametrize(
    ("setting", "values", "message"),
    [
        ("gamma", None, "values of gamma"),
        ("weights", "1,2", "setting to sweep"),
        ("backbone", "mlp", "setting to sweep"),
        ("hidden", "1,2", "lists by commas"),
        ("hidden", "[1.5]", "lists by commas"),
        ("hidden", "[[1]]", "lists by commas"),
        ("forget_moments", "yes", "true or false"),
        ("eta", "1,two", "numbers by commas"),
        ("eta", "", "numbers by commas"),
        ("warmup", "2.5", "whole numbers"),
        ("warmup", "inf", "a finite number"),
        ("eta", "1,1e400", "a finite number"),
    ],
)
def test_what_cannot_be_swept_is_refused(setting, values, message):
    with pytest.raises(InputError, match=message):
        parse_values(setting, values, epochs=50)


@pytest.mark.parametrize(
    "setting", [f.name for f in fields(TrainingSettings) if f.name not in ("own", *OF_RANKS)]
)
def test_every_setting_of_a_training_can_be_swept(setting):
    spec = narrowed(load_preset("digits"), methods=tuple(METHODS))
    value = getattr(spec.training, setting)
    assert make_sweep(setting, (value,)).variants(spec) == {(value,): spec}


def test_a_refused_value_leaves_no_trace(tiny, quiet, tmp_path):
    spec = narrowed(tiny, methods=("robust",))
    for sweep in (make_sweep("eta", (1, -1)), make_sweep("warmup", (99,))):
        with pytest.raises(InputError):
            run(spec, tmp_path / "sweep", sweep=sweep, console=quiet)
    assert not (tmp_path / "sweep").exists()
    with pytest.raises(InputError, match="vanilla, mocae has no eta"):
        run(narrowed(tiny, methods=("vanilla", "mocae")), tmp_path, sweep=make_sweep("eta", (1,)))


def test_values_are_held_to_the_settings_own_bounds():
    for setting, value in (("eta", -1), ("eta", float("nan")), ("warmup", 51)):
        with pytest.raises(InputError, match=setting):
            make_sweep(setting, (value,)).variants(load_preset("digits"))


@pytest.mark.parametrize(
    ("setting", "values", "methods"),
    [
        ("warmup", (0, 1, 2, 3), at_size(("robust",), ("robust", "entropic"))),
        ("gamma", (1, 4), ("cvar", "robust")),
        ("batch", at_size((64, 200), (16, 40)), ("vanilla", "robust")),
        ("weight_decay", (0, 1), ("vanilla",)),
        ("average", (0.9, 0.98), ("sharp",)),
        *at_size(
            [],
            [
                ("eta", (0, 0.5, 3), ("robust", "entropic")),
                ("regret", (0, 100), ("robust_filtered",)),
                ("filter_fraction", (0, 0.9), ("fgr",)),
                ("learning_rate", (0.001, 0.01), ("vanilla",)),
                ("epochs", (2, 4), ("vanilla", "robust")),
            ],
        ),
    ],
)
def test_every_value_is_exactly_the_run_with_that_setting(setting, values, methods, tiny, quiet, tmp_path):
    spec = narrowed(with_settings(tiny, ["disagreement=100"]), methods=methods)  # regret alone filters
    sweep = make_sweep(setting, values)
    assert run(spec, tmp_path / "sweep", sweep=sweep, console=quiet).exit_code == 0
    rows = read_results(tmp_path / "sweep")
    assert [row["value"] for row in rows if row["method"] == methods[0]] == list(values)
    assert len({row["nll"] for row in rows if row["method"] == methods[0]}) == len(values)
    for value in values:
        alone = narrowed(spec, training=replace(spec.training, **{setting: value}))
        folder = RunFolder(tmp_path / f"alone-{value}")
        run(alone, folder.path, console=quiet)
        for node in leaves(Run.open(folder.path).nodes).values():
            files = [
                path / "nodes" / node.key / "test.safetensors" for path in (folder.path, tmp_path / "sweep")
            ]
            assert files[0].read_bytes() == files[1].read_bytes(), (value, node)
        for mine in read_results(folder.path):
            theirs = next(r for r in rows if (r["value"], r["method"]) == (value, mine["method"]))
            assert {name: theirs[name] for name in mine} == mine


def test_every_point_of_several_settings_is_exactly_its_own_run(tiny, quiet, tmp_path):
    """Of the training and of the model: each has its warm-ups, the points that can share one do."""
    spec = narrowed(tiny, methods=("robust",))
    sweep = grid(parse_space(["eta=0.5,3", "warmup=1,2", "hidden=[8],[6,6]"]))
    nodes = merge(
        {sweep.label(p): make_plan(at_point, "", "cpu") for p, at_point in sweep.variants(spec).items()}
    )
    assert sum(node.method is None for node in nodes) == 2 * 2  # by hidden and warm-up, whatever the η
    assert sum(node.epochs for node in nodes) == 2 * (2 + 2 * (2 + 1))
    outcome = run(spec, tmp_path / "sweep", sweep=sweep, console=quiet)
    assert outcome.exit_code == 0
    assert len({row["validation_nll_ts"] for row in outcome.rows}) == 8
    for eta, hidden, warmup in at_size(sweep.points[::3], sweep.points):
        alone = with_settings(spec, [f"eta={eta}", f"hidden={list(hidden)}", f"warmup={warmup}"])
        folder = tmp_path / f"{eta}-{hidden}-{warmup}"
        (own,) = [r for r in run(alone, folder, console=quiet).rows if r["protocol"] == "corrected"]
        point = {"eta": eta, "hidden": list(hidden), "warmup": warmup}
        (row,) = [r for r in outcome.rows if (r["point"], r["protocol"]) == (point, "corrected")]
        assert {name: row[name] for name in own} == own
        (leaf,) = leaves(Run.open(folder).nodes).values()
        files = [f / "nodes" / leaf.key / "test.safetensors" for f in (folder, tmp_path / "sweep")]
        assert files[0].read_bytes() == files[1].read_bytes()
    page = write_report([tmp_path / "sweep"]).page.read_text()
    assert "Sweep of η, hidden and warm-up epochs" in page
    assert "calmoe sweep digits eta=0.5,3 &#39;hidden=[6,6],[8]&#39; warmup=1,2" in page


@pytest.mark.parametrize(
    ("words", "at"),
    [(["precision=float32,bfloat16", "average=0.9"], 0), (["routing=hard,soft", "experts=2,3"], 0)],
)
def test_predictions_and_averages_follow_the_points_own_settings(words, at, tiny, quiet, tmp_path):
    """A node is predicted with its own model, precision and batch, not with those of the run."""
    spec = narrowed(tiny, methods=("vanilla",))
    sweep = grid(parse_space(words))
    run(spec, tmp_path / "sweep", sweep=sweep, console=quiet)
    point = sweep.points[at]
    alone = with_settings(spec, [f"{s}={v}" for s, v in zip(sweep.settings, point, strict=True)])
    run(alone, tmp_path / "alone", console=quiet)
    (leaf,) = leaves(Run.open(tmp_path / "alone").nodes).values()
    files = [tmp_path / f / "nodes" / leaf.key / "validation.safetensors" for f in ("sweep", "alone")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_sweeps_of_one_folder_train_a_warm_up_once(tiny, quiet, tmp_path, monkeypatch):
    """A grid, then random points of the same settings, then the grid again."""
    trained, train = [], Trainer.train

    def counting(self, stage, seed, *rest):
        trained.append((seed, stage, rest[-1]))
        return train(self, stage, seed, *rest)

    monkeypatch.setattr(Trainer, "train", counting)
    spec = narrowed(tiny, methods=("robust",), seeds=(42, 43))
    batch = f"batch={spec.training.batch}"
    first = grid(parse_space(["eta=1,2", batch]))
    second = random_points(parse_space([batch, "eta=0..4"]), 2, seed=0)
    for sweep in (first, second, first):
        assert run(spec, tmp_path, sweep=sweep, console=quiet).exit_code == 0
    warmups = [seed for seed, stage, _ in trained if stage.start == 0]
    assert warmups == [42, 43]
    assert len(trained) == 2 + 2 * 4
    rows = read_results(tmp_path)
    assert {tuple(row["point"].values()) for row in rows} == {*first.points, *second.points}
    with pytest.raises(InputError, match="holds a sweep of batch, eta, not a sweep of eta: give"):
        run(spec, tmp_path, sweep=make_sweep("eta", (1,)), console=quiet)


def test_vanilla_without_a_warm_up_is_no_trunk_of_as_many_epochs(tiny, quiet, tmp_path):
    """Both are ERM from the first epoch to the last: the one is a result, from the other methods fork."""
    spec, sweep = narrowed(tiny, methods=("vanilla", "robust"), seeds=(42,)), make_sweep("warmup", (0, 1, 3))
    show_plan(spec, tmp_path, sweep=sweep, console=quiet)
    assert run(spec, tmp_path, sweep=sweep, console=quiet).exit_code == 0
    nll = {(row["method"], row["value"]): row["nll"] for row in read_results(tmp_path)}
    assert len(nll) == 6
    assert nll["vanilla", 0] == nll["vanilla", 1] == nll["vanilla", 3] == nll["robust", 3] != nll["robust", 0]


def test_both_ends_of_a_sweep_are_vanilla(tiny, quiet, tmp_path):
    probs = {}
    for name, setting, value in (("robust", "eta", 0), ("robust", "warmup", 3), ("vanilla", "", 0)):
        folder = RunFolder(tmp_path / f"{name}-{setting}")
        spec, sweep = narrowed(tiny, methods=(name,)), make_sweep(setting, (value,)) if setting else None
        run(spec, folder.path, sweep=sweep, console=quiet)
        (leaf,) = leaves(Run.open(folder.path).nodes).values()
        probs[name, setting] = folder.predictions(leaf.key)["test"].output.log_probs
    assert torch.equal(probs["robust", "warmup"], probs["vanilla", ""])
    torch.testing.assert_close(probs["robust", "eta"], probs["vanilla", ""], rtol=1e-4, atol=1e-4)


def test_rows_say_what_the_tilt_did_and_a_sweep_goes_on(tiny, quiet, tmp_path, monkeypatch):
    spec = narrowed(tiny, methods=("vanilla", "robust"))
    run(spec, tmp_path, sweep=make_sweep("eta", (4, 1)), console=quiet)
    before = {row["value"]: row for row in read_results(tmp_path) if row["method"] == "robust"}
    assert before[4]["perplexity"] < before[1]["perplexity"] < tiny.training.batch == before[1]["batch"]
    assert before[4]["gamma_eff"] > before[1]["gamma_eff"] > 1
    vanilla = [row for row in read_results(tmp_path) if row["method"] == "vanilla"]
    assert [row["value"] for row in vanilla] == [1, 4]
    assert vanilla[0]["nll"] == vanilla[1]["nll"]
    assert "perplexity" not in vanilla[0]

    trained = []
    train = Trainer.train
    monkeypatch.setattr(Trainer, "train", lambda self, *a: trained.append(a[-1]) or train(self, *a))
    run(spec, tmp_path, sweep=make_sweep("eta", (2,)), console=quiet)
    assert [settings.eta for settings in trained] == [2.0]
    assert [row["value"] for row in read_results(tmp_path)][::2] == [1, 2, 4]
    assert json.loads((tmp_path / "spec.json").read_text())["sweep"]["values"] == [1, 2, 4]


def test_a_batch_larger_than_the_data_counts_as_the_rows_there_are(tiny, quiet, tmp_path, monkeypatch):
    spec = with_settings(narrowed(tiny, methods=("robust",)), ["batch=5000"])
    rows = len(load_dataset("digits").train)
    run(spec, tmp_path / "sweep", sweep=make_sweep("eta", (0, 2)), console=quiet)
    found, n = eta_gamma(read_results(tmp_path / "sweep"))
    even, tilted = found["robust"].values()
    assert (n, even.top) == (rows, rows)
    assert (even.gamma_eff.mean, even.effective_fraction.mean) == pytest.approx((1, 1))
    assert 1 < tilted.gamma_eff.mean < rows

    def without_its_size(*given):  # as histories were written before they had it
        return {name: value for name, value in tilt_diagnostics(*given).items() if name != "batch"}

    monkeypatch.setattr("calmoe.training.trainer.tilt_diagnostics", without_its_size)
    run(narrowed(tiny, methods=("robust",)), tmp_path / "old", sweep=make_sweep("eta", (0,)), console=quiet)
    found, n = eta_gamma(read_results(tmp_path / "old"))
    assert n == tiny.training.batch
    assert found["robust"][0].gamma_eff.mean == pytest.approx(1)


def test_a_run_and_a_sweep_do_not_share_a_folder(finished, tiny, quiet, tmp_path):
    sweep = make_sweep("eta", (1,))
    for only_report in (True, False):
        with pytest.raises(InputError, match=r"holds a .* not a "):
            run(tiny, finished, sweep=sweep, only_report=only_report, console=quiet)
    swept = tmp_path / "sweep"
    run(narrowed(tiny, methods=("robust",)), swept, sweep=sweep, console=quiet)
    for other in (None, make_sweep("warmup", (1,))):
        for only_report in (True, False):
            with pytest.raises(InputError, match=r"holds a .* not a "):
                run(tiny, swept, sweep=other, only_report=only_report, console=quiet)


def test_captions_do_not_name_the_swept_settings_own_value(tiny, tmp_path):
    spec = narrowed(with_settings(tiny, ["eta=3", "experts=2"]), methods=("robust",))
    for setting, values in (("eta", (1, 2)), ("warmup", (0, 1))):
        console = Console(file=io.StringIO(), width=250)
        show_results(
            run(spec, tmp_path / setting, sweep=make_sweep(setting, values), console=console), console
        )
        (sources,) = read_targets([tmp_path / setting]).values()
        for text in (console.file.getvalue(), *(table.caption for table in tables(sources).values())):
            assert "experts=2" in text
            assert ("eta=3" in text, "warmup=1" in text) == (setting != "eta", setting != "warmup")


def test_the_plan_is_drawn_with_its_values(tiny, tmp_path):
    console = Console(file=io.StringIO(), width=100)
    spec = narrowed(tiny, methods=("robust",))
    show_plan(spec, tmp_path / "none", sweep=make_sweep("warmup", (0, 1, 2)), console=console)
    drawn = console.file.getvalue()
    assert "3 values of warmup: 9 epochs become 8" in drawn
    assert "Robust MoE, warmup 2  epochs 2–3" in drawn


def test_the_plan_of_several_settings_is_drawn(tiny, tmp_path):
    console = Console(file=io.StringIO(), width=120)
    sweep = grid(parse_space(["eta=1,2", "warmup=0,1"]))
    show_plan(narrowed(tiny, methods=("robust",)), tmp_path / "none", sweep=sweep, console=console)
    assert "4 points of eta, warmup: 12 epochs become 11" in console.file.getvalue()
    assert "Robust MoE, eta 2, warmup 1  epochs 1–3" in console.file.getvalue()
    assert not (tmp_path / "none").exists()


def test_a_point_that_cannot_be_built_for_the_data_leaves_no_trace(tiny, quiet, tmp_path):
    spec = narrowed(tiny, methods=("robust",))
    for words in (["views=0,9"], ["experts=2,10000", "router_hidden=100000", "hidden=[100000,100000]"]):
        for ask in (run, show_plan):
            with pytest.raises(InputError):
                ask(spec, tmp_path / "sweep", sweep=grid(parse_space(words)), console=quiet)
    assert not (tmp_path / "sweep").exists()


def test_the_command_takes_grids_pairs_and_random_points(tmp_path):
    small = ["--set", "epochs=2", "--set", "hidden=[8]", "--set", "warmup=1", "--seeds", "42"]

    def points(*words):
        out = tmp_path / "-".join(words).replace("/", "")
        done = CliRunner().invoke(app, ["sweep", "digits", *words, *small, "--out", str(out)])
        assert done.exit_code == 0, done.output
        return {tuple(row["point"].values()) for row in read_results(out)}

    few, many = at_size((128, 256), (32, 64))
    batch = f"batch={few},{many}"
    assert points("eta=0,1", batch) == {(few, 0), (few, 1), (many, 0), (many, 1)}
    assert points("eta=0,1", batch, "--paired") == {(few, 0), (many, 1)}
    drawn = points("eta=0..4", batch, "--random", "2", "--seed", "7")
    assert drawn == {*random_points(parse_space(["eta=0..4", batch]), 2, seed=7).points}


def test_a_bare_setting_may_stand_before_or_after_the_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = [
        CliRunner().invoke(app, ["sweep", *words, "--dry-run"]).output
        for words in (["eta", "digits"], ["digits", "eta"])
    ]
    assert drawn[0] == drawn[1]
    assert "8 values of eta" in drawn[0]


def test_the_command(tmp_path):
    settings = ["--set", "epochs=4", "--set", "hidden=[8]", "--set", "warmup=2", "--seeds", "42,43"]
    settings += at_size(["--set", "batch=128"], [])
    out = ["--out", str(tmp_path / "sweep")]
    done = CliRunner().invoke(app, ["sweep", "eta", "digits", "--values", "0,2", *settings, *out])
    assert done.exit_code == 0, done.output
    assert len(read_results(tmp_path / "sweep")) == 4
    wrong = CliRunner().invoke(app, ["sweep", "etta", "digits"])
    assert wrong.exit_code == 2
    assert "eta" in wrong.output


def test_what_is_not_read_is_known_only_of_methods_that_are_here():
    digits = with_settings(load_preset("digits"), ["eta=3"])
    recommended, robust = (narrowed(digits, methods=(name,)) for name in ("recommended", "robust"))
    unknown = replace(robust, methods=("mine",))
    asked = ["rho", "eta", "epochs", "stem", "no_setting"]
    assert unread(recommended, asked) == ["rho", "eta", "stem"]
    assert unread(robust, asked) == ["rho", "stem"]
    assert unread(unknown, asked) == []
    assert [changes(spec)[1] for spec in (recommended, robust, unknown)] == ["", "eta=3.0", "eta=3.0"]
