"""HateXplain: posts that three annotators called hate speech, offensive or normal, and whom they aim at.

The task is toxic (hate speech or offensive) against normal; the label is the majority's. A post is hard where
the annotators are not unanimous on this very question: as in CIFAR-10H, humans disagree on the class itself.
Hate speech against offensive is no disagreement here: both are toxic.

The official split is used as it is, under both protocols, which differ in the temperature's solver only; it
leaves out the 919 posts with three different labels. A post's targets are what two of its annotators name.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calmoe.data.card import DatasetCard, given_folder
from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.text import check_classes, check_rows, text_notes, token_ids
from calmoe.errors import InputError, shown
from calmoe.files import is_utf8

POSTS, DIVISIONS = "dataset.json", "post_id_divisions.json"  # the official two files
LINES = "hatexplain.jsonl"  # or one: a line of JSON a post
GET_IT = f"get {POSTS} and {DIVISIONS} from github.com/hate-alert/HateXplain (Data/)"
FIELDS = ("text", "labels", "targets", "split")  # of a line
SPLITS = ("train", "val", "test")
NORMAL, LABELS = "normal", ("normal", "offensive", "hatespeech")
CLASSES = ("normal", "toxic")
NOBODY, OTHER = "None", "Other"
UNREADABLE = "its JSON is nested too deeply, or has a number of thousands of digits"
CHARACTERS = "hold whole characters, no half of a surrogate pair"
LEAST_ROWS = 30  # of a community in test: smaller ones are counted among the others


@dataclass(frozen=True, kw_only=True)
class Post:
    """A text, its official split, and what each annotator says: a label, and the communities aimed at."""

    text: str
    split: str
    labels: tuple[str, ...]
    targets: tuple[frozenset[str], ...]

    @property
    def toxic_share(self) -> float:
        return sum(label != NORMAL for label in self.labels) / len(self.labels)

    @property
    def communities(self) -> set[str]:
        """The communities that more than half of the annotators name."""
        named = Counter(name for targets in self.targets for name in targets if name != NOBODY)
        return {name for name, count in named.items() if 2 * count > len(self.targets)}


def load(data: Path | None, protocol: str = "corrected", *, encoder: str = "") -> ShiftDataset:
    """HateXplain from the folder `data`, in tokens of the encoder (a folder or a hub name)."""
    check_protocol(protocol)
    folder = given_folder("hatexplain", data, GET_IT)
    posts = read_posts(folder)
    labels = np.array([int(post.toxic_share > 0.5) for post in posts], dtype=np.int64)
    splits = np.array([post.split for post in posts])
    check_rows(folder, {name: int((splits == name).sum()) for name in SPLITS})
    check_classes(folder, labels[splits == "train"], CLASSES)
    texts = [post.text for post in posts]
    ids = token_ids(texts, encoder, folder)
    everything = Split(inputs=ids, labels=torch.from_numpy(labels))
    train, validation, test = (everything.take(splits == name) for name in SPLITS)
    tested = [post for post in posts if post.split == "test"]
    return ShiftDataset(
        name="hatexplain",
        train=train,
        validation=validation,
        test=replace(test, groups=columns(tested)),
        class_names=CLASSES,
        hard="hard",
        protocol=protocol,
        one_training=True,
        notes=text_notes(texts),
    )


def columns(posts: list[Post]) -> dict[str, np.ndarray]:
    """The majority's share of the votes, the posts where it is not all of them, and a column a community.

    There are no levels of agreement: with three annotators they would be the hard rows and the others.
    """
    toxic = np.array([post.toxic_share for post in posts])
    agreement = np.maximum(toxic, 1 - toxic)
    aimed_at = [post.communities for post in posts]
    rows = Counter(name for names in aimed_at for name in names)
    own = sorted(name for name, count in rows.items() if count >= LEAST_ROWS and name != OTHER)
    return {
        "agreement": agreement,
        "hard": agreement < 1,
        "easy": agreement == 1,
        **{name: np.array([name in names for names in aimed_at]) for name in own},
        OTHER: np.array([bool(names.difference(own)) for names in aimed_at]),
        "identity_any": np.array([bool(names) for names in aimed_at]),
    }


def read_posts(data: Path) -> list[Post]:
    """The posts of the official split, in stored order."""
    if (data / POSTS).is_file() and (data / LINES).is_file():
        raise InputError(f"{data} has both {POSTS} and {LINES}: keep one of them")
    if (data / POSTS).is_file():
        return _official(data / POSTS, data / DIVISIONS)
    if (data / LINES).is_file():
        return _lines(data / LINES)
    raise InputError(f"{data / POSTS} is missing: {GET_IT}, or write your own {LINES} (docs/data.md)")


def _official(path: Path, divisions: Path) -> list[Post]:
    posts, divided = _json(path), _json(divisions)
    if not isinstance(divided, dict) or not all(_words(divided.get(split)) for split in SPLITS):
        raise InputError(f"{divisions} must list posts under {', '.join(SPLITS)}: {GET_IT}")
    if not isinstance(posts, dict):
        raise InputError(f"{path} must hold posts by id: {GET_IT}")
    split_of: dict[str, str] = {}
    for split in SPLITS:
        for number in divided[split]:
            if split_of.setdefault(number, split) != split:
                raise InputError(
                    f"{divisions} lists post {shown(number)} under {split_of[number]} and {split}: keep one"
                )
    if unknown := [number for number in split_of if number not in posts]:
        raise InputError(
            f"{divisions} lists {len(split_of):,} posts, and {path} lacks {len(unknown):,} of them, "
            f"such as {shown(unknown[0])}: {GET_IT}"
        )
    return [
        _from_official(f"{path}, post {number}", post, split_of[number])
        for number, post in posts.items()
        if number in split_of
    ]


def _from_official(place: str, post: Any, split: str) -> Post:
    try:
        people, tokens = post["annotators"], post["post_tokens"]
        labels, targets = ([person[key] for person in people] for key in ("label", "target"))
    except (KeyError, TypeError):
        raise InputError(f"{place}: no whole post with its labels and targets; {GET_IT}") from None
    if not _words(tokens):
        raise InputError(f"{place}: post_tokens must list the words of the post, not {shown(tokens)}")
    return _post(place, " ".join(tokens), split, labels, targets)


def _lines(path: Path) -> list[Post]:
    lines = enumerate(_text(path).split("\n"), start=1)  # not splitlines: a post may hold other line ends
    posts = [_from_line(f"{path}, line {number}", line) for number, line in lines if line.strip()]
    return [post for post in posts if post.split]


def _from_line(place: str, line: str) -> Post:
    try:
        post = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: it is no whole JSON ({error.msg}, column {error.colno})") from None
    except (RecursionError, ValueError):
        raise InputError(f"{place}: {UNREADABLE}") from None
    if not isinstance(post, dict):
        raise InputError(f"{place}: a line must be an object with {', '.join(FIELDS)}")
    missing = [name for name in FIELDS if name not in post]
    if missing:
        raise InputError(f"{place}: it has no {', '.join(missing)}; a post has {', '.join(FIELDS)}")
    return _post(place, post["text"], post["split"], post["labels"], post["targets"])


def _post(place: str, text: Any, split: Any, labels: Any, targets: Any) -> Post:
    """A post whose every field holds what it may; an InputError names the one that does not."""

    def check(right: bool, name: str, value: Any, may: str) -> None:
        if not right:
            raise InputError(f"{place}: {name} must {may}, not {shown(value)}")

    check(isinstance(text, str), "text", text, "be a string")
    check(is_utf8(text), "text", text, CHARACTERS)
    check(split in (None, *SPLITS), "split", split, f"be one of {', '.join(SPLITS)}, or null to leave it out")
    known = _words(labels) and labels and set(labels) <= set(LABELS)
    check(known, "labels", labels, f"list a word for each annotator, all of {', '.join(LABELS)}")
    fitting = isinstance(targets, list) and all(map(_words, targets)) and len(targets) in (0, len(labels))
    check(
        fitting,
        "targets",
        targets,
        "list each annotator's list of communities, or be [] for none at all",
    )
    check(all(is_utf8(name) for names in targets for name in names), "targets", targets, CHARACTERS)
    return Post(text=text, split=split or "", labels=tuple(labels), targets=tuple(map(frozenset, targets)))


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(type(word) is str for word in value)


def _json(path: Path) -> Any:
    text = _text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is no whole JSON file (line {error.lineno}): {GET_IT}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{path}: {UNREADABLE}") from None


def _text(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path} is missing: {GET_IT}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8: save it as UTF-8") from None


CARD = DatasetCard(load=load, get_it=f"hatexplain is not downloaded for you: {GET_IT}")
