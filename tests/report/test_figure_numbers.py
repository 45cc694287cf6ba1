"""The numbers in the figures: what is drawn is what the curves say, computed here a second time."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from scipy import stats

from calmoe.report.confidence_figures import histograms, reliability
from calmoe.report.curves_over_seeds import by_method
from calmoe.report.frontier import frontier
from calmoe.report.group_figures import groups, levels
from calmoe.report.inside_mixture import routing, tilt
from synthetic_curves import run


@pytest.fixture(scope="module")
def curves():
    return run(seeds=(1, 2))


def series(container):
    """x, y of the points of an error bar plot, and the ends of their bars where they have some."""
    line, _, (bars, *_) = container.lines
    return *line.get_data(), [tuple(s[:, 1]) for s in bars.get_segments() if len(s)]


def wilson(right, n):
    return tuple(stats.binomtest(round(right * n), n).proportion_ci(0.95, method="wilson"))


def test_reliability_weighs_each_seeds_bins_by_their_rows():
    vanilla = by_method(run(("vanilla",), seeds=(1, 2), rows=120))["vanilla"]
    axes, strip = reliability(vanilla).figure.axes
    tables = [c["raw"]["reliability"]["all"] for c in vanilla]
    count = np.array([t["count"] for t in tables])
    assert (count[0] != count[1]).any()
    numbers = {k: np.array([t[k] for t in tables], dtype=float) for k in ("confidence", "accuracy")}
    pooled = {k: np.nansum(count * v, 0)[count.sum(0) > 0] for k, v in numbers.items()}
    total = count.sum(0)
    faint, solid = (series(container) for container in axes.containers[:2])
    thin = total[total > 0] / 2 < 10
    assert 0 < thin.sum() < len(thin)
    for (x, y, _), shown in ((faint, thin), (solid, ~thin)):
        drawn = np.isfinite(x)
        assert np.array(x)[drawn] == pytest.approx((pooled["confidence"] / total[total > 0])[shown])
        assert np.array(y)[drawn] == pytest.approx((pooled["accuracy"] / total[total > 0])[shown])
    heights = [bar.get_height() for bar in strip.patches[: len(total)]]
    assert heights == pytest.approx(total / total.sum())


def test_reliabilitys_bars_are_wilsons(curves):
    axes = reliability(curves[:1]).figure.axes[0]
    table = curves[0]["raw"]["reliability"]["all"]
    filled = [(a, n) for a, n in zip(table["accuracy"], table["count"], strict=True) if n >= 10]
    _, _, bars = series(axes.containers[1])
    assert bars == [pytest.approx(wilson(*bin_)) for bin_ in filled]


def test_a_histograms_gap_is_confidence_minus_accuracy(curves):
    vanilla = by_method(curves)["vanilla"]
    axes = histograms(vanilla).figure.axes[0]
    shown = [c["raw"]["histogram"]["all"] for c in vanilla]
    gap = np.mean([h["confidence"] - h["accuracy"] for h in shown])
    assert axes.texts[0].get_text() == f"gap {gap:+.3f}".replace("-", "−")
    share = np.mean([np.array(h["count"]) / sum(h["count"]) for h in shown], axis=0)
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(share)


def test_levels_draw_accuracy_with_wilsons_bars_and_both_confidences(curves):
    (c,) = curves[:1]
    axes = levels([c]).figure.axes[0]
    raw, scaled = (list(c[view]["groups"]["agreement_level"].values()) for view in ("raw", "scaled"))
    (container,) = axes.containers
    _, y, bars = series(container)
    assert list(y) == pytest.approx([level["accuracy"] for level in raw])
    assert bars == [pytest.approx(wilson(level["accuracy"], level["count"])) for level in raw]
    by_dash = {line.get_ls(): line.get_ydata() for line in axes.lines}
    assert list(by_dash["--"]) == pytest.approx([level["confidence"] for level in raw])
    assert list(by_dash[":"]) == pytest.approx([level["confidence"] for level in scaled])


def test_the_levels_bands_are_standard_errors_over_seeds(curves):
    vanilla = by_method(curves)["vanilla"]
    axes = levels(vanilla).figure.axes[0]
    raw, _ = [shade for shade in axes.collections if isinstance(shade, PolyCollection)]
    found = [[g["confidence"] for g in c["raw"]["groups"]["agreement_level"].values()] for c in vanilla]
    heights = raw.get_paths()[0].vertices[:, 1]
    mean, error = np.mean(found, axis=0), stats.sem(found)
    assert heights.max() == pytest.approx((mean + error).max())
    assert heights.min() == pytest.approx((mean - error).min())


def test_groups_draw_means_and_standard_errors_and_name_the_worst(curves):
    figure, alt = groups(curves)
    of = {
        name: [c["raw"]["groups"][column][name] for c in by_method(curves)["vanilla"]]
        for column, found in curves[0]["raw"]["groups"].items()
        for name in found
    }
    names = [label.get_text().split("\n")[0] for label in figure.axes[1].get_xticklabels()]
    for axes, metric in zip(figure.axes, ("accuracy", "ece"), strict=True):
        _, y, bars = series(axes.containers[0])
        values = np.array([[g[metric] for g in of[name]] for name in names], dtype=float)
        np.testing.assert_allclose(y, values.mean(axis=1))
        known = values[~np.isnan(values).any(axis=1)]
        errors = stats.sem(known, axis=1)
        np.testing.assert_allclose(bars, np.array([known.mean(1) - errors, known.mean(1) + errors]).T)
        worst = known.mean(1).max() if metric == "ece" else known.mean(1).min()
        title = "ECE" if metric == "ece" else metric
        name = names[list(values.mean(axis=1)).index(worst)]
        assert f"Vanilla MoE {title} {worst:.3f} on {name}" in alt


def test_the_frontier_marks_t_and_draws_what_every_seed_reaches(curves):
    left, right = frontier(curves).figure.axes
    vanilla = [c["frontier"] for c in by_method(curves)["vanilla"]]
    raw, chosen = left.containers[:2]
    for container, face, at in (
        (raw, "white", [s["temperature"].index(1.0) for s in vanilla]),
        (chosen, "#000000", [s["chosen"] for s in vanilla]),
    ):
        (x,), (y,), _ = series(container)
        assert container.lines[0].get_markerfacecolor() == face
        assert x == pytest.approx(np.mean([s["ece"][i] for s, i in zip(vanilla, at, strict=True)]))
        assert y == pytest.approx(np.mean([s["hard_ece"][i] for s, i in zip(vanilla, at, strict=True)]))
        assert left.get_xlim()[0] < x < left.get_xlim()[1]
        assert left.get_ylim()[0] < y < left.get_ylim()[1]
    budgets, lowest = right.lines[0].get_data()
    need = max(min(s["ece"]) for s in vanilla)
    assert (np.isfinite(lowest) == (budgets >= need)).all()
    assert min(min(s["ece"]) for s in vanilla) < budgets[np.isfinite(lowest)][0]


def test_the_tilt_is_a_mean_over_seeds_with_its_standard_error(curves):
    robust = by_method(curves)["robust"]
    moved = [
        {**c, "history": {**c["history"], "gamma_eff": [1.5 + i, 2.0]}} for i, c in enumerate(robust)
    ]  # Γ_eff in the first epoch: 1.5 and 2.5
    axes = tilt(moved).figure.axes[1]
    assert list(axes.lines[0].get_ydata()) == [2.0, 2.0]
    (shade,) = axes.collections
    heights = shade.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((1.5, 2.5))  # a standard error of 0.5


def test_routing_draws_means_and_the_middle_half(curves):
    vanilla = by_method(curves)["vanilla"]
    axes = routing(vanilla).figure.axes[0]
    for container, part, middle in zip(axes.containers, ("easy", "hard"), axes.lines[::2], strict=False):
        found = [c["routing"]["entropy"][part] for c in vanilla]
        _, (mean,), (bar,) = series(container)
        means = [h["mean"] for h in found]
        assert mean == pytest.approx(np.mean(means))
        assert bar == pytest.approx((mean - stats.sem(means), mean + stats.sem(means)))
        quartiles = np.mean([[h["quantiles"][1], h["quantiles"][3]] for h in found], axis=0)
        assert list(middle.get_ydata()) == pytest.approx(quartiles)


@pytest.mark.parametrize("epochs", [1, 2, 4, 30])
def test_epochs_are_whole_numbers(curves, epochs):
    (robust, *_) = by_method(curves)["robust"]
    history = {
        "epoch": [*range(3, 3 + epochs)],
        "negative_share": [0.2] * epochs,
        "gamma_eff": [2.0] * epochs,
    }
    for axes in tilt([{**robust, "history": history}]).figure.axes:
        least, most = axes.get_xlim()
        shown = [tick for tick in axes.get_xticks() if least <= tick <= most]
        assert shown
        assert all(tick == round(tick) for tick in shown)
