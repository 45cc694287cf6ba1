import csv
import io
import math

import numpy as np
import pytest
from scipy import stats

from calmoe.render.grid import Grid, Heading, label
from calmoe.report.rows_over_targets import MEAN, compare_by_target, mean_over_targets, paired_by_target
from calmoe.report.tables import paired_table
from calmoe.report.targets_tables import targets_comparison_table, targets_paired_table, targets_table

TITLES = {"photo": "Photo", "sketch": "Sketch"}


def rows(method, protocol="corrected", column="ece_ts", **by_target):
    """One row a target and seed, from lists of values by seed; None is a run that is not there."""
    return [
        {"method": method, "seed": seed, "protocol": protocol, "target": target, column: value}
        for target, values in by_target.items()
        for seed, value in enumerate(values, 42)
        if value is not None
    ]


VANILLA = rows("vanilla", photo=[0.10, 0.20, 0.12], sketch=[0.30, 0.40, 0.34])
ROBUST = rows("robust", photo=[0.04, 0.10, 0.06], sketch=[0.20, 0.30, 0.30])


def test_the_mean_is_within_a_seed_first():
    means = mean_over_targets([*VANILLA, *ROBUST], TITLES)
    found = {(row["method"], row["seed"]): row["ece_ts"] for row in means}
    assert [found["vanilla", seed] for seed in (42, 43, 44)] == pytest.approx([0.20, 0.30, 0.23])
    assert [found["robust", seed] for seed in (42, 43, 44)] == pytest.approx([0.12, 0.20, 0.18])
    assert all(row["target"] == MEAN for row in means)


def test_the_mean_is_over_the_targets_asked_for():
    found = [*VANILLA, *rows("vanilla", art=[0.9, 0.9, 0.9])]
    means = [row["ece_ts"] for row in mean_over_targets(found, TITLES)]
    assert means == pytest.approx([0.20, 0.30, 0.23])


def test_the_interval_of_the_mean_by_hand():
    (d,) = paired_by_target([*VANILLA, *ROBUST], "corrected", TITLES, columns=["ece_ts"])[MEAN]
    # differences by seed: -.08, -.10, -.05; their mean -.23 / 3, their standard deviation .02516611
    error = 0.025166114784 / math.sqrt(3)
    assert (d.estimate, d.n) == (pytest.approx(-0.0766666667), 3)
    assert (d.low, d.high) == pytest.approx(
        (d.estimate - 4.3026527297 * error, d.estimate + 4.3026527297 * error)
    )
    pooled = stats.ttest_rel([0.04, 0.10, 0.06, 0.20, 0.30, 0.30], [0.10, 0.20, 0.12, 0.30, 0.40, 0.34])
    assert d.high - d.low > np.diff(pooled.confidence_interval())  # targets of a seed are not seeds


def test_targets_apart_are_paired_as_runs_are():
    (d,) = paired_by_target([*VANILLA, *ROBUST], "corrected", TITLES, columns=["ece_ts"])["sketch"]
    expected = stats.ttest_rel([0.20, 0.30, 0.30], [0.30, 0.40, 0.34]).confidence_interval()
    assert (d.estimate, d.low, d.high) == pytest.approx((-0.08, *expected))


def test_a_seed_without_a_target_is_left_out_of_the_mean_alone():
    found = [*VANILLA, *rows("robust", photo=[0.04, 0.10, 0.06], sketch=[0.20, None, 0.30])]
    differences = paired_by_target(found, "corrected", TITLES, columns=["ece_ts"])
    assert [differences[t][0].n for t in ("photo", "sketch", MEAN)] == [3, 2, 2]
    assert differences[MEAN][0].estimate == pytest.approx((-0.08 - 0.05) / 2)
    grid = targets_table(found, "corrected", TITLES, ["ece_ts"])
    line = dict(zip((h.whole for h in grid.headings), (e.text for e in grid.rows[1]), strict=True))
    assert line == {
        "Method": "Robust MoE",
        "Seeds": "2–3",
        "Photo ECE+TS": "0.067 ± 0.018",
        "Sketch ECE+TS": "0.250 ± 0.050",
        "Mean over targets Seeds": "2",
        "Mean over targets ECE+TS": "0.150 ± 0.030",
    }
    assert [[entry.bold for entry in row] for row in grid.rows] == [
        [False, False, False, True, False, True],
        [False, False, True, False, False, False],  # of fewer seeds on Sketch and in the mean
    ]
    assert grid.caption.endswith("; a mean of fewer seeds than another in its column is never in bold")
    whole = targets_table([*VANILLA, *ROBUST], "corrected", TITLES, ["ece_ts"])
    assert [entry.bold for entry in whole.rows[1]] == [False, False, True, True, False, True]
    assert whole.caption.endswith("best in bold")


def test_a_value_that_one_target_lacks_has_no_mean():
    found = rows("vanilla", column="nll_ts", photo=[0.1, 0.3], sketch=[0.2, 0.5])
    found[2]["nll_ts"] = None  # an infinite loss
    assert [row["nll_ts"] for row in mean_over_targets(found, TITLES)] == [None, 0.4]


def test_protocols_are_not_mixed():
    found = [*VANILLA, *rows("vanilla", "published", photo=[0.9], sketch=[0.7])]
    means = [row for row in mean_over_targets(found, TITLES) if row["protocol"] == "published"]
    assert [row["ece_ts"] for row in means] == pytest.approx([0.8])


def test_one_seed_has_an_unknown_interval_and_says_so():
    found = [*rows("vanilla", photo=[0.1], sketch=[0.3]), *rows("robust", photo=[0.2], sketch=[0.2])]
    differences = paired_by_target(found, "corrected", TITLES, columns=["ece_ts"])
    grid = targets_paired_table(differences, TITLES)
    assert "| Robust MoE | ECE+TS | 1 | +0.100 [unknown] | −0.100 [unknown] |" in grid.markdown()
    assert r"$+0.100 [\mbox{unknown}]$" in grid.latex()
    assert differences[MEAN][0].estimate == pytest.approx(0)
    assert math.isnan(differences[MEAN][0].low)
    assert "| Robust MoE | ECE+TS | 1 | 0.000 | unknown |" in paired_table(differences[MEAN]).markdown()


def test_paired_table_shows_what_is_missing_and_which_side():
    more = rows("fgr", photo=[0.0, 0.1, 0.021])
    differences = paired_by_target([*VANILLA, *ROBUST, *more], "corrected", TITLES, columns=["ece_ts"])
    grid = targets_paired_table(differences, TITLES)
    texts = {row[0].text: [entry.text for entry in row[3:]] for row in grid.rows}
    assert texts["FGR"] == ["−0.100 [−0.101, −0.098]", "–"]
    # Robust MoE: −0.073 ± 0.057 on Photo, −0.080 ± 0.086 on Sketch
    assert [[entry.bold for entry in row[3:]] for row in grid.rows] == [[True, False], [True, False]]
    (first, *_) = csv.DictReader(io.StringIO(grid.csv()))
    assert (first["method"], first["sketch_low"], float(first["photo_difference"])) == (
        "fgr",
        "",
        pytest.approx(-0.0997, abs=1e-4),
    )


def test_without_the_baseline_on_a_target_there_is_nothing_to_pair():
    found = [*rows("vanilla", photo=[0.1, 0.2]), *rows("robust", photo=[0.1, 0.1], sketch=[0.2, 0.3])]
    differences = paired_by_target(found, "corrected", TITLES)
    assert differences["photo"]
    assert differences["sketch"] == differences[MEAN] == []


def test_published_cells_stand_beside_ours():
    found = [
        {**row, "accuracy": 0.9}
        for row in rows("vanilla", "published", photo=[0.20, 0.21, 0.19], sketch=[0.189, 0.2, 0.178])
    ]
    titles = {**TITLES, "art_painting": "Art"}
    cells = compare_by_target(found, "pacs", "published", titles)
    assert list(cells) == ["photo", "sketch", "art_painting"]
    for tested in (True, False):
        grid = targets_comparison_table(cells, titles, "beside", tested)
        (line,) = [row for row in grid.rows if (row[0].text, row[1].text) == ("Vanilla MoE", "ECE+TS")]
        assert [entry.text for entry in line[2:]] == [
            "0.026 ± 0.001", "0.200 ± 0.006", "0.189 ± 0.011", "0.189 ± 0.006", "0.118 ± 0.007", "–",
        ]  # fmt: skip
        assert [entry.bold for entry in line[2:]] == [False, tested, False, False, False, False]
    assert len(grid.rows) == 21
    assert compare_by_target(found, "domains", "published", titles) == {}


def test_groups_stand_above_their_headings():
    headings = (Heading("Method", ("method",)), *(Heading(t, (t,), "A & B") for t in ("x", "y")))
    grid = Grid("two levels", headings, ((tuple(label(t, t) for t in "mno"),),))
    assert "| Method | A & B x | A & B y |" in grid.markdown()
    assert r"\multicolumn{1}{c}{} & \multicolumn{2}{c}{A \& B} \\" in grid.latex()
    assert '<tr><td colspan="1"></td><th scope="colgroup" colspan="2">A &amp; B</th></tr>' in grid.html()
    assert "colspan" not in Grid("one", headings[:1], ()).html()
    assert "multicolumn" not in Grid("one", headings[:1], ()).latex()
