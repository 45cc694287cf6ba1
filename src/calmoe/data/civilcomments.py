"""CivilComments in the layout of WILDS: is an online comment toxic? Hard are those that mention an identity.

Both protocols train on the same rows, as the authors' code draws them: 50,000 of the WILDS training comments,
in random order, of which the last tenth validates. There is no augmentation for text, so that they differ in
the temperature's solver only. All WILDS test comments are test; its validation comments are not used.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.splits import last_rows_holdout
from calmoe.data.text import token_ids
from calmoe.errors import InputError

FILE, WILDS = "all_data_with_identities.csv", "civilcomments_v1.0"
GET_IT = "get WILDS' civilcomments_v1.0 (docs/text.md says where)"
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
ANY = "identity_any"
TEXT, SPLIT, TOXICITY = "comment_text", "split", "toxicity"
SPLITS = ("train", "val", "test")
TRAINING_ROWS = 50_000
SEED = 42


@dataclass(frozen=True, kw_only=True, eq=False)
class Comments:
    """The file's rows: texts, official splits, labels, and who is mentioned, by identity."""

    texts: list[str]
    splits: np.ndarray
    toxic: np.ndarray
    identities: dict[str, np.ndarray]


def load(data: Path | None, protocol: str = "corrected", *, encoder: str = "") -> ShiftDataset:
    """CivilComments from the folder `data`, in tokens of the encoder (a folder or a hub name)."""
    check_protocol(protocol)
    if data is None:
        raise InputError(f"civilcomments needs a folder with {FILE}: give it with --data DIR, or {GET_IT}")
    path = find_file(Path(data))
    comments = read_comments(path)
    pool = drawn(np.flatnonzero(comments.splits == "train"))
    test = np.flatnonzero(comments.splits == "test")
    if len(pool) < 10 or not len(test):
        raise InputError(f"{path} has {len(pool)} training and {len(test)} test rows: {GET_IT}")
    ids = token_ids([comments.texts[row] for row in (*pool, *test)], encoder, Path(data))
    everything = Split(
        inputs=ids, labels=torch.from_numpy(comments.toxic[np.r_[pool, test]].astype(np.int64))
    )
    train, validation = last_rows_holdout(len(pool), 0.1)
    tested = everything.take(np.arange(len(pool), len(everything)))
    return ShiftDataset(
        name="civilcomments",
        train=everything.take(train),
        validation=everything.take(validation),
        test=Split(
            inputs=tested.inputs,
            labels=tested.labels,
            groups={name: mentioned[test] for name, mentioned in comments.identities.items()},
        ),
        class_names=("civil", "toxic"),
        hard=ANY,
        protocol=protocol,
    )


def drawn(rows: np.ndarray) -> np.ndarray:
    """At most 50,000 of the rows, in the order that the authors' draw gives them.

    >>> len(drawn(np.arange(60_000))), len(drawn(np.arange(400)))
    (50000, 400)
    """
    if len(rows) <= TRAINING_ROWS:
        return rows
    generator = np.random.RandomState(SEED)
    return rows[generator.choice(len(rows), TRAINING_ROWS, replace=False)]


def find_file(data: Path) -> Path:
    """The file in `data`, or in the folder there that WILDS unpacks."""
    for path in (data / FILE, data / WILDS / FILE):
        if path.is_file():
            return path
    raise InputError(f"{data / FILE} is missing: {GET_IT}")


def read_comments(path: Path) -> Comments:
    """All rows of the file; a comment is toxic, and mentions an identity, from a score of 0.5 on."""
    numbers = (TOXICITY, *IDENTITIES, ANY)
    texts: list[str] = []
    splits: list[str] = []
    scores: list[list[float]] = []
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = csv.reader(stream)
            header = next(rows, [])
            missing = [name for name in (TEXT, SPLIT, *numbers) if name not in header]
            if missing:
                raise InputError(f"{path} has no column {', '.join(missing)}: {GET_IT}")
            text, split = header.index(TEXT), header.index(SPLIT)
            places = [header.index(name) for name in numbers]
            for row in filter(None, rows):
                if len(row) != len(header):
                    raise InputError(
                        f"{path}, line {rows.line_num}: {len(row)} values for {len(header)} columns; {GET_IT}"
                    )
                texts.append(row[text])
                splits.append(row[split])
                scores.append([_score(row[place], path, rows.line_num) for place in places])
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 after row {len(texts)}: {GET_IT}") from None
    except csv.Error as error:
        raise InputError(f"{path} is no csv file after row {len(texts)} ({error}): {GET_IT}") from None
    unknown = set(splits) - set(SPLITS)
    if unknown:
        raise InputError(f"{path} has a split {min(unknown)!r}, none of {', '.join(SPLITS)}: {GET_IT}")
    high = np.array(scores).reshape(-1, len(numbers)) >= 0.5
    return Comments(
        texts=texts,
        splits=np.array(splits),
        toxic=high[:, 0],
        identities={name: high[:, place] for place, name in enumerate(numbers) if name != TOXICITY},
    )


def _score(value: str, path: Path, line: int) -> float:
    """A number; nothing is no mention, as in WILDS."""
    try:
        return float(value or 0)
    except ValueError:
        raise InputError(f"{path}, line {line}: {value!r} is no number; {GET_IT}") from None
