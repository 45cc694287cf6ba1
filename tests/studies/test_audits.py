"""Audits of made-up mixtures, and the tables of the stored ones."""

import re

import numpy as np
import pytest
import torch

import study_rows
from calmoe.auditing import AuditReport, Configurations, audit, hidden
from calmoe.errors import InputError
from calmoe.experiments.run import Model, Run
from calmoe.predictions import Predictions
from studies import audits
from studies.audit_seeds import by_splits
from studies.audit_tables import TABLES
from studies.audits import Question
from study_rows import RESULTS
from synthetic_curves import mixture


@pytest.fixture
def model(hasty, monkeypatch):
    """The one model of every run, of made-up predictions; pages are written at once."""
    model = Model("robust", 42, mixture(1), mixture(2), [])
    monkeypatch.setattr(Run, "read_models", lambda run, **chosen: iter([model]))
    monkeypatch.setattr(AuditReport, "save", save)
    return model


def save(report, folder):
    (folder / "figures").mkdir(parents=True)
    for name in ("report.html", "reweightings.safetensors", "figures/surface.png"):
        (folder / name).touch()
    return folder / "report.html"


def right(predictions):
    return float((predictions.output.log_probs.argmax(1) == predictions.known_labels).double().mean())


def test_rows_quote_each_model_as_trained_and_after_a_temperature(model, reference, tmp_path):
    audits.audits(Question.CIFAR10H, [reference], to=tmp_path)
    raw, scaled = study_rows.read(tmp_path / "cifar10h.jsonl")
    assert [(row["method"], row["seed"], row["kind"]) for row in (raw, scaled)] == [
        ("robust", 42, "raw"),
        ("robust", 42, "scaled"),
    ]
    assert raw["rows"] == scaled["rows"] == len(model.test)
    assert raw["accuracy"][0] == scaled["accuracy"][0] == pytest.approx(right(model.test), abs=1e-5)
    assert raw["shares"] == scaled["shares"] == pytest.approx(model.test.output.routing.mean(0), abs=1e-4)
    p = hidden(Configurations.of(model.test)).p_hidden
    assert raw["p_hidden"] == p != scaled["p_hidden"]
    kept = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(kept) == ["cifar10h.jsonl", "cifar10h/robust/report.html"]


def test_the_hard_rows_are_a_target_without_labels(model, reference):
    facts, report = next(audits.audited(Run.open(reference), Question.HARD, None))
    assert facts == {"target": "hard", "method": "robust", "seed": 42, "kind": "raw"}
    row = audits.row(report)
    assert row["rows"] == len(model.validation)
    assert row["actual_accuracy"][0] == pytest.approx(right(model.test.subset("hard")), abs=1e-5)
    assert row["source_accuracy"][0] == pytest.approx(right(model.validation), abs=1e-5)


def test_an_audit_without_sections_is_refused():
    probs = torch.full((200, 2), 0.5, dtype=torch.float64)
    single = Predictions.from_probs(probs, torch.arange(200) % 2)
    with pytest.raises(InputError, match="left out"):
        audits.row(audit(single, of=1))


@pytest.mark.usefixtures("hasty")
def test_p_by_seed_and_splits():
    predictions = mixture(1)
    grid = by_splits(predictions, splits=(1,), seeds=(0, 1))
    seen = Configurations.of(predictions)
    expected = [[n, *(hidden(seen, seed=seed, splits=n).p_hidden for seed in (0, 1))] for n in (1,)]
    assert [[entry.values[0] for entry in row] for row in grid.rows] == expected


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_has_the_table(name):
    """The tables of results/audit/README.md are what the study prints."""
    _, _, table = TABLES[name](study_rows.read(RESULTS / f"audit/{name}.jsonl")).markdown().partition("\n\n")
    assert table in (RESULTS / "audit/README.md").read_text()


def test_spans_and_counts_of_stored_rows():
    rows = study_rows.read(RESULTS / "audit/cifar10h.jsonl")
    grid = TABLES["cifar10h"](rows)
    (entries,) = [row for row in grid.rows if row[0].text == "Robust MoE, after a temperature"]
    own = [row for row in rows if (row["method"], row["kind"]) == ("robust", "scaled")]
    ece = [row["ece"][0] for row in own]
    assert entries[1].values == pytest.approx((np.mean(ece), min(ece), max(ece)))
    assert entries[3].values == (sum(row["p_hidden"] < 0.05 for row in own), 5)
    kept = np.sum([row["repair_kept"] for row in own], axis=0)
    assert entries[8].text == f"{kept[0]} of {kept[1]}"


def test_intervals_that_held_are_counted():
    rows = study_rows.read(RESULTS / "audit/pacs.jsonl")
    grid = TABLES["pacs"](rows)
    held = [heading.title for heading in grid.headings].index("accuracy held")
    cells = [row[held].values for row in grid.rows if row[held].text != "–"]
    given = [row for row in rows if not row["verdict"]]
    inside = [
        row["predicted_accuracy"][1] <= row["actual_accuracy"][0] <= row["predicted_accuracy"][2]
        for row in given
    ]
    assert np.sum(cells, axis=0).tolist() == [sum(inside), len(given)] == [39, 70]
    assert re.fullmatch(r"\d of 3", grid.rows[0][2].text)
