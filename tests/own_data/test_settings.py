"""Settings of a network: each is in use and on the card, or refused; a spec holds no other."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

import calmoe
from calmoe.own_data.settings import READ, SETTINGS, TABLE_NETWORK, TEXT_NETWORK
from calmoe.own_data.spec import read_spec
from calmoe.predictions import Predictions
from encoders import save_encoder
from image_folders import write_images
from own_commands import done, refused, write_credit

pytestmark = pytest.mark.usefixtures("quick")

OTHER = {
    "experts": 2,
    "epochs": 1,
    "batch": 8,
    "learning_rate": 0.001,
    "weight_decay": 50.0,
    "rho": 0.0,
    "average": 0.0,
    "patience": 1,
}
SMALL = ("--set", "backbone=mlp", "--set", "size=8", "--set", "epochs=3")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(tmp_path, kind, rows=60):
    """Data of this kind, and the options that they need."""
    if kind == "tables":
        return [write_credit(tmp_path / "credit.csv", rows=rows), "--label", "default"]
    if kind == "images":
        write_images(tmp_path / "photos", domains=("photo",), count=12)
        return [tmp_path / "photos"]
    rows = "".join(f"you are {['good', 'awful'][i % 2]},{'yn'[i % 2]}\n" for i in range(60))
    (tmp_path / "texts.csv").write_text(f"body,y\n{rows}")
    encoder = save_encoder(tmp_path / "encoder")
    return [tmp_path / "texts.csv", "--label", "y", "--text", "body", "--encoder", encoder]


def trained(folder, *arguments):
    """What is on the card, and what the model says of the rows held out."""
    done("train", *arguments, "--out", folder)
    return calmoe.load(folder).card, Predictions.load(Path(folder, "held_out.safetensors")).output.log_probs


def test_a_network_for_tables_has_the_settings_that_it_is_given(tmp_path, unrendered):
    bumpy = ("--set", "learning_rate=0.02")  # the validation log loss rises and falls
    data = [*written(tmp_path, "tables", rows=300), "--model", "network", *bumpy]
    card, usual = trained("usual", *data)
    assert OTHER.keys() == set(READ[TABLE_NETWORK]) <= card.settings.keys()
    for name, value in OTHER.items():
        assert card.settings[name] != value
        changed, answers = trained(name, *data, "--set", f"{name}={value}")
        assert changed.settings[name] == value
        assert not torch.equal(answers, usual), name
    again = [f"{name}={card.settings[name]}" for name in OTHER]
    assert torch.equal(
        trained("again", *data, *[word for each in again for word in ("--set", each)])[1], usual
    )


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (
            "tables",
            ("--model", "network", "--set", "sharp_every=7"),
            "does not read sharp_every: leave it out; it",
        ),
        ("tables", ("--model", "network", "--set", "views=1"), "a network for tables does not read views"),
        ("tables", ("--set", "epochs=3"), "a mixture of models does not read epochs"),
        (
            "tables",
            ("--set", "rho=5", "--set", "size=9"),
            "does not read size and rho: leave them out; --model net",
        ),
        ("tables", ("--compare", "--set", "rho=5"), "it reads experts and epochs"),
        (
            "texts",
            ("--set", "views=10"),
            "a network for texts does not read views: leave it out; it reads exp",
        ),
        ("texts", ("--set", "backbone=resnet50"), "does not read backbone"),
        ("texts", ("--model", "mixture"), "--model mixture is for tables: leave it out"),
        ("images", ("--model", "mixture"), "--model mixture is for tables: leave it out"),
        ("images", ("--group", "photo"), "images have none: leave them out"),
        ("images", ("--drop", "photo"), "images have none: leave them out"),
    ],
)
def test_what_nothing_would_read_is_refused(tmp_path, kind, options, words):
    data = written(tmp_path, kind)
    before = {*tmp_path.rglob("*")}
    for command in ("train", "init"):
        if "--compare" not in options or command == "train":
            assert words in refused(command, *data, *options)
    assert {*tmp_path.rglob("*")} == before


def test_a_spec_is_refused_alike(tmp_path):
    written(tmp_path, "tables")
    (tmp_path / "s.toml").write_text('data = "credit.csv"\nlabel = "default"\n[network]\nviews = 1\n')
    assert "a mixture of models does not read views" in refused("train", "s.toml")
    assert "a network for tables does not read views" in refused("train", "s.toml", "--model", "network")


def test_the_papers_methods_beside_a_mixture_of_models_have_their_epochs(tmp_path, unrendered):
    data = written(tmp_path, "tables")
    rows = [done("train", *data, "--compare", "--set", f"epochs={n}", "--out", f"m{n}") for n in (1, 9)]
    one, two = ({line.split()[0]: line for line in each.splitlines() if "MoE" in line} for each in rows)
    assert one["Vanilla"] != two["Vanilla"]
    assert not {*SETTINGS} & calmoe.load("m1").card.settings.keys()  # of the mixture itself


@pytest.mark.parametrize(
    ("kind", "options"),
    [("tables", ()), ("tables", ("--model", "network")), ("texts", ()), ("images", ())],
)
def test_init_writes_no_setting_that_is_refused(tmp_path, kind, options):
    """As it stands, and with every example switched on."""
    data = written(tmp_path, kind)
    done("init", *data, *options, "--out", "s.toml")
    written_spec = (tmp_path / "s.toml").read_text()
    assert not read_spec(tmp_path / "s.toml").network.given
    done("init", "s.toml", "--out", "same.toml")
    head, _, network = written_spec.partition("[network]")
    on = f"{head.removesuffix('# ')}[network]{network.replace(chr(10) + '# ', chr(10))}"
    if kind == "tables":
        on = on.replace('model = "auto"', 'model = "network"')
    (tmp_path / "on.toml").write_text(on)
    given = read_spec(tmp_path / "on.toml").network.given
    assert given == tomllib.loads(on)["network"]
    assert set(given) == set(READ[f"a network for {kind}"])
    done("init", "on.toml", "--out", "again.toml")
    assert read_spec(tmp_path / "again.toml").network.given == given


def test_the_card_of_a_network_has_what_was_used(tmp_path, unrendered):
    data = written(tmp_path, "texts")
    told = done("train", *data, "--set", "epochs=3", "--set", "average=0.998", "--out", "m")
    used, page = calmoe.load("m").card.settings, (tmp_path / "m" / "report.html").read_text()
    assert set(used) >= set(READ[TEXT_NETWORK])
    note = re.search(r"an average of 0\.998 looks back too far for (\d+) steps: (\S+) is used", told)
    assert used["average"] == pytest.approx(1 - 10 / int(note[1])) == pytest.approx(float(note[2]), abs=1e-3)
    assert note[0] in page
    assert (used["epochs"], used["weight_decay"], used["sharding"]) == (3, 1e-4, "none")
    assert used["best_epoch"] in (1, 2, 3)
    assert f"epochs: {used['best_epoch']}, where" in told


def test_the_card_of_a_network_for_images_has_all_settings(tmp_path, unrendered):
    data = written(tmp_path, "images")
    told = done("train", *data, *SMALL, "--set", "views=2", "--set", "sharp_every=3", "--out", "m")
    used = calmoe.load("m").card.settings
    assert set(SETTINGS) - set(used) == {"weights"}  # which were none
    assert (used["backbone"], used["size"], used["views"], used["sharp_every"]) == ("mlp", 8, 2, 3)
    assert (used["rho"], used["average"], used["batch_norm"]) == (0.2, 0.0, "synchronised")
    assert "looks back too far" not in told
    assert "epoch 1 of at most 3: validation log loss" in told  # at once, where there is no terminal
    page = (tmp_path / "m" / "report.html").read_text()
    assert "sharp_every" in page
