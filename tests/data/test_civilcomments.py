import numpy as np
import pytest
import torch

from calmoe.data import civilcomments, load_dataset
from calmoe.data.civilcomments import drawn, read_comments
from calmoe.data.text import token_ids
from calmoe.errors import InputError
from encoders import COLUMNS, IDENTITIES, save_encoder, write_comments

FILE = "all_data_with_identities.csv"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("encoder")))


def test_rows_labels_and_groups_are_those_of_the_file(encoder, tmp_path):
    rows = write_comments(tmp_path)
    data = civilcomments.load(tmp_path, encoder=encoder)
    by_split = {name: [row for row in rows if row["split"] == name] for name in ("train", "val", "test")}
    assert [len(split) for split in data.splits.values()] == [216, 24, 80]  # 240 train, 80 val, 80 test
    pool = [*data.train.labels.tolist(), *data.validation.labels.tolist()]
    assert pool == [int(row["toxicity"] >= 0.5) for row in by_split["train"]]
    assert data.test.labels.tolist() == [int(row["toxicity"] >= 0.5) for row in by_split["test"]]
    assert list(data.test.groups) == [*IDENTITIES, "identity_any"]
    for name, column in data.test.groups.items():
        assert column.tolist() == [row[name] >= 0.5 for row in by_split["test"]]
    texts = [row["comment_text"] for row in by_split["test"]]
    assert torch.equal(data.test.inputs, token_ids(texts, encoder))
    assert data.hard == "identity_any"
    assert data.class_names == ("civil", "toxic")


def test_the_published_draw_of_the_training_rows(encoder, tmp_path, monkeypatch):
    """50,000 of WILDS' 269,038 rows by NumPy's legacy generator; the last tenth of them validates."""
    train = np.arange(269_038)
    chosen = drawn(train)
    assert len(set(chosen.tolist())) == 50_000
    assert np.array_equal(chosen, np.random.RandomState(42).permutation(269_038)[:50_000])
    assert chosen[:3].tolist() == [7538, 217422, 123734]
    assert np.array_equal(drawn(train[:50_000]), train[:50_000])

    rows = write_comments(tmp_path)
    monkeypatch.setattr(civilcomments, "TRAINING_ROWS", 100)
    data = civilcomments.load(tmp_path, encoder=encoder)
    assert [len(split) for split in data.splits.values()] == [90, 10, 80]
    toxic = np.array([row["toxicity"] >= 0.5 for row in rows if row["split"] == "train"])
    order = np.random.RandomState(42).permutation(240)[:100]
    assert data.validation.labels.tolist() == toxic[order[90:]].astype(int).tolist()


def test_protocols_train_and_validate_on_the_same_rows(encoder, tmp_path):
    write_comments(tmp_path)
    corrected, published = (
        load_dataset("civilcomments", tmp_path, p, encoder=encoder) for p in ("corrected", "published")
    )
    assert corrected.training_fingerprint() == published.training_fingerprint()
    assert torch.equal(corrected.validation.inputs, published.validation.inputs)
    assert not published.validation_augmented


def test_the_folder_that_wilds_unpacks_serves_as_well(encoder, tmp_path):
    folder = tmp_path / "civilcomments_v1.0"
    folder.mkdir()
    write_comments(folder)
    there, above = (civilcomments.load(path, encoder=encoder) for path in (folder, tmp_path))
    assert there.fingerprint() == above.fingerprint()


def test_a_blank_identity_is_no_mention(tmp_path):
    write_comments(tmp_path, 20, change=lambda row: {**row, "male": ""})
    assert not read_comments(tmp_path / FILE).identities["male"].any()


def without(*columns):
    return [name for name in COLUMNS if name not in columns]


def rewrite(folder, change):
    path = folder / FILE
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda d: (d / FILE).unlink(), f"{FILE} is missing: get WILDS'"),
        (
            lambda d: write_comments(d, columns=without("split", "black")),
            f"{FILE} has no column split, black",
        ),
        (lambda d: rewrite(d, lambda b: b""), f"{FILE} has no column comment_text, split, toxicity"),
        (lambda d: rewrite(d, lambda b: b.replace("é".encode(), b"\xe9")), f"{FILE} is not UTF-8 after row"),
        (lambda d: rewrite(d, lambda b: b[:-20]), rf"{FILE}, line \d+: \d+ values for 21 columns"),
        (lambda d: rewrite(d, lambda b: b[: b.rindex(b",\nsaid")]), rf"{FILE}, line \d+: 3 values for 21"),
        (
            lambda d: rewrite(d, lambda b: b.replace(b"7\r\n", b'"' + b"7" * 200_000)),
            "is no csv file after row 0",
        ),
        (
            lambda d: write_comments(d, change=lambda row: {**row, "toxicity": "much"}),
            f"{FILE}, line 3: 'much' is no number",
        ),
        (
            lambda d: write_comments(d, change=lambda row: {**row, "split": "dev"}),
            "has a split 'dev', none of",
        ),
        (lambda d: write_comments(d, 4), "has 3 training and 0 test rows"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(encoder, tmp_path, break_it, words):
    write_comments(tmp_path)
    break_it(tmp_path)
    with pytest.raises(InputError, match=words) as refusal:
        civilcomments.load(tmp_path, encoder=encoder)
    assert str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_folder_and_an_encoder_are_needed(tmp_path):
    with pytest.raises(InputError, match="--data DIR"):
        civilcomments.load(None)
    write_comments(tmp_path)
    with pytest.raises(InputError, match="--set weights=DIR"):
        civilcomments.load(tmp_path)
