"""Plots take axes and give them back; what they draw is what they were given."""

import numpy as np
import pytest

from calmoe.calibration import Frontier
from calmoe.metrics import reliability
from calmoe.render.drawing import Drawn, new_figure, rendered
from calmoe.render.plots import plot_confidence, plot_frontier, plot_reliability

FRONTIER = Frontier(
    temperatures=np.array([0.5, 1.0, 2.0]),
    ece=np.array([0.1, 0.05, 0.02]),
    subset_ece=np.array([0.2, 0.1, 0.15]),
    chosen=2,
)


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    confidence = draw.uniform(0.5, 1, 500)
    right = draw.uniform(size=500) < confidence**2
    return reliability(np.stack([confidence, 1 - confidence], axis=1), np.where(right, 0, 1))


@pytest.mark.parametrize("plot", [plot_reliability, plot_confidence])
def test_a_plot_returns_the_axes_that_it_was_given(plot, table):
    ax = new_figure(2, 2).add_subplot()
    assert plot(table, ax) is ax
    assert plot(table).figure is not ax.figure
    assert rendered(Drawn(plot(table).figure, ""), "png").startswith(b"\x89PNG")


def test_the_frontier_returns_its_axes_too():
    ax = new_figure(2, 2).add_subplot()
    assert plot_frontier(FRONTIER, ax) is ax


def test_reliability_is_drawn_with_wilsons_intervals(table):
    (points,) = plot_reliability(table).containers
    filled = table.count > 0
    x, y = (values[filled] for values in points.lines[0].get_data())
    np.testing.assert_allclose(x, table.confidence[filled])
    np.testing.assert_allclose(y, table.accuracy[filled])
    (bars,) = points.lines[2]
    ends = [segment[:, 1] for segment in bars.get_segments() if len(segment)]
    np.testing.assert_allclose(ends, table.interval()[filled])


def test_two_models_share_axes(table):
    ax = plot_reliability(table, label="one")
    plot_reliability(table, ax, colour="black", label="other")
    assert ax.get_legend_handles_labels()[1] == ["one", "other"]


def test_the_histogram_shows_shares_and_both_means(table):
    ax = plot_confidence(table)
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(table.share)
    confidence, accuracy = (line.get_xdata()[0] for line in ax.lines)
    filled = table.count > 0
    assert confidence == pytest.approx(np.average(table.confidence[filled], weights=table.count[filled]))
    assert accuracy == pytest.approx(np.average(table.accuracy[filled], weights=table.count[filled]))


def test_the_frontier_marks_the_chosen_temperature_and_one():
    ax = plot_frontier(FRONTIER)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([FRONTIER.ece, FRONTIER.subset_ece], 1))
    marks = {
        m.lines[0].get_markerfacecolor(): [float(v[0]) for v in m.lines[0].get_data()] for m in ax.containers
    }
    assert marks == {"white": [0.05, 0.1], "#0072b2": [0.02, 0.15]}
