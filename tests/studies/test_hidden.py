"""Counts of mixtures that hide miscalibration, on made-up and on stored rows."""

import numpy as np
import pytest

import study_rows
from calmoe.auditing import Configurations
from calmoe.auditing import hidden as measure
from calmoe.calibration import PerExpertTemperature, Temperature
from calmoe.errors import InputError
from calmoe.experiments.export import rescaled
from calmoe.predictions import Predictions
from studies.hidden import counted, hidden, rows_of
from studies.pack import save_packed
from study_rows import RESULTS
from synthetic_curves import mixture


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "42").mkdir()
    for seed, split in enumerate(("validation", "test")):
        save_packed(mixture(seed + 1), tmp_path / f"42/vanilla-{split}.npz")
        alone = Predictions.from_probs(np.full((200, 2), 0.5), np.arange(200) % 2)
        save_packed(alone, tmp_path / f"42/single-{split}.npz")
    return tmp_path / "42"


@pytest.mark.usefixtures("hasty")
def test_every_mixture_is_tested_as_trained_and_after_a_temperature(folder):
    rows = list(rows_of(folder))
    facts = [(row["method"], row["seed"], row["kind"]) for row in rows]
    assert facts == [(m, 42, kind) for m in ("vanilla", "mocae") for kind in ("raw", "scaled")]
    validation, test = (Predictions.load(folder / f"vanilla-{s}.npz") for s in ("validation", "test"))
    temperature = Temperature().fit(validation.output.log_probs, validation.known_labels)
    experts = PerExpertTemperature().fit(validation.output, validation.known_labels)
    mocae = Predictions(output=experts.transform(test.output), labels=test.known_labels)
    for row, judged in zip(rows, (test, rescaled(test, temperature), mocae), strict=False):
        assert row["p_hidden"] == measure(Configurations.of(judged)).p_hidden
        assert row["rows"] == len(test)


@pytest.mark.usefixtures("hasty")
def test_the_count_is_of_p_below_the_level(folder, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    hidden([folder], rows)
    assert "| MoCaE, after a temperature |" in capsys.readouterr().out
    for p, n in ((0.04, 1), (0.06, 0)):
        made = [{"method": "robust", "seed": 42, "kind": "raw", "ece": 0.1, "witness": 0.1, "p_hidden": p}]
        assert counted(made).rows[0][1].values == (n, 1)


def test_stored_rows_count_all_methods():
    grid = counted(study_rows.read(RESULTS / "audit/hidden.jsonl"))
    counts = {row[0].text: row[1].values for row in grid.rows}
    assert len(counts) == 16
    assert counts["Robust MoE, after a temperature"] == (5, 5)
    assert counts["Vanilla MoE, after a temperature"] == (0, 5)


def test_a_folder_is_named_by_its_seed_and_holds_mixtures(tmp_path):
    with pytest.raises(InputError, match="name the folder by the seed"):
        list(rows_of(tmp_path / "mine"))
    (tmp_path / "7").mkdir()
    with pytest.raises(InputError, match="of a mixture"):
        list(rows_of(tmp_path / "7"))
