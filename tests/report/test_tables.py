import csv
import io
import math

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from calmoe.errors import InputError
from calmoe.report import beyond, compare, comparison_table, main_table, paired, paired_table, summarise
from calmoe.report.columns import COLUMNS, KINDS, TABLES, columns_in
from calmoe.report.comparison import no_test

NAN = float("nan")


def rows(method, protocol="published", first_seed=42, **columns):
    """One row a seed from lists of values."""
    return [
        {"method": method, "seed": seed, "protocol": protocol, **dict(zip(columns, values, strict=True))}
        for seed, values in enumerate(zip(*columns.values(), strict=True), first_seed)
    ]


RUN = [
    *rows("robust", accuracy=[0.90, 0.92], ece=[0.09, 0.07]),
    *rows("vanilla", accuracy=[0.92, 0.94], ece=[0.05, 0.06]),
    *rows("mine|own", accuracy=[0.91, None], ece=[NAN, 0.055]),
]


def test_summary_is_mean_and_standard_error():
    values = [0.91, 0.93, 0.925, 0.9, 0.92]
    cell = summarise(rows("single", accuracy=values), "published")["single"]["accuracy"]
    assert cell == pytest.approx((np.mean(values), stats.sem(values), 5))


def test_none_and_nan_are_left_out_and_counted_out():
    ece = summarise(rows("single", ece=[0.1, None, NAN, 0.2]), "published")["single"]["ece"]
    assert ece == pytest.approx((0.15, 0.05, 2))


def test_one_seed_has_a_mean_and_no_standard_error():
    cell = summarise(rows("single", ece=[0.1]), "published")["single"]["ece"]
    assert (cell.mean, cell.n) == (0.1, 1)
    assert math.isnan(cell.standard_error)


def test_a_column_with_no_value_is_missing_not_zero():
    table = summarise([*rows("single", hard_ece=[None, None]), *rows("fgr", ece=[0.1])], "published")
    for method, column in (("single", "hard_ece"), ("single", "ece"), ("fgr", "hard_ece")):
        assert math.isnan(table[method][column].mean)
        assert table[method][column].n == 0


def test_infinite_losses_are_kept():
    cell = summarise(rows("single", nll=[0.3, math.inf]), "published")["single"]["nll"]
    assert (cell.mean, cell.n) == (math.inf, 2)
    assert math.isnan(cell.standard_error)


def test_protocols_are_kept_apart_and_words_are_no_columns():
    both = [*rows("single", ece=[0.1], backend=["cpu"]), *rows("single", "corrected", ece=[0.2])]
    assert summarise(both, "corrected")["single"]["ece"].mean == 0.2
    assert list(summarise(both, "published")["single"]) == ["ece"]
    assert summarise(both, "other") == {}


def test_a_seed_counted_twice_is_refused():
    with pytest.raises(InputError, match="two rows for method 'single', seed 42"):
        summarise(rows("single", ece=[0.1]) * 2, "published")


def test_comparison_with_the_published_cells():
    eces = np.array([0.060, 0.062, 0.058, 0.061, 0.059])
    comparisons = compare(rows("vanilla", ece=eces.tolist()), "cifar10h")
    assert len(comparisons) == 42
    cell = next(c for c in comparisons if (c.method, c.column) == ("vanilla", "ece"))
    error = eces.std(ddof=1) / np.sqrt(5)
    assert cell[2:] == pytest.approx(
        (0.055, 0.001, 0.060, error, 0.005, 0.005 / np.sqrt(0.001**2 / 4 + error**2))
    )
    assert beyond(comparisons) == [cell]
    assert beyond(comparisons, limit=6) == []
    printed = compare(rows("vanilla", ece=eces.tolist()), "cifar10h", error_of=lambda spread: spread)
    (other,) = beyond(printed)
    assert other.combined_errors == pytest.approx(0.005 / np.sqrt(0.001**2 + error**2))
    others = [c for c in comparisons if c != cell]
    assert all(math.isnan(c.mean) and math.isnan(c.combined_errors) for c in others)


def test_a_cell_far_below_the_papers_is_beyond_as_well():
    comparisons = compare(rows("vanilla", ece=[0.049, 0.051]), "cifar10h")  # the paper: 0.055 ± 0.001
    assert [(c.method, c.column) for c in beyond(comparisons)] == [("vanilla", "ece")]


def test_accuracy_is_best_when_high_and_all_else_when_low():
    found = summarise(rows("single", **{column: [0.1] for column in COLUMNS}), "published")
    found |= summarise(rows("vanilla", **{column: [0.2] for column in COLUMNS}), "published")
    first, second = main_table(found, tuple(COLUMNS)).rows
    for column, low, high in zip(COLUMNS, first[2:], second[2:], strict=True):
        assert (low.bold, high.bold) == (("accuracy" not in column), ("accuracy" in column))


def test_a_mean_of_fewer_seeds_is_never_bold_and_takes_nothing_from_the_best():
    lucky = rows("robust", accuracy=[0.8, 0.8, 0.8], ece=[0.01, 0.01, None], nll=[0.2, 0.2, 0.2])
    others = [
        *rows("vanilla", accuracy=[0.7, 0.7, 0.7], ece=[0.05, 0.06, 0.07], nll=[0.2004, 0.2, 0.2]),
        *rows("fgr", accuracy=[0.9, 0.9], ece=[0.06, 0.06], nll=[0.1, 0.1]),
    ]
    grid = main_table(summarise([*lucky, *others], "published"), ("accuracy", "ece", "nll"), "x")
    assert {row[0].text: [entry.bold for entry in row[2:]] for row in grid.rows} == {
        "Vanilla MoE": [False, True, True],  # 0.06 of three seeds; a tie to three decimals
        "FGR": [False, False, False],
        "Robust MoE": [True, False, True],
    }
    assert grid.caption == "x; a mean of fewer seeds than another in its column is never in bold"
    assert main_table(summarise(lucky, "published"), caption="x").caption == "x"


def test_comparison_of_a_target_and_of_no_run():
    assert len(compare([], "pacs_sketch")) == 21
    with pytest.raises(InputError, match="no table for 'digits'"):
        compare([], "digits")


def test_one_seed_has_a_difference_but_no_combined_errors():
    cell = compare(rows("single", accuracy=[0.95]), "cifar10h")[0]
    assert cell.difference == pytest.approx(0.028)
    assert math.isnan(cell.combined_errors)


def test_paired_difference_is_students_t_over_common_seeds():
    ours, theirs = [0.30, 0.27, 0.25, 0.29], [0.31, 0.30, 0.26, 0.33]
    runs = rows("robust", nll_ts=[*ours, None, 0.1]) + rows("vanilla", nll_ts=[*theirs, 0.2, NAN])[::-1]
    (result,) = paired(runs, "published", columns=["nll_ts"])
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (result.method, result.baseline, result.column, result.n) == ("robust", "vanilla", "nll_ts", 4)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert result.estimate == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert result.standard_error == pytest.approx(stats.sem(np.subtract(ours, theirs)))


def test_no_common_seed_is_missing():
    runs = rows("robust", ece=[0.1], first_seed=7) + rows("vanilla", ece=[0.2])
    (result,) = paired(runs, "published", columns=["ece"])
    assert result.n == 0
    assert math.isnan(result.estimate)


def test_a_missing_baseline_is_named():
    with pytest.raises(InputError, match=r"no rows of 'vanilla' .* choose a baseline among single"):
        paired(rows("single", ece=[0.1]), "published")


def test_every_column_stands_in_tables_that_there_are():
    for column in COLUMNS.values():
        assert column.kind in KINDS
        assert set(column.tables) <= set(TABLES)
    assert all(columns_in(table) for table in TABLES)


def test_the_order_of_columns():
    cards, paired = list(COLUMNS), ("accuracy", "proper", "calibration", "views", "worst group")
    for table in TABLES:
        order = paired if table in ("paired", "summary") else KINDS
        places = [(order.index(COLUMNS[column].kind), cards.index(column)) for column in columns_in(table)]
        assert places == sorted(places), table
    assert {*columns_in("paper")} <= {*columns_in("main")}
    assert all(COLUMNS[column].best is min for column in columns_in("summary"))


def main():
    return main_table(
        summarise(RUN, "published"), columns=("accuracy", "ece", "hard_ece"), caption="50 % ± x"
    )


def test_main_table_in_markdown():
    assert main().markdown() == (
        "50 % ± x; a mean of fewer seeds than another in its column is never in bold\n\n"
        "| Method | Seeds | Accuracy | ECE | Hard ECE |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| Vanilla MoE | 2 | **0.930 ± 0.010** | **0.055 ± 0.005** | – |\n"
        "| Robust MoE | 2 | 0.910 ± 0.010 | 0.080 ± 0.010 | – |\n"
        "| mine\\|own | 1 | 0.910 | 0.055 | – |\n"
    )


def test_main_table_in_latex():
    assert main().latex() == (
        "\\begin{table}\n\\centering\n\\caption{50 \\% $\\pm$ x"
        "; a mean of fewer seeds than another in its column is never in bold}\n"
        "\\begin{tabular}{lrrrr}\n\\toprule\n"
        "Method & Seeds & Accuracy & ECE & Hard ECE \\\\\n\\midrule\n"
        "Vanilla MoE & $2$ & $\\mathbf{0.930 \\pm 0.010}$ & $\\mathbf{0.055 \\pm 0.005}$ & -- \\\\\n"
        "\\midrule\n"
        "Robust MoE & $2$ & $0.910 \\pm 0.010$ & $0.080 \\pm 0.010$ & -- \\\\\n\\midrule\n"
        "mine$|$own & $1$ & $0.910$ & $0.055$ & -- \\\\\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def test_main_table_in_csv_has_numbers_in_full():
    table = list(csv.DictReader(io.StringIO(main().csv())))
    assert [row["method"] for row in table] == ["vanilla", "robust", "mine|own"]
    assert float(table[0]["ece"]) == np.mean([0.05, 0.06])
    assert float(table[0]["ece_se"]) == pytest.approx(stats.sem([0.05, 0.06]), rel=1e-12)
    assert (table[2]["accuracy"], table[2]["accuracy_se"], table[0]["hard_ece"]) == ("0.91", "", "")


def terminal(grid, width=120):
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(grid.rich())
    return console.file.getvalue()


def test_main_table_in_the_terminal():
    text = terminal(main())
    assert "\x1b[1m0.930 ± 0.010\x1b[0m" in text
    assert " 0.910 ± 0.010 " in text


def test_a_terminal_of_80_columns_cuts_no_word():
    summary = summarise(rows("robust_filtered", accuracy=[0.9, 0.8], hard_ece=[0.2, 0.3]), "published")
    text = terminal(main_table(summary), width=80)
    assert "…" not in text
    assert {"Accuracy", "Filtered", "0.850", "0.050"} <= set(
        text.replace("\x1b", " ").replace("[0m", " ").split()
    )


def test_uneven_seeds_show_as_a_range():
    summary = summarise(rows("single", accuracy=[0.9, 0.9, 0.9], ece=[0.1, None, None]), "published")
    assert "| 1–3 |" in main_table(summary, ("accuracy", "ece")).markdown()


def test_comparison_table_marks_what_lies_beyond_two():
    comparisons = compare(rows("vanilla", ece=[0.059, 0.061], accuracy=[0.919, 0.922]), "cifar10h")
    lines = comparison_table(comparisons).markdown().splitlines()
    assert lines[0] == "1 of 2 cells differ from the paper by more than 2 combined SE (40 not compared)"
    assert len(lines) == 4 + 42
    assert "| Vanilla MoE | ECE | 0.055 ± 0.001 | 0.060 ± 0.001 | +0.005 | **+4.47** | yes |" in lines
    assert "| FGR | ECE | 0.051 ± 0.001 | – | – | – |  |" in lines
    assert comparison_table(comparisons).csv().count(",yes\n") == 1


def test_another_experiment_is_put_beside_the_paper_and_not_tested():
    comparisons = compare(rows("vanilla", ece=[0.059, 0.061]), "cifar10h")
    grid = comparison_table(comparisons, why=no_test("published", "ResNet-50 (the paper: ResNet-18)"))
    assert grid.caption == "no test of reproduction: the backbone is another"
    assert "| Vanilla MoE | ECE | 0.055 ± 0.001 | 0.060 ± 0.001 | +0.005 |" in grid.markdown().splitlines()
    assert not any(entry.bold for row in grid.rows for entry in row)


def test_where_no_cell_can_be_compared_nothing_sounds_like_success():
    for runs in (rows("vanilla", ece=[0.06]), rows("entropic", ece=[0.06, 0.07])):
        grid = comparison_table(compare(runs, "cifar10h"))
        assert grid.caption == (
            "no cell could be compared: that takes two seeds of a method that the paper has"
        )


def test_paired_table():
    runs = rows("robust", ece=[0.05, 0.07, 0.06], nll=[0.3, 0.2, 0.2]) + rows(
        "vanilla", ece=[0.10, 0.12, 0.109], nll=[0.2, 0.2, 0.2]
    )
    grid = paired_table(paired(runs, "published", columns=["ece", "nll"]))
    assert grid.markdown().splitlines()[0].startswith("Difference to Vanilla MoE over the same seeds")
    assert "| Robust MoE | ECE | 3 | −0.050 | **[−0.051, −0.048]** |" in grid.markdown()
    assert "Robust MoE & NLL & $3$ & $+0.033$ & $[-0.110, +0.177]$ \\\\" in grid.latex()
    assert "[−0.051, −0.048]" in terminal(grid)


def test_empty_tables_render():
    for grid in (main_table({}), comparison_table([]), paired_table([])):
        assert len(grid.markdown().splitlines()) == 4
        assert grid.csv().startswith("method,")
        assert terminal(grid)
        assert "tabular" in grid.latex()


def test_a_zero_has_no_sign():
    comparisons = compare(rows("single", accuracy=[0.92199, 0.92199]), "cifar10h")
    assert "| 0.000 | −0.02 |" in comparison_table(comparisons).markdown()
