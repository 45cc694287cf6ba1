import numpy as np
import pytest
from matplotlib.text import Text

from calmoe.errors import InputError
from calmoe.methods import METHODS
from calmoe.report.targets_figures import targets_dots, targets_reliability, targets_scatter
from synthetic_curves import run

TITLES = {"photo": "Photo", "art": "Art", "sketch": "Sketch"}


def rows(methods=("vanilla", "robust"), targets=TITLES, seeds=(42, 43)):
    return [
        {"method": method, "seed": seed, "protocol": "corrected", "target": target}
        | {"accuracy": 0.7 + 0.02 * i + 0.01 * (seed - 42), "ece": 0.2, "ece_ts": 0.1 - 0.01 * i + 0.02 * t}
        for i, method in enumerate(methods)
        for t, target in enumerate(targets)
        for seed in seeds
    ]


@pytest.fixture(scope="module")
def curves():
    found = {target: run(seeds=(1, 2), hard=None, groups=False) for target in TITLES}
    found["art"] = [c for c in found["art"] if c["method"] == "vanilla"]
    return found


def panel_titles(drawn):
    return [axes.get_title() for axes in drawn.figure.axes]


def test_dots_have_a_place_for_every_target_and_the_mean():
    drawn = targets_dots(rows(), "corrected", TITLES)
    accuracy, _, scaled = drawn.figure.axes
    assert [tick.get_text() for tick in scaled.get_xticklabels()] == ["Photo", "Art", "Sketch", "mean"]
    vanilla = accuracy.containers[0]
    assert vanilla[0].get_ydata() == pytest.approx([0.705] * 4)
    (low, high) = vanilla[2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.700, 0.710))  # standard error of .70 and .71
    assert "mean: Vanilla MoE 0.120 and 0.705" in drawn.alt
    places = [container[0].get_xdata() for container in accuracy.containers]
    assert np.mean(places, axis=0) == pytest.approx(range(4))  # around the name of the target


def test_a_partial_run_has_no_mean_and_no_dot():
    found = [row for row in rows() if (row["method"], row["target"]) != ("robust", "art")]
    drawn = targets_dots(found, "corrected", TITLES)
    heights = np.array(drawn.figure.axes[0].containers[1][0].get_ydata(), dtype=float)
    assert np.isnan(heights).tolist() == [False, True, False, True]
    nothing = [row for row in rows() if (row["method"] == "robust") == (row["target"] == "art")]
    assert "mean:" not in targets_dots(nothing, "corrected", TITLES).alt


def test_scatter_has_a_panel_a_target():
    drawn = targets_scatter(rows(), "corrected", TITLES)
    assert panel_titles(drawn) == ["Photo", "Art", "Sketch", "mean"]
    assert "Photo: Vanilla MoE 0.705 and 0.100, Robust MoE 0.725 and 0.090" in drawn.alt
    vanilla = drawn.figure.axes[0].containers[0]
    across, up = (bars.get_segments()[0] for bars in vanilla[2])
    assert np.ptp(across, axis=0) == pytest.approx([0.010, 0])  # of the accuracy; ECE+TS is the same twice
    assert np.ptp(up, axis=0) == pytest.approx([0, 0])


def legend(drawn):
    (found,) = drawn.figure.legends
    return [text.get_text() for text in found.get_texts()]


@pytest.mark.parametrize("figure", [targets_dots, targets_scatter])
def test_a_method_with_fewer_seeds_on_a_target_says_so(figure):
    assert legend(figure(rows(), "corrected", TITLES)) == ["Vanilla MoE", "Robust MoE"]
    lacking = [row for row in rows() if (row["method"], row["target"], row["seed"]) != ("robust", "art", 43)]
    assert legend(figure(lacking, "corrected", TITLES)) == ["Vanilla MoE", "Robust MoE (1–2 seeds)"]
    alike = [row for row in rows() if (row["target"], row["seed"]) != ("art", 43)]
    assert legend(figure(alike, "corrected", TITLES)) == ["Vanilla MoE", "Robust MoE"]  # none has more
    other = rows()
    assert (other[-1]["method"], other[-1]["target"]) == ("robust", "sketch")
    other[-1]["seed"] = 44  # two seeds on every target, and one that has them all
    assert legend(figure(other, "corrected", TITLES)) == ["Vanilla MoE", "Robust MoE (1–2 seeds)"]


def test_a_legend_fits_in_its_figure():
    names = [*METHODS][1:10]
    lacking = [row for row in rows(names) if (row["target"], row["seed"]) != ("art", 43)]
    lacking += [row for row in rows(names[:4]) if (row["target"], row["seed"]) == ("art", 43)]
    drawn = targets_dots(lacking, "corrected", TITLES)
    (found,) = drawn.figure.legends
    assert [text.get_text() for text in found.get_texts()][1] == "Robust MoE (1–2 seeds)"  # below the first
    assert found.get_window_extent().width < drawn.figure.bbox.width


def test_reliability_has_a_row_a_target(curves):
    drawn = targets_reliability(curves, TITLES)
    top = [title for title in panel_titles(drawn) if title]
    assert len(drawn.figure.axes) == 2 * 2 * 3
    assert top[0].startswith("Vanilla MoE\nECE .")
    assert top[3] == "not finished"  # Robust MoE on the second target
    assert "Photo, Robust MoE" in drawn.alt
    assert "Art, Robust MoE" not in drawn.alt
    scaled = panel_titles(targets_reliability(curves, TITLES, "scaled"))
    assert scaled[0].startswith("Vanilla MoE\nECE+TS .")


def test_five_main_methods_are_shown():
    names = ("single", "vanilla", "mocae", "fgr", "robust", "robust_filtered", "entropic")
    of = run(methods=names, seeds=(1,), hard=None, groups=False, rows=60)
    drawn = targets_reliability({"photo": of, "art": of}, {"photo": "Photo", "art": "Art"}, "scaled")
    shown = [title.split("\n")[0] for title in panel_titles(drawn) if "\n" in title]
    assert shown == ["Single Expert", "Vanilla MoE", "Robust MoE", "Robust Filtered", "Entropic Risk"]


def test_letters_can_be_read(curves):
    for drawn in (
        targets_dots(rows(), "corrected", TITLES),
        targets_scatter(rows(), "corrected", TITLES),
        targets_reliability(curves, TITLES),
    ):
        sizes = [text.get_fontsize() for text in drawn.figure.findobj(Text) if text.get_text()]
        assert min(sizes) >= 7
        assert len(drawn.alt) > 100


def test_nothing_to_draw_is_said():
    with pytest.raises(InputError, match="no rows under protocol 'published'"):
        targets_dots(rows(), "published", TITLES)


def test_accuracy_ends_at_one():
    perfect = [{**row, "accuracy": 1.0} for row in rows()]
    for drawn in (
        targets_scatter(perfect, "corrected", TITLES),
        targets_scatter(rows(), "corrected", TITLES),
    ):
        for axes in drawn.figure.axes:
            least, most = axes.get_xlim()
            assert most < 1.001
            assert max(x for x in axes.get_xticks() if least <= x <= most) <= 1
            assert most > max(container[0].get_xdata()[0] for container in axes.containers)
