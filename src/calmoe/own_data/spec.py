"""What `calmoe train` is asked for: options of the command line, or a TOML file that `calmoe init` wrote."""

import json
import os
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from calmoe.errors import InputError, about, check_known, shown
from calmoe.escaping import visible
from calmoe.files import legible
from calmoe.own_data.settings import READ, SETTINGS, SHOWN, TABLE_NETWORK, NetworkSettings, with_values
from calmoe.validation import boolean, items, number, one_of, text, whole

MODELS = ("auto", "mixture", "network")
MOST_TOML = 2**20


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """The data, what to predict, what to hold out, and how to train."""

    data: Path
    label: str = ""
    text: str = ""
    encoder: str = ""
    groups: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()  # COLUMN=VALUE
    domain: str = ""
    expect_shift: str = ""
    drop: tuple[str, ...] = ()
    cluster: str = ""
    model: str = "auto"
    held_out: float | None = None  # the share; if not given, the data decide: parts.held_out_share
    seed: int = 0
    out: Path | None = None
    compare: bool = False
    network: NetworkSettings = field(default_factory=NetworkSettings)

    @property
    def name(self) -> str:
        """What the data are called."""
        return self.data.stem if self.data.stem.strip(".") else self.data.resolve().stem  # of "." and ".."

    @property
    def folder(self) -> Path:
        """Where the model goes."""
        return self.out or Path(f"{self.name}-model")

    @property
    def shifted(self) -> tuple[str, list[str]]:
        """The column whose rows are held out, and the values."""
        pairs = [part.partition("=") for part in self.shift]
        for column, sign, _ in pairs:
            if not column or not sign:
                raise InputError("a shift is written COLUMN=VALUE, such as --shift region=north")
        if len({column for column, _, _ in pairs}) > 1:
            raise InputError("--shift must name values of one column: hold out one shift at a time")
        return (pairs[0][0], [value for _, _, value in pairs]) if pairs else ("", [])


KEYS = [each.name for each in fields(TrainSpec)]


def with_settings(spec: TrainSpec, settings: list[str]) -> TrainSpec:
    """The spec with network settings from KEY=VALUE."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise InputError(f"--set takes KEY=VALUE, such as epochs=10, not {shown(setting)}")
        check_known("setting", key, SETTINGS)
        try:
            values[key] = tomllib.loads(f"v = {value}")["v"]
        except (ValueError, RecursionError):  # no TOML, or a number of too many digits
            values[key] = value
    return replace(spec, network=with_values(spec.network, values))


def read_spec(path: Path) -> TrainSpec:
    """The spec in a TOML file; paths in it are as seen from the file's folder."""
    if not path.is_file():
        raise InputError(f"there is no file {legible(path)}")
    with about(legible(path)):
        if path.stat().st_size > MOST_TOML:
            raise InputError("it is too long to be a spec")
        try:
            document = tomllib.loads(path.read_bytes().decode())
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a readable TOML file ({error})") from None
        for key in document:
            check_known("setting", key, KEYS)
        if "data" not in document:
            raise InputError("data is missing: name the file or folder to learn from")
        return _checked(document, path.parent)


def _checked(document: dict[str, Any], beside: Path) -> TrainSpec:
    words = ("label", "text", "domain", "expect_shift", "cluster")
    named: dict[str, Any] = {key: text(key, document[key]) for key in words if key in document}
    for key in ("groups", "shift", "drop"):
        if key in document:
            named[key] = tuple(text(key, each) for each in items(key, document[key], most=10_000))
    for key in ("data", "out"):
        if key in document:
            named[key] = beside / text(key, document[key])
    if document.get("encoder"):
        local = beside / text("encoder", document["encoder"])
        named["encoder"] = str(local) if os.path.isdir(local) else document["encoder"]
    if "model" in document:
        named["model"] = one_of("model", document["model"], MODELS)
    if "held_out" in document:
        named["held_out"] = number("held_out", document["held_out"], above=0, most=0.9)
    if "seed" in document:
        named["seed"] = whole("seed", document["seed"], most=2**31)
    if "compare" in document:
        named["compare"] = boolean("compare", document["compare"])
    network = document.get("network", {})
    if not isinstance(network, dict):
        raise InputError("network must be a table: [network]")
    for key in network:
        check_known("setting of [network]", key, SETTINGS)
    return TrainSpec(**named, network=with_values(NetworkSettings(), network))


def quote(value: Any) -> str:
    """A text, a list of texts, a number or a truth as TOML writes it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML allows no bare DEL


def as_toml(spec: TrainSpec, notes: list[str], reader: str) -> str:
    """The spec as a commented TOML file that `calmoe train` runs; `reader` reads its settings."""
    lines = [
        *(f"# {visible(note)}" for note in notes),
        "",
        f"data = {quote(str(spec.data))}  # as seen from this file's folder",
        _setting("label", spec.label, "COLUMN", "what to predict"),
        _setting("text", spec.text, "COLUMN", "learn from its texts"),
        _setting("encoder", spec.encoder, "DIR", "the model that reads the texts"),
        f"groups = {quote(list(spec.groups))}  # columns to score by; they stay columns to learn from",
        f"drop = {quote(list(spec.drop))}  # columns to leave out, such as the number of a customer",
        _setting("cluster", spec.cluster, "COLUMN", "names cases, such as persons: their rows stay together"),
        f'shift = {quote(list(spec.shift))}  # rows to hold out as a shift, such as "region=north"',
        _setting("domain", spec.domain, "NAME", "the domain of images to hold out"),
        _setting(
            "expect_shift",
            spec.expect_shift,
            "COLUMN",
            "its values will be others in use: train against that",
        ),
        _setting("held_out", spec.held_out, 0.2, "the share of rows to score on"),
        f"seed = {spec.seed}",
        f"model = {quote(spec.model)}  # auto; mixture: of models, for tables; network",
        f"out = {quote(str(spec.folder))}  # the model's folder",
        f"compare = {quote(spec.compare)}  # train the paper's methods beside it",
        "",
        *_network_lines(spec.network.given, reader),
    ]
    return "\n".join([*lines, ""])


def _network_lines(given: dict[str, Any], reader: str) -> list[str]:
    """The settings that `reader` reads; where it reads none, those of the network in its place."""
    example = "a commented line is an example: without it the recipe decides, or the data"
    names, head = READ[reader], f"[network]  # {example}"
    if not names:
        names, head = READ[TABLE_NETWORK], f'# [network]  # with model = "network"; {example}'
    lines = [_setting(name, given.get(name), *each) for name, each in SHOWN.items() if name in names]
    return [head, *lines]


def _setting(name: str, value: Any, example: Any, what: str) -> str:
    """A line; a comment with an example where there is no value."""
    absent = value in (None, "")
    return f"{'# ' * absent}{name} = {quote(example if absent else value)}  # {what}"


def options(spec: TrainSpec) -> list[str]:
    """The options that make this spec again."""
    words: list[str] = []
    for name in ("label", "text", "domain", "expect_shift", "cluster"):
        if value := getattr(spec, name):
            words += [f"--{name.replace('_', '-')}", value]
    for name, option in (("groups", "--group"), ("shift", "--shift"), ("drop", "--drop")):
        for value in getattr(spec, name):
            words += [option, value]
    if spec.encoder:
        words += ["--encoder", spec.encoder]
    if spec.held_out is not None:
        words += ["--held-out", f"{spec.held_out:g}"]
    if spec.model != "auto":
        words += ["--model", spec.model]
    for name, value in spec.network.given.items():
        words += ["--set", f"{name}={value}"]
    return [*words, "--seed", str(spec.seed), *(["--compare"] if spec.compare else [])]
