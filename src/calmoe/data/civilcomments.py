"""CivilComments in the layout of WILDS: is an online comment toxic? The hard ones mention an identity.

Both protocols draw the same rows as the authors' code: 50,000 of the WILDS training comments, all where there
are fewer. `corrected` validates on a tenth of each class, `published` on the last tenth as drawn, which in a
file of fewer rows is in file order. All WILDS test comments are test; its validation comments are not used.
"""

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from calmoe.data.card import DatasetCard, given_folder
from calmoe.data.shift import ShiftDataset, Split, check_protocol
from calmoe.data.splits import last_rows_holdout, stratified_holdout
from calmoe.data.text import check_classes, check_rows, text_notes, token_ids
from calmoe.errors import InputError, refusal, shown
from calmoe.files import is_utf8
from calmoe.validation import parse_number

FILE, WILDS = "all_data_with_identities.csv", "civilcomments_v1.0"
GET_IT = "get WILDS' civilcomments_v1.0 (docs/data.md says where)"
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
ANY = "identity_any"
TEXT, SPLIT, TOXICITY = "comment_text", "split", "toxicity"
NUMBERS = (TOXICITY, *IDENTITIES, ANY)
SPLITS = ("train", "val", "test")
CLASSES = ("civil", "toxic")
TOO_LONG = (
    f"a cell of more than {csv.field_size_limit():,} characters; is a quote not closed? Else cut the text: "
    "its first 128 tokens count"
)
TRAINING_ROWS = 50_000
DRAW_SEED = 42
HELD_OUT = 0.1
SEED = 0


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
    folder = given_folder("civilcomments", data, GET_IT)
    path = find_file(folder)
    comments = read_comments(path)
    pool = drawn(np.flatnonzero(comments.splits == "train"))
    test = np.flatnonzero(comments.splits == "test")
    check_rows(path, {"train": len(pool), "test": len(test)})
    labels = comments.toxic.astype(np.int64)
    train, validation = (
        last_rows_holdout(len(pool), HELD_OUT)
        if protocol == "published"
        else stratified_holdout(labels[pool], HELD_OUT, SEED)
    )
    check_classes(path, labels[pool[train]], CLASSES)
    texts = [comments.texts[row] for row in (*pool, *test)]
    ids = token_ids(texts, encoder, folder)
    everything = Split(inputs=ids, labels=torch.from_numpy(labels[np.r_[pool, test]]))
    tested = everything.take(np.arange(len(pool), len(everything)))
    return ShiftDataset(
        name="civilcomments",
        train=everything.take(train),
        validation=everything.take(validation),
        test=replace(
            tested, groups={name: mentioned[test] for name, mentioned in comments.identities.items()}
        ),
        class_names=CLASSES,
        hard=ANY,
        protocol=protocol,
        notes=text_notes(texts),
    )


def drawn(rows: np.ndarray) -> np.ndarray:
    """At most 50,000 of the rows, in the order that the authors' draw gives them.

    >>> len(drawn(np.arange(60_000))), len(drawn(np.arange(400)))
    (50000, 400)
    """
    if len(rows) <= TRAINING_ROWS:
        return rows
    generator = np.random.RandomState(DRAW_SEED)
    return rows[generator.choice(len(rows), TRAINING_ROWS, replace=False)]


def find_file(data: Path) -> Path:
    """The file in `data`, or in the folder there that WILDS unpacks."""
    for path in (data / FILE, data / WILDS / FILE):
        if path.is_file():
            return path
    raise InputError(f"{data / FILE} is missing: {GET_IT}")


def read_comments(path: Path) -> Comments:
    """All rows of the file; a comment is toxic, and mentions an identity, from a score of 0.5 on."""
    texts: list[str] = []
    splits: list[str] = []
    scores: list[list[float]] = []
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
        rows = csv.reader(stream, strict=True)
        try:
            header = next(rows, [])
            _check_header(header)
            text, split = header.index(TEXT), header.index(SPLIT)
            places = [(name, header.index(name)) for name in NUMBERS]
            for row in filter(None, rows):
                if not is_utf8("".join(row)):
                    raise InputError("it is not UTF-8: save the file as UTF-8")
                if len(row) != len(header):
                    raise InputError(
                        f"{len(row)} values for {len(header)} columns; is the file cut, or a text with "
                        "commas or line ends not in quotes?"
                    )
                if row[split] not in SPLITS:
                    raise InputError(f"{SPLIT} must be one of {', '.join(SPLITS)}, not {shown(row[split])}")
                scores.append([_score(name, row[place]) for name, place in places])
                splits.append(row[split])
                texts.append(row[text])
        except (InputError, csv.Error) as error:
            where = f"row {len(texts) + 1} (line {rows.line_num})" if rows.line_num > 1 else "header"
            reason = str(error)
            if isinstance(error, csv.Error):
                reason = (
                    TOO_LONG if "field limit" in reason else f"{reason}: is the file cut, or a quote astray?"
                )
            raise InputError(f"{path}, {where}: {reason}") from None
    high = np.array(scores).reshape(-1, len(NUMBERS)) >= 0.5
    return Comments(
        texts=texts,
        splits=np.array(splits),
        toxic=high[:, 0],
        identities={name: high[:, place] for place, name in enumerate(NUMBERS) if name != TOXICITY},
    )


def _check_header(header: list[str]) -> None:
    """Refuse a header without all columns that are needed; their order, and others, do not matter."""
    if not is_utf8("".join(header)):
        raise InputError("it is not UTF-8: save the file as UTF-8")
    if not any(header):
        raise InputError(f"it is empty: the first line must name the columns, or {GET_IT}")
    needed = (TEXT, SPLIT, *NUMBERS)
    if twice := [name for name in needed if header.count(name) > 1]:
        raise InputError(f"column {', '.join(twice)} is there more than once: keep one")
    missing = [name for name in needed if name not in header]
    if not missing:
        return
    for separator, called in {";": "semicolons", "\t": "tabs", "|": "bars"}.items():
        if TEXT in ",".join(header).split(separator):
            raise InputError(f"its columns are separated by {called}: save it with commas")
    folded = {name.casefold() for name in missing}
    near = [name for name in header if name.casefold() in folded]
    hint = f" (there is {', '.join(near)}: case counts)" if near else ""
    raise InputError(f"no column {', '.join(missing)}{hint}; docs/data.md describes each")


def _score(name: str, value: str) -> float:
    """A share of annotators; an empty share of an identity means no mention, as in WILDS."""
    if not value and name != TOXICITY:
        return 0.0
    try:
        score = parse_number(value)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 1:
        raise refusal(name, "a number from 0 to 1", value)
    return score


CARD = DatasetCard(load=load, get_it=f"civilcomments is not downloaded for you: {GET_IT}")
