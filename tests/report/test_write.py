import json
import math
import shlex
import shutil
import statistics
from dataclasses import replace

import pytest

from calmoe.errors import InputError
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.sealing import read_sealed, write_sealed
from calmoe.experiments.spec import load_preset, narrowed, parse_methods, parse_seeds, with_settings
from calmoe.experiments.store import read_results
from calmoe.render.drawing import Drawn, new_figure
from calmoe.report import examples, write
from calmoe.report.figure_list import run_figures
from calmoe.report.reproduction import command
from calmoe.report.write import write_report
from run_folders import drop, record_of
from sizes import at_size
from synthetic_curves import draw_without_curves


@pytest.fixture
def undrawn(unrendered, monkeypatch):
    """Figures take seconds, and have their own tests."""

    def draw(cards, numbers):
        drawn, missing = draw_without_curves(cards, numbers)
        return drawn, missing | ({"frontier": "<not> now"} if numbers.curves else {})

    monkeypatch.setattr(write, "draw_figures", draw)
    monkeypatch.setattr(examples, "examples_figure", lambda shown: Drawn(new_figure(1, 1), "an empty figure"))


def page_of(run, to):
    return write_report([run], to).page.read_text()


def history_of(path, method, seed):
    opened = Run.open(path)
    (key,) = [model.key for model in opened.models if (model.method, model.seed) == (method, seed)]
    return json.loads((opened.folder.node(key) / "history.json").read_bytes())[1:]  # after the warm-up


def test_the_page_says_what_why_and_how(reference, undrawn, tmp_path):
    page = page_of(reference, tmp_path / "report")
    batch = at_size("batch=128, ", "")
    for said in (
        "<h1>Calibration on digits</h1>",
        f"4 methods on digits, hidden=[8], router_hidden=4, epochs=3, warmup=1, {batch}1 seed (42)",
        "There is one seed, so there are no intervals",
        "Nothing: every method has all 1 seed",
        "Not drawn, frontier: &lt;not&gt; now.",
        "calmoe run digits --methods single,vanilla,mocae,robust --seeds 42",
        "training.learning_rate",
    ):
        assert said in page
    again = page_of(reference, tmp_path / "again")
    assert again == page


def test_a_failed_method_is_named(finished, undrawn, tmp_path):
    drop(finished, "robust")
    (finished / "results.jsonl").unlink()
    page = page_of(finished, tmp_path / "report")
    assert "Robust MoE: no seed is finished." in page
    methods = {json.loads(line)["method"] for line in (tmp_path / "report/results.jsonl").open()}
    assert methods == {"single", "vanilla", "mocae"}


def test_a_run_that_was_stopped_is_reported_as_far_as_it_came(finished, undrawn, tmp_path):
    sealed = (finished / "results.jsonl").read_bytes()
    assert page_of(finished, tmp_path / "sealed")
    (finished / "done.json").unlink()
    page_of(finished, tmp_path / "computed")
    assert (tmp_path / "sealed" / "results.jsonl").read_bytes() == sealed
    assert (tmp_path / "computed" / "results.jsonl").read_bytes() == sealed


def test_without_a_hard_subset(finished, undrawn, tmp_path):
    record = read_sealed(finished / "spec.json")
    write_sealed(finished / "spec.json", {**record, "hard": None})
    (finished / "done.json").unlink()
    page = page_of(finished, tmp_path / "report")
    assert "These data have no hard subset" in page


def test_without_vanilla(finished, undrawn, tmp_path):
    drop(finished, "vanilla")
    (finished / "done.json").unlink()
    page = page_of(finished, tmp_path / "report")
    assert "There are no results of Vanilla MoE in this run" in page
    assert 'href="#against-vanilla-moe"' not in page


def test_where_it_ran_may_be_unknown(finished, undrawn, tmp_path):
    (finished / "environment.json").write_text("damaged")
    assert "not recorded" in page_of(finished, tmp_path / "report")


def test_nothing_finished_is_one_line(finished, tmp_path):
    shutil.rmtree(finished / "nodes")
    with pytest.raises(InputError, match="no finished method"):
        write_report([finished], tmp_path / "report")
    with pytest.raises(InputError, match="is not a run folder"):
        write_report([tmp_path], tmp_path / "report")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["epochs=10"],
        ["hidden=[8, 8]", "routing=top2", "eta=0.5"],
        ["forget_moments=true", "weights='18'"],
    ],
)
def test_the_command_gives_the_same_run(changes):
    spec = with_settings(load_preset("digits"), changes)
    spec = narrowed(spec, methods=("vanilla", "robust"), seeds=(7, 8), protocol="published")
    words = shlex.split(command(record_of(spec)))
    options = list(zip(words[3::2], words[4::2], strict=True))
    given = dict(options)
    again = with_settings(load_preset(words[2]), [value for name, value in options if name == "--set"])
    assert spec == narrowed(
        again,
        methods=parse_methods(given["--methods"]),
        seeds=parse_seeds(given["--seeds"]),
        protocol=given["--protocol"],
    )


def test_epochs_do_not_move_the_warmup():
    spec = with_settings(load_preset("digits"), ["epochs=25", "warmup=20"])
    assert "--set epochs=25 --set warmup=20" in command(record_of(spec))


def test_the_command_names_the_target_and_the_weights():
    spec = narrowed(with_settings(load_preset("pacs"), ["weights=a b.pth"]), target="sketch")
    said = "calmoe run pacs --data DIR --target sketch --set 'weights=a b.pth'"
    assert command(record_of(spec)) == said
    assert spec.name == "pacs-sketch"


def test_what_the_preset_says_is_left_out():
    assert command(record_of(load_preset("digits"))) == "calmoe run digits"


def test_sweeps_stand_beside_the_run(reference, swept, undrawn, tmp_path):
    written = write_report([reference, *swept], tmp_path)
    assert {"sweep_eta-corrected", "sweep_warmup-corrected", "eta_gamma"} <= set(written.tables)
    assert {"examples", "sweep_eta", "sweep_warmup", "eta_gamma"} <= set(written.figures)
    page = written.page.read_text()
    for said in (
        "Sweep of η",
        "2 values from 1 to 2, 2 seeds",
        "calmoe sweep eta digits --values 1,2 --seeds 42,43",
        "calmoe report reproduced/digits reproduced/digits-eta reproduced/digits-warmup",
        "The worst failures, not typical images",
    ):
        assert said in page
    rows = [json.loads(line) for line in (tmp_path / "sweep_eta.jsonl").open()]
    assert [(row["value"], row["seed"]) for row in rows] == [(1, 42), (1, 43), (2, 42), (2, 43)]
    assert len(json.loads((tmp_path / "sources.json").read_text())) == 3


def test_a_sweep_alone_is_a_report(swept, tmp_path):
    written = write_report(swept[1:], tmp_path)
    assert written.tables == ["sweep_warmup-corrected"]
    assert written.figures == ["sweep_warmup"]
    page = written.page.read_text()
    assert "Sweep of warm-up epochs" in page
    assert "ECE of the hard subset, raw and after a temperature, and accuracy, by warm-up epochs." in page
    assert not (tmp_path / "results.jsonl").exists()


def test_a_later_folder_replaces_models_and_adds_its_own(finished, tiny, quiet, undrawn, tmp_path):
    later = tmp_path / "later"
    run(narrowed(tiny, methods=("vanilla", "fgr", "robust"), seeds=(42, 43)), later, console=quiet)
    drop(later, "robust", seed=42)  # as if it had failed: the earlier one's stands
    (later / "done.json").unlink()
    record = read_sealed(finished / "spec.json")  # as written before there were targets and weights
    del record["spec"]["target"], record["spec"]["model"]["weights"]
    write_sealed(finished / "spec.json", record)
    written = write_report([finished, later], tmp_path / "report")
    rows = [json.loads(line) for line in (tmp_path / "report" / "results.jsonl").open()]
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("single", 42), ("vanilla", 42), ("vanilla", 43), ("fgr", 42), ("fgr", 43),
        ("robust", 42), ("robust", 43),
    ]  # fmt: skip
    assert rows[0] == read_results(finished)[0]
    assert rows[5] == read_results(finished)[3]
    page = written.page.read_text()
    assert "MoCaE: no seed is finished." in page  # its weights were replaced
    shown = json.loads((tmp_path / "report" / "examples.json").read_text())["images"][0]["methods"]
    assert list(shown) == ["single", "vanilla", "fgr", "robust"]
    assert "Single Expert: 1 seed of 2 not finished (43)." in page
    timing = json.loads((tmp_path / "report" / "timing.json").read_text())
    epochs = {method: of["epochs"] for method, of in timing.items()}
    assert epochs == {"single": 3, "vanilla": 2 * 2, "fgr": 2 * 2, "robust": 2 * 2}  # two after the warm-up
    found = [(finished, "robust", 42), (later, "robust", 43)]
    seconds = [entry["seconds"] for model in found for entry in history_of(*model)]
    assert len(seconds) == 4
    assert timing["robust"]["median_epoch_seconds"] == round(statistics.median(seconds), 4)


def test_a_sweep_that_was_stopped_says_what_is_missing(swept, undrawn, tmp_path):
    folder = shutil.copytree(swept[0], tmp_path / "sweep")
    opened = Run.open(folder)
    (key,) = [model.key for model in opened.models if (model.point, model.seed) == ((1,), 43)]
    shutil.rmtree(opened.folder.node(key))
    (folder / "done.json").unlink()
    page = page_of(folder, tmp_path / "report")
    assert "Not finished: seed 43 robust eta 1." in page


def test_damaged_predictions_are_as_good_as_none(finished, undrawn, tmp_path):
    (damaged,) = [p for p in finished.glob("nodes/*/history.json") if "gamma_eff" in p.read_text()]
    (damaged.parent / "test.safetensors").write_bytes(b"cut")
    (finished / "done.json").unlink()
    assert "Robust MoE: no seed is finished." in page_of(finished, tmp_path / "report")


def test_folders_of_another_kind_are_refused(finished, swept, tiny, quiet, tmp_path):
    other = tmp_path / "other"
    run(with_settings(narrowed(tiny, methods=("single",)), ["hidden=[4]"]), other, console=quiet)
    with pytest.raises(InputError, match=r"model\.hidden is"):
        write_report([finished, other], tmp_path / "report")
    with pytest.raises(InputError, match="second sweep of eta"):
        write_report([swept[0], swept[0]], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_one_bad_figure_never_costs_the_report(finished, monkeypatch, tmp_path):
    bad = new_figure(1, 1)
    bad.subplots().plot([1, 2], [math.nan, math.nan], marker="o", markevery=0.15)  # fails when it is saved
    figures = {"frontier": Drawn(bad, "nothing"), "tilt": Drawn(new_figure(1, 1), "an empty figure")}
    cards = [
        replace(c, draw=lambda _, name=c.name: figures[name]) for c in run_figures() if c.name in figures
    ]
    fails = [replace(c, draw=lambda _: 1 / 0) for c in run_figures() if c.name == "examples"]
    monkeypatch.setattr(write, "run_figures", lambda swept: [*cards, *fails])
    written = write_report([finished], tmp_path / "report")
    assert written.figures == ["tilt"]
    assert written.missing["examples"] == "it could not be drawn (ZeroDivisionError: division by zero)"
    assert written.missing["frontier"].startswith("it could not be drawn")
    assert "Not drawn, frontier: it could not be drawn" in written.page.read_text()
    assert not (tmp_path / "report/figures/frontier.png").exists()


def test_wrong_data_that_were_asked_for_are_refused(finished, undrawn, tmp_path):
    record = read_sealed(finished / "spec.json")
    write_sealed(finished / "spec.json", {**record, "fingerprint": "of other images"})
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(InputError, match=f"there is no {elsewhere}: --data is"):
        write_report([finished], tmp_path / "report", data=elsewhere)
    elsewhere.mkdir()
    with pytest.raises(InputError, match=r"the data in .*elsewhere are not those of the run: give its own"):
        write_report([finished], tmp_path / "report", data=elsewhere)
    assert not (tmp_path / "report").exists()


def test_a_file_is_no_place_for_a_report(finished, tmp_path):
    for to in (tmp_path / "file", None):
        where = to or finished / "report"
        where.write_text("mine")
        with pytest.raises(InputError, match=f"--to must be a folder, and {where} is a file"):
            write_report([finished], to)
        assert where.read_text() == "mine"


def test_without_the_images_there_are_no_examples(finished, undrawn, monkeypatch, tmp_path):
    def gone(*_):
        raise InputError("give --data")

    monkeypatch.setattr("calmoe.report.images.load_dataset", gone)
    assert write_report([finished], tmp_path / "report").missing["examples"] == "give --data"
