"""What the data decide about a network: its depth and how far training reads."""

import csv

import pytest

from calmoe.own_data.prepared import prepare
from calmoe.own_data.settings import NetworkSettings
from calmoe.own_data.spec import TrainSpec
from calmoe.own_data.train import look
from calmoe.text_encoders import PADDING
from encoders import save_encoder
from image_folders import write_images


def prepared(spec):
    return prepare(look(spec)[0], spec)


@pytest.mark.parametrize(
    ("size", "stem", "stages"), [(None, "imagenet", 3), (32, "cifar", 3), (128, "imagenet", 4)]
)
def test_small_images_have_a_small_network(tmp_path, size, stem, stages):
    write_images(tmp_path / "photos", domains=("photo",), count=12)
    ready = prepared(TrainSpec(data=tmp_path / "photos", network=NetworkSettings(size=size)))
    assert (ready.recipe.model.stem, ready.recipe.model.stages) == (stem, stages)
    assert ready.dataset.input_shape[1:] == (size or 64, size or 64)
    assert f"{size or 64} x {size or 64} pixels" in str(ready)


def test_training_reads_no_further_than_the_longest_text(tmp_path):
    encoder, path = save_encoder(tmp_path / "encoder"), tmp_path / "texts.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["body", "y"])
        writer.writerows([" ".join(["you", "are", "good"][: 1 + i % 3]), "ab"[i % 2]] for i in range(60))
    ready = prepared(TrainSpec(data=path, label="y", text="body", encoder=str(encoder)))
    (longest,) = ready.dataset.input_shape
    ends = (ready.rows != PADDING).sum(dim=1)
    assert longest == ends.max() < ready.rows.shape[1]
    assert f"at most {longest} tokens" in str(ready)
