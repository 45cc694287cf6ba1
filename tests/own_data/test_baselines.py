"""Baselines: the same beside every model, and scores that a card can hold."""

import pytest

import calmoe
from own_commands import NETWORK, done, write_credit

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("rows", [90, 200])
def test_baselines_are_the_same_beside_a_mixture_and_a_network(tmp_path, rows):
    """With few rows the mixture has one expert only: boosting is fitted for the table alone."""
    path = write_credit(tmp_path / "credit.csv", rows=rows)
    done("train", path, "--label", "default", "--out", "mixture")
    done("train", path, "--label", "default", *NETWORK, "--out", "network")
    mixture, network = (calmoe.load(name).card.baselines for name in ("mixture", "network"))
    assert mixture == network
    assert list(mixture) == ["Base rate (class shares)", "Logistic regression", "Gradient boosting"]


def test_a_shift_of_one_row_has_a_loss_without_interval(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv", rows=60)
    lines = path.read_text(encoding="utf-8").replace("north", "moon", 1)  # row 5 of the table
    path.write_text(lines, encoding="utf-8")
    told = done("train", path, "--label", "default", "--shift", "region=moon", *NETWORK)
    assert "The shift: 1 row that" in told
    shift = calmoe.load("credit-model").card.scores["shift"]
    assert shift["rows"] == 1
    assert {"log_loss", "ece_high"} <= shift.keys()
    assert not {"log_loss_low", "log_loss_high"} & shift.keys()


def test_long_fits_of_a_table_say_how_far_they_are(tmp_path, unrendered, monkeypatch):
    path = write_credit(tmp_path / "credit.csv", rows=90)
    assert "experts on all rows" not in done("train", path, "--label", "default", "--out", "soon")
    monkeypatch.setattr("calmoe.progress_bar.QUIET", 0.0)
    assert "experts on all rows: 1 of 1" in done("train", path, "--label", "default", "--out", "late")
