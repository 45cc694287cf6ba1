"""calmoe train, predict, audit and init, from an empty folder, on data as people have them."""

import csv
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import calmoe
from calmoe.formats.writing import TAUGHT
from calmoe.metrics import nll
from calmoe.models.mixture_of_models import SHIFT_ETAS
from calmoe.own_data.spec import read_spec
from calmoe.predictions import Predictions
from encoders import save_encoder
from image_folders import write_images
from own_commands import NETWORK, done, refused, write_credit
from sizes import at_size

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def reported(folder, part="held out"):
    return calmoe.load(folder).card.scores[part]


@pytest.mark.usefixtures("hasty")
def test_a_table_in_three_commands(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv")
    told = done("train", path, "--label", "default", "--group", "region", *NETWORK)
    assert "label default: 2 classes, no " in told
    assert "missing values: Einkommen 58" in told
    assert "group region: 3 values, the smallest is islands with 3 rows" in told
    assert "left out: unit (one value)" in told
    assert "--drop Kunde" in told
    assert "too few rows held out to score islands" in told
    for row in ("Calibrated network", "Base rate", "Logistic regression", "Gradient boosting", "north"):
        assert row in told
    folder = tmp_path / "credit-model"
    names = {path.name for path in folder.iterdir()}
    assert {"model.json", "model.safetensors", "card.json", "README.md", "report.html"} <= names
    told = done("predict", folder, path, "--out", "p.csv")
    assert "320 of 400 rows taught the model" in told
    assert "400 predictions in p.csv\nnext: calmoe audit p.csv" in told
    rows = list(csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8")))
    assert {"prob_no", "prob_yes", "label", "predicted", "region"} <= set(rows[0])
    assert {row["label"] for row in rows} == {"no", "yes"}
    assert "calmoe predict MODEL DATA" in refused("audit", path)
    told = done("audit", "p.csv")
    assert "320 of 400 rows taught the model and are left out" in told
    assert "Verdict: The probabilities" in told
    assert list(Predictions.load("p.csv").groups) == ["region", TAUGHT]  # not what the model predicts
    assert "end the name so" in refused("predict", folder, path, "--out", "p.txt")
    done("predict", folder, path, "--out", "ids.csv", "--group", "Kunde")
    assert list(Predictions.load("ids.csv").groups) == ["Kunde", "region", TAUGHT]


@pytest.mark.usefixtures("hasty")
def test_a_repaired_model_says_where_it_flatters_itself(tmp_path, unrendered):
    path, other = write_credit(tmp_path / "credit.csv"), write_credit(tmp_path / "other.csv", seed=1)
    lines = [each.read_text(encoding="utf-8").splitlines(keepends=True) for each in (path, other)]
    (tmp_path / "both.csv").write_text("".join([*lines[0], *lines[1][1:]]), encoding="utf-8")
    (tmp_path / "new.csv").write_text("".join([lines[1][0], *lines[1][200:]]), encoding="utf-8")
    done("train", path, "--label", "default", *NETWORK)
    done("predict", "credit-model", "both.csv", "--out", "p.csv")
    told = done("repair", "p.csv", "--kind", "vector", "--out", "c.json")
    assert "of 800 rows taught the model and are left out" in told
    told = done("apply", "c.json", "credit-model", "--out", "repaired")
    assert "fitted on these very rows" not in told
    assert "fitted on these very rows" in done("predict", "repaired", "both.csv", "--out", "same.safetensors")
    assert "taught the model or its repair" in refused("audit", "same.safetensors")
    assert "fitted on these very rows" not in done("predict", "repaired", "new.csv", "--out", "n.safetensors")
    assert "fitted on these very rows" not in done("audit", "n.safetensors")
    assert "fitted on these very rows" in done("apply", "c.json", "p.csv", "--out", "a.csv")
    assert "taught the model or its repair" in refused("audit", "a.csv")


@pytest.mark.usefixtures("hasty")
def test_the_card_has_what_is_needed_to_judge_the_model(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv")
    told = done("train", path, "--label", "default", *NETWORK)
    card = calmoe.load("credit-model").card
    held_out, readme = card.scores["held out"], (tmp_path / "credit-model" / "README.md").read_text()
    predictions = Predictions.load("credit-model/held_out.safetensors")
    audited = calmoe.audit(predictions).aggregate
    assert held_out["ece"] == pytest.approx(audited.ece.value, abs=1e-6)
    assert held_out["accuracy_low"] < held_out["accuracy"] < held_out["accuracy_high"]
    shares = np.bincount(predictions.known_labels) / len(predictions)
    base = card.baselines["Base rate (class shares)"]["held out"]
    assert base["log_loss"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=0.02)
    best = min(card.baselines.values(), key=lambda parts: parts["held out"]["log_loss"])["held out"]
    gain = abs(best["log_loss"] - held_out["log_loss"])
    page = (tmp_path / "credit-model" / "report.html").read_text()
    assert f"{gain:.3f}" in card.worth
    for text in (told, page):
        assert card.worth[1:] in text.replace("\n", "")
    ece = f"at most {held_out['ece_high']:.3f} (estimate {held_out['ece']:.3f})"
    assert ece in readme
    assert f"ECE {ece}" in page
    assert f"ECE {ece}" in repr(calmoe.load("credit-model"))
    assert "| this model | validation |" in readme
    assert all(f"| {name} | held out |" in readme for name in card.baselines)


def numbers(audit):
    """What an audit wrote, and what it calls the file."""
    document = json.loads((Path(audit) / "audit.json").read_text())
    return document.pop("origin")["file"], document


def test_a_models_folder_stands_for_the_rows_that_it_held_out(tmp_path, unrendered, monkeypatch):
    path = write_credit(tmp_path / "credit.csv")
    for folder, seed in (("credit-0.1", "0"), ("credit-0.2", "1")):
        done(
            "train",
            path,
            "--label",
            "default",
            "--held-out",
            "0.6",
            "--seed",
            seed,
            "--out",
            folder,
            *NETWORK,
        )
    shutil.copy("credit-0.1/held_out.safetensors", "other.safetensors")
    done("audit", "credit-0.1", "--out", "one")
    done("audit", "other.safetensors", "--out", "two")
    (name, one), (other, two) = numbers("one"), numbers("two")
    assert (name, other) == ("credit-0.1", "other.safetensors")
    assert one == two
    monkeypatch.chdir("credit-0.1")
    done("audit", "held_out.safetensors", "--out", "../three")
    monkeypatch.chdir("..")
    assert numbers("three")[0] == "credit-0.1"
    told = done("audit", "credit-0.1", "credit-0.2")
    assert {line.split(":")[0] for line in told.splitlines()} >= {"credit-0.1", "credit-0.2"}
    for file in ("credit-0.1", "other.safetensors"):
        done("repair", file, "--kind", "temperature", "--out", f"{file}.json")
    mine, theirs = (json.loads(Path(f"{n}.json").read_text()) for n in ("credit-0.1", "other.safetensors"))
    assert mine["temperature"] == theirs["temperature"]
    assert " rows of credit-0.1 (" in mine["note"]
    (tmp_path / "credit-0.2" / "held_out.safetensors").unlink()
    assert "credit-0.2: this model has no rows that it held out" in refused("audit", "credit-0.2")


def test_a_rare_class_is_judged_by_its_precision(tmp_path, unrendered):
    rows = "".join(f"{i % 50 / 50},{'yes' if i % 50 == 49 else 'no'}\n" for i in range(600))
    (tmp_path / "t.csv").write_text(f"x,late\n{rows}")
    told = done("train", "t.csv", "--label", "late", "--model", "network", "--set", "epochs=1")
    assert "yes is rare" in told
    card = calmoe.load("t-model").card
    base = card.baselines["Base rate (class shares)"]["held out"]
    assert base["average_precision"] == pytest.approx(12 / 600, abs=0.01)
    assert card.baselines["Logistic regression"]["held out"]["average_precision"] > 0.9


def test_rows_without_labels_are_a_target(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv", rows=600)
    done("train", path, "--label", "default", *NETWORK)
    lines = [line.rpartition(",")[0] for line in path.read_text(encoding="utf-8").splitlines()]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = done("predict", "credit-model", "new.csv", "--out", "p.csv")
    assert "calmoe audit credit-model --target p.csv" in told
    (tmp_path / "one.csv").write_text(
        "\n".join([lines[0], lines[-1].replace("K599", "K600")]), encoding="utf-8"
    )
    assert (
        done("predict", "credit-model", "one.csv", "--out", "one-p.csv")
        == "1 prediction in one-p.csv, without labels\n"
    )
    assert Predictions.load("p.csv").class_names == ("no", "yes")
    assert "no labels" in refused("audit", "p.csv")
    (tmp_path / "empty.csv").write_text(
        "\n".join(f"{line}," for line in lines).replace("unit,", "unit,default", 1)
    )
    assert "0 rows of empty have a value in 'default'" in refused("train", "empty.csv", "--label", "default")


def test_what_was_reported_is_what_the_folder_predicts(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv")
    done("train", path, "--label", "default", "--shift", "region=south", *NETWORK, "--out", "m")
    model, rows = calmoe.load("m"), list(csv.DictReader(path.open(encoding="utf-8")))
    south = [row for row in rows if row["region"] == "south"]
    table = {name: [row[name] or None for row in south] for name in rows[0]}
    predictions = model.predictions(table, [row["default"] for row in south])
    scores = model.card.scores["shift"]
    assert scores["rows"] == len(south)
    assert nll(predictions.output.log_probs, predictions.known_labels) == pytest.approx(
        scores["log_loss"], abs=1e-9
    )
    saved = Predictions.load("m/shift.safetensors")
    difference = (saved.output.log_probs - predictions.output.log_probs).abs().max()
    assert float(difference) < 1e-6
    reordered = {name: table[name] for name in reversed(table)}
    np.testing.assert_array_equal(model.predict_proba(reordered), model.predict_proba(table))


def test_a_mixture_of_models_is_the_default_for_tables(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv", rows=200)
    told = done("train", path, "--label", "default", "--drop", "Kunde")
    assert "Mixture of models" in told
    assert "Kunde" not in calmoe.load("credit-model").columns
    done("predict", "credit-model", path, "--out", "p.safetensors")
    predictions = Predictions.load("p.safetensors")
    assert predictions.groups[TAUGHT].sum() == 160
    assert predictions.expert_names == ("linear", "boosting", "trees")


def test_an_expected_shift_chooses_how_robust_to_be(tmp_path, unrendered):
    rng = np.random.default_rng(0)
    sites = at_size("abc", "abcdef")
    rows = [(rng.normal(), sites[i % len(sites)], i % 2) for i in range(240)]
    lines = [f"{x + 2 * y * (site != 'a')},{site},{i % 9},{'ny'[y]}" for i, (x, site, y) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(["x,site,few,y", *lines, ""]))
    told = done("train", "t.csv", "--label", "y", "--expect-shift", "site", "--out", "m")
    settings = calmoe.load("m").card.settings
    assert settings["eta"] in SHIFT_ETAS
    assert settings["etas_tried"] == len(SHIFT_ETAS)
    assert "values of site were left out in turn" in told
    assert "leave it out" in refused("train", "t.csv", "--label", "y", "--expect-shift", "site", *NETWORK)
    assert "there is no column" in refused("train", "t.csv", "--label", "y", "--expect-shift", "sight")


def test_a_shift_may_be_a_number(tmp_path, unrendered):
    rows = "".join(f"{i % 7 / 2},{i % 3}.0,{'yn'[i % 2]}\n" for i in range(90))
    (tmp_path / "t.csv").write_text(f"x,site,y\n{rows}")
    for value in ("2", "2.0"):
        told = done(
            "train", "t.csv", "--label", "y", "--shift", f"site={value}", *NETWORK, "--out", f"m{value}"
        )
        assert "30 are the shift that is held out" in told


def test_data_frames_and_files_give_the_same(tmp_path, unrendered):
    pandas = pytest.importorskip("pandas")
    path = write_credit(tmp_path / "credit.csv")
    done("train", path, "--label", "default", *NETWORK)
    model = calmoe.load("credit-model")
    done("predict", "credit-model", path, "--out", "p.parquet")
    frame = pandas.read_csv(path)
    ours = model.predictions(frame, frame["default"], {"region": frame["region"]})
    stored = Predictions.load("p.parquet")
    np.testing.assert_allclose(ours.output.probs, stored.output.probs, atol=1e-9)
    assert (ours.known_labels == stored.known_labels).all()
    assert set(model.predict(frame)) <= {"no", "yes"}
    with pytest.raises(calmoe.errors.InputError, match="lacks the column 'age'"):
        model.predict(frame.drop(columns="age"))


def test_texts_of_any_classes(tmp_path, unrendered):
    encoder, generator = save_encoder(tmp_path / "encoder"), random.Random(0)
    with (tmp_path / "mails.jsonl").open("w") as stream:
        for number in range(90):
            label, word = generator.choice([("sehr gut", "good"), ("mittel", "kind"), ("übel", "awful")])
            text = " ".join(["you", "are", word, *generator.choices(["a", "the", "man"], k=3), str(number)])
            stream.write(json.dumps({"body": text, "urteil": label, "kanal": generator.choice("ab")}) + "\n")
    options = ("--label", "urteil", "--text", "body", "--group", "kanal")
    told = done("train", "mails.jsonl", *options, "--encoder", encoder, "--set", "epochs=2")
    assert "Logistic regression on words" in told
    (tmp_path / "encoder").rename(tmp_path / "gone")
    model = calmoe.load("mails-model")
    assert model.classes == ["mittel", "sehr gut", "übel"]
    assert model.predict_proba(["you are good", ""]).shape == (2, 3)
    assert "72 of 90 rows taught the model" in done("predict", "mails-model", "mails.jsonl", "--out", "p.csv")
    assert set(Predictions.load("p.csv").groups["kanal"]) == {"a", "b"}
    assert "texts need a model" in refused("train", "mails.jsonl", *options, "--out", "other")
    told = refused("train", "mails.jsonl", "--label", "urteil", "--encoder", encoder, "--out", "other")
    assert "--text" in told
    assert "no folder ./gone/x" in refused(
        "train", "mails.jsonl", *options, "--encoder", "./gone/x", "--out", "other"
    )


def test_a_missing_group_reads_as_a_value(tmp_path):
    lines = [f"{i},{'' if i < 3 else 'ab'[i % 2]},{'yn'[i % 3 > 0]}" for i in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["x,home,y", *lines, ""]))
    assert "the smallest is (missing) with 3 rows" in done("init", "t.csv", "--label", "y", "--group", "home")


def test_a_column_of_texts_is_noticed(tmp_path):
    lines = [f"row number {i} says it,{'ab'[i % 2]},{'yn'[i % 3 > 0]}" for i in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["said,site,y", *lines, ""]))
    done("init", "t.csv", "--label", "y")
    assert "--text said" in (tmp_path / "t.toml").read_text()
    done("init", "t.csv", "--label", "y", "--text", "said", "--out", "texts.toml")
    assert "--group site" in (tmp_path / "texts.toml").read_text()


def test_images_in_two_domains(tmp_path, unrendered):
    write_images(tmp_path / "photos", domains=("photo", "sketch"), count=12)
    small = ("--set", "backbone=mlp", "--set", "size=8", "--set", "epochs=3")
    told = done("train", "photos", "--domain", "sketch", *small)
    assert "36 are the shift that is held out" in told
    assert "Logistic regression on pixels" in told
    done("predict", "photos-model", "photos/sketch", "--out", "p.csv")
    predictions, model = Predictions.load("p.csv"), calmoe.load("photos-model")
    assert TAUGHT not in predictions.groups
    loss = nll(predictions.output.log_probs, predictions.known_labels)
    assert loss == pytest.approx(reported("photos-model", "shift")["log_loss"], abs=1e-6)
    files = sorted((tmp_path / "photos" / "sketch" / "owl").iterdir())
    assert set(model.predict(files)) <= {"cat", "dog", "owl"}
    done("predict", "photos-model", "photos", "--out", "all.csv")
    everything = Predictions.load("all.csv")
    marked = everything.subset(TAUGHT)
    assert len(marked) == model.card.rows
    assert {name.partition("/")[0] for name in marked.groups["file"]} == {"photo"}


def test_an_empty_folder_is_named_and_the_current_folder_has_a_name(tmp_path, monkeypatch):
    write_images(tmp_path / "photos", domains=("only",), count=12)
    place = tmp_path / "photos" / "only"
    (place / "yak").mkdir()
    monkeypatch.chdir(place)
    done("init", ".")
    spec = place / "only.toml"
    assert "yak holds no images" in spec.read_text()
    assert read_spec(spec).folder.name == "only-model"


def test_the_papers_methods_beside_it(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv", rows=200)
    told = done("train", path, "--label", "default", *NETWORK, "--compare")
    for title in ("Single Expert", "Vanilla MoE", "MoCaE", "FGR", "Robust MoE", "Robust Filtered"):
        assert title in told


def test_init_writes_a_spec_that_train_runs(tmp_path, unrendered):
    path = write_credit(tmp_path / "credit.csv", rows=120)
    (tmp_path / "specs").mkdir()
    done("init", path, "--label", "default", "--group", "region", *NETWORK, "--out", "specs/mine.toml")
    text = (tmp_path / "specs" / "mine.toml").read_text()
    assert 'data = "../credit.csv"' in text
    assert text.startswith("# credit: 120 rows, 6 columns to learn from\n")
    done("train", "specs/mine.toml")
    assert reported("specs/credit-model")["rows"] == 24
    assert "is there already" in refused("init", path, "--label", "default", "--out", "specs/mine.toml")
    (tmp_path / "bad.toml").write_text('data = "credit.csv"\nlabell = "x"\n')
    assert "did you mean 'label'?" in refused("train", "bad.toml")


def test_refusals_leave_nothing_behind(tmp_path):
    write_credit(tmp_path / "credit.csv", rows=60)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    before = {path.name for path in tmp_path.iterdir()}
    label = ("--label", "default", *NETWORK)
    for told, arguments in {
        "--label COLUMN: there are Kunde, Einkommen, ": ("credit.csv",),
        "did you mean 'default'?": ("credit.csv", "--label", "defalt"),
        "there is no file or folder": ("nothing.csv", *label),
        "region is never 'east'": ("credit.csv", *label, "--shift", "region=east"),
        "a shift is written COLUMN=VALUE": ("credit.csv", *label, "--shift", "region"),
        "different values in 60 rows": ("credit.csv", "--label", "Kunde"),
        "one class only": ("credit.csv", "--label", "unit"),
        "taken is there already": ("credit.csv", *label, "--out", "taken"),
        "rows are left to learn from": (
            "credit.csv",
            *label,
            "--shift",
            "region=north",
            "--shift",
            "region=south",
        ),
        "unknown setting 'epoch'": ("credit.csv", *label, "--set", "epoch=3"),
        "has no domains": ("credit.csv", *label, "--domain", "sketch"),
        "there is no column ''": ("credit.csv", *label, "--group", ""),
        "must be a whole number": ("credit.csv", *label, "--set", f"epochs={'9' * 5000}"),
    }.items():
        assert told in refused("train", *arguments)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert "no model folder" in refused("predict", "taken", "credit.csv", "--out", "p.csv")


def test_predictions_replace_no_file(tmp_path):
    income, late = np.linspace(0, 1, 60), np.array(["no", "yes"] * 30)
    made = calmoe.CalibratedMoEClassifier(max_epochs=1, random_state=0).fit({"income": income}, late)
    made.save("model")
    new = tmp_path / "new.csv"
    new.write_text("income\n" + "\n".join(map(str, income)) + "\n")
    before = new.read_bytes()
    assert "is there already" in refused("predict", "model", "new.csv", "--out", "new.csv")
    assert new.read_bytes() == before
    done("predict", "model", "new.csv", "--out", "out.csv")


@pytest.mark.parametrize(("rows", "kept"), [(300, 60), (600, 120), (660, 202), (1500, 300)])
def test_enough_rows_are_held_out_for_an_audit_where_that_leaves_most(tmp_path, unrendered, rows, kept):
    path = write_credit(tmp_path / "credit.csv", rows=rows)
    told = done("train", path, "--label", "default", *NETWORK)
    assert len(Predictions.load("credit-model/held_out.safetensors")) == pytest.approx(kept, abs=2)
    assert ("calmoe audit credit-model" in told) == (kept >= 200)
    assert ("--held-out 0.5 takes more" in told) == (kept < 200 <= rows // 2)
    assert ("label more" in told) == (rows < 400)
    share = str(calmoe.load("credit-model").card.settings["held_out"])
    done("train", path, "--label", "default", "--held-out", share, "--out", "again", *NETWORK)
    one, two = (Predictions.load(f"{m}/held_out.safetensors") for m in ("credit-model", "again"))
    assert torch.equal(one.output.log_probs, two.output.log_probs)
