import json
import re

import numpy as np
import pytest

from calmoe.data import hatexplain, load_dataset
from calmoe.errors import InputError
from encoders import save_encoder

LABELS = [
    ["normal", "normal", "normal"],
    ["normal", "normal", "hatespeech"],
    ["hatespeech", "offensive", "normal"],  # no majority of the three: in no split
    ["hatespeech", "offensive", "offensive"],
    ["hatespeech", "normal", "hatespeech"],
]
TARGETS = [
    [["None"], ["None"], ["None"]],
    [["Women"], ["None"], ["Islam"]],  # nobody whom two of them name
    [["Women"], ["Women"], ["None"]],
    [["Women", "Islam"], ["Women", "Islam"], ["Other"]],
    [["Men"], ["Men", "Women"], ["Men", "Women"]],
]
SPLITS = ["train", "val", "test"]


def posts(rows=300):
    """By id: the official layout's posts, and their splits."""
    for i in range(rows):
        kind = i % 5
        people = [
            {"label": label, "annotator_id": n, "target": target}
            for n, (label, target) in enumerate(zip(LABELS[kind], TARGETS[kind], strict=True))
        ]
        tokens = ["you", "are", "bad" if kind > 2 else "good", str(i), "\u2028"]
        post = {"post_id": f"{i}_gab", "annotators": people, "rationales": [], "post_tokens": tokens}
        yield f"{i}_gab", post, None if kind == 2 else SPLITS[(i // 5) % 3]


def write_official(folder):
    (folder / "dataset.json").write_text(json.dumps({number: post for number, post, _ in posts()}))
    divisions = {name: [number for number, _, split in posts() if split == name] for name in SPLITS}
    (folder / "post_id_divisions.json").write_text(json.dumps(divisions))


def write_lines(folder):
    with (folder / "hatexplain.jsonl").open("w", encoding="utf-8") as stream:
        for number, post, split in posts():
            line = {
                "post_id": number,
                "text": " ".join(post["post_tokens"]),
                "labels": [person["label"] for person in post["annotators"]],
                "targets": [person["target"] for person in post["annotators"]],
                "split": split,
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    folder = tmp_path_factory.mktemp("official")
    write_official(folder)
    return folder


def test_both_layouts_give_the_same_dataset(official, encoder, tmp_path):
    write_lines(tmp_path)
    ours, theirs = (hatexplain.load(folder, encoder=encoder) for folder in (official, tmp_path))
    assert ours.fingerprint() == theirs.fingerprint()


def test_the_label_is_the_majoritys_and_hard_is_not_unanimous(official, encoder):
    data = hatexplain.load(official, encoder=encoder)
    assert [len(split) for split in data.splits.values()] == [80, 80, 80]  # 60 of 300 have no majority
    kinds = np.tile([0, 1, 3, 4], 20)
    assert data.test.labels.tolist() == (kinds >= 3).astype(int).tolist()
    groups = data.test.groups
    assert groups["hard"].tolist() == np.isin(kinds, [1, 4]).tolist()  # kind 3: all say toxic
    assert (groups["easy"] == ~groups["hard"]).all()
    assert np.allclose(groups["agreement"], np.where(groups["hard"], 2 / 3, 1))


def test_communities_are_what_two_of_three_name(official, encoder):
    groups = hatexplain.load(official, encoder=encoder).test.groups
    kinds = np.tile([0, 1, 3, 4], 20)
    assert groups["Women"].tolist() == (kinds >= 3).tolist()
    assert groups["identity_any"].tolist() == (kinds >= 3).tolist()
    assert {"Islam", "Men", "None"}.isdisjoint(groups)  # 20 rows each: too few for columns of their own
    assert groups["Other"].tolist() == (kinds >= 3).tolist()


def test_protocols_share_all_rows(official, encoder):
    corrected, published = (
        load_dataset("hatexplain", official, p, encoder=encoder) for p in ("corrected", "published")
    )
    assert corrected.training_fingerprint() == published.training_fingerprint()
    assert corrected.one_training
    assert published.one_training
    assert not published.validation_augmented


def damage(name, change):
    def damaged(folder):
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damaged


def official_with(change):
    def changed(folder):
        everything = {number: post for number, post, _ in posts()}
        change(everything["5_gab"])
        (folder / "dataset.json").write_text(json.dumps(everything))

    return changed


def divisions_with(change):
    def changed(folder):
        path = folder / "post_id_divisions.json"
        divided = json.loads(path.read_text())
        change(divided)
        path.write_text(json.dumps(divided))

    return changed


@pytest.mark.parametrize(
    ("write", "break_it", "words"),
    [
        (
            write_official,
            lambda d: (d / "dataset.json").unlink(),
            r"dataset\.json is missing: get .* own hatexplain\.jsonl",
        ),
        (write_official, lambda d: (d / "post_id_divisions.json").unlink(), r"divisions\.json is missing"),
        (write_official, damage("dataset.json", lambda b: b[:-9]), r"dataset\.json is no whole JSON file"),
        (
            write_official,
            damage("dataset.json", lambda b: b"[" * 100_000),
            r"dataset\.json: its JSON is nested",
        ),
        (
            write_official,
            damage("post_id_divisions.json", lambda b: b'{"train": ' + b"1" * 5000 + b"}"),
            r"divisions\.json: its JSON .* thousands of digits",
        ),
        (
            write_official,
            official_with(lambda p: p["post_tokens"].append("\ud800")),
            r"dataset\.json, post 5_gab: text must hold whole characters",
        ),
        (write_official, damage("dataset.json", lambda b: b"[]"), r"dataset\.json must hold posts by id"),
        (
            write_official,
            damage("post_id_divisions.json", lambda b: b"{}"),
            "must list posts under train, val",
        ),
        (
            write_official,
            official_with(lambda p: p.pop("annotators")),
            r"dataset\.json, post 5_gab: no whole",
        ),
        (
            write_official,
            official_with(lambda p: p["annotators"][0].update(label="rude")),
            r"post 5_gab: labels must list .*, not \['rude', ",
        ),
        (
            write_official,
            official_with(lambda p: p.update(post_tokens="you are")),
            r"post 5_gab: post_tokens must list the words of the post, not 'you are'",
        ),
        (
            write_official,
            divisions_with(lambda d: d["train"].extend(["x_gab", "y_gab"])),
            r"divisions\.json lists 242 posts, and .*dataset\.json lacks 2 of them, such as 'x_gab'",
        ),
        (
            write_official,
            divisions_with(lambda d: d["test"].append(d["train"][0])),
            r"divisions\.json lists post '0_gab' under train and test: keep one",
        ),
        (
            write_official,
            divisions_with(lambda d: d.update(val=" ".join(d["val"]))),
            r"divisions\.json must list posts under train, val, test",
        ),
        (
            write_official,
            divisions_with(lambda d: d.update(train=d["train"][:9])),
            "too few rows by split, 9 of train, 80 of val, 80 of test: it needs at least 10 of train",
        ),
        (write_official, write_lines, "has both dataset.json and hatexplain.jsonl: keep one of them"),
        (
            write_lines,
            damage("hatexplain.jsonl", lambda b: b.replace(b"you", b"\xff")),
            r"jsonl is not UTF-8: save it",
        ),
        (
            write_lines,
            damage("hatexplain.jsonl", lambda b: b.replace(b'"val"', b"null")),
            "too few rows by split, 80 of train, 0 of val, 80 of test: it needs at least 10 of train",
        ),
        (
            write_lines,
            damage("hatexplain.jsonl", lambda b: re.sub(rb'"(offensive|hatespeech)"', b'"normal"', b)),
            "all 80 training rows are normal; it takes normal and toxic ones",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(encoder, tmp_path, write, break_it, words):
    write(tmp_path)
    break_it(tmp_path)
    with pytest.raises(InputError, match=words) as refusal:
        hatexplain.load(tmp_path, encoder=encoder)
    assert str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


LINE = {"text": "good", "labels": ["normal", "offensive"], "targets": [[], ["Women"]], "split": "train"}
WITHOUT_TARGETS = {name: value for name, value in LINE.items() if name != "targets"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{not json", "it is no whole JSON ("),
        (json.dumps(LINE).encode()[:-9], "it is no whole JSON ("),
        ([1, 2], "a line must be an object with text, labels, targets, split"),
        (WITHOUT_TARGETS, "it has no targets; a post has text, labels, targets, split"),
        ({**LINE, "text": 3}, "text must be a string, not 3"),
        (
            {**LINE, "split": "dev"},
            "split must be one of train, val, test, or null to leave it out, not 'dev'",
        ),
        ({**LINE, "split": ["val"]}, "or null to leave it out, not ['val']"),
        ({**LINE, "labels": ["toxic"]}, "all of normal, offensive, hatespeech, not ['toxic']"),
        ({**LINE, "labels": []}, "labels must list a word for each annotator"),
        ({**LINE, "labels": 3}, "labels must list a word for each annotator"),
        ({**LINE, "labels": "normal"}, "labels must list a word for each annotator"),
        ({**LINE, "targets": "xy"}, "targets must list each annotator's list of communities"),
        ({**LINE, "targets": ["Women", "Men"]}, "targets must list each annotator's list of communities"),
        ({**LINE, "targets": [[]]}, "targets must list each annotator's list of communities"),
        ({**LINE, "targets": None}, "or be [] for none at all, not None"),
        (b"[" * 100_000, "its JSON is nested too deeply"),
        (json.dumps(LINE).encode().replace(b'"good"', b"9" * 5000), "a number of thousands of digits"),
        ({**LINE, "text": "good \ud800"}, "no half of a surrogate pair, not 'good \\ud800'"),
        ({**LINE, "targets": [[], ["\udfff"]]}, "targets must hold whole characters"),
    ],
)
def test_a_bad_line_names_the_field_and_what_it_may_be(tmp_path, line, said):
    path = tmp_path / "hatexplain.jsonl"
    bad = line if isinstance(line, bytes) else json.dumps(line).encode()
    path.write_bytes(json.dumps(LINE).encode() + b"\r\n\r\n" + bad + b"\r\n")
    with pytest.raises(InputError) as refusal:
        hatexplain.read_posts(tmp_path)
    assert str(refusal.value).startswith(f"{path}, line 3: ")
    assert said in str(refusal.value)


def test_targets_may_be_left_empty(tmp_path):
    (tmp_path / "hatexplain.jsonl").write_text(json.dumps({**LINE, "targets": []}))
    (post,) = hatexplain.read_posts(tmp_path)
    assert not post.communities


def test_a_post_listed_twice_in_a_split_is_one_row(official, encoder, tmp_path):
    write_official(tmp_path)
    divisions_with(lambda d: d["train"].append(d["train"][0]))(tmp_path)
    twice, once = (hatexplain.load(folder, encoder=encoder) for folder in (tmp_path, official))
    assert twice.fingerprint() == once.fingerprint()


def test_empty_texts_are_told(official, encoder, tmp_path):
    assert hatexplain.load(official, encoder=encoder).notes == ()
    write_official(tmp_path)
    official_with(lambda post: post.update(post_tokens=[]))(tmp_path)
    assert hatexplain.load(tmp_path, encoder=encoder).notes == ("1 of 240 texts is empty",)


def test_the_file_itself_is_answered_with_its_folder(official, encoder):
    with pytest.raises(InputError, match=rf"dataset\.json is a file: give the folder .*, --data {official}$"):
        hatexplain.load(official / "dataset.json", encoder=encoder)


def test_a_folder_is_needed():
    with pytest.raises(InputError, match="--data DIR"):
        hatexplain.load(None)
