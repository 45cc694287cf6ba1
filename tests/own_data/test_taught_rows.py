"""From training to repair: rows that taught the model are marked, and no audit or repair counts them."""

import csv
import json
import shutil

import numpy as np
import pytest

from calmoe.formats import asked
from calmoe.formats.writing import TAUGHT
from calmoe.own_data.spec import TrainSpec
from calmoe.own_data.train import look
from calmoe.predictions import Predictions
from calmoe.reading import read_with
from haste import unrendered
from own_commands import NETWORK, done, refused

pytestmark = pytest.mark.usefixtures("hasty", "unrendered")
COLUMNS = ("income", "town", "late")


def drawn(rows, seed):
    rng = np.random.default_rng(seed)
    income, town = rng.normal(size=rows), rng.choice(["Łódź", "Oslo", ""], rows)
    late = rng.random(rows) < 1 / (1 + np.exp(-2 * income))
    cells = zip(income, town, late, strict=True)
    return [{"income": str(x), "town": where, "late": ["no", "yes"][int(y)]} for x, where, y in cells]


def written(path, rows, columns=COLUMNS):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model of 500 rows; predictions of these and 400 others, mixed, and of those that it was fitted on."""
    place = tmp_path_factory.mktemp("taught")
    old = drawn(500, seed=0)
    written(place / "old.csv", old)
    with unrendered():
        done("train", place / "old.csv", "--label", "late", *NETWORK, "--out", place / "model")
    fit = {*look(TrainSpec(data=place / "old.csv", label="late"))[0].parts.fit.tolist()}
    given = [(row, i in fit) for i, row in enumerate(old)] + [(row, False) for row in drawn(400, seed=1)]
    given = [given[i] for i in np.random.default_rng(2).permutation(len(given))]
    written(place / "both.csv", [row for row, _ in given], COLUMNS[::-1])
    (place / "marks.json").write_text(json.dumps([mark for _, mark in given]))
    written(place / "fitted.csv", [old[i] for i in sorted(fit)])
    for name in ("both", "fitted"):
        told = done("predict", place / "model", place / f"{name}.csv", "--out", place / f"{name}-p.csv")
        (place / f"{name}.txt").write_text(told)
    return place


def test_every_row_of_training_is_marked_and_no_other(place):
    marks = json.loads((place / "marks.json").read_text())
    assert Predictions.load(place / "both-p.csv").groups[TAUGHT].tolist() == marks
    assert "400 of 900 rows taught the model, which looks better on them" in (place / "both.txt").read_text()
    assert (place / "fitted.txt").read_text().startswith("note: 400 of 400 rows taught the model")
    assert "other rows" in (place / "fitted.txt").read_text().splitlines()[-1]


def test_new_rows_and_those_held_out_are_not_marked(place, tmp_path):
    written(tmp_path / "new.csv", drawn(300, seed=3))
    told = done("predict", place / "model", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert "taught" not in told
    assert TAUGHT not in Predictions.load(tmp_path / "p.csv").groups
    assert TAUGHT not in Predictions.load(place / "model" / "held_out.safetensors").groups


def test_rows_of_few_values_repeat_by_chance_and_are_not_marked(tmp_path):
    rows = [row | {"income": str(round(float(row["income"])))} for row in drawn(900, seed=4)]
    written(tmp_path / "old.csv", rows[:500])
    written(tmp_path / "new.csv", rows[500:])
    done("train", tmp_path / "old.csv", "--label", "late", *NETWORK, "--out", tmp_path / "model")
    predict = ("predict", tmp_path / "model")
    assert "taught" not in done(*predict, tmp_path / "new.csv", "--out", tmp_path / "new-p.csv")
    told = done(*predict, tmp_path / "old.csv", "--out", tmp_path / "old-p.csv")
    assert "trained on these very data" in told  # keys do not tell, the file does


def test_a_model_without_keys_still_knows_its_file(place, tmp_path):
    older = shutil.copytree(place / "model", tmp_path / "older", ignore=shutil.ignore_patterns("taught.*"))
    told = done("predict", older, place / "old.csv", "--out", tmp_path / "p.csv")
    assert "trained on these very data" in told
    assert TAUGHT not in Predictions.load(tmp_path / "p.csv").groups


@pytest.mark.parametrize(("ending", "options"), [("csv", ()), ("safetensors", ("--groups", "town"))])
def test_the_audit_leaves_them_out_whatever_groups_are_named(place, tmp_path, ending, options):
    out, page = tmp_path / f"p.{ending}", tmp_path / "audit"
    done("predict", place / "model", place / "both.csv", "--group", "town", "--out", out)
    assert "400 of 900 rows taught the model and are left out" in done("audit", out, *options, "--out", page)
    for groups in ("town", []):
        assert TAUGHT in read_with(out, asked(groups=groups)).groups
    numbers = json.loads((page / "audit.json").read_text())
    assert numbers["rows"] == 500
    assert {group["column"] for group in numbers["groups"]["groups"]} == {"town"}
    assert "400 of 900 rows" in (page / "report.html").read_text()


def test_models_are_compared_on_new_rows(place, tmp_path):
    out = tmp_path / "audit"
    told = done("audit", place / "both-p.csv", place / "both-p.csv", "--out", out)
    assert told.count("400 of 900 rows taught the model and are left out") == 2
    assert "400 of 900 rows" in (out / "report.html").read_text()
    assert json.loads((out / "model-2" / "audit.json").read_text())["rows"] == 500


def test_a_repair_learns_from_new_rows(place, tmp_path):
    told = done("repair", place / "both-p.csv", "--out", tmp_path / "c.json")
    assert "400 of 900 rows taught the model and are left out" in told
    assert "fitted on 500 rows" in told
    done("apply", tmp_path / "c.json", place / "both-p.csv", "--out", tmp_path / "repaired.csv")
    assert Predictions.load(tmp_path / "repaired.csv").groups[TAUGHT].sum() == 400


def test_rows_of_training_alone_are_refused(place, tmp_path):
    only = place / "fitted-p.csv"
    for command in (
        ("audit", only),
        ("audit", place / "both-p.csv", only),
        ("repair", only, "--out", tmp_path / "c.json"),
    ):
        told = refused(*command)
        assert f"{only}: all 400 rows taught the model" in told
        assert "audit rows that neither has seen" in told
    assert not (tmp_path / "c.json").exists()
