"""One report over targets, from made-up results: what does not need training."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from calmoe.data import pacs
from calmoe.experiments.run import Run
from calmoe.experiments.spec import load_preset, narrowed, with_settings
from calmoe.experiments.store import RunFolder
from calmoe.render.page import Picture
from calmoe.report import write
from calmoe.report.columns import COLUMNS
from calmoe.report.figure_cards import RunNumbers
from calmoe.report.figure_list import TARGET_FIGURES, run_figures
from calmoe.report.folder import left_over
from calmoe.report.overview import overview_of, overview_page, overview_tables
from calmoe.report.run_page import run_page
from calmoe.report.sections import RESULTS, TARGET_RESULTS
from calmoe.report.sources import Source, Sources, has_hard
from calmoe.report.titles import run_title
from calmoe.report.write import Made, tables
from run_folders import record_of

BACKBONE = "ResNet-50 v1 (the paper: ResNet-18)"
AS_PUBLISHED = ["weights=imagenet.pth"]
RESNET50 = [*AS_PUBLISHED, "backbone=resnet50", "variant=v1"]


def sources(target, settings=RESNET50, protocol="corrected", methods=("vanilla", "robust"), seeds=(42, 43)):
    """A finished run of PACS."""
    spec = narrowed(
        with_settings(load_preset("pacs"), settings),
        target=target, methods=methods, seeds=seeds, protocol=protocol,
    )  # fmt: skip
    rows = [
        {"method": method, "seed": seed, "protocol": protocol, "n": 100, "n_hard": 0}
        | dict.fromkeys(COLUMNS, 0.087 + 0.01 * len(method) + 0.001 * seed)
        for method in methods
        for seed in seeds
    ]
    record = record_of(spec, protocols=(protocol,), fingerprint=target)
    return Sources([Source(Run(RunFolder(Path(f"runs/{target}")), record), [], rows, [])], {})


def overview(targets=pacs.DOMAINS, **options):
    return overview_of({target: sources(target, **options) for target in targets})


def test_targets_come_in_the_papers_order():
    assert list(overview().titles.values()) == ["Photo", "Art", "Cartoon", "Sketch"]
    assert list(overview(["sketch", "art_painting"]).titles) == ["art_painting", "sketch"]


def test_every_table_names_a_backbone_that_is_not_the_papers():
    grids = overview_tables(overview())
    assert list(grids) == [f"corrected{end}" for end in ("", "-scores", "-mean", "-paired", "-comparison")]
    for grid in (*grids.values(), *tables(sources("sketch")).values()):
        assert BACKBONE in grid.caption
    same = overview(settings=AS_PUBLISHED)
    for grid in (*overview_tables(same).values(), *tables(sources("sketch", settings=AS_PUBLISHED)).values()):
        assert "ResNet" not in grid.caption
    assert BACKBONE in overview_page(overview(), grids, {}, {}).summary[0].text
    assert BACKBONE in run_page(sources("sketch"), {}, {}, {}).summary[0].text


def test_what_no_row_measures_has_no_place_in_a_table():
    of = sources("sketch")
    assert "hard_ece_ts" in tables(of)["corrected-paired"].csv()
    for row in of.runs[0].rows:
        row |= {"hard_accuracy": None, "hard_ece": None, "hard_ece_ts": None, "worst_group_ece": None}
        row |= {column: None for column in row if column.startswith("views_")}
    grids = tables(of)
    measured = [row[1].text for row in grids["corrected-paired"].rows]
    assert measured == ["Accuracy", "NLL+TS", "Brier+TS", "ECE", "ECE+TS"]
    assert not any(
        "hard" in grid.csv() or any(e.text == "–" for e in grid.rows[0]) for grid in grids.values()
    )


def captions(hard=True, target=""):
    """By figure of a run."""
    numbers = RunNumbers(dataset="pacs", protocol="corrected", target=target, hard=hard)
    return {card.name: card.caption_for(numbers) for card in run_figures()}


def test_captions_say_what_bars_and_faint_points_are():
    said = captions() | {card.name: card.caption for card in TARGET_FIGURES}
    assert {name for name, caption in said.items() if "one standard error" in caption} == {
        "groups", "groups_scaled", "levels", "frontier", "tilt", "routing", "targets", "targets_scatter",
    }  # fmt: skip
    bins = {name for name, caption in said.items() if "fewer than 10 rows" in caption}
    assert bins == {name for name in said if "reliability" in name}
    assert len(bins) == 4
    for section in (RESULTS, TARGET_RESULTS):
        assert "the most seeds" in section.how


def test_every_table_names_the_settings_that_were_changed():
    settings = [*AS_PUBLISHED, "forget_moments=true", "experts=2"]
    of, one = overview(settings=settings), sources("sketch", settings=settings)
    for grid in (*overview_tables(of).values(), *tables(one).values()):
        assert ", experts=2, forget_moments=true, corrected protocol" in grid.caption
    assert overview_tables(of)["corrected-comparison"].caption.endswith(" and settings are not the preset's")
    grid = tables(sources("sketch", settings, protocol="published"))["comparison"]
    assert grid.caption.endswith("; no test of reproduction: settings are not the preset's")
    assert "forget\\_moments=true" in grid.latex()
    for page in (overview_page(of, {}, {}, {}), run_page(one, {}, {}, {})):
        assert ", experts=2, forget_moments=true, 2 seeds" in page.summary[0].text


def test_other_datasets_have_no_paper_to_name():
    spec = narrowed(with_settings(load_preset("domains"), RESNET50), target="sketch")
    assert run_title(spec) == "domains-sketch, backbone=resnet50, variant=v1, weights=imagenet.pth"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"settings": AS_PUBLISHED},
            "no test of reproduction: under the corrected protocol training, validation rows",
        ),
        ({}, "are not the paper's and the backbone is another"),
        ({"protocol": "published"}, "no test of reproduction: the backbone is another"),
        (
            {"protocol": "published", "settings": AS_PUBLISHED},
            "22 of 24 cells differ from the paper by more than",
        ),
        ({"protocol": "published", "settings": AS_PUBLISHED, "seeds": (42,)}, "no cell could be compared"),
    ],
)
def test_the_comparison_says_what_it_is(options, said):
    """Of the 24 made-up cells two are near the paper's: Vanilla's on Sketch, 0.1995 and 0.183 ± 0.017."""
    of = overview(**options)
    found = overview_tables(of)
    (grid,) = [grid for name, grid in found.items() if name.endswith("-comparison")]
    assert said in grid.caption
    assert any(entry.bold for row in grid.rows for entry in row) == said.startswith("22")
    (told,) = [p.text for p in overview_page(of, found, {}, {}).summary if p.lead == "Beside the paper"]
    assert ("this is no test of reproduction" in told) == ("22" not in said and "no cell" not in said)


@pytest.mark.parametrize(
    ("settings", "caption", "told"),
    [
        (RESNET50, "; no test of reproduction: the backbone is another", "this is no test of reproduction."),
        (
            AS_PUBLISHED,
            "; 4 of 6 cells differ from the paper by more than 2",
            "2 lie within two combined standard",
        ),
    ],
)
def test_one_target_is_tested_against_the_paper_as_all_are(settings, caption, told):
    of = sources("sketch", settings, protocol="published")
    grids = tables(of)
    assert caption in grids["comparison"].caption
    marked = "yes" in [entry.text for row in grids["comparison"].rows for entry in row]
    assert (
        marked == any(e.bold for row in grids["comparison"].rows for e in row) == (settings == AS_PUBLISHED)
    )
    (said,) = [p.text for p in run_page(of, grids, {}, {}).summary if p.lead == "Beside the paper"]
    assert told in said


def test_the_page_says_which_temperatures_converged():
    page = run_page(sources("sketch", protocol="published"), {}, {}, {"reliability": "not now"})
    (confidence,) = page.sections
    assert confidence.how.endswith(
        "published protocol, with one temperature fitted to convergence; those of MoCaE's experts are fitted "
        "as the protocol says."
    )


def test_differences_are_read_alike_on_both_pages():
    of, one = overview(), sources("sketch")
    for page in (overview_page(of, overview_tables(of), {}, {}), run_page(one, tables(one), {}, {})):
        (paired,) = [section for section in page.sections if section.heading == "Against Vanilla MoE"]
        assert "Below zero is better, but for accuracy." in paired.how


def test_a_run_under_the_published_protocol_is_compared_with_its_own_table():
    found = tables(sources("art_painting", protocol="published"))["comparison"]
    assert "beside the paper's tab:pacs" in found.caption
    published = [row[2].text for row in found.rows if row[0].text == "Vanilla MoE"]
    assert published == ["0.767 ± 0.007", "0.141 ± 0.006", "0.118 ± 0.007"]


def test_the_page_names_absent_targets_and_the_commands():
    of = overview(["sketch", "photo"])
    page = overview_page(of, overview_tables(of), {}, {"targets": "not <now>"}).html()
    for said in (
        "<h1>Calibration on pacs, by target</h1>",
        "2 methods, 2 seeds, 2 targets",
        "Art: there is no run.",
        "Cartoon: there is no run.",
        "calmoe run pacs --data DIR --target photo --methods vanilla,robust --seeds 42,43",
        "--out reproduced/pacs-photo\n",
        "calmoe report reproduced/pacs-photo reproduced/pacs-sketch --to reproduced/pacs-report --data DIR",
        '<a href="sketch/report.html">',
        "Not drawn, targets: not &lt;now&gt;.",
    ):
        assert said in page


def test_methods_and_seeds_of_any_target_are_expected_of_all():
    of = overview_of(
        {"photo": sources("photo"), "sketch": sources("sketch", methods=("vanilla",), seeds=(42, 44))}
    )
    page = overview_page(of, overview_tables(of), {}, {})
    (missing,) = [point for point in page.summary if point.lead == "Missing"]
    assert "Photo: Vanilla MoE lacks seed 44; Robust MoE lacks seed 44." in missing.bullets
    assert "Sketch: no seed of Robust MoE; Vanilla MoE lacks seed 43." in missing.bullets
    (row,) = [row for row in of.rows if (row["target"], row["seed"]) == ("sketch", 44)]
    assert row["method"] == "vanilla"


def test_only_common_protocols_are_compared():
    both = sources("sketch")
    (run,) = both.runs
    record = replace(run.record, protocols=("corrected", "published"))
    both = Sources([run._replace(run=Run(run.run.folder, record))], {})
    assert overview_of({"photo": sources("photo"), "sketch": both}).record.protocols == ("corrected",)


def test_a_target_named_as_the_reports_own_files_gets_another_folder():
    names = ("figures", "Tables", "report.html", "target-figures", "photo")
    of = overview(names)
    assert of.folders == {
        "photo": "photo",
        "figures": "target-target-figures",
        "Tables": "target-Tables",
        "report.html": "target-report.html",
        "target-figures": "target-figures",
    }
    links = overview_page(of, {}, {}, {}).sections[-1].links
    assert "target-Tables/report.html" in links.values()


def test_every_target_is_written_where_its_link_leads(monkeypatch):
    made = Made({"report.html": b"a whole report"}, [], [], {})
    monkeypatch.setattr(write, "_run_report", lambda sources, data, pdf: made)
    monkeypatch.setattr(write, "overview_figures", lambda of, curves: ({}, {}))
    files = write._overview_report(overview(["tables", "report.html"]), None, False).files
    pages = {name for name in files if name.endswith("/report.html")}
    assert pages == {"target-report.html/report.html", "target-tables/report.html"}
    for name in pages:
        assert f'href="{name}"' in files["report.html"].decode()
    assert "tables/corrected.csv" in files


def test_words_fit_what_the_run_has():
    of = sources("sketch")
    numbers = RunNumbers(dataset="pacs", protocol="corrected", target="sketch", hard=has_hard(of))
    pictures = {card.name: Picture(card.name, b"", "", card.caption_for(numbers)) for card in run_figures()}
    page = run_page(of, tables(of), pictures, {})
    said = " ".join(
        [section.how for section in page.sections]
        + [figure.caption for section in page.sections for figure in section.figures]
    )
    assert "hard" not in said
    assert "on the target domain" in pictures["frontier"].caption
    assert "test images on which the baseline" in said
    for row in of.runs[0].rows:
        row["n_hard"] = 30
    assert has_hard(of)
    page = run_page(of, tables(of), {"examples": pictures["examples"]}, {})
    how = {section.heading: section.how for section in page.sections}
    assert "“hard” is the hard subset" in how["Results"]
    assert "hard test images on which the baseline" in how["Example failures"]


@pytest.mark.parametrize(
    ("hard", "target", "errors"),
    [
        (True, "sketch", "ECE against hard ECE as"),
        (False, "sketch", "Validation ECE, on the domains trained on,"),
        (False, "", "Validation ECE against test ECE as"),
    ],
)
def test_the_frontiers_caption_names_its_errors(hard, target, errors):
    caption = captions(hard, target)["frontier"]
    assert caption.startswith(errors)
    assert "budget above 0.12" in caption


def test_the_scores_name_the_worst_group_only_where_there_is_one():
    of = sources("sketch")
    assert "worst group" in tables(of)["corrected-scores"].caption
    for row in of.runs[0].rows:
        row |= dict.fromkeys(f"worst_group_{name}" for name in ("accuracy", "ece", "ece_ts"))
    assert tables(of)["corrected-scores"].caption.endswith("corrected protocol; proper scores")


def older_report(folder, target):
    folder.mkdir()
    (folder / "report.html").write_text("a whole report")
    (folder / "sources.json").write_text(json.dumps([{"spec": {"target": target}}]))


def test_folders_of_an_older_report_are_told_and_left(tmp_path):
    for name, target in (("photo", "photo"), ("target-tables", "tables"), ("sketch", "sketch")):
        older_report(tmp_path / name, target)
    older_report(tmp_path / "mine", "photo")  # named otherwise: a report of its own
    older_report(tmp_path / "digits", "")
    older_report(tmp_path / "no-page", "no-page")
    (tmp_path / "no-page/report.html").unlink()
    for name, text in (("notes", "{"), ("other", "[]"), ("list", "[3]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sources.json").write_text(text)
    assert left_over(tmp_path, ["sketch"]) == ["photo", "target-tables"]
    assert left_over(tmp_path / "none") == []
    links = overview_page(overview(), {}, {}, {}, left_over(tmp_path, ["sketch"])).sections[-1]
    assert links.notes == ["Of an older report and not of this one: photo, target-tables."]
    assert overview_page(overview(), {}, {}, {}).sections[-1].notes == []
