"""Truer: gains are paired within seeds, and their error is the larger of the seeds' and the reruns'."""

import math

import numpy as np
import pytest
from scipy import stats

from calmoe.errors import InputError
from studies.trainings import Error, other_run
from studies.truer import (
    METRICS,
    alone_table,
    cell_of,
    cells_in_order,
    complete,
    found,
    gain,
    gains_of,
    gains_table,
    intervals_of,
    means_table,
    parse_cell,
    truer,
)
from study_rows import column, made, student, write

CELLS = [("vanilla", "last", 1), ("vanilla", "last", 10), ("sharp", "last", 1)]


def rows_of(seeds=(42, 43, 44), targets=("",)):
    rng = np.random.default_rng(0)
    return [
        {
            "method": method, "weights": weights, "views": views, "seed": seed, "target": target,
            "routing_entropy": None, "witness": [0.0, 0.0], "cancelled": None, "p_hidden": 0.5,
            "validation_nll": 1.0,
            **{name: float(rng.uniform()) for name in METRICS},
        }
        for method, weights, views in CELLS for seed in seeds for target in targets
    ]  # fmt: skip


PLAIN = CELLS[0]
INTERVAL = "95 % over seeds"


def shown(grid, title, place=0):
    """A column of a table, by its title; place: which of several."""
    titles = [heading.title for heading in grid.headings]
    at = [i for i, each in enumerate(titles) if each == title][place]
    return [row[at] for row in grid.rows]


def gains(rows, than, cells=CELLS, moves=()):
    return gains_of(rows, [cell for cell in cells if cell != than], than, dict(moves))


def moves(size, freedom=4):
    return dict.fromkeys(METRICS, Error(size, freedom))


def test_a_gain_is_the_mean_over_seeds_of_differences_within_them():
    rows = rows_of(targets=("art", "photo"))
    sharp, plain = (
        [row["nll_ts"] for row in rows if (row["method"], row["views"]) == (method, 1)]
        for method in ("sharp", "vanilla")
    )
    by_seed = np.subtract(sharp, plain).reshape(3, 2).mean(axis=1)
    ours = gain(rows, ("sharp", "last", 1), PLAIN, "nll_ts")
    assert ours.pairs == 6
    assert ours.estimate == pytest.approx(np.mean(by_seed))
    ((error, freedom),) = ours.errors
    assert (error, freedom) == (pytest.approx(np.std(by_seed, ddof=1) / math.sqrt(3)), 2)
    half = error * stats.t.ppf(1 - 0.05 / 2 / 10, 2)
    assert ours.bounds(10) == pytest.approx((ours.estimate - half, ours.estimate + half))


def test_an_interval_is_the_wider_of_seeds_and_reruns():
    rows, sharp = rows_of(), CELLS[2]
    by_seeds = gain(rows, sharp, PLAIN, "accuracy")
    assert gain(rows, sharp, PLAIN, "accuracy", moves(1e-9)).bounds(3) == by_seeds.bounds(3)
    low, high = gain(rows, sharp, PLAIN, "accuracy", moves(8.0)).bounds(3)
    assert (high - low) / 2 == pytest.approx(8 / math.sqrt(3) * stats.t.ppf(1 - 0.05 / 2 / 3, 4))


def test_what_a_rerun_does_to_two_readings_of_one_training_is_not_known():
    rows, views = rows_of(), CELLS[1]
    assert gain(rows, views, PLAIN, "accuracy", moves(8.0)) == gain(rows, views, PLAIN, "accuracy")
    assert {
        entry.text for entry in shown(alone_table(rows, views, PLAIN, moves(8.0)), "95 % with reruns")
    } == {"–"}


def test_what_is_hidden_counts_where_it_was_measured():
    rows = [{**row, "witness": [0.1 * row["seed"], 0.0]} for row in rows_of()]
    rows[0] |= {"witness": None, "p_hidden": None}
    rows[1]["p_hidden"] = 0.01
    table = means_table(rows)
    hidden = [entry.values[0] for entry in shown(table, "Hidden, at least")]
    assert hidden == pytest.approx([4.35, 4.3, 4.3])  # seeds 43 and 44, then all three
    assert [entry.values for entry in shown(table, "Hidden, p < 0.05")] == [(1, 2), (0, 3), (0, 3)]
    assert {entry.text for entry in shown(table, "Cancelled, at least")} == {"–"}
    ours = gain(rows, CELLS[2], PLAIN, "witness")
    assert ours.pairs == 2
    assert ours.means == pytest.approx((4.35, 4.35))  # of the same two seeds
    assert found([{"p_hidden": None}]).text == "–"


@pytest.mark.parametrize("seeds", [(42,), (41, 42)])
def test_one_or_two_seeds_have_a_difference_and_no_interval(seeds):
    rows = [*rows_of(seeds), *rows_of((43,))[:1]]  # seed 43 has the plain mixture alone
    ours = gain(rows, CELLS[2], PLAIN, "accuracy", moves(8.0))
    assert ours.pairs == len(seeds)
    first, second = (
        np.mean([r["accuracy"] for r in rows if cell_of(r) == cell and r["seed"] in seeds])
        for cell in (CELLS[2], PLAIN)
    )
    assert ours.estimate == pytest.approx(first - second)
    assert all(map(math.isnan, ours.bounds()))
    assert gain(rows, CELLS[2], ("single", "last", 1), "accuracy") is None
    table = gains_table(gains(rows, PLAIN, CELLS[2:]), PLAIN, 0)
    assert {entry.text for entry in shown(table, "Accuracy interval")} == {"–"}
    assert intervals_of(gains(rows, PLAIN)) == 0


def test_a_seed_counts_once_all_of_its_targets_are_there():
    whole, part = rows_of(targets=("art", "photo")), rows_of((45,), targets=("art",))
    assert complete(whole + part) == whole


def test_cells_that_are_named_pay_for_no_other_comparison():
    rows = rows_of()
    chosen = [parse_cell(name, rows) for name in ("sharp,last,1", "vanilla,last,10")]
    table = gains_table(gains(rows, PLAIN, chosen), PLAIN, comparisons=1)
    expected = [[gain(rows, cell, PLAIN, column).bounds() for column in METRICS] for cell in chosen]
    np.testing.assert_allclose([[entry.values for entry in row[5::2]] for row in table.rows], expected)
    with pytest.raises(InputError):
        parse_cell("sharp,averaged,1", rows)


def test_a_cell_alone_stands_beside_reruns_and_another_run_where_they_are_known(tmp_path):
    rows, sharp = rows_of(), CELLS[2]
    bare = alone_table(rows, sharp, PLAIN, {})
    *intervals, tests = shown(bare, INTERVAL)
    np.testing.assert_allclose(
        [interval.values for interval in intervals],
        [gain(rows, sharp, PLAIN, c).bounds() for c in (*METRICS, "witness")],
    )
    assert tests.text == "–"
    assert shown(bare, "Mean")[-1].values == shown(bare, "The other's")[-1].values == (0, 3)
    means = [(row[2].values[0], row[3].values[0]) for row in bare.rows[:-1]]
    np.testing.assert_allclose(means, [gain(rows, sharp, PLAIN, c).means for c in (*METRICS, "witness")])
    assert "95 % with reruns" not in [heading.title for heading in bare.headings]
    write(tmp_path / "results.jsonl", made())
    table = alone_table(rows, sharp, PLAIN, moves(8.0), other_run(tmp_path, *PLAIN))
    (row,) = [row for row in table.rows if row[0].values == ("nll_ts",)]
    assert row[6].values == pytest.approx(gain(rows, sharp, PLAIN, "nll_ts", moves(8.0)).bounds())
    elsewhere = column(made(), "nll_ts", method="vanilla", protocol="corrected")
    ours = [row["nll_ts"] for row in rows if cell_of(row) == sharp]
    assert (*row[7].values, *row[8].values) == pytest.approx(student(np.subtract(ours, elsewhere)))
    assert other_run(tmp_path, *CELLS[1]) == []  # it has no views


def test_what_finer_configurations_show_is_no_gain():
    """A model of several experts or views has a finer configuration: the audit sees more of it."""
    rows = [{**row, "witness": [row["views"] + 1e-3 * row["accuracy"], 0.0]} for row in rows_of()]

    def is_bold(cell):
        (row,) = [row for row in alone_table(rows, cell, PLAIN, {}).rows if row[0].values == ("witness",)]
        return row[5].bold

    assert not is_bold(CELLS[1])
    rows = [{**row, "witness": [len(row["method"]) + 1e-3 * row["accuracy"], 0.0]} for row in rows_of()]
    assert is_bold(CELLS[2])


def test_one_table_where_cells_are_named(tmp_path, capsys):
    write(tmp_path / "rows.jsonl", rows_of())
    truer(tmp_path / "rows.jsonl", only=["sharp,last,1", "vanilla,last,10"])
    truer(tmp_path / "rows.jsonl", alone="sharp,last,1")
    few, one = capsys.readouterr().out.split("each interval alone")[1:]
    assert (few.count("| 3 |"), one.count("interval")) == (2, 0)
    assert "Mean scores" not in few + one
    with pytest.raises(InputError, match="--alone and --only"):
        truer(tmp_path / "rows.jsonl", only=["sharp,last,1"], alone="sharp,last,1")


def test_part_of_the_targets_and_seeds(tmp_path, capsys):
    rows = rows_of(targets=("art", "photo"))
    write(tmp_path / "rows.jsonl", rows)
    truer(tmp_path / "rows.jsonl", targets="photo", seeds="42-43")
    out = capsys.readouterr().out
    few = [row for row in rows if row["target"] == "photo" and row["seed"] < 44]
    assert means_table(few).markdown() in out
    with pytest.raises(InputError, match="unknown target"):
        truer(tmp_path / "rows.jsonl", targets="sketch")
    write(tmp_path / "results.jsonl", made())
    write(tmp_path / "again.jsonl", made(again=1))
    truer(
        tmp_path / "rows.jsonl", rerun=tmp_path, alone="sharp,last,1", than="vanilla,last,10", targets="art"
    )
    assert "From the other run" not in capsys.readouterr().out  # it has no views


@pytest.mark.parametrize("than", CELLS)
def test_any_cell_can_be_the_one_to_compare_with(than, tmp_path, capsys):
    rows, name = rows_of(), ",".join(map(str, than))
    write(tmp_path / "rows.jsonl", rows)
    truer(tmp_path / "rows.jsonl", than=name)
    differences = capsys.readouterr().out.partition("\nLess ")[2]
    others = [cell for cell in CELLS if cell != than]
    assert differences.count("| 3 |") == len(others)
    table = gains_table(gains(rows, than), than, comparisons=10)
    assert [entry.values[0] for entry in shown(table, "Accuracy")] == pytest.approx(
        [gain(rows, cell, than, "accuracy").estimate for cell in others]
    )
    with pytest.raises(InputError, match="unknown cell"):
        truer(tmp_path / "rows.jsonl", than="sharp,last,5")


def test_two_rows_of_one_cell_and_place_are_refused(tmp_path):
    rows = rows_of(targets=("art", "photo"))
    write(tmp_path / "rows.jsonl", [*rows, {**rows[0], "accuracy": 0.5}])
    with pytest.raises(InputError, match="two rows of one vanilla, art 42, differ"):
        truer(tmp_path / "rows.jsonl")


def test_tables_have_a_row_a_cell():
    rows = rows_of()
    assert cells_in_order(rows) == CELLS
    assert [entry.values[0] for entry in shown(means_table(rows), "Accuracy")] == pytest.approx(
        [np.mean([row["accuracy"] for row in rows if cell_of(row) == cell]) for cell in CELLS]
    )
    assert [len(section) for section in gains_table(gains(rows, PLAIN), PLAIN, 1).sections] == [1, 1]
