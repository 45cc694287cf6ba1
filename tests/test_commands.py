import errno
import os
import signal
import subprocess
import sys
from multiprocessing import active_children

import numpy as np
import pytest

import forked
from calmoe.commands import app
from calmoe.commands.program import GOES_ON
from calmoe.data import cifar10h
from calmoe.experiments import runner
from command_line import calmoe, refused
from meanwhile import meanwhile
from sizes import at_full_size_only, at_size

SMALL = ["--seeds", "42", "--set", "epochs=2", "--set", "warmup=1", "--set", "hidden=[8]"]
SMALL += at_size(["--set", "batch=128"], [])


def test_run_shows_the_table(tmp_path):
    result = calmoe("run", "digits", "--methods", "vanilla,mocae", *SMALL, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for expected in ("corrected protocol", "Vanilla MoE", "MoCaE", "Hard ECE+TS", "results.jsonl"):
        assert expected in result.stdout
    assert result.stderr == ""
    again = calmoe("run", "digits", "--methods", "vanilla,mocae", *SMALL, "--out", tmp_path, "--only-report")
    assert again.exit_code == 0
    assert "epoch 1/2" not in again.stdout


def test_an_option_and_a_setting_do_not_quarrel_in_silence():
    for option, value in (("target", "a"), ("seeds", "1"), ("methods", "fgr")):
        told = refused("run", "digits", f"--{option}", value, "--set", f"{option}=b")
        assert f"{option} is given twice: leave out --{option} or --set {option}=b" in told
    of = calmoe("sweep", "eta", "digits", "--set", "methods=['entropic']", "--dry-run")  # one, by either way
    assert of.exit_code == 0, of.output
    assert "Entropic Risk" in of.stdout


def test_only_report_asks_for_what_the_folder_holds(tmp_path):
    run = [
        "run",
        "digits",
        "--methods",
        "vanilla",
        *SMALL,
        "--protocol",
        "published",
        "--out",
        tmp_path / "run",
    ]
    sweep = ["sweep", "eta", "digits", "--values", "1", "--methods", "entropic", *SMALL]
    assert calmoe(*run).exit_code == 0
    assert calmoe(*sweep, "--out", tmp_path / "sweep").exit_code == 0
    for command, folder in ((["run", "digits"], "run"), (["sweep", "eta", "digits"], "sweep")):
        again = calmoe(*command, "--only-report", "--out", tmp_path / folder)
        assert again.exit_code == 0, again.output
        assert "not trained" not in again.stdout
        assert (
            "not trained"
            in calmoe(*command, "--only-report", "--seeds", 7, "--out", tmp_path / folder).stdout
        )
    assert "holds another run" in refused("run", "digits", "--only-report", "--set", "eta=7", *run[-2:])


def test_settings_that_no_method_reads_are_named(tmp_path):
    options = ("--methods", "vanilla", "--set", "eta=9", "--set", "model.variant=v1", "--dry-run")
    result = calmoe("run", "digits", *options, "--set", "experts=2", "--out", tmp_path / "none")
    assert result.exit_code == 0
    (note,) = [line for line in result.stdout.splitlines() if line.startswith("note:")]
    assert "eta and variant" in note
    assert "experts" not in note


def test_dry_run(tmp_path):
    result = calmoe("run", "digits", "--dry-run", "--out", tmp_path / "none")
    assert result.exit_code == 0
    assert "1050 epochs become 810" in result.stdout
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "digit"], "unknown dataset 'digit': did you mean 'digits'?"),
        (["run", "digits", "--methods", "vanila"], "unknown method 'vanila': did you mean 'vanilla'?"),
        (["run", "digits", "--seeds", "x"], "seeds 'x': write numbers and ranges such as 42-46,50"),
        (["run", "digits", "--set", 'eta="two"'], "training.eta must be a number, not 'two'"),
        (["run", "digits", "--set", "epoch=1"], "did you mean 'epochs'?"),
        (["run", "digits", "--protocol", "publish"], "did you mean 'published'?"),
        (["run", "digits", "--protocol", "foo"], "unknown protocol 'foo': known: corrected, published"),
        (["run", "digits", "--device", "tpu"], "unknown device 'tpu'"),
        (["run", "digits", "--out", "/proc/calmoe"], "/proc/calmoe"),
        (["run", "digits", "--out", __file__], "File exists"),
        (["run", "cifar10h", "--out", "/proc/calmoe"], "cifar10h needs a folder: give it with --data DIR"),
        (["run", "cifar10h", "--data", "/nowhere"], "there is no folder /nowhere"),
        (["data", "cifar10", "--to", "/nowhere"], "unknown dataset 'cifar10': did you mean 'cifar10h'?"),
        (["data", "digits", "--to", "/nowhere"], "nothing to download"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_half_a_dataset_is_refused(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(b"half")
    assert "is not unpacked: finish with" in refused("run", "cifar10h", "--data", tmp_path)


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = refused("run", "digits", *SMALL, "--out", tmp_path)
    assert said == f"error: {tmp_path}: No space left on device\n"


@pytest.mark.parametrize(("outcome", "code"), [({"failed": {"a": "b"}}, 1), ({"time_up": True}, 3), ({}, 0)])
def test_exit_codes(outcome, code, monkeypatch):
    monkeypatch.setattr(runner, "run", lambda *_, **__: runner.Outcome(**outcome))
    assert calmoe("run", "digits").exit_code == code


def test_interrupted(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", interrupted)
    result = calmoe("run", "digits")
    assert (result.exit_code, result.stderr) == (130, f"{GOES_ON}\n")


def test_only_what_goes_on_is_said_to_go_on(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("calmoe.data.download.fetch_cifar10h", interrupted)
    monkeypatch.setattr("calmoe.reading.read_table", interrupted)
    goes_on = "stopped; the same command goes on where the download ended\n"
    assert calmoe("data", "cifar10h", "--to", tmp_path).stderr == goes_on
    assert calmoe("audit", tmp_path / "file").stderr == "stopped\n"


@pytest.mark.parametrize("arguments", [[], ["run"], ["data"]])
def test_help_shows_an_example(arguments):
    result = calmoe(*arguments, "--help")
    assert result.exit_code == 0
    assert "Example: calmoe " in result.stdout


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run", "calmoe run pacs --data DIR --target sketch --set weights=resnet18.pth"),
        ("sweep", "0.5 to 5 for eta, 0 to 40 of 50 epochs for warmup"),
        ("report", "for the example images only"),
        ("compare", "needed only if the run's record names no target"),
    ],
)
def test_help_says_what_each_option_is_for(command, said, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 160)
    result = calmoe(command, "--help")
    assert said in " ".join(result.stdout.split())
    flags = [line for line in result.stdout.splitlines() if "<bool>" in line and "--help" not in line]
    assert not flags


def test_version():
    assert calmoe("--version").stdout.startswith("calmoe 0.")


LONG = [sys.executable, "-m", "calmoe", "run", "digits", "--set", "epochs=5000", "--out"]
BEGUN = "seed 42 recommended epoch 1/5000 loss "


@at_full_size_only()
@pytest.mark.slow
def test_from_source_and_stopped_by_the_user(tmp_path):
    process = subprocess.Popen(
        [*LONG, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run with `&`
    )
    assert process.stdout.readline().startswith(BEGUN)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (130, f"{GOES_ON}\n")


def test_stopped_by_the_user(tmp_path):
    said, others = tmp_path / "said", {*active_children()}

    def stop():
        begun = said.exists() and "\n" in said.read_text()
        for process in {*active_children()} - others if begun else ():
            os.kill(process.pid, signal.SIGINT)
        return begun

    with meanwhile(stop), said.open("wb") as stream:
        ended = forked.run([*LONG, str(tmp_path / "run")], stdout=stream, text=True, timeout=120)
    assert ended.stdout.startswith(BEGUN)
    assert (ended.returncode, ended.stderr) == (130, f"{GOES_ON}\n")


@pytest.mark.slow
def test_cifar_on_a_cpu_under_both_protocols(tmp_path):
    data, generator = tmp_path / "data", np.random.default_rng(0)
    (data / cifar10h.BINARY).mkdir(parents=True)
    test_rows = at_size(10, 40)
    counts = [*[at_size(2, 10)] * 5, test_rows]
    for name, rows in zip((*cifar10h.BATCHES, cifar10h.TEST_BATCH), counts, strict=True):
        table = generator.integers(0, 256, (rows, 3073), dtype=np.uint8)
        table[:, 0] %= 10
        table.tofile(data / cifar10h.BINARY / f"{name}.bin")
    np.save(data / cifar10h.COUNTS, generator.integers(0, 20, (test_rows, 10)))
    arguments = ["run", "cifar10h", "--data", data, "--out", tmp_path / "run", "--methods", "vanilla"]
    result = calmoe(*arguments, "--seeds", "42", "--set", "epochs=2", "--set", "warmup=1")
    assert result.exit_code == 0, result.output
    for protocol in ("corrected", "published"):
        assert f"cifar10h, epochs=2, warmup=1, {protocol} protocol" in " ".join(result.stdout.split())


@pytest.mark.usefixtures("undrawn")
def test_report_writes_tables_and_refuses_other_folders(tmp_path):
    out = tmp_path / "run"
    calmoe(
        "run", "digits", "--methods", "vanilla,mocae", "--seeds", "42,43", "--set", "epochs=2", "--out", out
    )
    answer = calmoe("report", out)
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines()[-1] == f"the report is {out / 'report' / 'report.html'}"
    assert (
        "2 methods on digits, epochs=2, warmup=1, 2 seeds (42 and 43)"
        in (out / "report" / "report.html").read_text()
    )
    text = (out / "report" / "tables.md").read_text()
    assert "digits, epochs=2, warmup=1, corrected protocol" in text
    assert "seed-paired difference to Vanilla MoE" in text
    assert "beside the paper" not in text  # the paper has no table for digits
    assert (out / "report" / "tables" / "corrected.csv").read_text().startswith("method,")
    assert r"\toprule" in (out / "report" / "tables" / "corrected.tex").read_text()
    (tmp_path / "empty").mkdir()
    answer = calmoe("report", tmp_path / "empty")
    assert (answer.exit_code, "is not a run folder" in answer.output) == (2, True)


def test_tensorboard_events(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = calmoe("run", "digits", "--methods", "robust", *SMALL, "--out", tmp_path, "--tensorboard")
    assert result.exit_code == 0, result.output
    events = EventAccumulator(str(tmp_path / "tensorboard" / "seed-42-robust")).Reload()
    assert {"loss", "seconds", "negative_share", "gamma_eff"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("loss")] == [2]


def test_tensorboard_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    line = refused("run", "digits", "--methods", "vanilla", *SMALL, "--out", tmp_path, "--tensorboard")
    assert "pip install" in line


HEAVY = (["run", "digits", "--dry-run"], ["audit", "p.npz"])


@pytest.fixture
def unread(tmp_path, monkeypatch):
    """The end of a pipe that nobody reads, and a file to audit in the current folder."""
    np.savez(tmp_path / "p.npz", probs=np.full((60, 2), 0.5), labels=np.arange(60) % 2)
    monkeypatch.chdir(tmp_path)
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize("options", [["--version"], *at_size([], HEAVY)])
def test_a_reader_that_has_enough_ends_the_command_without_a_word(options, unread):
    command = [sys.executable, "-m", "calmoe", *options]
    ended = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("options", HEAVY)
def test_a_reader_that_has_enough_ends_commands_that_import_much(options, unread, capfd, monkeypatch):
    """In this process, where it is imported already."""
    own = os.dup(1)
    os.dup2(unread, 1)
    try:
        monkeypatch.setattr(sys, "stdout", os.fdopen(1, "w", closefd=False))
        with pytest.raises(SystemExit) as end:
            app(options)
    finally:
        os.dup2(own, 1)
        os.close(own)
    assert (end.value.code, capfd.readouterr().err) == (1, "")


def test_a_pipe_of_our_own_that_breaks_is_told(monkeypatch):
    def broken(*_, **__):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("calmoe.experiments.runner.run", broken)
    assert refused("run", "digits") == "error: Broken pipe\n"
