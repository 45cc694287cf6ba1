"""Every figure has a caption and a place on the page, and something draws it."""

import numpy as np
import pytest

from calmoe.render.page import Picture
from calmoe.report.examples import examples
from calmoe.report.figure_cards import RunNumbers, TargetNumbers, draw_figures
from calmoe.report.figure_list import TARGET_FIGURES, figure_names, run_figures
from calmoe.report.folder import FILES
from calmoe.report.page_sections import page_sections
from calmoe.report.sections import RUN_TABLES, TARGET_SECTIONS
from synthetic_curves import numbers, run

SWEPT = ("eta", "warmup")
SEEDS = (1, 2)


def scores(**more):
    """Rows of two methods."""
    return [
        {"method": method, "seed": seed, "protocol": "corrected", **more}
        | {"accuracy": 0.9, "ece": 0.1, "ece_ts": 0.05, "hard_ece": 0.2, "hard_ece_ts": 0.1}
        for method in ("vanilla", "robust")
        for seed in SEEDS
    ]


def sweep(setting):
    more = {"setting": setting, "batch": 128, "perplexity": 90.0}
    return [row for value in (1, 2) for row in scores(value=value, **more)]


@pytest.fixture(scope="module")
def whole():
    """All that a run's page can show."""
    images, labels = np.zeros((3, 1, 8, 8), np.uint8), np.array([0, 1, 1])
    probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.8, 0.2]])
    return numbers(
        run(seeds=SEEDS),
        target="sketch",
        examples=lambda: examples(images, labels, ["no", "yes"], {"vanilla": probs}),
        domain_images=lambda: {"photo": {"dog": np.zeros((8, 8, 3), np.uint8)}},
        sweeps={setting: sweep(setting) for setting in SWEPT},
        defaults={"eta": 2.0, "warmup": 1.0},
    )


@pytest.fixture(scope="module")
def whole_of_targets():
    titles = {"photo": "Photo", "sketch": "Sketch"}
    rows = [row for target in titles for row in scores(target=target)]
    return TargetNumbers(rows, "corrected", titles, {target: run(seeds=SEEDS) for target in titles})


def pages():
    return ((RUN_TABLES, run_figures(SWEPT)), (TARGET_SECTIONS, TARGET_FIGURES))


def test_every_figure_is_drawn_and_has_a_caption(whole, whole_of_targets):
    for cards, shown in ((run_figures(SWEPT), whole), (TARGET_FIGURES, whole_of_targets)):
        drawn, missing = draw_figures(cards, shown)
        assert not missing
        assert list(drawn) == [card.name for card in cards]
        assert all(figure.caption and figure.drawn.alt for figure in drawn.values())


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("target", ["", "sketch"])
def test_every_figure_has_a_caption_whatever_the_data_have(hard, target):
    shown = RunNumbers(
        dataset="digits", protocol="corrected", hard=hard, target=target,
        sweeps={setting: sweep(setting) for setting in SWEPT},
    )  # fmt: skip
    for card in run_figures(SWEPT):
        assert card.caption_for(shown).endswith(".")


@pytest.mark.parametrize(("first", "cards"), pages())
def test_every_figure_has_one_place_on_the_page(first, cards):
    pictures = {card.name: Picture(card.name, b"", "", "") for card in cards}
    sections = page_sections(first, cards, {}, pictures, {}, protocol="corrected", hard=True)
    placed = [picture.name for section in sections for picture in section.figures]
    assert sorted(placed) == sorted(pictures)
    assert all(section.heading and section.how for section in sections)


@pytest.mark.parametrize(("first", "cards"), pages())
def test_every_missing_figure_is_named_on_the_page(first, cards):
    missing = {card.name: "there is none" for card in cards}
    sections = page_sections(first, cards, {}, {}, missing, protocol="corrected", hard=True)
    notes = [note for section in sections for note in section.notes]
    assert sorted(notes) == sorted(f"Not drawn, {name}: there is none." for name in missing)


def test_every_name_stands_once_and_belongs_to_a_report():
    names = figure_names(SWEPT)
    assert len(names) == len(set(names)) == 19
    for name in names:
        assert FILES.fullmatch(f"figures/{name}.png")


def test_what_the_run_has_no_numbers_for_is_not_attempted():
    curves = run(seeds=(1,), groups=False, hard=None)
    attempted = [card.name for card in run_figures() if card.applies(numbers(curves))]
    assert attempted == [
        "reliability", "reliability_scaled", "histograms", "histograms_scaled", "groups", "groups_scaled",
        "frontier", "tilt", "routing",
    ]  # fmt: skip


def test_a_sweep_alone_has_its_own_figures_only():
    shown = RunNumbers(dataset="digits", protocol="corrected", sweeps={"eta": sweep("eta")})
    drawn, missing = draw_figures(run_figures(["eta"]), shown)
    assert not missing
    assert list(drawn) == ["sweep_eta", "eta_gamma"]
