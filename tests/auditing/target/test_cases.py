"""Targets of several rows a case: one row of each is judged there too."""

from dataclasses import replace

import numpy as np
import pytest

from calmoe.auditing import audit
from calmoe.new_rows import judged_rows
from calmoe.predictions import Predictions
from command_line import calmoe

pytestmark = pytest.mark.usefixtures("hasty", "unrendered")


def persons(seed, count, visits):
    """True probabilities; a person has one label, and visits that say nearly the same."""
    random = np.random.default_rng(seed)
    score = random.normal(0, 1, count)
    label = np.repeat(random.random(count) < 1 / (1 + np.exp(-score)), visits)
    p = 1 / (1 + np.exp(-np.repeat(score, visits) - random.normal(0, 0.05, count * visits)))
    groups = {"person": np.repeat(np.arange(count), visits)}
    return Predictions.from_probs(np.stack([1 - p, p], axis=1), labels=label.astype(int), groups=groups)


def test_one_row_of_each_person_tests_the_assumption():
    source, target = persons(0, 1500, 2), persons(1, 120, 20)
    report = audit(source, target=target, labelled_target=target, cluster="person")
    once = judged_rows(target, "person", seed=0)
    assert (report.target.rows, report.target.plausibility.rows, len(once)) == (120, 120, 120)
    alone = audit(judged_rows(source, "person", seed=0), target=once, labelled_target=once, cluster="row")
    assert str(report.target) == str(alone.target)
    assert report.verdict.elsewhere.state == "predicted"
    assert report.verdict.elsewhere.tested == 120
    assert "120 labelled rows from there do not contradict it" in report.summary().replace("\n  ", " ")
    every = audit(source, target=target, labelled_target=target, cluster="row").target
    assert every.plausibility.rows == 2400
    assert every.plausibility.detectable < report.target.plausibility.detectable / 2  # which is not so


def test_notes_say_which_rows_of_a_target_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    persons(0, 400, 2).save("source.csv")
    target = persons(1, 250, 2)
    target.save("target.csv")
    replace(target, groups={}).save("nobody.csv")
    told = calmoe("audit", "source.csv", "--target", "target.csv", "--cluster", "person").output
    assert "target.csv: of each person one row is judged: 250 of 500 rows" in told
    assert "calmoe audit target.csv --cluster person judges it directly" in told
    told = calmoe("audit", "source.csv", "--target", "nobody.csv", "--cluster", "person").output
    assert "nobody.csv: it has no column 'person': each of its rows is taken for a case" in told
    named = replace(
        persons(0, 400, 2), groups={"person": np.repeat(np.arange(400), 2), "site": np.arange(800) % 2}
    )
    named.save("sites.csv")
    replace(target, groups={**target.groups, "site": np.arange(500) % 2}).save("elsewhere.csv")
    words = ("--target", "elsewhere.csv", "--groups", "site", "--cluster", "person")
    told = calmoe("audit", "sites.csv", *words).output
    assert "calmoe audit elsewhere.csv --groups site --cluster person judges it directly" in told
