"""What is expensive to read is read once: tables to predict, images to train on, scores to show."""

from collections import Counter

import pytest

import calmoe
from calmoe.own_data import predict, prepared, scores
from encoders import save_encoder
from image_folders import write_images
from own_commands import NETWORK, done, refused, write_credit

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def counted(monkeypatch, module, *names):
    """How often these functions of a module are called from now on."""
    calls = Counter()

    def counting(name):
        original = getattr(module, name)

        def call(*arguments, **options):
            calls[name] += 1
            return original(*arguments, **options)

        return call

    for name in names:
        monkeypatch.setattr(module, name, counting(name))
    return calls


def test_a_table_to_predict_is_parsed_once(tmp_path, unrendered, monkeypatch):
    path = write_credit(tmp_path / "credit.csv", rows=60)
    done("train", path, "--label", "default", "--group", "region", *NETWORK)
    parsed = counted(monkeypatch, predict, "read_table")
    done("predict", "credit-model", path, "--out", "p.csv")
    assert parsed["read_table"] == 1


def test_images_are_decoded_and_models_scored_once(tmp_path, unrendered, monkeypatch):
    write_images(tmp_path / "photos", domains=("photo", "sketch"), count=12)
    decoded, scored = counted(monkeypatch, prepared, "decode"), counted(monkeypatch, scores, "brier_score")
    small = [word for setting in ("backbone=mlp", "size=8", "epochs=1") for word in ("--set", setting)]
    done("train", "photos", "--domain", "sketch", "--compare", *small)
    assert decoded["decode"] == 72
    models = 1 + 2 + 7  # this one, baselines, the paper's
    assert scored["brier_score"] == 2 * models + 1  # on both parts; this one on validation rows too


def test_texts_are_tokenised_once(tmp_path, unrendered, monkeypatch):
    rows = "".join(f"you are {['good', 'awful'][i % 2]},{'yn'[i % 2]}\n" for i in range(60))
    (tmp_path / "texts.csv").write_text(f"body,y\n{rows}")
    tokenised = counted(monkeypatch, prepared, "token_ids")
    options = ("--label", "y", "--text", "body", "--encoder", save_encoder(tmp_path / "encoder"))
    done("train", "texts.csv", *options, "--set", "epochs=1", "--compare")
    assert tokenised["token_ids"] == 1


def test_what_is_to_be_written_is_checked_in_the_same_words(tmp_path):
    path = write_credit(tmp_path / "credit.csv", rows=60)
    calmoe.CalibratedMoEClassifier(max_epochs=1, random_state=0).fit({"age": range(60)}, [0, 1] * 30).save(
        "m"
    )
    for end, command in {
        ".toml": ("init", path, "--label", "default"),
        ".csv": ("predict", "m", path),
    }.items():
        (tmp_path / f"there{end}").touch()
        assert "is there already: move it elsewhere" in refused(*command, "--out", f"there{end}")
        assert "end the name so" in refused(*command, "--out", "p.txt")
        assert "there is no folder nowhere: create it first" in refused(*command, "--out", f"nowhere/p{end}")
