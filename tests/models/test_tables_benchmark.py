"""The benchmark on tables: splits that do what they say, rows that resume, a summary that adds up."""

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks import table_summary, tables
from models.made_tables import mixed


@pytest.fixture
def folder(tmp_path):
    """Two hundred rows of one table, as `tables.json` describes it."""
    table, y = mixed(200)
    table.assign(label=y).to_csv(tmp_path / "made.csv", index=False)
    (tmp_path / "tables.json").write_text(json.dumps({"made": {"label": "label", "shift": "miasto"}}))
    return tmp_path


def test_a_shifted_split_tests_on_values_that_training_has_not_seen():
    shops = pa.table({"shop": [f"s{i % 7}" for i in range(210)]})
    train, test = tables.split(shops, "shop", "shifted", 0)
    values = np.array(shops["shop"].to_pylist())
    assert not set(values[train]) & set(values[test])
    assert 0.2 <= len(test) / 210 <= 0.5


def test_a_random_split_tests_on_a_quarter():
    train, test = tables.split(pa.table({"a": range(100)}), None, "random", 0)
    assert (len(test), len({*train, *test})) == (25, 100)


def test_rows_are_computed_once_and_summarised(folder, monkeypatch, capsys):
    quick = {name: tables.MODELS[name] for name in ("logistic regression",)}
    monkeypatch.setattr(tables, "MODELS", quick)
    monkeypatch.setattr(tables, "_ours", lambda kind, shift, seed: {})
    out = folder / "rows.jsonl"
    arguments = [str(folder), "--splits", "2", "--rows", "150", "--out", str(out)]
    tables.main(arguments)
    rows = tables.read_rows(out)
    assert len(rows) == 4
    kinds = table_summary.KINDS
    assert {(row["kind"], row["seed"]) for row in rows} == {(k, s) for k in kinds for s in (0, 1)}
    tables.main(arguments)
    assert len(tables.read_rows(out)) == 4
    assert "| made | 0." in capsys.readouterr().out


def test_the_summary_pairs_seeds():
    def row(model, seed, loss):
        scores = {"log_loss": loss, "floored_log_loss": loss, "ece": 0.1, "accuracy": 0.5}
        return {"table": "t", "kind": "random", "seed": seed, "model": model, **scores}

    levels = {0: 0.5, 1: 0.9, 2: 0.7}
    rows = [row(table_summary.OURS, seed, level) for seed, level in levels.items()]
    rows += [row("expert: linear", seed, level + 0.1) for seed, level in levels.items()]
    rows += [row(table_summary.RIVAL, seed, level + 0.2) for seed, level in levels.items()]
    said = table_summary.summarise(rows)
    assert "-0.1000 [-0.1000, -0.1000] (linear) | -0.2000 [-0.2000, -0.2000]" in said


def test_an_interval_is_wide_enough_for_shared_rows_and_for_few_test_rows():
    differences = np.array([0.1, 0.2, 0.3])
    plain = table_summary.paired(differences)
    shared = table_summary.paired(differences, overlap=1 / 3)
    assert (shared[2] - shared[1]) / (plain[2] - plain[1]) == pytest.approx(2**0.5)
    few = table_summary.paired(differences, error=10.0)
    assert few[2] - few[1] == pytest.approx(2 * 10.0 * 4.302652729)


def test_a_class_that_training_did_not_see_costs_but_does_not_stop():
    probs = tables.whole(np.array([[0.5, 0.5]]), np.array([2]), np.array([0, 1]))
    found = tables.scores(probs, np.array([2]))
    assert 30 < found["log_loss"] < 40
    assert found["floored_log_loss"] == pytest.approx(-np.log(1e-3))


def test_the_error_over_test_rows_is_that_of_the_paired_difference(folder, monkeypatch):
    class Constant:
        classes_ = np.array([0, 1])
        choice_, eta_, experts_ = "mean", 0.0, ()

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            share = np.linspace(0.2, 0.8, len(X))
            return np.stack([share, 1 - share], axis=1)

    monkeypatch.setattr(tables, "MODELS", {})
    ours = {"level": Constant(), table_summary.OURS: Constant()}
    monkeypatch.setattr(tables, "_ours", lambda kind, shift, seed: ours)
    X, y = tables.read_table(folder, "made", "label", None)
    level, own = tables.evaluate(X, y % 2, None, "random", 0, {*ours})
    assert level["log_loss_error"] == 0.0
    assert "log_loss_error" not in own


def test_remembered_boosting_is_boosting():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.integers(2, size=120)
    plain = HistGradientBoostingClassifier(random_state=0, max_iter=5)
    kept = tables.Boosting(random_state=0, max_iter=5)
    for method in ("isotonic", "sigmoid"):
        expected, got = (
            CalibratedClassifierCV(model, method=method).fit(X, y).predict_proba(X) for model in (plain, kept)
        )
        np.testing.assert_array_equal(got, expected)
    other = tables.Boosting(random_state=0, max_iter=5).fit(X[:100], y[:100]).predict_proba(X)
    np.testing.assert_array_equal(other, plain.fit(X[:100], y[:100]).predict_proba(X))
