"""Stored predictions: the table is what the study prints, and a file's row is what the audit says."""

import pytest

import study_rows
from calmoe import Predictions, worlds
from calmoe.auditing import Configurations, hidden
from studies.repairs import table as repairs_table
from studies.stored_audits import audited, table
from study_rows import RESULTS


@pytest.mark.usefixtures("hasty")
def test_a_row_is_what_the_audit_says(tmp_path):
    path = tmp_path / "world.safetensors"
    rows = worlds.cancelling(seed=0, delta=0.15).sample(600, seed=0)
    rows.save(path)
    answer, row = hidden(Configurations.of(Predictions.load(path)), seed=0), audited(str(path))
    assert (row["rows"], row["p_hidden"]) == (600, answer.p_hidden)
    for name in ("witness", "without_routing", "routing_adds"):
        assert row[name] == [round(value, 4) for value in getattr(answer, name)[:2]]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [("stored.jsonl", table), ("repairs_pacs.jsonl", repairs_table)],
    ids=("hidden", "repairs"),
)
def test_the_tables_of_the_results_are_what_the_studies_print(rows, shown):
    _, _, printed = shown(study_rows.read(RESULTS / "audit" / rows)).markdown().partition("\n\n")
    assert printed.strip() in (RESULTS / "audit/README.md").read_text()
