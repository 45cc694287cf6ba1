"""The whole audit: what it says of each kind of world, what it writes, what it refuses."""

import json
import os
import pkgutil
import re
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import safetensors.numpy
import torch
from typer.testing import CliRunner

import calmoe
from calmoe import worlds
from calmoe.auditing.audit_report import SECTIONS, AuditReport, _checked
from calmoe.auditing.presentation.figures import Figure
from calmoe.auditing.presentation.hidden_findings import sentences as hidden_sentences
from calmoe.auditing.sections.calibration import sentences as calibration_sentences
from calmoe.auditing.sections.section import Findings, PageSection, Section
from calmoe.auditing.statistics.splits import middle
from calmoe.auditing.steps import Steps
from calmoe.commands import app
from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.metrics import ece
from calmoe.new_rows import new_rows
from calmoe.predictions import Predictions
from calmoe.render.page import Point
from calmoe.worlds import WORLDS
from haste import briefly, hastily
from sizes import at_size
from strategies import divergence, generator, random_output

HEADER = {
    "rows",
    "classes",
    "num_experts",
    "of",
    "bins",
    "level",
    "seed",
    "unlike",
    "out_of_order",
    "routed",
    "repeats",
    "left_out",
}


@pytest.fixture(scope="module", params=WORLDS)
def name(request):
    """All tests of one world follow each other, so that one worker audits it, and once."""
    return request.param


@cache
def report_of(name):
    with briefly():
        return calmoe.audit(WORLDS[name](3).sample(at_size(2500, 4000), seed=0))


def test_each_world_is_told_apart(name):
    report = report_of(name)
    if name in ("calibrated", "miscalibrated"):
        assert report.hidden.p_hidden > 0.01
    if name == "miscalibrated":
        assert report.hidden.p_calibrated < 0.001
        assert report.indicators.found.any()
    if name in ("cancelling", "hard-routed"):
        assert report.hidden.p_hidden < 0.001
        assert report.aggregate.ece.low == 0
        assert report.hidden.cancelled.low > 0
    if name == "calibrated experts":
        assert report.aggregate.worse_than_experts


def test_it_says_in_short_what_was_found():
    clean, cancelling = report_of("calibrated"), report_of("cancelling")
    assert repr(clean) == clean.summary()
    assert clean.verdict.truth == cancelling.verdict.truth == "may be true"
    assert (clean.verdict.hidden == "hidden", cancelling.verdict.hidden) == (False, "hidden")
    assert clean.summary() != cancelling.summary()


def test_the_words_say_what_the_numbers_say(name):
    points = filter(None, (section.summary(report_of(name)) for section in SECTIONS))
    said = {point.lead: point.text for point in points}
    if name == "calibrated":
        assert "no miscalibration" in said["Hidden miscalibration"]
        assert "No repair is recommended" in said["Repair"]
        assert "the ECE stays below" in said["Certificates"]
    if name == "cancelling":
        assert "cancels inside the bins" in said["Hidden miscalibration"]
        repair = report_of(name).repair
        assert repair.chosen == "routing"  # recommended only where the ECE does not rise
        assert ("but raises the ECE" in said["Repair"]) == (
            "routing" in repair.worse or "chosen" in repair.worse
        )
        assert "boosting by routing" in said["Repair"].lower()
    if name == "calibrated experts":
        assert "worse than every one of its experts" in said["Aggregate"]
    assert "nan" not in " ".join(said.values())


def test_the_numbers_are_json(name):
    report = report_of(name)
    held = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert held["aggregate"]["ece"]["value"] == report.aggregate.ece.value
    assert held["hidden"]["witness"]["high"] is None  # one-sided
    assert "densities" not in held["fragility"]["configurations"]
    assert held["rows"] == at_size(2500, 4000)
    assert held["certificates"]["signed"]["ece"][0]["high"] == report.certificates.signed.ece[0].high
    assert held["certificates"]["cross_entropy"]["ece"][0]["high"] is None  # no bound
    change = held["repair"]["choosing"]["nll"]["against_temperature"]
    assert change["value"] == report.repair.choosing.nll.against_temperature.value
    assert "fitted" not in held["repair"]


@pytest.mark.usefixtures("unrendered")
def test_minus_signs_are_minus_signs(name):
    page = report_of(name).files()["report.html"].decode()
    text = report_of(name).summary() + re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "−0." in text
    assert not re.findall(r".{20}(?<![\w-])-\d.{20}", text)


def test_a_report_is_written_whole_and_the_same_twice(tmp_path):
    page, again = (report_of("cancelling").save(tmp_path / name) for name in "ab")
    assert page.read_bytes() == again.read_bytes()
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        ".calmoe.json",
        "audit.json",
        "figures",
        "repair.json",
        "report.html",
        "reweightings.safetensors",
    }
    for heading in ("Hidden miscalibration", "Fragility", "Auditors", "Certificates", "Repair"):
        assert heading in page.read_text()
    for drawn in report_of("cancelling").figures().values():
        assert "nan" not in drawn.alt


@pytest.mark.usefixtures(at_size("hasty", "brief"))
def test_many_classes_are_judged_by_confidence():
    output = random_output(0, n=1000, classes=5, experts=3)
    labels = torch.multinomial(output.probs, 1, generator=generator(1)).squeeze(1)
    report = calmoe.audit(Predictions(output=output, labels=labels))
    assert report.classes == 5
    assert report.aggregate.ece.low == 0
    assert report.hidden.p_calibrated > 0.001


@pytest.mark.usefixtures("hasty", "unrendered")
def test_fifty_rows_give_a_report_that_says_what_it_leaves_out(tmp_path):
    report = calmoe.audit(worlds.cancelling(0).sample(50, seed=0))
    assert report.hidden is None
    assert report.fragility is None
    assert "50 rows" in report.left_out["fragility"]
    assert report.repair is None
    assert "50 rows" in report.left_out["repair"]
    assert report.certificates.signed.ece[0].high > report.certificates.signed.ece[0].value
    assert "50 rows are too few" in report.summary()
    assert "left out: fragility" in report.save(tmp_path).read_text()


@pytest.mark.usefixtures("hasty", "unrendered")
def test_one_expert_and_two_classes_hide_nothing_behind_the_probability_of_one():
    probs = np.random.default_rng(0).dirichlet([1, 1], size=400)
    predictions = Predictions.from_probs(probs, (probs[:, 1] > 0.5).astype(int))
    report = calmoe.audit(predictions, of=1)
    assert report.hidden is None
    assert "one expert" in report.left_out["hidden miscalibration"]
    assert calmoe.audit(predictions).hidden is not None  # the predicted class may tell rows apart


@pytest.mark.usefixtures("hasty", "unrendered")
def test_one_expert_is_judged_by_its_own_vector(tmp_path):
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], size=1500)
    few, report = (calmoe.audit(Predictions.from_probs(probs[:n], np.zeros(n, int))) for n in (300, 1500))
    assert "no moment is judged" in few.save(tmp_path / "few").read_text()
    assert report.hidden.without_routing == report.hidden.witness
    assert report.hidden.routing_adds.value == report.hidden.routing_adds.low == 0
    assert report.hidden.p_routing == 1
    assert report.hidden.origin != "routing"
    assert report.repair is not None
    assert "repair" not in report.left_out
    html = report.save(tmp_path / "report").read_text()
    shown = html[: html.index("What the words mean")]  # the glossary is of all audits
    shown = re.sub(r'<span role="tooltip".*?</span>', "", shown)
    for text in (report.summary(), re.sub(r"<(style|script).*?</\1>", "", shown, flags=re.DOTALL)):
        assert "mixture" not in text
        assert "expert-and-bin" not in text
        assert not re.search(r"expert 0|1 experts", text)
    assert "model" in shown


@pytest.mark.usefixtures("unrendered")
def test_no_table_of_nothing():
    clean, odd = (report_of(name) for name in ("calibrated", "miscalibrated"))
    assert not clean.indicators.found.any()
    page, other = (each.files()["report.html"].decode() for each in (clean, odd))
    assert "No moment differs from zero." in page
    assert "<caption>The largest moments" not in page
    assert "<caption>The largest moments" in other
    assert not re.findall(r"<thead>(?:(?!<tbody>).)*</table>", page, re.DOTALL)


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_constant_router_and_certain_predictions_are_audited(tmp_path):
    random = np.random.default_rng(0)
    experts = random.dirichlet([1, 1, 1], size=(600, 2))
    routing = np.tile([0.75, 0.25], (600, 1))
    probs = (routing[:, :, None] * experts).sum(axis=1)
    labels = random.integers(0, 3, size=600)
    report = calmoe.audit(Predictions.from_probs(probs, labels, routing=routing, expert_probs=experts))
    assert "no regions" in report.left_out["region reweighting"]
    errors = [point.value for point in report.fragility.regions.error]
    assert np.ptp(errors) < 1e-12
    certain = np.tile(np.eye(3)[0], (600, 2, 1))
    report = calmoe.audit(
        Predictions.from_probs(certain[:, 0], labels, routing=routing, expert_probs=certain)
    )
    assert report.aggregate.ece.value == pytest.approx((labels != 0).mean(), abs=0.01)
    assert report.save(tmp_path).exists()


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_class_may_be_judged_instead(tmp_path):
    sample = worlds.calibrated_experts(0).sample(2000, seed=0)
    report = calmoe.audit(sample, of=1)
    assert report.aggregate.balance.low < 0 < report.aggregate.balance.high
    share = float((sample.labels == 1).double().mean())
    assert report.verdict.rate.value == pytest.approx(share)
    assert (report.verdict.judged, report.skill.positive) == (1, 1)
    assert "accuracy" not in report.summary()
    assert "each by label 1" in report.save(tmp_path).read_text()


@pytest.mark.usefixtures("hasty", "unrendered")
def test_names_that_are_no_utf8_are_escaped(tmp_path, monkeypatch):
    file, out = (tmp_path / os.fsdecode(name) for name in (b"a\xed\xa0\x80b.npz", b"caf\xe9"))
    with file.open("wb") as stream:
        np.savez(stream, probs=np.full((3, 2), 0.5), labels=[0, 1, 0])
    arguments = ["audit", str(file), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["calmoe", *arguments])
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert r"caf\xe9/report.html" in result.output
    assert r"Calibration audit of a\xed\xa0\x80b.npz" in (out / "report.html").read_text("utf-8")
    told = json.loads((out / "audit.json").read_text("utf-8"))["origin"]
    assert told["file"] == r"a\xed\xa0\x80b.npz"
    assert r"caf\xe9" in told["command"]


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_page_that_cannot_be_made_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    report = calmoe.audit(worlds.cancelling(0).sample(50, seed=0))
    monkeypatch.setattr("calmoe.auditing.audit_report.page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_path_that_is_not_utf8_stands_escaped_on_the_page(tmp_path):
    report = calmoe.audit(worlds.cancelling(0).sample(50, seed=0))
    page = report.save(tmp_path / "out", {"file": "caf\udce9.csv"})
    assert "caf\\xe9.csv" in page.read_text("utf-8")


def test_without_labels_there_is_no_audit():
    with pytest.raises(InputError, match="carry no labels"):
        calmoe.audit(Predictions.from_probs(np.array([[0.5, 0.5]])))
    with pytest.raises(InputError, match="level must lie between"):
        calmoe.audit(worlds.calibrated(0).sample(50, seed=0), level=95)


@pytest.mark.usefixtures("hasty", "unrendered")
def test_the_command_prints_the_findings_and_writes_the_page(tmp_path):
    worlds.cancelling(0).sample(1000, seed=0).save(tmp_path / "p.safetensors")
    result = CliRunner().invoke(
        app, ["audit", str(tmp_path / "p.safetensors"), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    lines = result.output.strip().splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith("Verdict: ")
    assert lines[-1].endswith(f"{tmp_path / 'out' / 'report.html'}")
    assert any(line.startswith("  calmoe ") for line in lines)
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.usefixtures("hasty", "unrendered")
@pytest.mark.parametrize("of", ["top", 1])
def test_the_reweightings_are_saved_and_demonstrate_what_the_report_says(tmp_path, of):
    given = worlds.cancelling(0).sample(2000, seed=0)
    report = calmoe.audit(given, of=of)
    report.save(tmp_path)
    saved = safetensors.numpy.load_file(tmp_path / "reweightings.safetensors")
    told = json.loads((tmp_path / "audit.json").read_text())["fragility"]
    rows = saved["rows"]
    quoted = int(np.argmin(np.abs(saved["configurations.radii"] - 0.1)))
    split = middle(
        [errors[quoted] for errors in told["configurations"]["by_split"]]
    )  # whose weights are saved
    assert len(np.unique(rows)) == len(rows) == 1200
    for name in ("configurations", "regions", "disagreement", "entropy"):
        for i, radius in enumerate(saved[f"{name}.radii"]):
            weights = saved[f"{name}.densities"][i]
            shown = ece(given.output.probs[rows], given.labels[rows], weights=weights, of=of)
            assert shown == pytest.approx(told[name]["plain_ece"][i], abs=1e-6)
            assert weights.mean() == pytest.approx(1, abs=1e-5)
            assert divergence(weights.astype(float)) <= radius + 1e-4
            assert shown >= told[name]["by_split"][split][i] - 1e-6  # the signs are the same in all blocks


def test_progress_moves_and_ends():
    said = []
    with hastily(rough=False):
        calmoe.audit(
            worlds.cancelling(0).sample(400, seed=0), progress=lambda part, done: said.append((part, done))
        )
    shares = [done for _, done in said]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1
    parts = [part for part, _ in said]
    assert list(dict.fromkeys(parts)) == [*(s.name for s in SECTIONS if s.name != "target"), "done"]
    assert min(parts.count("hidden miscalibration"), parts.count("fragility")) > 2  # long ones move inside


def test_a_target_has_its_part_of_the_bar():
    begun = {}
    costs = {section.name: section.cost for section in SECTIONS}
    steps = Steps(costs, begun.__setitem__)
    for name in costs:
        steps.begin(name)
    assert begun["target"] < 0.8
    assert list(begun.values()) == sorted(begun.values())


@pytest.mark.usefixtures("hasty")
def test_each_field_of_the_report_is_filled_by_one_section():
    """A section that fills a field the report lacks, or that another fills too, cannot stay unseen."""
    material = _checked(new_rows(worlds.cancelling(0).sample(300, seed=0)), None, None, "top", BINS, 0.95, 0)
    filled = [
        name
        for section in SECTIONS
        if section.asked(material)
        for name in section.compute(material, lambda share: None).fields
    ]
    assert len(filled) == len(set(filled))
    names = [field.name for field in fields(AuditReport)]
    assert [name for name in names if name in filled] == filled  # audit.json keeps the sections' order
    assert {*names} - {*filled} == {*HEADER, "target", "sampled", "class_names", "expert_names"}


@pytest.mark.usefixtures("hasty", "unrendered")
def test_a_section_in_the_list_speaks_draws_and_saves(tmp_path, monkeypatch):
    """A card is all that a new section needs."""

    def draw(canvas):
        canvas.add_subplot().plot([0, 1], [0, 1])
        return "A line that rises from the lower left to the upper right."

    card = Section(
        name="rows",
        cost=1,
        compute=lambda material, inside: Findings({}, {"odd rows": "none is odd"}),
        summary=lambda report: Point("Rows", f"there are {report.rows}."),
        figures=lambda report: [Figure("rows", "A rising line. Nothing else.", 3.0, 2.0, draw)],
        page=lambda report, pictures: PageSection(heading="Row by row", figures=pictures),
        files=lambda report: {"rows.txt": str(report.rows).encode()},
    )
    monkeypatch.setattr("calmoe.auditing.audit_report.SECTIONS", (*SECTIONS, card))
    said = []
    report = calmoe.audit(
        worlds.cancelling(0).sample(50, seed=0), progress=lambda name, share: said.append(name)
    )
    assert "rows" in said
    assert report.left_out["odd rows"] == "none is odd"
    page = report.save(tmp_path).read_text()
    assert "There are 50." in page
    assert "Row by row" in page
    assert "A rising line." in page
    assert (tmp_path / "figures" / "rows.png").exists()
    assert (tmp_path / "rows.txt").read_text() == "50"


@pytest.mark.usefixtures("hasty")
def test_a_target_is_checked_once(monkeypatch):
    calls = []
    monkeypatch.setattr("calmoe.auditing.target.checks._why_unfit", lambda *given: calls.append(given))
    world = worlds.cancelling(0)
    calmoe.audit(world.sample(400, seed=0), target=world.sample(400, seed=1))
    assert len(calls) == 1


def test_the_words_do_not_contradict_the_p_value():
    clean = report_of("calibrated")
    doubtful = replace(clean, hidden=replace(clean.hidden, p_calibrated=0.001))
    assert "no miscalibration" in hidden_sentences(clean.hidden, routed=True)
    assert "no miscalibration" not in hidden_sentences(doubtful.hidden, routed=True)


def test_an_ece_below_the_balance_is_explained():
    clean = report_of("calibrated")
    told = clean.aggregate
    for balance, explained in ((-told.ece.value - 0.01, True), (told.ece.value, False)):
        other = replace(told, balance=told.balance._replace(value=balance))
        assert (
            "freed from its upward bias" in calibration_sentences(other, "accuracy", "mixture")
        ) == explained


def test_no_public_name_shadows_a_module():
    modules = {module.name for module in pkgutil.iter_modules(calmoe.auditing.__path__)}
    assert "audit_report" in modules
    assert modules.isdisjoint(calmoe.auditing.__all__)


@pytest.mark.usefixtures("hasty")
def test_the_bar_is_for_a_terminal_only(tmp_path):
    worlds.cancelling(0).sample(50, seed=0).save(tmp_path / "p.safetensors")
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "p.safetensors")])
    assert result.stderr == ""
