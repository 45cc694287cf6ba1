"""Rows that repeat each other are found; rows that are only equally probable are not called so.

Equal probabilities are common without copies: small trees, rounding, no features at all.
"""

from dataclasses import replace

import numpy as np
import pytest

from calmoe.auditing import audit
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.repeats import Repeats, find_repeats
from calmoe.predictions import Predictions
from calmoe.worlds import calibrated
from command_line import calmoe, refused
from sizes import at_size, most


def binary(p, y, **columns):
    return Predictions.from_probs(np.stack([1 - p, p], axis=1), np.asarray(y, int), groups=columns or None)


def expit(x):
    return 1 / (1 + np.exp(-x))


def drawn(random, p, said=None, **columns):
    return binary(p if said is None else said, random.random(len(p)) < p, **columns)


def smooth(random, n):
    p = expit(random.normal(0, 1.3, n))
    return drawn(random, p, year=random.integers(2000, 2003, n), age=random.integers(18, 90, n))


def rounded(random, n):
    p = expit(random.normal(0, 1.3, n))
    return drawn(random, p, p.round(2), site=random.choice(list("abc"), n))


def rare(random, n):
    p = expit(random.normal(-6, 1.2, n))
    return drawn(random, p, p.round(3))


def wrong_tree(random, n):
    """30 leaves that say something else than is true there, mostly yes or no."""
    leaf, true = random.integers(0, 30, n), random.beta(0.3, 0.3, 30)
    return drawn(random, true[leaf], random.beta(1, 1, 30)[leaf])


def overfitted_tree(random, n):
    """A leaf for three rows, which says what happened to eight others."""
    leaf, true = random.integers(0, n // 3, n), expit(random.normal(0, 1.5, n // 3))
    return drawn(random, true[leaf], ((random.binomial(8, true) + random.random(n // 3)) / 9)[leaf])


def featureless(random, n):
    return drawn(random, np.full(n, 0.3), site=random.choice(list("abc"), n))


def neighbours(random, n):
    p = expit(random.normal(0, 1.5, n))
    return drawn(random, p, random.binomial(5, p) / 5)


def forest(random, n):
    p = random.dirichlet([0.3] * 3, n)
    votes = np.stack([random.multinomial(50, row) for row in p]) / 50
    return Predictions.from_probs(votes, (p.cumsum(axis=1) > random.random((n, 1))).argmax(axis=1))


def stores(random, n):
    """500 shops in which the model is off by 15 points, up or down."""
    store, p = random.integers(0, 500, n), expit(random.normal(0, 1, n))
    return drawn(random, np.clip(p + random.choice([-0.15, 0.15], 500)[store], 0, 1), p, store=store)


def residual(random, n):
    """A column made of probability and label: its values next to each other say the same."""
    p = expit(random.normal(0, 1.3, n)).round(2)
    y = random.random(n) < p
    return binary(p, y, residual=(y - p).round(2))


def coarse_loss(random, n):
    """A column of each row's log loss, which has few values."""
    p = expit(random.normal(0, 1.3, n)).round(2)
    y = random.random(n) < p
    return binary(p, y, loss=-np.log(np.where(y, p, 1 - p).clip(0.01)).round(3))


def finer_label(random, n):
    """A column with fifty values for each label."""
    p = expit(random.normal(0, 1.5, n))
    y = random.random(n) < p
    return binary(p, y, code=y * 50 + random.integers(0, 50, n))


INDEPENDENT = (
    smooth,
    rounded,
    rare,
    wrong_tree,
    overfitted_tree,
    featureless,
    neighbours,
    forest,
    stores,
    residual,
    coarse_loss,
    finer_label,
)


@pytest.mark.parametrize("world", INDEPENDENT, ids=lambda world: world.__name__)
def test_rows_that_are_only_equally_probable_are_no_copies(world):
    """In fewer than one file of a hundred; in 4,000 we saw none."""
    times = at_size(20, 400)
    files = (world(np.random.default_rng([seed, 7]), (300, 1000, 4000)[seed % 3]) for seed in range(times))
    assert sum(find_repeats(each, Configurations.of(each)) is not None for each in files) <= most(times, 0.01)


def copies(random, n, times=4, decimals=9):
    p = expit(random.normal(0, 1.3, n // times)).round(decimals)
    return binary(*(np.repeat(each, times) for each in (p, random.random(len(p)) < p)))


def persons(random, n, visits=10):
    """Persons with one label, and visits that hardly change the probability."""
    score = random.normal(0, 1, n // visits)
    label = np.repeat(random.random(len(score)) < expit(score), visits)
    p = expit(np.repeat(score, visits) + random.normal(0, 0.2, len(label)))
    return binary(p, label, person=np.repeat(np.arange(len(score)), visits))


def drawn_twice(random, n):
    rows = smooth(random, n)
    return rows.take(random.integers(0, n, n))


@pytest.mark.parametrize(
    ("world", "column"),
    [
        (copies, None),
        (lambda random, n: copies(random, n, times=2, decimals=2), None),
        (drawn_twice, None),
        (persons, "person"),
    ],
    ids=["copies", "a rounded file twice", "drawn with replacement", "persons"],
)
def test_copies_and_repeated_cases_are_found(world, column):
    for seed in range(at_size(3, 30)):
        for rows in (1000, 4000):
            given = world(np.random.default_rng(seed), rows)
            assert find_repeats(given, Configurations.of(given)) == Repeats(column), (seed, rows)


@pytest.mark.usefixtures("hasty")
def test_an_audit_of_copies_decides_nothing_and_advises_no_repair(tmp_path):
    """Copies of calibrated rows were called hidden and off, and a harmful repair was recommended."""
    given = copies(np.random.default_rng(1), 4000)
    verdict = (report := audit(given)).verdict
    assert (verdict.truth, verdict.hidden, verdict.fragility) == (
        "not decided",
        "not looked at",
        "not looked at",
    )
    assert verdict.action.kind == "separate"
    assert report.repair is None
    first = report.summary().splitlines()[0]
    assert first.startswith("Verdict: Many rows look like copies of each other, ")
    assert report.summary().count("not decided: rows may not be independent.") == 2
    given.save(tmp_path / "copies.csv")
    out = tmp_path / "calibrator.json"
    assert "Many rows look like copies of each other" in refused(
        "repair", tmp_path / "copies.csv", "--out", out
    )
    forced = calmoe("repair", tmp_path / "copies.csv", "--kind", "temperature", "--out", out)
    assert (forced.exit_code, out.exists()) == (0, True)
    assert "the repair may do harm elsewhere" in forced.output.replace("\n", " ")


def kinds(random, n):
    """Independent rows of 300 kinds, each nearly sure, which the model hardly tells apart."""
    kind = random.integers(0, 300, n)
    true = random.choice([0.02, 0.98], 300, p=[0.3, 0.7])
    said = 0.25 + 0.1 * true + random.uniform(0, 0.4, 300)
    return drawn(random, true[kind], said[kind])


@pytest.mark.usefixtures("hasty")
def test_who_knows_that_rows_are_independent_is_believed(tmp_path, monkeypatch, unrendered):
    monkeypatch.chdir(tmp_path)
    given = kinds(np.random.default_rng(0), 3000)
    configurations = Configurations.of(given)
    assert find_repeats(given, configurations) == Repeats(None)  # nothing in the rows tells them from copies
    assert find_repeats(given, configurations, "every row") is None
    given.save(tmp_path / "kinds.csv")
    assert "--cluster row" in calmoe("audit", "kinds.csv").output
    assert "--cluster row" in refused("repair", "kinds.csv", "--out", "c.json")
    believed = calmoe("audit", "kinds.csv", "--cluster", "row").output
    assert "not decided" not in believed
    assert "  calmoe repair kinds.csv --cluster row --out calibrator.json\n" in believed
    assert calmoe("repair", "kinds.csv", "--cluster", "row", "--out", "c.json").exit_code == 0
    report = audit(given, cluster="row")
    assert report.rows == 3000
    assert audit(replace(given, groups={"id": np.arange(3000)}), cluster="id").repeats is None


@pytest.mark.usefixtures("hasty")
def test_row_means_every_row_whatever_columns_there_are():
    given = persons(np.random.default_rng(0), 1000)
    given = replace(given, groups={"row": given.groups["person"]})
    report = audit(given, cluster="row")
    assert (report.rows, report.repeats) == (1000, None)


def test_a_column_of_blanks_hides_no_copies():
    for seed in range(at_size(3, 20)):
        random = np.random.default_rng(seed)
        given = rounded(random, 2000)
        note = np.where(random.random(2000) < 0.95, "", "seen")
        income = np.where(random.random(2000) < 0.3, np.nan, random.normal(0, 1, 2000).round(4))
        once = replace(given, groups=given.groups | {"note": note, "income": income})
        assert find_repeats(once, Configurations.of(once)) is None
        thrice = once.take(np.repeat(np.arange(2000), 3))
        assert find_repeats(thrice, Configurations.of(thrice)) == Repeats(None)  # incomes name nobody


@pytest.mark.usefixtures("hasty")
def test_one_column_of_cases_may_be_contradicted_by_another():
    """Of each visit one row is judged; the visits are a person's."""
    given = persons(np.random.default_rng(0), 4000)
    twice = np.repeat(np.arange(4000), 2)
    once = replace(given, groups={"visit": np.arange(4000), "person": given.groups["person"]})
    given = replace(given.take(twice), groups={"visit": twice, "person": given.groups["person"][twice]})
    assert audit(given, cluster="visit").repeats == audit(once, cluster="visit").repeats == Repeats("person")
    assert audit(given, cluster="person").repeats is None


@pytest.mark.usefixtures("hasty")
def test_one_row_of_each_case_is_audited_and_repaired(tmp_path, monkeypatch, unrendered):
    monkeypatch.chdir(tmp_path)
    persons(np.random.default_rng(0), 4000).save(tmp_path / "visits.csv")
    told = calmoe("audit", "visits.csv").output
    assert "Many rows repeat the same person, with the same label" in told
    assert "  calmoe audit visits.csv --cluster person\n" in told
    once = calmoe("audit", "visits.csv", "--cluster", "person", "--out", "page")
    assert "of each person one row is judged" in once.output
    assert "400 rows, 2 classes" in (tmp_path / "page" / "report.html").read_text()
    assert "--cluster person" in refused("repair", "visits.csv", "--out", "calibrator.json")
    repaired = calmoe("repair", "visits.csv", "--cluster", "person", "--out", "c.json")
    assert repaired.exit_code == 0
    assert "of each person one row is judged: 400 of 4,000 rows" in repaired.output.replace("\n", " ")
    assert "leave out --stream" in refused("audit", "visits.csv", "--cluster", "person", "--stream")


@pytest.mark.usefixtures("hasty")
def test_the_judged_rows_are_counted_in_the_file():
    given = calibrated(seed=0).sample(900, seed=0)
    cases = np.random.default_rng(0).permutation(np.repeat(np.arange(300), 3))
    given = Predictions(output=given.output, labels=given.labels, groups={"case": cases})
    report = audit(given, cluster="case")
    assert report.rows == 300
    assert len(np.unique(cases[report.fragility.rows])) == len(report.fragility.rows)
    assert not report.groups.groups
