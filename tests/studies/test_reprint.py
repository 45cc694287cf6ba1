"""Reprint: pages of results say what the commands on them print."""

import json

import pytest
import typer

from studies.reprint import printed_again, reprint
from study_rows import RESULTS

PAGE = """# A page

`python -m studies choose {rows}`

Validation NLL

| Old | table |
| --- | ---: |
| of | others |

What follows stays.

| so | does |
| --- | --- |
| this | table |
"""


@pytest.fixture
def page(tmp_path):
    rows = tmp_path / "rows.jsonl"
    row = {"method": "vanilla", "seed": 7, "rho": None, "average": 0.0, "views": 1, "validation_nll": 0.25}
    rows.write_text(json.dumps(row) + "\n")
    path = tmp_path / "README.md"
    path.write_text(PAGE.format(rows=rows))
    return path


def test_tables_below_a_command_are_what_it_prints_and_all_else_stays(page):
    before = page.read_text()
    reprint([page])
    after = page.read_text()
    assert "| Vanilla MoE | – | – | 1 | 1 | **0.2500** |" in after
    assert "| of | others |" not in after
    assert after.partition("What follows")[2] == before.partition("What follows")[2]
    assert after.partition("| Old")[0][:20] == before[:20]
    assert printed_again(after) == after


def test_a_check_writes_nothing_and_fails_where_a_table_differs(page):
    before = page.read_text()
    with pytest.raises(typer.Exit):
        reprint([page], check=True)
    assert page.read_text() == before
    reprint([page])
    reprint([page], check=True)


@pytest.mark.parametrize("folder", ["truer", "pacs"])
def test_tables_of_results_are_those_of_the_rows_beside_them(folder, monkeypatch):
    monkeypatch.chdir(RESULTS.parent)
    reprint([RESULTS / folder / "README.md"], check=True)
