"""Data that look like no one's, and are: long cells, line breaks, strange labels and names."""

import os

import pytest

import calmoe
from calmoe.own_data.spec import read_spec
from calmoe.predictions import Predictions
from own_commands import NETWORK, done, refused, write_credit

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_texts_are_no_categories_classes_or_groups(tmp_path):
    long = "x" * 10_001
    rows = "".join(f"{i % 7},{'ab'[i % 2]},{long if i == 5 else 'c'},{'yn'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"x,c,note,y\n{rows}")
    told = "'note' holds a text of 10,001 characters"
    assert f"{told}: learn from it with --text, or --drop note" in refused("train", "t.csv", "--label", "y")
    assert f"{told}: name another" in refused("train", "t.csv", "--label", "note")
    drop = ("train", "t.csv", "--label", "y", "--drop", "note")
    assert f"{told}: name another" in refused(*drop, "--group", "note")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


def test_what_is_predicted_of_odd_groups_and_labels_can_be_audited(tmp_path, unrendered):
    """A line break in a group, and a label that only the shift has."""
    regions = ['"north\nwest"', "south", "east"]
    rows = [f"{i % 7},{regions[i % 3]},{'new' if i == 2 else 'yn'[i % 2]}\n" for i in range(60)]
    (tmp_path / "t.csv").write_text(f"x,region,y\n{''.join(rows)}")
    done("train", "t.csv", "--label", "y", "--shift", "region=east", *NETWORK)
    told = done("predict", "t-model", "t.csv", "--out", "p.csv")
    assert "the label 'new' is no class of the model" in told
    predictions = Predictions.load("p.csv")
    assert predictions.labels is None
    assert set(predictions.groups["region"]) == {"north\\nwest", "south", "east"}
    assert "'new' is no class" in refused("predict", "t-model", "t.csv", "--label", "y", "--out", "q.csv")


def test_a_spec_says_nothing_that_a_table_made_up(tmp_path):
    header, rows = '"a\nseed = 7",b\x7fc,y', "".join(f"{i},,{'yn'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
    done("init", "t.csv", "--label", "y", "--group", "b\x7fc")
    spec = read_spec(tmp_path / "t.toml")
    assert (spec.seed, spec.groups) == (0, ("b\x7fc",))
    for content in (f"seed = {'9' * 5000}", f"data = {'[' * 5000}"):
        (tmp_path / "bad.toml").write_text(content)
        assert "not a readable TOML file" in refused("train", "bad.toml")


def test_names_that_are_not_utf8(tmp_path, unrendered):
    name = os.fsdecode(b"caf\xe9.csv")
    write_credit(tmp_path / name, rows=60)
    assert "not UTF-8" in refused("init", name, "--label", "default")
    done("train", name, "--label", "default", *NETWORK, "--out", "m")
    assert calmoe.load("m").card.dataset == r"caf\xe9"
    done("predict", "m", name, "--out", "p.csv")


def test_days_quantities_and_constants_are_noticed(tmp_path):
    days = [f"{i % 28 + 1:02}/12/2020" if i % 11 else "not yet" for i in range(200)]
    rows = "".join(f"{days[i]},{i % 7},m,{i % 25}\n" for i in range(200))
    (tmp_path / "t.csv").write_text(f"day,x,unit,y\n{rows}")
    told = done("init", "t.csv", "--label", "y")
    assert "2 columns to learn from" in told
    assert "1 number and 1 category" in told
    assert "note: day looks like dates" in told
    assert "note: y looks like a quantity" in told
    told = done("init", "t.csv", "--label", "x", "--out", "x.toml")
    assert "looks like a quantity" not in told


def test_values_that_the_model_does_not_know_are_noticed(tmp_path, unrendered):
    rows = "".join(f"{'ab'[i % 2]},{i % 7},{'yn'[i % 2]}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"town,x,y\n{rows}")
    done("train", "t.csv", "--label", "y", *NETWORK)
    (tmp_path / "new.csv").write_text("town,x\nA,1\nB,2\na,3\n")
    assert "note: column town: 2 of 3 values are unknown to the model" in done(
        "predict", "t-model", "new.csv", "--out", "p.csv"
    )
    (tmp_path / "same.csv").write_text("town,x\na,8\nb,9\nC,9\n")
    assert "note" not in done("predict", "t-model", "same.csv", "--out", "q.csv")
