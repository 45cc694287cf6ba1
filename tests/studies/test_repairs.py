"""The study of repairs: one row a file, from rows new to the repair."""

import numpy as np
import pytest

import study_rows
from calmoe.calibration import Temperature
from calmoe.metrics import nll
from calmoe.predictions import Predictions
from calmoe.worlds import binary
from studies.repair_rules import RULES, Case
from studies.repair_rules import judged as judged_by_rules
from studies.repair_rules import table as rules_table
from studies.repairs import row, table
from study_rows import RESULTS


@pytest.mark.usefixtures("brief")
def test_a_row_is_of_the_other_half(tmp_path):
    sample = binary.miscalibrated(0, temperature=2.5).sample(1200, seed=0)
    sample.save(tmp_path / "p.safetensors")
    one = row(tmp_path / "p.safetensors", "p", halves=1)
    stored = Predictions.load(tmp_path / "p.safetensors")
    (seed,) = np.random.SeedSequence(0).generate_state(1)
    halves = np.array_split(np.random.default_rng(int(seed)).permutation(1200), 2)
    after = 0.0
    for taught, judged in (map(stored.take, halves), map(stored.take, halves[::-1])):
        fitted = Temperature().fit(taught.output.log_probs, taught.labels)
        after += nll(fitted.transform(judged.output.log_probs), judged.labels) / 2
    assert one["rows"] == 1200
    assert one["nll"]["nothing"] == pytest.approx(nll(stored.output.log_probs, stored.labels), abs=1e-5)
    assert one["nll"]["temperature"] == pytest.approx(after, abs=1e-5)
    difference = one["nll"]["recommended"] - one["nll"]["temperature"]
    assert one["change"][0] == pytest.approx(difference, abs=2e-5)
    assert sum(one["recommended"].values()) == 2
    assert set(one["recommended"]) <= set(one["nll"]) or one["change"][0] != 0
    assert len(table([one]).rows) == 1


@pytest.mark.usefixtures("brief")
def test_rules_are_judged_on_other_rows():
    world = binary.miscalibrated(0, temperature=2.5)
    case = Case("off", "world", world.sample(800, seed=0), world.sample(3000, seed=1))
    rows = judged_by_rules(case)
    assert [one["rule"] for one in rows] == list(RULES)
    for one in rows:
        assert one["taken"] == "temperature"
        assert one["temperature"] == 0
        assert one["nothing"] < 0
        assert one["ece"] < 0


def test_the_table_of_rules_is_what_the_study_prints():
    _, _, printed = (
        rules_table(study_rows.read(RESULTS / "audit/repair_rules.jsonl")).markdown().partition("\n\n")
    )
    assert printed.strip() in (RESULTS.parent / "studies/audit-method.md").read_text()


def test_the_table_of_the_results_is_what_the_study_prints():
    _, _, printed = table(study_rows.read(RESULTS / "audit/repairs.jsonl")).markdown().partition("\n\n")
    assert printed in (RESULTS / "audit/README.md").read_text()
