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
    pool = token_ids([row["comment_text"] for row in by_split["train"]], encoder)
    ours = torch.cat([data.train.inputs, data.validation.inputs])
    assert sorted(ours.tolist()) == sorted(pool.tolist())
    assert data.train.labels.sum() + data.validation.labels.sum() == sum(
        row["toxicity"] >= 0.5 for row in by_split["train"]
    )
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
    data = civilcomments.load(tmp_path, "published", encoder=encoder)
    assert [len(split) for split in data.splits.values()] == [90, 10, 80]
    toxic = np.array([row["toxicity"] >= 0.5 for row in rows if row["split"] == "train"])
    order = np.random.RandomState(42).permutation(240)[:100]
    assert data.validation.labels.tolist() == toxic[order[90:]].astype(int).tolist()


def test_a_score_of_one_half_counts(tmp_path):
    write_comments(
        tmp_path, rows=2, change=lambda row: {**row, "toxicity": 0.5, "black": 0.5, "white": 0.4999}
    )
    read = read_comments(tmp_path / FILE)
    assert read.toxic.all()
    assert read.identities["black"].all()
    assert not read.identities["white"].any()


def sort_by_class(folder):
    """As a user's file may be: all civil rows first."""
    toxic = iter(range(400))
    write_comments(folder, change=lambda row: {**row, "toxicity": float(next(toxic) >= 300)})


def test_corrected_validates_on_a_tenth_of_each_class(encoder, tmp_path):
    sort_by_class(tmp_path)
    data = civilcomments.load(tmp_path, encoder=encoder)
    assert np.bincount(data.train.labels).tolist() == [162, 54]
    assert np.bincount(data.validation.labels).tolist() == [18, 6]
    assert data.fingerprint() == civilcomments.load(tmp_path, encoder=encoder).fingerprint()


def test_published_validates_on_the_last_tenth_as_drawn(encoder, tmp_path):
    sort_by_class(tmp_path)
    corrected, published = (
        load_dataset("civilcomments", tmp_path, p, encoder=encoder) for p in ("corrected", "published")
    )
    assert np.bincount(published.validation.labels).tolist() == [0, 24]
    assert corrected.training_fingerprint() != published.training_fingerprint()
    assert not corrected.one_training
    assert torch.equal(corrected.test.inputs, published.test.inputs)
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


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    write_comments(tmp_path, 20, columns=COLUMNS[2:])
    plain = read_comments(tmp_path / FILE)
    rewrite(tmp_path, lambda b: b"\xef\xbb\xbf" + b)
    assert read_comments(tmp_path / FILE).texts == plain.texts


def in_row_6(**cells):
    """A change of the sixth row only."""
    numbers = iter(range(1, 401))
    return lambda row: {**row, **(cells if next(numbers) == 6 else {})}


@pytest.mark.parametrize("value", ["", "nan", "7", "inf", "-0.1", "high"])
@pytest.mark.parametrize("column", ["toxicity", "female"])
def test_a_score_is_a_number_from_0_to_1(tmp_path, column, value):
    """A row is not a line: every comment here has two. Only identities may be blank."""
    write_comments(tmp_path, 20, change=in_row_6(**{column: value}))
    if (column, value) == ("female", ""):
        assert not read_comments(tmp_path / FILE).identities["female"][5]
        return
    said = rf"{FILE}, row 6 \(line 13\): {column} must be a number from 0 to 1, not '{value}'$"
    with pytest.raises(InputError, match=said):
        read_comments(tmp_path / FILE)


def test_a_byte_that_is_not_utf_8_is_found_in_its_row(tmp_path):
    write_comments(tmp_path, 20, change=in_row_6(comment_text="caf\x07"))
    rewrite(tmp_path, lambda b: b.replace(b"\x07", b"\xe9"))
    with pytest.raises(InputError, match=r"row 6 \(line 12\): it is not UTF-8: save the file as UTF-8"):
        read_comments(tmp_path / FILE)


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
            rf"{FILE}, header: no column split, black; docs/data\.md",
        ),
        (
            lambda d: rewrite(d, lambda b: b.replace(b"article_id", b"toxicity", 1)),
            f"{FILE}, header: column toxicity is there more than once: keep one",
        ),
        (lambda d: rewrite(d, lambda b: b""), f"{FILE}, header: it is empty: the first line must name"),
        (lambda d: rewrite(d, lambda b: b"\xef\xbb\xbf\n" + b), f"{FILE}, header: it is empty"),
        (
            lambda d: rewrite(d, lambda b: b.replace(b"comment_text,split", b"Comment_Text,part", 1)),
            r"header: no column comment_text, split \(there is Comment_Text: case counts\); docs",
        ),
        (
            lambda d: rewrite(d, lambda b: b.replace(b",", b";")),
            f"{FILE}, header: its columns are separated by semicolons: save it with commas",
        ),
        (
            lambda d: rewrite(d, lambda b: b.replace(b",", b"\t")),
            "its columns are separated by tabs",
        ),
        (
            lambda d: rewrite(d, lambda b: b.decode().encode("utf-16")),
            f"{FILE}, header: it is not UTF-8: save the file as UTF-8",
        ),
        (
            lambda d: rewrite(d, lambda b: b[:-20]),
            rf"{FILE}, row 400 \(line \d+\): \d+ values for 21 columns; is the file cut",
        ),
        (
            lambda d: rewrite(d, lambda b: b[: b.rindex(b",\nsaid")]),
            rf"{FILE}, row 400 \(line \d+\): unexpected end of data",
        ),
        (
            lambda d: rewrite(d, lambda b: b.replace(b"7\r\n", b'"' + b"7" * 200_000)),
            r"row 1 \(line \d+\): a cell of more than 131,072 characters; is a quote not closed\?",
        ),
        (
            lambda d: write_comments(d, change=in_row_6(split="dev")),
            r"row 6 \(line 13\): split must be one of train, val, test, not 'dev'",
        ),
        (
            lambda d: write_comments(d, 4),
            "too few rows by split, 3 of train, 0 of test: it needs at least 10 of train, 1 of test",
        ),
        (
            lambda d: write_comments(d, change=lambda row: {**row, "toxicity": 0.0}),
            "all 216 training rows are civil; it takes civil and toxic ones",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(encoder, tmp_path, break_it, words):
    write_comments(tmp_path)
    break_it(tmp_path)
    with pytest.raises(InputError, match=words) as refusal:
        civilcomments.load(tmp_path, encoder=encoder)
    assert str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_file_itself_is_answered_with_its_folder(encoder, tmp_path):
    write_comments(tmp_path)
    with pytest.raises(InputError, match=rf"{FILE} is a file: give the folder .*, --data {tmp_path}$"):
        civilcomments.load(tmp_path / FILE, encoder=encoder)


def test_empty_texts_are_told_where_they_count(encoder, tmp_path):
    write_comments(tmp_path)
    assert civilcomments.load(tmp_path, encoder=encoder).notes == ()
    write_comments(
        tmp_path, change=lambda row: {**row, **({"comment_text": " "} if row["id"] < 1005 else {})}
    )
    notes = civilcomments.load(tmp_path, encoder=encoder).notes
    assert notes == ("4 of 320 texts are empty",)  # the fifth is of split val, which is not used


def test_a_folder_and_an_encoder_are_needed(tmp_path):
    with pytest.raises(InputError, match="--data DIR"):
        civilcomments.load(None)
    write_comments(tmp_path)
    with pytest.raises(InputError, match="--set weights=DIR"):
        civilcomments.load(tmp_path)
