"""Data for the study of own data: real tables as they are, and a table, texts and images that it makes."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calmoe.errors import InputError

CREDIT_ROWS, TEXTS, IMAGES_OF_A_KIND = 50_000, 400, 50
TOPICS = {"praise": ("good", "kind"), "blame": ("bad", "awful"), "neither": ("person", "and")}


@dataclass(frozen=True)
class OwnData:
    """A file or folder with its data, and the options that `calmoe train` takes for them."""

    name: str
    path: Path
    options: tuple[str, ...]

    @property
    def is_images(self) -> bool:
        return self.path.is_dir()


def real_tables(folder: Path) -> Iterator[OwnData]:
    """The tables that `tables.json` names, each with its label and its groups."""
    try:
        described = json.loads((folder / "tables.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} has no readable tables.json ({error})") from None
    for name, facts in described.items():
        groups = [option for group in facts["groups"] for option in ("--group", group)]
        yield OwnData(name, folder / f"{name}.csv", ("--label", facts["label"], *groups))


def made_data(folder: Path) -> list[OwnData]:
    """A credit table, texts of three classes with an encoder, images in two domains; made in `folder`."""
    encoder = str(write_encoder(folder / "encoder"))
    texts = ("--label", "topic", "--text", "body", "--group", "channel", "--encoder", encoder)
    return [
        OwnData("made_credit", write_credit(folder / "data.csv"), ("--label", "late", "--group", "region")),
        OwnData("made_texts", write_texts(folder / "texts.csv"), texts),
        OwnData("made_images", write_photos(folder / "photos"), ()),
    ]


def write_credit(path: Path, rows: int = CREDIT_ROWS, seed: int = 0) -> Path:
    """Credits of which 1 % are late: gaps, a date, a code, words, an empty column and one number for all."""
    rng = np.random.default_rng(seed)
    income, age = rng.lognormal(10, 0.6, rows).round(2), rng.integers(18, 85, rows)
    region = rng.choice(["north", "south", "east", "west"], rows, p=[0.5, 0.3, 0.15, 0.05])
    days = np.datetime64("2015-01-01") + rng.integers(0, 4000, rows)
    risk = -5.35 + 1.3 * (income < 15_000) + 0.02 * (50 - age) + 1.0 * (region == "west")
    late = rng.random(rows) < 1 / (1 + np.exp(-risk))
    gaps = rng.random((rows, 3)) < (0.2, 0.05, 0.01)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["customer", "Einkommen", "age", "größe", "since", "region", "unit", "note", "late"])
        for i in range(rows):
            size = "" if gaps[i, 2] else ("klein", "groß")[i % 2]
            known = ("" if gaps[i, 0] else income[i], "NA" if gaps[i, 1] else age[i], size)
            writer.writerow([f"K{i:05}", *known, days[i], region[i], "EUR", "", ("no", "yes")[int(late[i])]])
    return path


def write_texts(path: Path, rows: int = TEXTS, seed: int = 0) -> Path:
    """Short texts of three classes; one word tells the class, in nine texts of ten."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["body", "channel", "topic"])
        for _ in range(rows):
            topic, shown = rng.choice(list(TOPICS), 2)
            word = rng.choice(TOPICS[topic if rng.random() < 0.9 else shown])
            others = rng.choice(["you", "are", "a", "the", "man", "woman"], 5)
            writer.writerow([" ".join([*others[:3], word, *others[3:]]), rng.choice(["mail", "web"]), topic])
    return path


def write_encoder(folder: Path) -> Path:
    """A tiny DistilBERT with random weights and a tokenizer, the one of the tests."""
    from tests.encoders import save_encoder

    return save_encoder(folder)


def write_photos(folder: Path, count: int = IMAGES_OF_A_KIND) -> Path:
    """`count` small images of each of two classes in each of two domains, those of the tests."""
    from tests.image_folders import write_images

    return write_images(folder, domains=("photo", "sketch"), classes=("cat", "dog"), count=count)
