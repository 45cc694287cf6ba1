"""`calmoe report` over runs on several targets; tiny images, a small network."""

import csv
import json
import shutil
import statistics
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

import chromium
from calmoe.data import DATASETS, domains
from calmoe.experiments.store import RunFolder
from calmoe.report import write
from command_line import calmoe
from haste import unrendered
from image_folders import write_images
from run_folders import drop
from sizes import at_size
from synthetic_curves import draw_without_curves

SETTINGS = ("backbone=mlp", "hidden=[8]", "router_hidden=4", "epochs=2", "warmup=1", "batch=40")
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]
TARGETS = ("clipart", "photo", "sketch")


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        small = replace(domains.CARD, load=partial(domains.load, size=32))
        patch.setitem(DATASETS, "domains", small)
        yield


@pytest.fixture
def undrawn(unrendered, monkeypatch):
    """Figures take seconds, and have their own tests."""
    monkeypatch.setattr(write, "draw_figures", draw_without_curves)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), count=10)


def run(images, out, target, *options, verb=("run",), methods="vanilla,robust", seeds="42,43"):
    chosen = ["--data", images, "--target", target, "--methods", methods, "--seeds", seeds, "--out", out]
    result = calmoe(*verb, "domains", *chosen, *SMALL, *options)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="module")
def runs(images, tmp_path_factory):
    """One run a target."""
    folder = tmp_path_factory.mktemp("runs")
    return {target: run(images, folder / target, target) for target in TARGETS}


@pytest.fixture(scope="module")
def report(runs, images, tmp_path_factory):
    to = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch, at_size(unrendered, nullcontext)():
        patch.setattr(write, "draw_figures", draw_without_curves)
        result = calmoe(
            "report", runs["sketch"], runs["photo"], runs["clipart"], "--to", to, "--data", images
        )
    assert result.exit_code == 0, result.output
    assert f"the report is {to / 'report.html'}" in result.stdout
    return to


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_each_target_has_its_own_report_and_all_have_one(report, runs):
    for target in TARGETS:
        own = report / target
        assert f"Calibration on domains-{target}" in (own / "report.html").read_text()
        assert read(own / "results.jsonl") == read(runs[target] / "results.jsonl")
        assert (own / "figures/domains.png").exists()
    rows = read(report / "results.jsonl")
    assert [row.pop("target") for row in rows] == [target for target in TARGETS for _ in range(4)]
    assert rows == [row for target in TARGETS for row in read(runs[target] / "results.jsonl")]
    assert {source["spec"]["target"] for source in json.loads((report / "sources.json").read_text())} == set(
        TARGETS
    )
    names = ("targets", "targets_scatter", "targets_reliability", "targets_reliability_scaled")
    assert sorted(path.stem for path in (report / "figures").iterdir()) == sorted(names)
    page = (report / "report.html").read_text()
    assert "3 targets: clipart (30 rows), photo (30 rows) and sketch (30 rows)" in page
    assert "Nothing: every method has all 2 seeds on every target." in page
    assert "temperatures are fitted on 6 validation rows of those" in page


@pytest.mark.slow
def test_the_tables_hold_the_mean_over_targets_within_seeds(report):
    rows = read(report / "results.jsonl")

    def mean(method, seed):
        return statistics.mean(r["ece_ts"] for r in rows if (r["method"], r["seed"]) == (method, seed))

    with (report / "tables/corrected.csv").open() as file:
        cells = {row["method"]: row for row in csv.DictReader(file)}
    for method in ("vanilla", "robust"):
        of = [mean(method, 42), mean(method, 43)]
        assert float(cells[method]["mean_over_targets_ece_ts"]) == pytest.approx(statistics.mean(of))
        assert float(cells[method]["mean_over_targets_ece_ts_se"]) == pytest.approx(abs(of[0] - of[1]) / 2)
        assert cells[method]["mean_over_targets_seeds"] == "2"
    with (report / "tables/corrected-mean.csv").open() as file:
        (row,) = [row for row in csv.DictReader(file) if row["metric"] == "ece_ts"]
    a, b = (mean("robust", seed) - mean("vanilla", seed) for seed in (42, 43))
    half = 12.7062047362 * abs(a - b) / 2  # Student's t with one degree of freedom
    assert float(row["difference"]) == pytest.approx((a + b) / 2)
    assert (float(row["low"]), float(row["high"])) == pytest.approx(((a + b) / 2 - half, (a + b) / 2 + half))


def test_a_partial_run_is_reported_and_names_what_is_missing(runs, images, undrawn, tmp_path):
    partial_run = shutil.copytree(runs["photo"], tmp_path / "photo")
    drop(partial_run, "robust", seed=43)
    (partial_run / "done.json").unlink()
    lone = run(images, tmp_path / "lone", "sketch", methods="vanilla", seeds="42")
    result = calmoe("report", partial_run, lone, "--to", tmp_path / "report")
    assert result.exit_code == 0, result.output
    assert "no figure photo/examples: " in result.stdout  # no --data
    page = (tmp_path / "report/report.html").read_text()
    assert "photo: Robust MoE lacks seed 43." in page
    assert "sketch: no seed of Robust MoE; Vanilla MoE lacks seed 43." in page
    assert "Unknown: an interval takes at least two seeds" in page
    table = (tmp_path / "report/tables.md").read_text()
    assert "| Robust MoE | 1 |" in table


def test_folders_of_one_target_count_as_one_run(runs, images, undrawn, tmp_path):
    more = run(images, tmp_path / "more", "photo", methods="single", seeds="42")
    result = calmoe("report", runs["photo"], more, runs["sketch"], "--to", tmp_path / "report")
    assert result.exit_code == 0, result.output
    rows = read(tmp_path / "report/photo/results.jsonl")
    assert [row["method"] for row in rows] == ["single", "vanilla", "vanilla", "robust", "robust"]
    assert "sketch: no seed of Single Expert." in (tmp_path / "report/report.html").read_text()


def test_a_sweep_goes_into_its_targets_own_report(runs, images, undrawn, tmp_path):
    options = ("--values", "1,2")
    swept = run(
        images, tmp_path / "eta", "photo", *options, verb=("sweep", "eta"), methods="robust", seeds="42"
    )
    result = calmoe("report", runs["photo"], swept, runs["sketch"], "--to", tmp_path / "report")
    assert result.exit_code == 0, result.output
    assert "Sweep of η" in (tmp_path / "report/photo/report.html").read_text()
    refused = calmoe("report", swept, runs["sketch"], "--to", tmp_path / "none")
    assert_refused(refused, f"{swept} is a sweep on photo and no run on photo is here: report it apart")
    assert not (tmp_path / "none").exists()


def test_a_report_over_an_older_one_of_more_targets_says_what_is_left(runs, undrawn, tmp_path):
    assert "note:" not in calmoe("report", *runs.values(), "--to", tmp_path).stdout
    for folders, left in ((["clipart", "photo"], ["sketch"]), (["photo"], ["clipart", "photo", "sketch"])):
        result = calmoe("report", *(runs[name] for name in folders), "--to", tmp_path)
        assert result.exit_code == 0, result.output
        notes = [line for line in result.stdout.splitlines() if line.startswith("note: ")]
        said = "is of an older report and not of this one; remove it, or keep it"
        assert notes == [f"note: {tmp_path / name} {said}" for name in left]
        assert (tmp_path / "sketch/report.html").exists()


def assert_refused(result, said):
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_bad_combinations_are_one_line(runs, images, finished, tmp_path):
    longer = run(images, tmp_path / "longer", "sketch", "--set", "eta=3", methods="vanilla", seeds="42")
    to = tmp_path / "none"
    assert_refused(calmoe("report", runs["photo"], finished, "--to", to), "dataset is 'domains' and 'digits'")
    refused = calmoe("report", runs["clipart"], runs["photo"], longer, "--to", to)
    assert_refused(refused, "training.eta is 2.0 and 3.0")
    assert_refused(calmoe("report", runs["photo"], runs["sketch"]), "say where, --to DIR")
    other = shutil.copytree(runs["photo"], tmp_path / "other")
    folder = RunFolder(other)
    folder.write_record(replace(folder.record(), fingerprint="of other images"))
    assert_refused(
        calmoe("report", runs["photo"], other, "--to", to),
        "the data differ: other images or texts than those of the first)",
    )
    assert not to.exists()


@pytest.mark.slow
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("width", chromium.WIDTHS)
def test_it_fits_and_its_headings_sort(report, browser, width):
    browser.open(report / "report.html", width, "light")
    assert browser.run("document.scrollingElement.scrollWidth") <= width
    shown = browser.run(
        "[...document.querySelectorAll('caption')].map((c) => c.getBoundingClientRect().right)"
    )
    assert max(shown) <= width
    button = 'document.querySelector("#results table thead tr:last-child").querySelectorAll("button")[2]'
    browser.run(f"{button}.click()")
    assert browser.run(f"{button}.parentElement.ariaSort") == "ascending"
    cells = '[...document.querySelector("#results table").querySelectorAll("tbody tr")].map((r) => r.cells[2]'
    values = [float(text.split()[0]) for text in browser.run(f"{cells}.textContent)")]
    assert values == sorted(values)
    links = browser.run("[...document.querySelectorAll('#each-target a')].map((a) => a.getAttribute('href'))")
    assert links == [f"{target}/report.html" for target in TARGETS]
    assert browser.complaints() == []
