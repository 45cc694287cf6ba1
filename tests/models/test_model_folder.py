"""The model folder: self-contained, whole or absent, and every damage is one line."""

import json
import shutil
import warnings

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import calmoe
from calmoe.errors import InputError
from calmoe.models import folder as folders
from calmoe.models.card import Card
from calmoe.models.images import as_images
from calmoe.models.inputs import ArrayInputs, TextInputs
from calmoe.models.network_model import NetworkModel
from encoders import save_encoder
from saved_networks import IMAGES, network


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model"
    network(IMAGES).save(place)
    return place


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def test_images_come_back_to_the_last_digit(tmp_path):
    model = network(IMAGES, "resnet18", stem="cifar", stages=3, variant="v1.5")
    model.save(tmp_path / "a")
    again = calmoe.load(tmp_path / "a")
    images = torch.randint(256, (5, 3, 8, 8), dtype=torch.uint8)
    for ours, theirs in zip(again.output(images), model.output(images), strict=True):
        assert torch.equal(ours, theirs)
    assert (again.classes, again.card) == (model.classes, model.card)
    readme = (tmp_path / "a" / "README.md").read_text()
    assert "Trained on 7 rows of mine" in readme
    assert "| this model | held out | 3 | 0.250 |" in readme


def test_texts_need_no_other_folder(tmp_path):
    encoder = save_encoder(tmp_path / "encoder")
    model = network(TextInputs(), "encoder", encoder, pooling="mean")
    for parameter in model.network.parameters():
        parameter.data += 0.01  # trained: other weights than the encoder's own
    expected = model.predict_proba(["you are good", "bad man", ""])
    model.save(tmp_path / "a")
    shutil.rmtree(encoder)
    again = calmoe.load(tmp_path / "a")
    np.testing.assert_array_equal(again.predict_proba(["you are good", "bad man", ""]), expected)
    with pytest.raises(InputError, match="row 1 is 3"):
        again.predict(["good", 3])


def test_a_model_of_transformers_trainer_becomes_a_folder(tmp_path):
    pytest.importorskip("transformers")
    encoder = save_encoder(tmp_path / "encoder")
    trained = calmoe.MixtureForSequenceClassification.from_encoder(encoder, 2, num_experts=2, pooling="mean")
    model = NetworkModel.of_texts(trained, encoder, ["no", "yes"], temperature=2.0)
    texts = ["you are good", "bad man"]
    expected = model.predict_proba(texts)
    model.save(tmp_path / "a")
    shutil.rmtree(encoder)
    loaded = calmoe.load(tmp_path / "a")
    np.testing.assert_array_equal(loaded.predict_proba(texts), expected)
    ids = loaded.inputs.rows(texts, loaded.encoder)
    with torch.no_grad():
        theirs = trained.eval()(ids.clamp(min=0), attention_mask=ids >= 0).log_probs / 2
    np.testing.assert_allclose(loaded.predict_proba(texts), theirs.softmax(1), atol=1e-6)
    assert all(parameter.requires_grad for parameter in trained.parameters())
    with pytest.raises(InputError, match="reads no texts"):
        NetworkModel.of_texts(network(IMAGES).network, encoder, ["a", "b", "c"])


def test_arrays_are_taken_as_they_are(tmp_path):
    model = network(ArrayInputs(shape=(5,)))
    model.save(tmp_path / "a")
    rows = np.random.default_rng(0).normal(size=(4, 5))
    np.testing.assert_array_equal(calmoe.load(tmp_path / "a").predict_proba(rows), model.predict_proba(rows))
    with pytest.raises(InputError, match=r"give numbers \[N, 5\], not \[4, 4\]"):
        model.predict(rows[:, 1:])


def test_paths_pil_images_and_arrays_are_the_same_image(tmp_path):
    pixels = np.random.default_rng(0).integers(256, size=(2, 20, 30, 3), dtype=np.uint8)
    paths = []
    for i, image in enumerate(pixels):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(image).save(paths[-1])
    expected = as_images(paths, (3, 8, 8))
    for given in (pixels, list(pixels), [Image.open(path) for path in paths], list(map(str, paths))):
        assert torch.equal(as_images(given, (3, 8, 8)), expected)
    ready = expected.numpy()
    for given in (ready, expected, ready.transpose(0, 2, 3, 1)):
        assert torch.equal(as_images(given, (3, 8, 8)), expected)
    assert as_images(pixels[..., 0], (1, 8, 8)).shape == (2, 1, 8, 8)
    for wrong, told in (
        (pixels / 255.0, "must hold uint8"),
        ([tmp_path / "none.png"], "there is no such image"),
        ([], "there are no images"),
        ([3], "image 0 must be a path"),
    ):
        with pytest.raises(InputError, match=told):
            as_images(wrong, (3, 8, 8))


def test_pixels_of_another_range_are_warned_of(saved, tmp_path):
    model, rng = calmoe.load(saved), np.random.default_rng(0)
    dim = rng.integers(17, size=(4, 3, 8, 8), dtype=np.uint8)
    with pytest.warns(UserWarning, match="the brightest pixel of all images is 16"):
        model.predict_proba(dim)
    Image.fromarray(dim[0].transpose(1, 2, 0)).save(tmp_path / "night.png")
    bright = dim.copy()
    bright[0, 0, 0, 0] = 200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for images in (bright, np.zeros_like(dim), [tmp_path / "night.png"]):
            model.predict_proba(images)
    for images, told in (
        (dim / 16.0, r"\(255 \* x\)"),
        (bright.astype(float), r"give x\.round"),
        (dim.astype(float), "between 0 and 16"),
        (bright / 100.0 - 1, "between -1 and 1"),
        (list(bright.astype(float)), r"give x\.round"),
    ):
        with pytest.raises(InputError, match=told):
            model.predict_proba(images)


def test_numbers_are_classes_too_and_the_model_describes_itself(tmp_path):
    model = network(IMAGES)
    numbered = type(model)(model.network, model.architecture, IMAGES, ["7", "3", "10"], card=model.card)
    numbered.save(tmp_path / "a")
    again = calmoe.load(tmp_path / "a")
    assert again.classes_.tolist() == [7, 3, 10]
    assert set(again.predict(np.zeros((2, 3, 8, 8), np.uint8)).tolist()) <= {7, 3, 10}
    lines = repr(again).splitlines()
    assert lines[0].endswith("images")
    assert lines[1:] == [
        "  classes: 7, 3, 10",
        "  trained on 7 rows of mine (seed 0)",
        "  held out: 3 rows, ECE 0.250",
    ]
    assert calmoe.load(tmp_path / "a").codes(["10", 7.0]).tolist() == [2, 0]


def test_a_card_of_an_older_folder_is_read(copied):
    card = Card(dataset="mine", baselines={"Base rate": {"held out": {"log_loss": 0.5}}}).as_dict()
    assert Card.from_dict(card).baselines["Base rate"]["held out"] == {"log_loss": 0.5}
    del card["baselines"]
    (copied / "card.json").write_text(json.dumps(card))
    assert calmoe.load(copied).card.baselines == {}


def test_tables_that_are_none(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": rng.normal(size=40), "town": ["x", "y"] * 20})
    calmoe.CalibratedMoEClassifier(max_epochs=1, random_state=0).fit(frame, ["n", "y"] * 20).save(
        tmp_path / "m"
    )
    model = calmoe.load(tmp_path / "m")
    assert model.classes_.tolist() == ["n", "y"]
    for given, told in (
        (frame.to_numpy(), "knows its columns by name"),
        (frame.iloc[:0], "has no rows"),
        ({"age": [], "town": []}, "has no rows"),
        (frame["age"], "a Series is one column"),
        ({"age": 3, "town": "x"}, "column 'age' is one value, 3"),
        (frame[["age"]], "lacks the column 'town', which the model learned from: it has 'age'"),
        (7, "knows its columns by name"),
    ):
        with pytest.raises(InputError, match=told) as error:
            model.predict(given)
        assert "\n" not in str(error.value)


def test_labels_and_groups_join_predictions(saved):
    model = calmoe.load(saved)
    images = np.zeros((3, 3, 8, 8), np.uint8)
    predictions = model.predictions(
        images, ["b", "c", "kľúč"], {"town": ["x", None, "y"], "age": [1.0, 2.0, 3.0]}
    )
    assert predictions.known_labels.tolist() == [1, 2, 0]
    assert predictions.groups["town"].tolist() == ["x", "(missing)", "y"]
    assert predictions.groups["age"].tolist() == [1, 2, 3]
    with pytest.raises(InputError, match="the label 'd' is no class of the model"):
        model.predictions(images, ["b", "c", "d"])


def changed(field, value):
    def change(place):
        document = json.loads((place / "model.json").read_text())
        part = document
        *path, last = field.split(".")
        for name in path:
            part = part[name]
        part[last] = value
        (place / "model.json").write_text(json.dumps(document))

    return change


def tensors(change):
    def rewrite(place):
        weights = safetensors.torch.load_file(place / "model.safetensors")
        change(weights)
        safetensors.torch.save_file(weights, place / "model.safetensors")

    return rewrite


def linked(place):
    (place / "model.safetensors").rename(place.parent / "outside")
    (place / "model.safetensors").symlink_to(place.parent / "outside")


DAMAGES = {
    "format must be": changed("format", "calmoe.model/9"),
    "kind 'pickle' is not known": changed("kind", "pickle"),
    "code is not known": changed("code", "import os"),
    "architecture.options.depth is not known": changed("architecture.options.depth", 9),
    "unknown backbone '../evil'": changed("architecture.backbone", "../evil"),
    "num_experts must be a whole number": changed("architecture.head.num_experts", 10**9),
    "hidden must be a list": changed("architecture.options.hidden", [1] * 1000),
    "in_features must be the backbone's 6": changed("architecture.head.in_features", 7),
    "has the shape": changed("architecture.head.router_hidden", 5),
    "temperature must be a finite number > 0": changed("temperature", -1),
    "expert_temperatures must be a list of 2": changed("expert_temperatures", [1.0]),
    "classes do not fit": changed("classes", ["a", "b"]),
    "classes must be different": changed("classes", ["a", "a", "b"]),
    "do not fit each other": changed("inputs.shape", [3, 9, 9]),
    "inputs.std must be a finite number > 0": changed("inputs.std", [0, 1, 1]),
    "views": changed("inputs.views", 11),
    "NaN or infinite": tensors(lambda weights: weights["head.experts.bias"].fill_(torch.nan)),
    "is missing": tensors(lambda weights: weights.pop("head.experts.bias")),
    "is no weight of the model": tensors(lambda weights: weights.update(extra=torch.zeros(1))),
    "is a link": linked,
    "model.safetensors is missing": lambda place: (place / "model.safetensors").unlink(),
    "not a readable safetensors": lambda place: (place / "model.safetensors").write_bytes(b"x" * 99),
    "not a readable JSON": lambda place: (place / "model.json").write_text("{"),
    "no model folder": lambda place: (place / "model.json").unlink(),
    "rows must be a whole number": lambda place: (place / "card.json").write_text(
        json.dumps(Card().as_dict() | {"rows": "7"})
    ),
    "secret is not known": lambda place: (place / "card.json").write_text(
        json.dumps(Card().as_dict() | {"secret": 1})
    ),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(copied, told):
    DAMAGES[told](copied)
    with pytest.raises(InputError, match=told) as error:
        calmoe.load(copied)
    assert "\n" not in str(error.value)


def test_an_encoder_folder_holds_only_its_files(tmp_path):
    encoder = save_encoder(tmp_path / "encoder")
    network(TextInputs(), "encoder", encoder, pooling="cls").save(tmp_path / "a")
    (tmp_path / "a" / "encoder" / "modeling.py").write_text("print('run')")
    with pytest.raises(InputError, match=r"encoder/modeling\.py is no file of an encoder"):
        calmoe.load(tmp_path / "a")


def test_a_folder_is_written_whole_or_not_at_all(saved, tmp_path, monkeypatch):
    model = calmoe.load(saved)
    with pytest.raises(InputError, match="is there already"):
        model.save(saved)
    monkeypatch.setattr(folders, "_write_card", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.save(tmp_path / "new" / "model")
    assert not any(tmp_path.iterdir())
