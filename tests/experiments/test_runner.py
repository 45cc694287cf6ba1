import io
import json
import os
import random
import re
import shlex
import shutil
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from rich.console import Console

from calmoe.data import load_dataset
from calmoe.errors import InputError
from calmoe.experiments import environment, preparation, runner, watcher
from calmoe.experiments.dry_run import show_plan
from calmoe.experiments.plan import leaves
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.store import RunFolder, read_results
from calmoe.experiments.sweep import make_sweep
from calmoe.files import write_whole
from calmoe.methods import METHODS
from calmoe.report.terminal import show_results
from calmoe.training import Diverged, Stage, Trainer
from calmoe.training.ranks import Ranks
from run_folders import contents
from second_process import started
from sizes import at_size

SETTINGS = ["epochs=12", "warmup=5", "hidden=[8]", "router_hidden=4", "batch=128"]
COMMAND = ["run", "digits", "--methods", "single,vanilla,mocae,fgr,robust", "--seeds", "42"]
COMMAND += [part for setting in SETTINGS for part in ("--set", setting)]


def test_a_run_has_a_row_for_every_method_and_seed(reference, tiny):
    rows = read_results(reference)
    assert [row["method"] for row in rows] == list(tiny.methods)
    assert {row["protocol"] for row in rows} == {"corrected"}  # digits trains on other rows as published
    assert rows[1]["accuracy"] != rows[0]["accuracy"]
    assert rows[2]["temperatures"]


def test_running_again_changes_nothing(finished, reference, tiny, quiet, monkeypatch):
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("trained again"))
    before = {path: path.stat().st_mtime_ns for path in (finished / "nodes").rglob("*")}
    assert run(tiny, finished, console=quiet).exit_code == 0
    assert contents(finished) == contents(reference)
    assert before == {path: path.stat().st_mtime_ns for path in (finished / "nodes").rglob("*")}


def test_a_second_run_gives_the_same_bytes(reference, tiny, quiet, tmp_path):
    run(tiny, tmp_path / "again", console=quiet)
    assert contents(tmp_path / "again") == contents(reference)


def test_more_methods_and_seeds_are_added(finished, reference, tiny, quiet):
    outcome = run(narrowed(tiny, methods=("fgr",), seeds=(43,)), finished, console=quiet)
    assert outcome.exit_code == 0
    rows = read_results(finished)
    assert ("fgr", 43) in {(row["method"], row["seed"]) for row in rows}
    assert [row for row in rows if row["seed"] == 42] == read_results(reference)
    spec = json.loads((finished / "spec.json").read_text())["spec"]
    assert spec["methods"] == ["single", "vanilla", "mocae", "fgr", "robust"]
    assert spec["seeds"] == [42, 43]


def test_another_run_is_refused(finished, tiny, quiet):
    repeat = "to use it, repeat --set eta=2.0; or give another --out"
    with pytest.raises(InputError, match=rf"training\.eta is 2\.0 there, 3\.0 here\): {repeat}"):
        run(with_settings(tiny, ["eta=3"]), finished, console=quiet)
    others = ["eta=3", "hidden=[9, 9]", "experts=2", "batch=7", "router_hidden=5"]
    with pytest.raises(InputError, match="repeat ") as refusal:
        run(with_settings(tiny, others), finished, console=quiet)
    told = str(refusal.value).partition("repeat ")[2].partition("; or")[0]
    settings = shlex.split(told)[1::2]
    assert with_settings(with_settings(tiny, others), settings) == tiny
    with pytest.raises(InputError, match="protocol is 'corrected' there, 'published' here"):
        run(narrowed(tiny, protocol="published"), finished, console=quiet)
    with pytest.raises(InputError, match="holds another run"):
        run(with_settings(tiny, ["epochs=5"]), finished, only_report=True, console=quiet)


def test_what_differs_is_told_in_words_not_digests(finished, tiny, quiet, monkeypatch):
    with pytest.raises(InputError) as refusal:
        run(narrowed(tiny, protocol="published"), finished, console=quiet)
    assert "(protocol is 'corrected' there, 'published' here): give" in str(refusal.value)
    digits = load_dataset("digits")
    fewer = replace(digits, train=digits.train.take(range(100)))
    monkeypatch.setattr(preparation, "load_dataset", lambda *_: fewer)
    with pytest.raises(InputError) as refusal:
        run(tiny, finished, console=quiet)
    said = "(the data differ: other images or texts than those this folder was trained on): give another"
    assert said in str(refusal.value)


def test_a_model_that_cannot_be_built_leaves_no_folder(tiny, quiet, tmp_path):
    spec = with_settings(tiny, ["backbone=encoder"])
    for start in (run, show_plan):
        with pytest.raises(InputError, match="digits and the backbone 'encoder' do not go together"):
            start(spec, tmp_path / "run", console=quiet)
    assert not (tmp_path / "run").exists()


def test_without_tensorboard_no_folder_is_begun(tiny, quiet, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="pip install 'calmoe"):
        run(tiny, tmp_path / "run", tensorboard=True, console=quiet)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_builds_no_model(finished, tiny, quiet, monkeypatch):
    monkeypatch.setattr("calmoe.training.building.make_backbone", lambda *_: pytest.fail("built"))
    assert run(tiny, finished, console=quiet).exit_code == 0
    show_plan(tiny, finished, console=quiet)


def test_the_published_protocol_has_its_own_rows(tiny, quiet, tmp_path):
    outcome = run(narrowed(tiny, protocol="published", methods=("vanilla",)), tmp_path, console=quiet)
    assert [row["protocol"] for row in outcome.rows] == ["published"]
    assert outcome.rows[0]["temperature_status"] in ("published", "negative")


def test_only_report_needs_predictions_alone(finished, reference, tiny, quiet, monkeypatch):
    (finished / "results.jsonl").unlink()
    monkeypatch.setattr(preparation, "load_dataset", lambda *_: pytest.fail("data were read"))
    run(tiny, finished, only_report=True, console=quiet)
    assert contents(finished) == contents(reference)


def test_only_report_says_what_is_missing(finished, tiny, quiet, tmp_path):
    with pytest.raises(InputError, match="there is no run in"):
        run(tiny, tmp_path / "nothing", only_report=True, console=quiet)
    assert not (tmp_path / "nothing").exists()
    node = leaves(Run.open(finished).nodes)["vanilla", 42]
    shutil.rmtree(finished / "nodes" / node.key)
    outcome = run(tiny, finished, only_report=True, console=quiet)
    assert outcome.failed == {"seed 42 vanilla": "not trained", "seed 42 mocae": "not trained"}
    assert outcome.exit_code == 1
    assert [row["method"] for row in outcome.rows] == ["single", "robust"]


def test_a_dry_run_writes_nothing(tiny, finished, tmp_path):
    console = Console(file=io.StringIO(), width=100)
    show_plan(tiny, tmp_path / "none", console=console)
    assert not (tmp_path / "none").exists()
    assert "9 epochs become 8; 8 to do in 4 nodes" in console.file.getvalue()
    show_plan(tiny, finished, console=console)
    assert "0 to do in 0 nodes" in console.file.getvalue()


def test_a_dry_run_compares_the_data_too(tiny, finished, quiet, monkeypatch):
    digits = load_dataset("digits")
    fewer = replace(digits, train=digits.train.take(range(100)))
    monkeypatch.setattr(preparation, "load_dataset", lambda *_: fewer)
    before = (finished / "spec.json").read_bytes()
    with pytest.raises(InputError, match="the data differ"):
        show_plan(tiny, finished, console=quiet)
    assert (finished / "spec.json").read_bytes() == before


def test_a_folder_that_digits_do_not_need_is_noted(tiny, tmp_path):
    console = Console(file=io.StringIO(), width=100)
    show_plan(tiny, tmp_path / "none", tmp_path / "nope", console=console)
    assert f"note: {tmp_path / 'nope'} is not read: the digits come with" in console.file.getvalue()


def test_one_is_one(tiny, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    one = narrowed(with_settings(tiny, ["epochs=1", "warmup=0"]), methods=("single",))
    show_plan(one, tmp_path / "run", console=console)
    assert "digits, 1 method x 1 seed: 1 epoch; 1 to do in 1 node\n" in console.file.getvalue()
    show_results(run(one, tmp_path / "run", console=console), console)
    assert "\n1 row in " in console.file.getvalue()


def test_a_damaged_environment_is_kept_aside_and_told(finished, tiny):
    path, console = finished / "environment.json", Console(file=io.StringIO(), width=400)
    damaged = path.read_bytes()[:-20]
    path.write_bytes(damaged)
    run(narrowed(tiny, methods=("fgr",)), finished, console=console)
    assert (finished / "environment.json.damaged").read_bytes() == damaged
    assert f"note: {path} is damaged: it is kept as {path}.damaged" in console.file.getvalue()
    assert len(json.loads(path.read_text())["sessions"]) == 1
    path.write_bytes(b"again")
    run(narrowed(tiny, methods=("entropic",)), finished, console=console)
    assert (finished / "environment.json.damaged").read_bytes() == damaged
    assert (finished / "environment.json.damaged1").read_bytes() == b"again"


@pytest.mark.parametrize(("answers", "dirty"), [("", False), (" M file", True), (None, None)])
def test_a_status_that_git_does_not_tell_is_not_called_clean(answers, dirty, monkeypatch, tmp_path):
    (tmp_path / ".git").mkdir()
    monkeypatch.delenv("CALMOE_COMMIT", raising=False)
    monkeypatch.setattr(environment, "SOURCE", tmp_path)
    monkeypatch.setattr(environment, "_git", lambda name, *_: answers if name == "status" else "abc")
    assert environment._commit() == ("abc", dirty)


def test_gamma_is_what_cvar_trains_with(tiny, quiet, tmp_path):
    spec = narrowed(with_settings(tiny, ["batch=32"]), methods=("vanilla", "cvar"))
    losses = {}
    for gamma in (1, 4):
        outcome = run(with_settings(spec, [f"gamma={gamma}"]), tmp_path / str(gamma), console=quiet)
        losses[gamma] = [row["nll"] for row in outcome.rows]
    assert losses[1][0] == losses[1][1] == losses[4][0]  # the worst of all are all: Vanilla
    assert losses[4][1] != losses[4][0]


def test_forked_weights_are_the_unforked_ones_bit_for_bit(reference, tiny):
    nodes = leaves(Run.open(reference).nodes)
    trainer = Trainer(load_dataset("digits"), tiny.model, tiny.training, torch.device("cpu"))
    straight = {
        "vanilla": [Stage.of(METHODS["vanilla"], 0, 3)],
        "robust": [Stage.of(METHODS["vanilla"], 0, 1), Stage.of(METHODS["robust"], 1, 3)],
    }
    for method, stages in straight.items():
        state = trainer.initial_state("mixture", 42)
        for stage in stages:
            state = trainer.train(stage, 42, state)
        folder = reference / "nodes" / nodes[method, 42].key
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        assert all(torch.equal(weights[name], state.tensors[f"model.{name}"]) for name in weights)
        assert len(weights) == sum(name.startswith("model.") for name in state.tensors)


def test_a_time_limit_stops_cleanly_and_the_next_run_goes_on(reference, tiny, quiet, tmp_path):
    codes = [run(tiny, tmp_path, time_limit=0.0, console=quiet).exit_code for _ in range(9)]
    assert codes == [3] * 8 + [0]  # eight epochs, each session trains one
    assert contents(tmp_path) == contents(reference)


def test_a_time_limit_counts_the_loading_of_data(tiny, quiet, tmp_path, monkeypatch):
    clock = [0.0]
    genuine = load_dataset

    def slow_load(*arguments, **options):
        clock[0] += 60
        return genuine(*arguments, **options)

    monkeypatch.setattr(preparation, "load_dataset", slow_load)
    for module in (runner, watcher):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert run(tiny, tmp_path / "short", time_limit=59, console=quiet).exit_code == 3
    assert run(tiny, tmp_path / "long", time_limit=61, console=quiet).exit_code == 0


def test_a_diverged_method_does_not_stop_the_others(tiny, quiet, tmp_path, monkeypatch):
    genuine = Trainer.train

    def fails_when(wrong):
        def train(self, stage, *arguments):
            if wrong(stage):
                raise Diverged("the loss is nan at epoch 2")
            return genuine(self, stage, *arguments)

        monkeypatch.setattr(Trainer, "train", train)

    fails_when(lambda stage: stage.objective == "tilted")
    outcome = run(tiny, tmp_path / "leaf", console=quiet)
    assert outcome.failed == {"seed 42 robust": "the loss is nan at epoch 2"}
    assert outcome.exit_code == 1
    assert [row["method"] for row in outcome.rows] == ["single", "vanilla", "mocae"]
    fails_when(lambda stage: stage.end == 1)
    outcome = run(tiny, tmp_path / "warmup", console=quiet)
    assert outcome.failed["seed 42 robust"] == "its warm-up diverged"
    assert [row["method"] for row in outcome.rows] == ["single"]


def test_a_diverged_warm_up_fails_its_own_forks_alone(tiny, quiet, tmp_path, monkeypatch):
    """The warm-ups of both points have one name."""
    genuine = Trainer.train

    def train(self, stage, *arguments):
        if self.model_settings.experts == 2 and stage.end == 1:
            raise Diverged("the loss is nan")
        return genuine(self, stage, *arguments)

    monkeypatch.setattr(Trainer, "train", train)
    sweep = make_sweep("experts", (2, 3))
    outcome = run(narrowed(tiny, methods=("robust",)), tmp_path / "run", sweep=sweep, console=quiet)
    assert outcome.failed.keys() == {"seed 42 warm-up", "seed 42 robust experts 2"}
    assert len(outcome.rows) == 1


def test_every_batch_of_a_sweep_has_rows_for_all_ranks(tiny, quiet, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "present", lambda: Ranks(0, 4))
    with pytest.raises(InputError, match="batches of 3 rows"):
        run(tiny, tmp_path / "run", sweep=make_sweep("batch", (64, 3)), console=quiet)
    assert not (tmp_path / "run").exists()


def test_weights_are_kept_or_not(tiny, quiet, tmp_path):
    run(narrowed(with_settings(tiny, ["keep_weights=false"]), methods=("single",)), tmp_path, console=quiet)
    (node,) = (tmp_path / "nodes").iterdir()
    assert {path.name for path in node.iterdir()} == {
        *("done.json", "history.json", "test.safetensors", "validation.safetensors"),
        "validation_augmented.safetensors",
    }


@pytest.mark.parametrize(("quiet_seconds", "epochs"), [(3600, ["1/3", "3/3"]), (0, ["1/3", "2/3", "3/3"])])
def test_away_from_a_terminal_a_log_is_short_and_alive(tiny, tmp_path, monkeypatch, quiet_seconds, epochs):
    monkeypatch.setattr("calmoe.progress_bar.QUIET", quiet_seconds)
    console = Console(file=io.StringIO(), width=140)
    run(narrowed(tiny, methods=("single",)), tmp_path, console=console)
    assert re.findall(r"seed 42 single epoch (\S+) loss \d", console.file.getvalue()) == epochs


def test_away_from_a_terminal_every_node_has_its_last_line(tiny, tmp_path):
    console = Console(file=io.StringIO(), width=140)
    run(narrowed(tiny, methods=("single", "vanilla")), tmp_path, console=console)
    said = re.findall(r"seed 42 (.+) epoch (\S+) loss", console.file.getvalue())
    assert said == [("single", "1/3"), ("single", "3/3"), ("warm-up", "1/3"), ("vanilla", "3/3")]


def test_a_terminal_gets_a_bar(tiny, tmp_path):
    console = Console(file=io.StringIO(), width=140, force_terminal=True)
    run(narrowed(tiny, methods=("single",)), tmp_path, console=console)
    assert "epoch 2/3" not in console.file.getvalue()
    assert "3/3" in console.file.getvalue()


def test_a_locked_folder_is_refused(finished, tiny, quiet):
    with (
        RunFolder(finished).locked(),
        pytest.raises(InputError, match=r"another calmoe is running in .*: wait for it"),
    ):
        run(tiny, finished, console=quiet)


@pytest.mark.slow
def test_two_processes_at_once(tmp_path):
    reference, shared = tmp_path / "reference", tmp_path / "shared"
    alone = started(*COMMAND, "--out", str(reference))
    alone.join()
    both = [started(*COMMAND, "--out", str(shared)) for _ in range(2)]
    for process in both:
        process.join()
    assert sorted(process.exitcode for process in both) in ([0, 2], [0, 0])  # one may begin when all is done
    assert contents(shared) == contents(reference)


def wait_for_work(process, folder, since):
    """Until the process has written into the folder's nodes, or has ended."""
    while process.exitcode is None:
        try:
            if any(path.stat().st_mtime > since for path in folder.glob("nodes/*/*")):
                return
        except FileNotFoundError:  # renamed or dropped while we looked
            pass
        process.join(timeout=0.01)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path):
    """SIGKILL while it trains, writes or evaluates, each time at least one epoch further than before."""
    reference, killed = tmp_path / "reference", tmp_path / "killed"
    begin = time.time()
    process = started(*COMMAND, "--out", str(reference))
    wait_for_work(process, reference, begin)
    begin = time.time()
    process.join()
    working, moments, kills, amid = time.time() - begin, random.Random(0), 0, 0
    expected, times = contents(reference), at_size(3, 20)
    while kills < times:
        begin = time.time()
        process = started(*COMMAND, "--out", str(killed))
        wait_for_work(process, killed, begin)
        process.join(timeout=moments.uniform(0, 0.4) * working)
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
            amid += any(killed.glob("nodes/*/state-*")) or any(killed.glob("nodes/*/done.json"))
        else:  # done between two kills: the others fall on a new run
            assert contents(killed) == expected
            shutil.rmtree(killed)
    started(*COMMAND, "--out", str(killed)).join()
    assert contents(killed) == expected
    assert any(path.endswith("results.jsonl") for path in expected)
    assert amid >= at_size(2, 15)


def test_what_a_killed_process_left_half_written_goes(finished, tiny, quiet):
    def cut(*_):
        raise KeyboardInterrupt

    left = [finished / name for name in ("spec.json", "results.jsonl")]
    left += [mark.parent / "test.safetensors" for mark in finished.glob("nodes/*/history.json")][:1]
    for path in left:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.replace", cut)
            patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # killed: nobody cleans up
            with pytest.raises(KeyboardInterrupt):
                write_whole(path, b"half")
    hidden = [path for path in finished.rglob(".*") if path.name != ".lock"]
    assert len(hidden) == 3
    run(tiny, finished, console=quiet)
    assert not any(path.exists() for path in hidden)


def damage(path, how):
    data = bytearray(path.read_bytes())
    place = random.Random(path.name).randrange(max(1, len(data)))
    if how == "flipped" and data:
        data[place] ^= 1 << (place % 8)
    path.write_bytes(data[:place] if how == "truncated" else data if how == "flipped" else b"")


def outcome_of(function, folder):
    """What the function returns, or what its error says before the remedy."""
    try:
        return function(folder)
    except InputError as error:
        return str(error).partition(":")[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["truncated", "flipped", "emptied"])
def test_damage_anywhere_is_detected(how, reference, tiny, quiet, tmp_path):
    rows = read_results(reference)
    files = sorted(path for path in reference.rglob("*") if path.is_file())
    for path in at_size(list({path.name: path for path in files}.values()), files):  # one file of each name
        copy = shutil.copytree(reference, tmp_path / "run")
        damage(copy / path.relative_to(reference), how)
        assert outcome_of(read_results, copy) in (rows, f"{copy} has no intact results")
        refused = outcome_of(lambda folder: run(tiny, folder, console=quiet) and None, copy)
        assert refused in (None, f"{copy / 'spec.json'} is damaged")
        if path.name.startswith("state-"):  # a warm-up that nobody needs now is left as it is
            shutil.copy(path, copy / path.relative_to(reference))
        assert refused or contents(copy) == contents(reference)
        shutil.rmtree(copy)


def test_a_damaged_warm_up_is_trained_again_when_a_method_needs_it(
    finished, reference, tiny, quiet, tmp_path
):
    more = narrowed(tiny, methods=("fgr",))
    shutil.copytree(reference, tmp_path / "whole")
    run(more, tmp_path / "whole", console=quiet)
    (state,) = finished.glob("nodes/*/state-*")
    damage(state, "flipped")
    run(more, finished, console=quiet)
    assert contents(finished) == contents(tmp_path / "whole")


def test_a_full_disk_leaves_a_run_that_goes_on(reference, tiny, quiet, tmp_path, monkeypatch):
    genuine, left = os.fsync, [7]

    def fsync(handle):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        genuine(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        run(tiny, tmp_path, console=quiet)
    monkeypatch.undo()
    run(tiny, tmp_path, console=quiet)
    assert contents(tmp_path) == contents(reference)


def test_a_folder_of_another_trainer_is_reported_and_not_added_to(finished, tiny, quiet, monkeypatch):
    monkeypatch.setattr(preparation, "TRAINING_VERSION", 99)
    assert len(run(tiny, finished, only_report=True, console=quiet).rows) == len(tiny.methods)
    with pytest.raises(InputError, match="training_version is 2 there, 99 here"):
        run(tiny, finished, console=quiet)


def test_keeping_weights_or_not_is_no_other_run(finished, tiny, quiet):
    assert run(replace(tiny, keep_weights=False), finished, console=quiet).exit_code == 0


def test_an_out_that_is_a_file_is_named(tiny, quiet, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "sub"):
        with pytest.raises(InputError, match=r"cannot write to .*: give another folder with --out"):
            run(tiny, out, console=quiet)
