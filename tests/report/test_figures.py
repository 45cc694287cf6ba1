import warnings
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.methods import METHODS
from calmoe.render.drawing import FULL, Drawn, draw_all, new_figure, save
from calmoe.report.confidence_figures import histograms, reliability
from calmoe.report.curves_over_seeds import by_method, over_seeds
from calmoe.report.figure_list import run_figures
from calmoe.report.frontier import frontier
from calmoe.report.group_figures import groups, levels
from calmoe.report.inside_mixture import routing, tilt
from calmoe.report.looks import looks
from synthetic_curves import draw, run


@pytest.fixture(scope="module")
def curves():
    return run()


@pytest.fixture(scope="module")
def drawn(curves):
    figures, missing = draw(curves)
    assert not missing
    return figures


def test_every_figure_has_an_alt_text_with_numbers(drawn):
    assert list(drawn) == [card.name for card in run_figures()][:-2]  # no images: no examples, no domains
    for figure, alt in drawn.values():
        assert "Vanilla MoE" in alt or "Robust MoE" in alt
        assert "nan" not in alt
        assert any(character.isdigit() for character in alt)
        assert figure.get_figwidth() <= FULL


def test_no_text_is_smaller_than_7_points(drawn):
    for figure, _ in drawn.values():
        texts = [
            text for text in figure.findobj(match=lambda a: hasattr(a, "get_fontsize")) if text.get_text()
        ]
        assert min(text.get_fontsize() for text in texts) >= 7


def test_number_of_panels(drawn):
    panels = {name: len(figure.axes) for name, (figure, _) in drawn.items()}
    assert panels == {
        "reliability": 4,
        "reliability_scaled": 4,
        "groups": 2,
        "groups_scaled": 2,
        "levels": 2,
        "histograms": 6,
        "histograms_scaled": 6,
        "frontier": 2,
        "tilt": 2,
        "routing": 2,
    }


def test_reliability_draws_filled_bins_only(curves):
    figure = reliability(curves[:1]).figure
    panel = figure.axes[0]
    filled = sum(count > 0 for count in curves[0]["raw"]["reliability"]["all"]["count"])
    points = [container.lines[0] for container in panel.containers]
    in_colour = [line for line in points if line.get_markerfacecolor() != "white"]
    assert sum(np.isfinite(line.get_xdata()).sum() for line in in_colour) == filled < BINS


def test_seeds_share_their_rows_and_do_not_narrow_a_bins_interval(curves):
    """The same model three times has the bars of one; bins that are thin for one stay thin."""

    def bars(of_runs):
        panel = reliability(of_runs).figure.axes[0]
        lines = [bar for c in panel.containers for bar in c.lines[2]]
        return [np.array([segment for segment in bar.get_segments() if len(segment)]) for bar in lines]

    one, thrice = bars(curves[:1]), bars([{**curves[0], "seed": seed} for seed in (1, 2, 3)])
    assert len(one) == len(thrice) == 4  # all and hard rows, each faint or not
    for a, b in zip(one, thrice, strict=True):
        np.testing.assert_allclose(a, b)


def of_frontier(curves, ece, hard_ece):
    """Curves of Vanilla MoE with these numbers by seed, at three temperatures."""
    swept = {"temperature": [0.5, 1.0, 2.0], "chosen": 2, "of": ["ECE", "hard ECE"]}
    return [
        {**c, "frontier": {**swept, "ece": e, "hard_ece": h}}
        for c, e, h in zip(by_method(curves)["vanilla"], ece, hard_ece, strict=True)
    ]


def test_the_frontiers_band_is_the_standard_error_across_it(curves):
    level = [[y] * 3 for y in (0.1, 0.2, 0.3)]  # lines that differ in height alone
    (band,) = frontier(of_frontier(curves, [[0.01, 0.02, 0.04]] * 3, level)).figure.axes[0].patches
    assert sorted(set(band.get_xy()[:, 1].round(9))) == pytest.approx(
        [0.2 - 0.1 / 3**0.5, 0.2 + 0.1 / 3**0.5]
    )
    upright = [[x] * 3 for x in (0.01, 0.02, 0.03)]  # and in place: ± 0.5 of the mean, on a logarithmic axis
    (band,) = frontier(of_frontier(curves, upright, [[0.1, 0.2, 0.3]] * 3)).figure.axes[0].patches
    ends = 0.02 * np.exp(np.array([-0.5, 0.5]) / 3**0.5)
    assert sorted(set(band.get_xy()[:, 0].round(9))) == pytest.approx(ends.tolist())
    slanted = np.array([[0.01, 0.1], [0.02, 0.15], [0.04, 0.3]])  # seeds that differ along the curve alone
    moved = [(slanted + by * np.gradient(slanted, axis=0)).T.tolist() for by in (-0.1, 0, 0.1)]
    (band,) = frontier(of_frontier(curves, *zip(*moved, strict=True))).figure.axes[0].patches
    one, other = np.split(band.get_xy()[:6], 2)
    np.testing.assert_allclose(one, other[::-1], atol=1e-12)


def test_frontier_marks_the_chosen_and_the_raw_point(curves):
    figure, alt = frontier(curves)
    left, right = figure.axes
    assert len(left.containers) == 4  # two methods, T from validation and T = 1
    assert len(left.patches) == 2  # seed bands
    assert len(right.lines) == 2
    vanilla = by_method(curves)["vanilla"]
    chosen = over_seeds([c["frontier"]["ece"][c["frontier"]["chosen"]] for c in vanilla])[0]
    assert f"{chosen:.3f}" in alt


def test_a_method_with_fewer_seeds_says_so(curves):
    shown = [text.get_text() for text in frontier(curves[:-1]).figure.legends[0].get_texts()]
    assert shown == ["Vanilla MoE", "Robust MoE (2 seeds)"]


def test_routing_names_a_method_with_fewer_seeds(curves):
    for axes in routing(curves[:-1]).figure.axes:
        names = [label.get_text() for label in axes.get_xticklabels()]
        assert names == ["Vanilla MoE", "Robust MoE (2 seeds)"]


def test_the_frontier_of_many_methods_has_bars_and_no_bands(curves):
    of = by_method(curves)["vanilla"]
    for methods, bands in ((4, 4), (5, 0)):
        many = [{**c, "method": f"m{i}"} for i in range(methods) for c in of]
        left, right = frontier(many).figure.axes
        assert len(left.patches) == bands
        assert len(right.collections) == methods
        assert len(left.containers) == 2 * methods
        bars = [segment for bar in left.containers[0].lines[2] for segment in bar.get_segments()]
        raw = [
            [c["frontier"][n][c["frontier"]["temperature"].index(1.0)] for c in of]
            for n in ("ece", "hard_ece")
        ]
        assert [np.ptp(b, axis=0).max() for b in bars] == pytest.approx(2 * stats.sem(raw, axis=1))


def test_errors_after_a_temperature_are_called_so(curves):
    for view, name, between in (("raw", "ECE", ", "), ("scaled", "ECE+TS", "\n")):
        of = by_method(curves)["vanilla"]
        errors = [np.mean([c[view]["reliability"][part]["ece"] for c in of]) for part in ("all", "hard")]
        title = f"Vanilla MoE\n{name} {errors[0]:.3f}{between}hard {errors[1]:.3f}".replace("0.", ".")
        assert reliability(curves, view).figure.axes[0].get_title() == title
        assert [axes.get_ylabel() for axes in groups(curves, view).figure.axes] == ["accuracy", name]


def test_groups_show_all_groups_with_their_sizes(curves):
    figure, alt = groups(curves)
    labels = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert "hard\nn = 120" in labels
    assert "never\nn = 0" in labels
    assert len(labels) == 3 + 2 + 3
    assert "hard: 120 rows" in alt


def test_many_groups_are_cut_to_the_largest():
    curves = run(methods=("vanilla",), seeds=(1,))
    many = {str(i): {"count": i, "accuracy": 0.5, "confidence": 0.6, "ece": 0.1} for i in range(1, 21)}
    for view in ("raw", "scaled"):
        curves[0][view]["groups"] = {"identity": many}
    figure, alt = groups(curves)
    labels = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert len(labels) == 12
    assert labels[0] == "9\nn = 9"
    assert "8 smaller groups are left out" in alt


def test_one_seed_has_no_band():
    curves = run(seeds=(1,))
    drawn, missing = draw(curves)
    assert not missing
    assert "±" not in drawn["frontier"].alt
    assert "1 seed." in drawn["frontier"].alt
    assert not drawn["frontier"].figure.axes[0].patches
    assert not drawn["tilt"].figure.axes[0].collections


def test_a_curve_without_values_is_left_out(curves, tmp_path):
    far = [{**c, "frontier": {**c["frontier"], "ece": [0.3 for _ in c["frontier"]["ece"]]}} for c in curves]
    (png,) = save(frontier(far), tmp_path / "frontier", formats=("png",))  # matplotlib draws only now
    assert png.exists()
    right = frontier(far).figure.axes[1]
    assert not right.lines
    assert [text.get_text() for text in right.texts] == ["no T reaches\nECE of 0.12 in every seed"]
    mixed = [*[c for c in curves if c["method"] == "vanilla"], *[c for c in far if c["method"] == "robust"]]
    right = frontier(mixed).figure.axes[1]
    assert len(right.lines) == 1
    assert not right.texts


def test_an_ece_of_zero_draws_without_a_warning(curves, tmp_path):
    for zeros in (5, None):
        perfect = []
        for c in curves:
            eces = c["frontier"]["ece"]
            kept = eces[zeros:] if zeros else []
            zero = {"ece": [0.0] * (len(eces) - len(kept)) + kept}
            perfect.append({**c, "frontier": {**c["frontier"], **zero}})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drawn = frontier(perfect)
            save(drawn, tmp_path / "frontier", formats=("png",))
        assert len(drawn.figure.axes[0].patches) == (2 if zeros else 0)  # bands where they have a place
        for band in drawn.figure.axes[0].patches:
            assert np.isfinite(band.get_xy()).all()


def test_one_bad_figure_does_not_cost_the_others(curves):
    def bad():
        raise IndexError("index 0 is\nout of bounds")

    drawn, missing = draw_all({"bad": bad, "tilt": lambda: tilt(curves)})
    assert list(drawn) == ["tilt"]
    assert missing == {"bad": "it could not be drawn (IndexError: index 0 is out of bounds)"}


def test_a_figure_that_cannot_be_saved_leaves_no_file(tmp_path):
    figure = new_figure(1, 1)
    figure.subplots().plot([1, 2], [np.nan, np.nan], marker="o", markevery=0.15)
    with pytest.raises(InputError, match="it could not be drawn"):
        save(Drawn(figure, "nothing"), tmp_path / "bad")
    assert not list(tmp_path.iterdir())


def test_no_hard_subset():
    drawn, missing = draw(run(hard=None))
    assert not missing
    left, right = drawn["frontier"].figure.axes
    assert (left.get_xlabel(), left.get_ylabel()) == ("validation ECE", "test ECE")
    assert right.get_ylabel() == "lowest test ECE of any T"
    assert "hard" not in drawn["frontier"].alt + drawn["reliability"].alt
    assert len(drawn["histograms"].figure.axes) == 2


def test_nothing_but_a_single_expert_without_groups():
    drawn, missing = draw(run(methods=("single",), seeds=(1,), hard=None, groups=False))
    scaled = [f"{name}{suffix}" for name in ("reliability", "histograms") for suffix in ("", "_scaled")]
    assert list(drawn) == [*scaled, "frontier"]
    assert all(missing.values())
    assert "levels" not in missing  # no column of agreement, so no such figure


def test_errors_say_what_is_missing(curves):
    vanilla = by_method(curves)["vanilla"]
    for figure, words in (
        (tilt, "no method of this run has a tilted"),
        (lambda c: levels(c, "age"), 'no column "age"'),
        (lambda c: routing([{**c[0], "routing": None}]), "more than one expert"),
        (lambda c: reliability([*c, c[0]]), "two curves for method 'vanilla', seed 1"),
        (lambda c: histograms([c[0], {**c[1], "protocol": "published"}]), "several protocols"),
        (lambda _: reliability([]), "no curves"),
    ):
        with pytest.raises(InputError, match=words):
            figure(vanilla)


def test_all_methods_and_a_users_own_look_different():
    found = looks([*METHODS, "mine", "yours"])
    assert len(found) == len(METHODS) + 2
    for kind in ("colour", "marker"):
        times = Counter(getattr(look, kind) for look in found.values())
        assert [value for value, count in times.items() if count > 1] == []
    assert looks(["robust"])["robust"] == found["robust"]


def test_methods_come_in_the_papers_order():
    assert list(by_method(run(methods=("mine", "robust", "single"), seeds=(1,)))) == [
        "single",
        "robust",
        "mine",
    ]


def test_files_are_the_same_bytes_and_carry_the_alt_text(curves, tmp_path):
    first, again = tilt(curves), tilt(curves)
    (tmp_path / "again").mkdir()
    png, pdf = save(first, tmp_path / "tilt")
    for path in save(again, tmp_path / "again" / "tilt"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()
    assert b"CreationDate" not in pdf.read_bytes()
    with Image.open(png) as image:
        assert image.text == {"Description": first.alt}
    with pytest.raises(InputError, match="unknown format 'gif'"):
        save(first, tmp_path / "tilt", formats=("gif",))


def test_over_seeds_leaves_out_what_is_missing():
    mean, error = over_seeds([[1.0, None], [2.0, None], [3.0, 4.0]])
    assert mean.tolist() == [2.0, 4.0]
    assert error[0] == pytest.approx(1 / np.sqrt(3))
    assert np.isnan(error[1])
