"""HateXplain: posts that three annotators called hate speech, offensive or normal, and whom they aim at.

The task is toxic (hate speech or offensive) against normal; the label is the majority's. A post is hard where
the annotators are not unanimous on this very question: as in CIFAR-10H, humans disagree on the class itself.
Hate speech against offensive is no disagreement here: both are toxic.

The official split is used as it is, under both protocols, which differ in the temperature's solver only; it
leaves out the 919 posts with three different labels. A post's targets are what two of its annotators name.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.text import token_ids
from calmoe.errors import InputError

POSTS, DIVISIONS = "dataset.json", "post_id_divisions.json"  # the official two files
LINES = "hatexplain.jsonl"  # or one: a line of JSON a post
GET_IT = f"get {POSTS} and {DIVISIONS} from github.com/hate-alert/HateXplain (Data/)"
SPLITS = ("train", "val", "test")
NORMAL, LABELS = "normal", ("normal", "offensive", "hatespeech")
NOBODY, OTHER = "None", "Other"
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
        """Those that more than half of the annotators name."""
        named = Counter(name for targets in self.targets for name in targets if name != NOBODY)
        return {name for name, count in named.items() if 2 * count > len(self.targets)}


def load(data: Path | None, protocol: str = "corrected", *, encoder: str = "") -> ShiftDataset:
    """HateXplain from the folder `data`, in tokens of the encoder (a folder or a hub name)."""
    check_protocol(protocol)
    if data is None:
        raise InputError(f"hatexplain needs a folder: give it with --data DIR, or {GET_IT}")
    posts = read_posts(Path(data))
    ids = token_ids([post.text for post in posts], encoder, Path(data))
    everything = Split(
        inputs=ids, labels=torch.tensor([int(post.toxic_share > 0.5) for post in posts], dtype=torch.int64)
    )
    splits = np.array([post.split for post in posts])
    train, validation, test = (everything.take(splits == name) for name in SPLITS)
    if not (len(train) and len(validation) and len(test)):
        raise InputError(f"{data}: no posts in one of the splits {', '.join(SPLITS)}; {GET_IT}")
    tested = [post for post in posts if post.split == "test"]
    return ShiftDataset(
        name="hatexplain",
        train=train,
        validation=validation,
        test=Split(inputs=test.inputs, labels=test.labels, groups=columns(tested)),
        class_names=("normal", "toxic"),
        hard="hard",
        protocol=protocol,
    )


def columns(posts: list[Post]) -> dict[str, np.ndarray]:
    """The majority's share of the votes, where it is not all of them, and a column a community.

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
    if (data / POSTS).is_file():
        return _official(data / POSTS, data / DIVISIONS)
    if (data / LINES).is_file():
        return _lines(data / LINES)
    raise InputError(f"{data / POSTS} is missing: {GET_IT}")


def _official(path: Path, divisions: Path) -> list[Post]:
    posts, divided = _json(path), _json(divisions)
    try:
        split_of = {number: split for split in SPLITS for number in divided[split]}
    except (KeyError, TypeError):
        raise InputError(f"{divisions} must list posts under {', '.join(SPLITS)}: {GET_IT}") from None
    if not isinstance(posts, dict):
        raise InputError(f"{path} must hold posts by id: {GET_IT}")
    return [
        _checked(f"{path}, post {number}", _from_official, post, split_of[number])
        for number, post in posts.items()
        if number in split_of
    ]


def _lines(path: Path) -> list[Post]:
    lines = enumerate(_text(path).split("\n"), start=1)  # not splitlines: a post may hold other line ends
    posts = [_checked(f"{path}, line {number}", _from_line, line) for number, line in lines if line]
    return [post for post in posts if post.split]


def _from_official(post: Any, split: str) -> Post:
    people = post["annotators"]
    labels, targets = ([person[key] for person in people] for key in ("label", "target"))
    return _post(" ".join(post["post_tokens"]), split, labels, targets)


def _from_line(line: str) -> Post:
    post = json.loads(line)
    return _post(post["text"], post["split"] or "", post["labels"], post["targets"])


def _post(text: str, split: str, labels: list[str], targets: list[list[str]]) -> Post:
    if not (type(text) is str and split in ("", *SPLITS) and labels and set(labels) <= set(LABELS)):
        raise ValueError
    return Post(text=text, split=split, labels=tuple(labels), targets=tuple(map(frozenset, targets)))


def _checked(place: str, build: Callable[..., Post], *arguments: Any) -> Post:
    try:
        return build(*arguments)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise InputError(f"{place}: no whole post with its labels and targets; {GET_IT}") from None


def _json(path: Path) -> Any:
    text = _text(path)
    try:
        return json.loads(text)
    except ValueError:
        raise InputError(f"{path} is no whole JSON file: {GET_IT}") from None


def _text(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path} is missing: {GET_IT}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8: {GET_IT}") from None
