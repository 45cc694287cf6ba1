import csv
import io

import numpy as np
import pytest

from calmoe.errors import InputError
from calmoe.experiments.sweep import row_point
from calmoe.render.drawing import FULL
from calmoe.report.eta_gamma import eta_gamma, eta_gamma_figure, eta_gamma_table
from calmoe.report.sweep_figures import sweep_caption, sweep_figure
from calmoe.report.sweeps import choices_in_words, sweep_in_words, sweep_section, sweep_table

SEEDS = (42, 43, 44)


def judged(rows, nll):
    """The rows with a validation NLL, by its function of their point."""
    return [row | {"validation_nll_ts": nll(row_point(row))} for row in rows]


def sweep(
    values=(1, 2, 4),
    methods=("robust",),
    setting="eta",
    seeds=SEEDS,
    hard=True,
    batch=128,
    ordered=True,
    **more,
):
    """Rows under both protocols: accuracy falls with the value, hard ECE is lowest at 2.

    ordered: whether the values are numbers; others count by their place.
    """
    return [
        {
            "method": method,
            "seed": seed,
            "protocol": protocol,
            "accuracy": 0.92 - 0.01 * value,
            "hard_accuracy": 0.6 if hard else None,
            "ece": 0.05 * value,
            "ece_ts": 0.01 * value,
            "hard_ece": 0.1 + 0.01 * abs(value - 2) + 0.001 * (seed - 43) if hard else None,
            "hard_ece_ts": 0.15 if hard else None,
            "nll_ts": 0.3,
            "brier_ts": 0.1,
            "setting": setting,
            "value": named,
            "batch": batch,
            "perplexity": 128 - 16 * value + (seed - 43),
            "gamma_eff": 3.0,  # a mean over batches: not what the table shows
            **more,
        }
        for method in methods
        for place, named in enumerate(values)
        for value in [named if ordered else place]
        for seed in seeds
        for protocol in ("corrected", "published")
    ]


def table(grid):
    return list(csv.DictReader(io.StringIO(grid.csv())))


def points(axes):
    """x, y of every drawn series."""
    return [np.array(container.lines[0].get_data()) for container in axes.containers]


def spreads(axes):
    """Lengths of the first series' error bars."""
    (bars,) = axes.containers[0].lines[2]
    return [high[1] - low[1] for low, high in bars.get_segments()]


def test_sweep_figure_draws_hard_ece_raw_and_scaled_and_accuracy():
    figure, alt = sweep_figure(sweep(), "corrected", {"eta": 2})
    left, right = figure.axes
    raw, scaled = points(left)
    assert raw.tolist() == [[1, 2, 4], pytest.approx([0.11, 0.10, 0.12])]
    assert scaled[1].tolist() == pytest.approx([0.15] * 3)
    assert spreads(left) == pytest.approx([2 * 0.001 / 3**0.5] * 3)
    assert points(right)[0][1].tolist() == pytest.approx([0.91, 0.90, 0.88])
    assert (left.get_ylabel(), right.get_ylabel()) == ("hard ECE", "accuracy")
    assert left.get_ylim()[0] == 0
    assert "at 2: hard ECE 0.100 ± 0.001, after temperature 0.150 ± 0.000, accuracy 0.900 ± 0.000" in alt
    assert "3 seeds" in alt
    assert figure.get_figwidth() <= FULL


def test_the_default_is_marked_only_if_given():
    def marks(defaults):
        return [
            x for x in sweep_figure(sweep(), "corrected", defaults).figure.axes[0].lines if x.get_ls() == ":"
        ]

    assert [mark.get_xdata()[0] for mark in marks({"eta": 2})] == [2]
    assert marks(None) == []


def test_without_a_hard_subset_the_ece_is_drawn():
    left = sweep_figure(sweep(hard=False), "corrected").figure.axes[0]
    assert left.get_ylabel() == "ECE"
    assert [series[1].tolist() for series in points(left)] == [
        pytest.approx([0.05, 0.1, 0.2]),
        pytest.approx([0.01, 0.02, 0.04]),
    ]


def test_a_sweeps_table_has_no_column_without_a_value():
    titles = [heading.title for heading in sweep_table(sweep(hard=False), "corrected").headings]
    assert titles == ["η", "Seeds", "Accuracy", "ECE", "ECE+TS", "NLL+TS", "Brier+TS"]


@pytest.mark.parametrize(("hard", "title", "chosen"), [(True, "hard ECE", "0.120"), (False, "ECE", "0.200")])
def test_words_and_caption_tell_of_the_error_that_is_drawn(hard, title, chosen):
    rows = judged(sweep(hard=hard), lambda point: 1 / point["eta"])
    assert sweep_figure(rows, "corrected").figure.axes[0].get_ylabel() == title
    (bullet,) = sweep_in_words(rows, "corrected", {"eta": 1}).bullets
    at_chosen, at_default = bullet.split(" The default, ")
    assert at_chosen.startswith("Robust MoE: η = 4 is chosen (validation NLL+TS 0.250 ± 0.000; on test, ")
    assert f"{title} {chosen} ± " in at_chosen
    assert f"{title} after temperature" in at_chosen
    assert at_default.startswith("η = 1: validation NLL+TS 1.000 ± 0.000; on test, ")
    assert f"{title} {'0.110' if hard else '0.050'} ± " in at_default
    whose = "ECE of the hard subset" if hard else "ECE"
    caption = f"{whose}, raw and after a temperature, and accuracy, by η."
    assert sweep_caption(sweep(hard=hard), "corrected") == caption
    assert sweep_caption(rows, "corrected").startswith(f"{caption} Right: validation NLL+TS")


def test_validation_chooses_whatever_test_says():
    """Test is best at η = 1 in accuracy and ECE; validation NLL is lowest at 4."""
    rows = judged(sweep(), lambda point: 1 / point["eta"])
    grid = sweep_table(rows, "corrected")
    titles = [heading.title for heading in grid.headings]
    assert titles[:4] == ["η", "Choice", "Seeds", "Validation NLL+TS"]
    assert [row[1].text for row in grid.rows] == ["", "", "chosen"]
    best = [row["accuracy"] for row in table(grid)]
    assert best[0] == max(best)
    assert table(grid)[2]["validation_nll_ts"] == "0.25"
    (line,) = choices_in_words(rows, "corrected")
    assert "validation NLL+TS chooses η = 4 for Robust MoE (0.250 ± 0.000" in line
    figure = sweep_figure(rows, "corrected").figure
    assert points(figure.axes[2])[0].tolist() == [[1, 2, 4], [1, 0.5, 0.25]]
    (ring,) = [line for line in figure.axes[2].lines if line.get_markersize() == 9]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (4, 0.25)


def test_a_lucky_point_of_fewer_seeds_is_not_chosen():
    rows = judged(sweep(), lambda point: 1 / point["eta"])
    rows = [row for row in rows if row["value"] != 4 or row["seed"] == 42]
    assert [row[1].text for row in sweep_table(rows, "corrected").rows] == ["", "chosen", ""]
    assert choices_in_words(sweep(), "corrected") == []  # as rows were before they had validation's
    assert "nothing is chosen" in sweep_in_words(sweep(), "corrected").bullets[0]


def over(points, methods=("robust",), seeds=SEEDS):
    """Rows of a sweep over several settings; validation NLL is (η - 1)² plus the rest."""
    rows = [
        {k: v for k, v in row.items() if k not in ("setting", "value")} | {"point": point}
        for point in points
        for row in sweep((1,), methods, seeds=seeds)
    ]
    return judged(rows, lambda point: (point["eta"] - 1) ** 2 + point.get("learning_rate", 0))


GRID = [{"eta": eta, "learning_rate": rho} for eta in (0, 1, 3) for rho in (0.5, 0.1)]


def test_points_of_several_settings_stand_by_their_validation_nll():
    grid = sweep_table(over(GRID, ("fgr_robust", "robust")), "corrected")
    titles = [heading.title for heading in grid.headings]
    assert titles[:5] == ["Method", "η", "Learning_rate", "Choice", "Seeds"]
    found = table(grid)[:6]
    assert [(row["eta"], row["learning_rate"]) for row in found] == [
        ("1", "0.1"), ("1", "0.5"), ("0", "0.1"), ("0", "0.5"), ("3", "0.1"), ("3", "0.5"),
    ]  # fmt: skip
    assert [row["choice"] for row in found] == ["chosen", *[""] * 5]
    numbers = [float(row["validation_nll_ts"]) for row in found]
    assert numbers == sorted(numbers)
    assert "6 points" in sweep_in_words(over(GRID), "corrected").text
    assert "η = 1, learning_rate = 0.1 is chosen" in sweep_in_words(over(GRID), "corrected").bullets[0]


def test_two_settings_are_drawn_as_a_map_with_a_ring_at_the_chosen_point():
    rows = over(GRID, ("fgr_robust", "robust"))
    figure, alt = sweep_figure(rows, "corrected", {"eta": 0, "learning_rate": 0.5})
    first, second = figure.axes[:2]
    assert (first.get_xlabel(), first.get_ylabel()) == ("η", "learning_rate")
    for axes in (first, second):
        (marks,) = axes.collections
        drawn = {tuple(at): value for at, value in zip(marks.get_offsets(), marks.get_array(), strict=True)}
        assert drawn == pytest.approx({(e, r): (e - 1) ** 2 + r for e in (0, 1, 3) for r in (0.1, 0.5)})
        ring, default = axes.lines
        assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (1, 0.1)
        assert (default.get_xdata()[0], default.get_ydata()[0]) == (0, 0.5)
    assert "at η = 1, learning_rate = 0.1: validation NLL+TS 0.100" in alt
    assert "ring" in sweep_caption(rows, "corrected")


def test_three_settings_have_a_table_and_no_figure():
    points = [{"eta": eta, "gamma": 2, "learning_rate": 0.1} for eta in (0, 1)]
    assert len(sweep_table(over(points), "corrected").rows) == 2
    with pytest.raises(InputError, match="3 settings"):
        sweep_figure(over(points), "corrected")
    section = sweep_section("eta-gamma-rho")
    assert section.heading == "Sweep of η, gamma and rho"
    assert section.holds("sweep_eta-gamma-rho-corrected")
    assert not sweep_section("eta").holds("sweep_eta-gamma-rho-corrected")


def test_words_and_lists_can_be_swept_too():
    routed = judged(sweep(("hard", "soft"), setting="routing", ordered=False), lambda _: 1.0)
    axes = sweep_figure(routed, "corrected", {"routing": "soft"}).figure.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["hard", "soft"]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_ls() == ":"] == [1]
    assert [row["routing"] for row in table(sweep_table(routed, "corrected"))] == ["hard", "soft"]
    widths = sweep(([8], [8, 8]), setting="hidden", ordered=False)
    assert [row["hidden"] for row in table(sweep_table(widths, "corrected"))] == ["[8]", "[8,8]"]


def test_one_seed_has_no_bars():
    figure, alt = sweep_figure(sweep(seeds=(43,)), "corrected")
    assert spreads(figure.axes[0]) == [0, 0, 0]
    assert "±" not in alt
    assert "1 seed." in alt


def test_several_methods_take_their_own_looks_in_the_papers_order():
    figure = sweep_figure(sweep(methods=("mine", "fgr_robust", "robust")), "corrected").figure
    entries = figure.legends[0].get_texts()
    shown = [text.get_text() for text in entries]
    assert shown == ["Robust MoE", "FGR + Robust", "mine", "raw", "after temperature"]
    assert len(points(figure.axes[0])) == 6
    assert len(points(figure.axes[1])) == 3


def test_values_far_apart_have_a_logarithmic_axis():
    def scale(*values):
        return sweep_figure(sweep(values), "corrected").figure.axes[0].get_xscale()

    assert [scale(0.1, 1, 10), scale(1, 2, 4), scale(0, 1, 40)] == ["log", "linear", "linear"]


def test_sweep_table_has_a_row_a_value_and_the_best_in_bold():
    grid = sweep_table(sweep(methods=("fgr_robust", "robust")), "corrected")
    found = table(grid)
    assert [(row["method"], row["eta"], row["seeds"]) for row in found] == [
        *(("robust", value, "3") for value in "124"),
        *(("fgr_robust", value, "3") for value in "124"),
    ]
    assert [len(section) for section in grid.sections] == [3, 3]
    assert float(found[2]["hard_ece"]) == pytest.approx(0.12)
    assert float(found[2]["hard_ece_se"]) == pytest.approx(0.001 / 3**0.5)
    titles = [heading.title for heading in grid.headings]
    assert titles[:3] == ["Method", "η", "Seeds"]
    bold = [row[titles.index("Hard ECE")].bold for row in grid.rows]
    assert bold == [False, True, False] * 2
    assert [row[titles.index("Accuracy")].bold for row in grid.rows] == [True, False, False] * 2


def test_values_that_agree_to_six_digits_are_told_apart():
    rows = sweep(values=(1.0, 1.0000001))
    text = sweep_table(rows, "corrected").markdown()
    assert "| 1 |" in text
    assert "| 1.0000001 |" in text
    assert "2 values from 1 to 1.0000001" in sweep_in_words(rows, "corrected").text


def test_a_setting_without_a_title_goes_by_its_name():
    rows = sweep(setting="gamma")
    assert sweep_table(rows, "corrected").headings[0].title == "Gamma"
    assert sweep_figure(rows, "corrected").figure.axes[0].get_xlabel() == "gamma"
    assert sweep_section("gamma").heading == "Sweep of gamma"
    assert sweep_section("gamma").holds("sweep_gamma-corrected")


def test_a_method_that_does_not_read_what_is_swept_has_one_row_and_no_choice():
    same = [{**row, "method": "vanilla", "value": value} for value in (1, 2, 4) for row in sweep((1,))]
    rows = judged(sweep(), lambda point: 1 / point["eta"]) + [
        row | {"validation_nll_ts": 0.2} for row in same
    ]
    places = [(row["method"], row["eta"], row["choice"]) for row in table(sweep_table(rows, "corrected"))]
    assert [place for place in places if place[0] == "vanilla"] == [("vanilla", "any", "")]
    assert [place[1:] for place in places if place[0] != "vanilla"] == [("1", ""), ("2", ""), ("4", "chosen")]
    assert "does not read what is swept" in " ".join(sweep_in_words(rows, "corrected").bullets)
    assert len(choices_in_words(rows, "corrected")) == 1


def test_of_several_settings_a_row_names_those_that_the_method_reads():
    """Robust MoE reads no ρ, the recipe neither: one row for each η, and no ρ is chosen."""
    rows = [
        {**row, "point": {"eta": row["point"]["eta"], "rho": row["point"]["learning_rate"]}}
        for row in over(GRID)
    ]
    found = table(sweep_table(rows + [{**row, "method": "recommended"} for row in rows], "corrected"))
    assert [(row["eta"], row["rho"]) for row in found] == [
        ("any", "any"),
        ("1", "any"),
        ("0", "any"),
        ("3", "any"),
    ]
    (line,) = choices_in_words(rows, "corrected")
    assert "chooses η = 1 for Robust MoE" in line


def test_sweep_table_of_the_warmup():
    grid = sweep_table(sweep((5, 20), setting="warmup"), "published")
    assert grid.headings[0].title == "Warm-up epochs"
    assert grid.caption.startswith("Robust MoE: ")
    assert "published protocol" in grid.caption
    assert [row["warmup"] for row in table(grid)] == ["5", "20"]


def test_eta_and_gamma_beside_the_papers():
    found = table(eta_gamma_table(sweep((0.25, 2))))
    new, known = found
    assert (new["eta"], new["published_perplexity"], new["perplexity_difference"], new["published_top"]) == (
        "0.25",
        "",
        "",
        "",
    )
    gammas = 128 / np.array([95, 96, 97])
    numbers = {name: float(value) for name, value in known.items() if name != "method"}
    assert numbers == pytest.approx(
        {
            "eta": 2,
            "seeds": 3,
            "perplexity": 96,
            "perplexity_se": 1 / 3**0.5,
            "published_perplexity": 93.2,
            "perplexity_difference": 2.8,
            "effective_fraction": 0.75,
            "effective_fraction_se": 1 / 3**0.5 / 128,
            "published_effective_fraction": 0.728,
            "gamma_eff": gammas.mean(),
            "gamma_eff_se": gammas.std(ddof=1) / 3**0.5,
            "published_gamma_eff": 1.4,
            "gamma_eff_difference": gammas.mean() - 1.4,
            "top": 96,
            "published_top": 92,
        }
    )


def test_the_papers_numbers_stand_only_beside_the_papers_setting():
    for rows, dataset in (
        (sweep(methods=("fgr_robust",)), "cifar10h"),
        (sweep(batch=32), "cifar10h"),
        (sweep(), "digits"),
    ):
        assert "published_perplexity" not in table(eta_gamma_table(rows, dataset))[0]
        assert "paper" not in eta_gamma_table(rows, dataset).caption
        assert "paper" not in eta_gamma_figure(rows, dataset).alt


def test_top_is_rounded_up_and_exact_shares_are_not():
    def top(gamma):
        return eta_gamma(sweep((2,), perplexity=128 / gamma))[0]["robust"][2].top

    assert [top(1.0), top(1.1), top(1.6), top(1.9), top(2.0)] == [128, 117, 80, 68, 64]


def test_eta_gamma_figure_draws_ours_and_the_papers():
    figure, alt = eta_gamma_figure(sweep())
    left, right = figure.axes
    assert points(left)[0].tolist() == [[1, 2, 4], [112, 96, 64]]
    assert points(right)[0][1].tolist() == pytest.approx([128 / 112, 128 / 96, 2], rel=1e-3)
    (paper,) = [line for line in left.lines if line.get_markerfacecolor() == "none"]
    assert dict(zip(*paper.get_data(), strict=True))[2.0] == 93.2
    assert "at 4: perplexity 64.00 ± 0.58, Γ_eff 2.00 ± 0.02" in alt
    assert "2: 93.2, 1.4" in alt


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no rows"),
        (sweep() + sweep(setting="warmup"), r"several sweeps \(eta, warmup\)"),
        ([{k: v for k, v in row.items() if k != "setting"} for row in sweep()], "name no setting"),
        (sweep() * 2, "two rows for method 'robust', seed 42"),
    ],
)
def test_rows_that_are_no_sweep_are_refused(rows, said):
    for make in (sweep_figure, sweep_table):
        with pytest.raises(InputError, match=said):
            make(rows, "corrected")


def test_a_protocol_without_rows_is_refused():
    with pytest.raises(InputError, match="no rows under protocol 'other'"):
        sweep_table(sweep(), "other")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no rows"),
        (sweep(setting="warmup"), "a sweep of eta, not of warmup"),
        (sweep(perplexity=None), "no row of this sweep has a tilt"),
        (sweep((1,)) + sweep((2,), batch=32), r"several batch sizes \(32, 128\)"),
    ],
)
def test_rows_without_a_tilt_are_refused(rows, said):
    for make in (eta_gamma_table, eta_gamma_figure):
        with pytest.raises(InputError, match=said):
            make(rows)


def test_no_text_is_smaller_than_7_points():
    for figure, _ in (sweep_figure(sweep(), "corrected", {"eta": 2}), eta_gamma_figure(sweep())):
        texts = figure.findobj(match=lambda a: hasattr(a, "get_fontsize"))
        assert min(text.get_fontsize() for text in texts if text.get_text()) >= 7
