"""Folders: nothing of the user's is touched, nothing is written elsewhere, nothing hangs.

The minimal cases of a review (groups 1, 4, 7, 8 and part of 12). Each watches a folder of decoys: whatever a
command does, their names and bytes stay.
"""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import calmoe
from calmoe import ownership
from calmoe.errors import InputError
from calmoe.experiments import export as export_room
from calmoe.experiments.dry_run import show_plan
from calmoe.experiments.export import export
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.sealing import MARK, read_seal, read_sealed, seal, write_sealed
from calmoe.experiments.spec import load_preset, narrowed, with_settings
from calmoe.experiments.store import RunFolder, read_results
from calmoe.files import inside, open_lock, open_regular, write_json
from calmoe.ownership import Kind, claimed, owned
from calmoe.predictions import Predictions
from calmoe.report import write
from calmoe.report.write import write_report
from calmoe.validation import read_document
from command_line import calmoe as command
from command_line import refused

LEFT = "0123456789abcdef"  # as the end of a temporary name
METHODS = ("vanilla", "mocae")


@pytest.fixture(scope="module")
def spec():
    settings = ["epochs=1", "warmup=0", "hidden=[4]", "router_hidden=4"]
    return narrowed(with_settings(load_preset("digits"), settings), methods=METHODS, seeds=(42,))


@pytest.fixture(scope="module")
def reference(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "run"
    assert run(spec, folder).exit_code == 0
    return folder


@pytest.fixture
def finished(reference, tmp_path):
    return shutil.copytree(reference, tmp_path / "run")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take seconds, and have their own tests."""
    monkeypatch.setattr(write, "draw_figures", lambda cards, numbers: ({}, {}))


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    path = tmp_path_factory.mktemp("predictions") / "p.safetensors"
    random = np.random.default_rng(0)
    Predictions.from_probs(random.dirichlet([1, 1], size=40), random.integers(0, 2, size=40)).save(path)
    return path


@pytest.fixture(scope="module")
def audited(predictions):
    return calmoe.audit(Predictions.load(predictions))


def tree(folder):
    """All names in the folder, with the bytes of files and where links lead."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def decoys(folder):
    """A user's folder, with names that calmoe has too."""
    names = ["thesis.tex", "report.html", "results.jsonl", f".notes.{LEFT}", "figures/mine.png", "tables.md"]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"mine: {name}")
    return folder


# --- names


@pytest.mark.parametrize(
    "name",
    ["..", ".", "", "a/b", "../a", "/etc", "a\0b", "\udce9", "x" * 256, "é" * 128, 3, None],
)
def test_a_name_that_leads_elsewhere_makes_no_path(name, tmp_path):
    with pytest.raises(InputError):
        inside(tmp_path, "tables", name)
    with pytest.raises(InputError):
        inside(tmp_path, name, "a")


def test_a_link_is_not_followed_out_of_the_folder(tmp_path):
    elsewhere = decoys(tmp_path / "elsewhere")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/figures").symlink_to(elsewhere)
    for names in (["figures"], ["figures", "a.png"]):
        with pytest.raises(InputError, match="is a link"):
            inside(tmp_path / "out", *names)
    (tmp_path / "out/file").touch()
    with pytest.raises(InputError, match="in the way"):
        inside(tmp_path / "out", "file", "a.png")


def test_pipes_devices_and_links_are_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError):
            open_regular(path)
        with pytest.raises((InputError, OSError)):
            open_lock(path)
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**40)
    with pytest.raises(InputError, match="longer than"):
        read_document(tmp_path / "huge")


# --- marks


NONE = Kind("audit", "--out", lambda folder: set())


def put(folder, *names, kind=NONE):
    ownership.put(folder, kind, dict.fromkeys(names, b"ours"))


def test_a_folder_is_claimed_if_new_empty_or_its_own(tmp_path):
    put(tmp_path / "new/below", "a", "figures/b.png")
    (tmp_path / "empty").mkdir()
    put(tmp_path / "empty", "a")
    put(tmp_path / "empty", "a", "c")
    assert owned(tmp_path / "empty", NONE) == {"a", "c"}
    before = tree(tmp_path)
    for kind in ("report", "export"):
        with pytest.raises(InputError, match="belongs to `calmoe audit`"):
            put(tmp_path / "empty", "a", kind=NONE._replace(name=kind))
    with pytest.raises(InputError, match="is not empty"):
        put(tmp_path / "new", "a")
    assert tree(tmp_path) == before


def test_what_is_not_written_any_more_goes_and_what_is_foreign_stands(tmp_path):
    put(tmp_path / "out", "a", "figures/old.png")
    foreign = ["notes.txt", "figures/mine.png", f".notes.{LEFT}", f"figures/.mine.png.{LEFT}"]
    ours = [f".a.{LEFT}", f"figures/.old.png.{LEFT}", f"..calmoe.json.{LEFT}"]
    for name in foreign + ours:
        (tmp_path / "out" / name).write_text("mine")
    put(tmp_path / "out", "a")
    assert {name for name, data in tree(tmp_path / "out").items() if data} == {"a", ".calmoe.json", *foreign}
    before = tree(tmp_path / "out")
    with pytest.raises(InputError, match="in the way, and calmoe did not write it"):
        put(tmp_path / "out", "b", "figures/mine.png")
    assert tree(tmp_path / "out") == before


def test_what_was_stopped_goes_on(tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("calmoe.ownership._replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            put(tmp_path / "out", "a", "b")
    assert owned(tmp_path / "out", NONE) == {"a", "b"}
    put(tmp_path / "out", "a", "b")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            put(tmp_path / "first", "a")
    assert not (tmp_path / "first").exists()
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / f"..calmoe.json.{LEFT}").touch()  # as a kill leaves it
    put(tmp_path / "first", "a")
    assert sorted(tree(tmp_path / "first")) == [".calmoe.json", "a"]


@pytest.mark.parametrize(
    "mark",
    [
        "{",
        "[]",
        '{"kind": "audit"}',
        '{"kind": "audit", "files": [3]}',
        '{"kind": "audit", "files": [["a"]]}',
        '{"kind": "audit", "files": ["../decoys/thesis.tex"]}',
        '{"kind": "audit", "files": ["/etc/passwd"]}',
        '{"kind": "audit", "files": [""]}',
        '{"kind": "\\u001b[31m", "files": []}',
        "[" * 100_000,
    ],
)
def test_a_mark_that_is_damaged_or_leads_out_is_refused(mark, tmp_path):
    decoys(tmp_path / "decoys")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.calmoe.json").write_text(mark)
    before = tree(tmp_path)
    with pytest.raises(InputError) as refusal:
        put(tmp_path / "out", "a")
    assert "\x1b" not in str(refusal.value)
    assert tree(tmp_path) == before


def test_two_at_once_are_kept_apart(tmp_path):
    with (
        claimed(tmp_path / "out", NONE, ["a"]),
        pytest.raises(InputError, match="another calmoe is writing"),
    ):
        put(tmp_path / "out", "a")
    put(tmp_path / "out", "a")


# --- 1: the folders of audits and reports


def test_an_audit_into_a_users_folder_is_refused(predictions, tmp_path, monkeypatch):
    before = tree(decoys(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "is not empty" in refused("audit", predictions, "--out", ".")
    shutil.rmtree(tmp_path / "figures")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/mine.png").write_text("mine: figures/mine.png")
    refused("audit", predictions, "--out", tmp_path)
    assert tree(tmp_path) == before


@pytest.mark.usefixtures("unrendered")
def test_an_audit_keeps_foreign_figures_and_removes_its_own(audited, tmp_path):
    out = tmp_path / "out"
    audited.save(out)
    assert (out / "figures/reliability.png").is_file()
    for name in ("figures/mine.png", "notes.txt"):
        (out / name).write_text("mine")
    (out / f".audit.json.{LEFT}").write_text("half")
    (out / f"figures/.hats.png.{LEFT}").write_text("half")
    mark = json.loads((out / ".calmoe.json").read_text())
    write_json(out / ".calmoe.json", mark | {"files": [*mark["files"], "figures/older.png"]})
    (out / "figures/older.png").write_text("of an earlier audit")
    page = audited.save(out).read_bytes()
    files = tree(out)
    assert files["figures/mine.png"] == files["notes.txt"] == b"mine"
    assert not [name for name in files if LEFT in name or "older" in name]
    assert page == audited.save(tmp_path / "again").read_bytes()


@pytest.mark.usefixtures("unrendered")
def test_an_audit_of_an_earlier_version_is_taken_on(audited, tmp_path):
    out = tmp_path / "out"
    audited.save(out)
    (out / ".calmoe.json").unlink()
    (out / "figures/mine.png").write_text("mine")
    (out / "figures/target.png").write_text("perhaps mine")
    audited.save(out)
    assert (out / "figures/mine.png").read_text() == "mine"
    assert (out / "figures/target.png").read_text() == "perhaps mine"  # no mark says that it is calmoe's
    (out / ".calmoe.json").unlink()
    (out / "audit.json").write_text('{"rows": 3}')
    before = tree(out)
    with pytest.raises(InputError, match="is not empty"):
        audited.save(out)
    assert tree(out) == before


def test_audits_and_reports_stay_out_of_each_others_folders(
    finished, predictions, undrawn, unrendered, tmp_path
):
    write_report([finished])
    assert command("audit", predictions, "--out", tmp_path / "audit").exit_code == 0
    before = tree(tmp_path)
    assert "belongs to `calmoe report`" in refused("audit", predictions, "--out", finished / "report")
    assert "belongs to `calmoe audit`" in refused("report", finished, "--to", tmp_path / "audit")
    for folder in (finished, finished / "nodes"):
        refused("audit", predictions, "--out", folder)
        refused("report", finished, "--to", folder)
        refused("export", finished, "--to", folder)
    refused("run", "digits", "--out", tmp_path / "audit")
    refused("run", "digits", "--out", finished / "report")
    assert tree(tmp_path) == before
    (finished / "report/.calmoe.json").unlink()  # as an earlier version left it
    refused("audit", predictions, "--out", finished / "report")


def test_a_planted_link_in_an_output_folder_is_not_followed(audited, finished, undrawn, unrendered, tmp_path):
    elsewhere = decoys(tmp_path / "elsewhere")
    audited.save(tmp_path / "out")
    write_report([finished], tmp_path / "report")
    for folder in (tmp_path / "out/figures", tmp_path / "report/tables"):
        shutil.rmtree(folder)
        folder.symlink_to(elsewhere)
    (finished / "report").symlink_to(elsewhere)
    before = tree(tmp_path)
    with pytest.raises(InputError, match="is a link"):
        audited.save(tmp_path / "out")
    for to in (tmp_path / "report", None):
        with pytest.raises(InputError, match="is a link"):
            write_report([finished], to)
    assert tree(tmp_path) == before


def test_a_report_over_an_older_one_keeps_what_is_foreign(finished, undrawn, tmp_path):
    to = tmp_path / "report"
    write_report([finished], to)
    (to / "figures").mkdir()
    foreign = ["README.md", "figures/mine.png", "tables/mine.csv", f".notes.{LEFT}"]
    for name in foreign:
        (to / name).write_text("mine")
    (to / f"tables/.corrected.tex.{LEFT}").write_text("half")
    ours = tree(to).keys() - {*foreign, f"tables/.corrected.tex.{LEFT}"}
    for _ in ("marked", "of an earlier version"):
        write_report([finished], to)
        assert tree(to).keys() == ours | {*foreign}
        assert all((to / name).read_text() == "mine" for name in foreign)
        (to / ".calmoe.json").unlink()
    for name in ("sources.json", "curves.json"):
        (to / name).unlink()
    before = tree(to)
    refused("report", finished, "--to", to)
    assert tree(to) == before


# --- 4: paths from a file's content


def resealed(folder, **changes):
    """A copy of the run with another spec.json, sealed as if calmoe had written it."""
    record = read_sealed(folder / "spec.json")
    record["spec"] |= changes.pop("spec", {})
    write_sealed(folder / "spec.json", record | changes)
    return folder


@pytest.mark.parametrize(
    "target", ["../../escaped", "/tmp/escaped", "a/b", "..", "a\0b", "x" * 300, "\ud800"]
)
def test_a_target_does_not_lead_out_of_the_report(target, reference, tmp_path):
    runs = [shutil.copytree(reference, tmp_path / "deep/er" / name) for name in ("a", "b")]
    resealed(runs[0], spec={"target": "photo"})
    resealed(runs[1], spec={"target": target})
    before = tree(tmp_path)
    for arguments in ((*runs, "--to", tmp_path / "deep/er/report"), (runs[1],)):
        said = refused("report", *arguments)
        assert f"{runs[1] / 'spec.json'}: target " in said
    assert "target" in refused("export", runs[1], "--to", tmp_path / "deep/er/export")
    assert tree(tmp_path) == before


def test_a_protocol_does_not_lead_out_of_the_report(finished, undrawn, tmp_path):
    resealed(finished, protocols=["../../escaped"])
    rows = [json.loads(line) | {"protocol": "../../escaped"} for line in (finished / "results.jsonl").open()]
    RunFolder(finished).write_results(rows)
    before = tree(tmp_path)
    with pytest.raises((InputError, ValueError)):
        write_report([finished], tmp_path / "a/report")
    assert tree(tmp_path) == before


# --- 7: --out


@pytest.mark.parametrize("verb", [["run", "digits"], ["sweep", "eta", "digits"]])
def test_a_folder_that_holds_no_run_is_refused(verb, tmp_path, monkeypatch):
    before = tree(decoys(tmp_path))
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--dry-run"]):
        assert "holds no run" in refused(*verb, "--out", ".", *more)
    for name in ("results.jsonl", "spec.json", "nodes", f".notes.{LEFT}"):
        other = tmp_path.parent / f"{tmp_path.name}-{name}"
        other.mkdir()
        (other / name).write_text("mine")
        refused(*verb, "--out", other)
        assert tree(other) == {name: b"mine"}
    assert tree(tmp_path) == before


def test_hidden_files_of_a_users_in_a_run_stand(finished, spec):
    node = next(finished.glob("nodes/*"))
    names = [
        f".notes.{LEFT}",
        f"nodes/{node.name}/.notes.{LEFT}",
        f"nodes/{node.name}/state-mine.safetensors",
    ]
    names += [f"nodes/.notes.{LEFT}", "nodes/mine.txt", "README.md"]
    for name in names:
        (finished / name).write_text("mine")
    (finished / f".results.jsonl.{LEFT}").write_text("half")
    (node / f".history.json.{LEFT}").write_text("half")
    run(spec, finished)
    assert all((finished / name).read_text() == "mine" for name in names)
    assert not (finished / f".results.jsonl.{LEFT}").exists()
    assert not (node / f".history.json.{LEFT}").exists()


@pytest.mark.parametrize("empty", [True, False])
def test_a_lock_is_no_way_to_another_file(empty, finished, spec, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "new" if empty else finished
    folder.mkdir(exist_ok=True)
    lock = folder / ".lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim)
    with pytest.raises(InputError, match="is a link"):
        run(spec, folder)
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(InputError, match="is no regular file"):
        run(spec, folder)
    lock.unlink()
    os.link(victim, lock)
    assert run(spec, folder).exit_code == 0
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "digits", "--out"],
        ["run", "digits", "--data"],
        ["sweep", "eta", "digits", "--out"],
        ["report", "run", "--to"],
        ["export", "run", "--to"],
        ["audit", "p.safetensors", "--out"],
        ["data", "cifar10h", "--to"],
    ],
)
def test_nothing_is_no_folder(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"{arguments[-1]} is empty" in refused(*arguments, "")
    assert list(tmp_path.iterdir()) == []


def test_an_out_that_is_not_utf8_is_refused_before_training(spec, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "calmoe.experiments.preparation.load_dataset", lambda *_: pytest.fail("data were read")
    )
    for start in (run, show_plan):
        with pytest.raises(InputError, match=r"caf\\xe9 is no UTF-8"):
            start(spec, tmp_path / os.fsdecode(b"caf\xe9"))
    assert list(tmp_path.iterdir()) == []


def test_reports_and_exports_may_have_any_name(finished, undrawn, tmp_path):
    to = tmp_path / os.fsdecode(b"caf\xe9")
    for verb in ("report", "export"):
        result = command(verb, finished, "--to", to / verb)
        assert result.exit_code == 0, result.output
        assert r"caf\xe9" in result.stdout


def test_a_run_without_its_record_goes_on(finished, reference, spec):
    (finished / "spec.json").unlink()
    (finished / "README.md").write_text("mine")
    trained = {path: path.stat().st_mtime_ns for path in finished.glob("nodes/*/*")}
    assert run(spec, finished).exit_code == 0
    assert trained == {path: path.stat().st_mtime_ns for path in finished.glob("nodes/*/*")}
    assert read_results(finished) == read_results(reference)
    (finished / "spec.json").unlink()
    (finished / "results.jsonl").write_text("mine")
    with pytest.raises(InputError, match="is of no known run"):
        run(spec, finished)
    assert (finished / "results.jsonl").read_text() == "mine"
    assert (finished / "README.md").read_text() == "mine"


def test_a_start_that_was_killed_goes_on(spec, tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / f".spec.json.{LEFT}").write_text("half")
    assert run(spec, tmp_path).exit_code == 0
    assert not (tmp_path / f".spec.json.{LEFT}").exists()


@pytest.mark.parametrize("planted", ["nodes", "node", "tensorboard"])
def test_a_planted_link_in_a_run_is_not_followed(planted, finished, spec, tmp_path):
    elsewhere = decoys(tmp_path / "elsewhere")
    link = {"node": next(finished.glob("nodes/*"))}.get(planted, finished / planted)
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(elsewhere)
    before = tree(elsewhere)
    with pytest.raises(InputError, match="is a link"):
        run(spec, finished, tensorboard=True)
    assert tree(elsewhere) == before


# --- 8: exports


def test_an_export_is_whole_and_the_same_command_goes_on(reference, tmp_path, monkeypatch):
    written = []

    def killed(*arguments, **facts):
        if written:
            raise KeyboardInterrupt
        written.append(arguments[0])
        seal(*arguments, **facts)

    to = tmp_path / "to"
    with monkeypatch.context() as patch:
        patch.setattr(export_room, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            export(reference, to)
    whole = [path.name for path in to.iterdir() if path.name.endswith("-42")]
    assert whole == ["vanilla-42"]
    (to / ".unfinished" / f".test.safetensors.{LEFT}").write_text("half")
    first = {path: path.stat().st_mtime_ns for path in (to / "vanilla-42").iterdir()}
    assert {path.parent.name for path in export(reference, to).files} == {"vanilla-42", "mocae-42"}
    assert first == {path: path.stat().st_mtime_ns for path in (to / "vanilla-42").iterdir()}
    assert {path.name for path in to.iterdir()} == {".calmoe.json", "vanilla-42", "mocae-42"}
    before = tree(to)
    monkeypatch.setattr(Run, "read_models", lambda *_, **__: pytest.fail("made again"))
    export(reference, to)
    assert tree(to) == before


def test_a_resumed_export_is_the_one_that_was_not_stopped(reference, tmp_path):
    export(reference, tmp_path / "parts", ["mocae"])
    export(reference, tmp_path / "parts")
    export(reference, tmp_path / "whole")
    parts, whole = (
        {name: data for name, data in tree(tmp_path / folder).items() if name != ".calmoe.json"}
        for folder in ("parts", "whole")
    )
    assert parts == whole


def test_an_export_of_another_run_or_option_is_refused(reference, finished, spec, tmp_path):
    to = tmp_path / "to"
    export(reference, to, ["vanilla"])
    other = tmp_path / "other"
    run(narrowed(with_settings(spec, ["eta=3", "hidden=[5]"]), methods=("vanilla",)), other)
    before = tree(to)
    for source, scaled in ((other, False), (reference, True)):
        with pytest.raises(InputError, match="vanilla-42 is there already"):
            export(source, to, scaled=scaled)
    assert len(export(finished, to, ["vanilla"]).files) == 2  # a copy is the same run
    assert tree(to) == before
    (to / "vanilla-42/test.safetensors").write_bytes(b"mine")
    with pytest.raises(InputError, match="is there already"):
        export(reference, to)
    assert (to / "vanilla-42/test.safetensors").read_bytes() == b"mine"


def test_what_is_noted_of_a_model_is_noted_again(reference, tmp_path, monkeypatch):
    def separable(self, *_):
        self.temperature_, self.status_ = 1.0, "separable"
        return self

    monkeypatch.setattr("calmoe.experiments.export.Temperature.fit", separable)
    notes = [export(reference, tmp_path, ["vanilla"], scaled=True).notes for _ in range(2)]
    assert notes[0] == notes[1] != []


def test_an_export_into_a_users_folder_is_refused(reference, tmp_path):
    before = tree(decoys(tmp_path))
    refused("export", reference, "--to", tmp_path)
    assert tree(tmp_path) == before


def test_an_export_of_an_earlier_version_is_added_to(reference, tmp_path):
    export(reference, tmp_path, ["vanilla"])
    for name in (".calmoe.json", "vanilla-42/done.json"):
        (tmp_path / name).unlink()
    with pytest.raises(InputError, match="vanilla-42 is there already"):
        export(reference, tmp_path)
    export(reference, tmp_path, ["mocae"])
    assert {path.name for path in tmp_path.iterdir()} == {".calmoe.json", "vanilla-42", "mocae-42"}


def test_an_export_that_is_killed_anywhere_goes_on(reference, tmp_path):
    """SIGKILL just before each rename of a file or folder."""
    export(reference, tmp_path / "whole")
    for moment in range(1, 10):  # the mark, then three files and a folder a model
        to, process = tmp_path / str(moment), os.fork()
        if process == 0:
            export_until(moment, reference, to)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
        assert all(read_seal(folder) is not None for folder in to.glob("*-42"))
        export(reference, to)
        assert tree(to) == tree(tmp_path / "whole")


def export_until(moment, folder, to):
    """Be killed before the rename of that number."""
    moves = iter(range(1, 1000))

    def before(move):
        def counted(*arguments, **options):
            if next(moves) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return move(*arguments, **options)

        return counted

    try:
        os.replace, os.rename = before(os.replace), before(os.rename)
        export(folder, to)
    finally:
        os._exit(0)


# --- 12: seals


@pytest.mark.parametrize("name", ["/dev/zero", "../../victim", "link", "pipe", "sparse", "\udce9", "a\0b"])
def test_a_seal_that_names_anything_else_is_broken(name, finished, spec, tmp_path):
    (tmp_path / "victim").write_text("mine")
    node = next(finished.glob("nodes/*"))
    for folder in (finished, node):
        (folder / "link").symlink_to("/dev/zero")
        os.mkfifo(folder / "pipe")
        (folder / "sparse").touch()
        os.truncate(folder / "sparse", 2**42)
        mark = read_sealed(folder / MARK)
        write_sealed(folder / MARK, mark | {"files": mark["files"] | {name: "0" * 64}})
    with pytest.raises(InputError, match="has no intact results"):
        read_results(finished)
    assert node.name not in Run.open(finished).done
    assert run(spec, finished).exit_code == 0  # the node is trained again
    assert read_seal(node, key=node.name) is not None
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("files", [None, [], {}, "results.jsonl", {"results.jsonl": None}])
def test_a_seal_that_vouches_for_nothing_is_broken(files, finished):
    write_sealed(finished / MARK, {"files": files, "rows": 2})
    (finished / "results.jsonl").unlink()
    os.mkfifo(finished / "results.jsonl")
    with pytest.raises(InputError, match="has no intact results"):
        read_results(finished)


@pytest.mark.parametrize("name", ["spec.json", "environment.json", "done.json"])
def test_a_pipe_in_place_of_a_document_does_not_hang(name, finished, undrawn, tmp_path):
    (finished / name).unlink()
    os.mkfifo(finished / name)
    result = command("report", finished, "--to", tmp_path / "report")
    assert result.exit_code == (2 if name == "spec.json" else 0), result.output


def test_half_written_weights_are_no_state(finished, spec):
    node = next(finished.glob("nodes/*"))
    (node / MARK).unlink()
    os.mkfifo(node / f"state-00001-{'0' * 32}.safetensors")
    torch.manual_seed(0)
    assert run(spec, finished).exit_code == 0
