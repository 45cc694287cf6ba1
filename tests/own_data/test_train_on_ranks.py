"""`calmoe train` on two ranks that keep a text encoder in shards: the model that one process trains."""

import csv
import random

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from calmoe.commands import app
from encoders import save_encoder
from training_ranks import start_ranks

SETTINGS = ("sharding=full", "epochs=2", "batch=31", "learning_rate=0.001", "experts=2")


@pytest.mark.slow
def test_an_encoder_in_shards_learns_what_a_whole_one_does(tmp_path):
    encoder, path = save_encoder(tmp_path / "encoder", dropout=0.0), tmp_path / "texts.csv"
    generator = random.Random(0)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["body", "y"])
        for _ in range(100):
            good = generator.random() < 0.5
            words = [*generator.choices(["you", "are", "a", "man"], k=3), "kind" if good else "awful"]
            writer.writerow([" ".join(words), "ab"[good]])
    options = ["train", str(path), "--label", "y", "--text", "body", "--encoder", str(encoder)]
    options += [word for setting in SETTINGS for word in ("--set", setting)]
    ranks = start_ranks(2, [*options, "--out", str(tmp_path / "two")], tmp_path)
    assert CliRunner().invoke(app, [*options, "--out", str(tmp_path / "one")]).exit_code == 0
    for rank in ranks:
        rank.join(120)
    assert [rank.exitcode for rank in ranks] == [0, 0], (tmp_path / "0.err").read_text()
    for file in ("model", "held_out"):
        one, two = (safetensors.torch.load_file(tmp_path / m / f"{file}.safetensors") for m in ("one", "two"))
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)
    assert not (tmp_path / "1.out").read_text()
