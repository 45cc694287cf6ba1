"""The paper's cells under each reading of its ±, against plain loops over made-up and stored rows."""

import json

import numpy as np
import pytest

import study_rows
from calmoe.errors import InputError
from calmoe.report import published
from studies.beside_paper import READINGS, all_tables, readings, scatter
from study_rows import RESULTS

SEEDS = (42, 43, 44, 45, 46)


def as_printed(scale, shift=0.0):
    """Five seeds of every published cell, with an SD (ddof 0) of `scale` times its ± and a shifted mean."""
    pattern = np.array([-1.0, 1.0, 0.0, 2.0, -2.0])
    pattern /= pattern.std()
    rows = []
    for method, cells in published("cifar10h")["cells"].items():
        for seed, step in zip(SEEDS, pattern, strict=True):
            row = {c: mean + spread * (scale * step + shift) for c, (mean, spread) in cells.items()}
            rows.append({"method": method, "seed": seed, "protocol": "published"} | row)
    return rows


def values(grid, column):
    return [row[column].values for row in grid.rows]


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_seeds_that_scatter_as_the_papers_have_the_expected_ratio(scale):
    grid = scatter({"run": as_printed(scale)}, "cifar10h")
    (every,), _, (population,), (sample,), (error,) = values(grid, 2)
    assert every == pytest.approx(scale * population)
    assert (population, sample, error) == pytest.approx((np.sqrt(5 / 4), 1.0, np.sqrt(5)))


def test_each_reading_has_its_own_standard_error():
    """Ours has ±/2 as error: z = shift ± / sqrt(e² + ±²/4), where e is ±/2, ±/√5 or ±."""
    grid = readings({"run": as_printed(1.0, shift=1.2)}, "cifar10h")
    expected = [1.2 / np.sqrt(e**2 + 1 / 4) for e in (1 / 2, 1 / np.sqrt(5), 1.0)]
    assert [row[1].text for row in grid.rows] == list(READINGS)
    assert np.array(values(grid, 2))[:, 0] == pytest.approx(expected)
    assert np.array(values(grid, 3))[:, 0] == pytest.approx(np.square(expected))
    assert values(grid, 4) == [(42, 42)] * 3
    far = readings({"run": as_printed(1.0, shift=1.5)}, "cifar10h")
    assert [within for within, _ in values(far, 4)] == [0, 0, 42]


def test_stored_rows_say_what_the_docs_say():
    _, grid, *cells = all_tables(RESULTS / "cifar10h")
    said = [[entry.text for entry in row[2:]] for row in grid.rows]
    assert said[0] == ["1.81", "0.66", "42 of 42"]
    assert said[2] == ["1.09", "0.29", "42 of 42"]
    assert said[3] == ["2.17", "0.63", "41 of 42"]
    assert said[6] == ["2.53", "0.91", "38 of 42"]
    assert [len(table.rows) for table in cells] == [42, 42, 42]


def test_what_the_paper_does_not_have_is_refused(tmp_path):
    study_rows.write(tmp_path / "results.jsonl", study_rows.made(("vanilla",)))
    with pytest.raises(InputError, match=r"there is no sources\.json"):
        list(all_tables(tmp_path))
    (tmp_path / "sources.json").write_text(json.dumps([{"spec": {"dataset": "digits"}}]))
    with pytest.raises(InputError, match="no table for digits"):
        list(all_tables(tmp_path))
    one = [row for row in as_printed(1.0) if row["seed"] == 42]
    with pytest.raises(InputError, match="two seeds"):
        readings({"run": one}, "cifar10h")
