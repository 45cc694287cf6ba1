"""What `calmoe train` is asked for: options of the command line, or a TOML file that `calmoe init` wrote."""

import json
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from calmoe.errors import InputError, about, check_known, shown
from calmoe.escaping import visible
from calmoe.files import legible
from calmoe.training.settings import BATCH_NORMS, SHARDINGS
from calmoe.validation import boolean, items, number, one_of, text, whole

MODELS = ("auto", "mixture", "network")
MOST_TOML = 2**20
NUM_EXPERTS = 4  # of a mixture, where the spec does not say it
PATIENCE = 10  # epochs, likewise
SHARP, TEXT_SHARP = 0.2, 0.02
"""The radius of sharp steps on images or tables, and on texts: as the recommended method has it."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """How a network is trained. Where a field is None or empty the data decide."""

    backbone: str = ""  # "mlp", "resnet18", "resnet34", "resnet50"; texts always have the encoder
    weights: str = ""  # a pretrained ResNet's
    size: int | None = None  # of images, in pixels
    experts: int | None = None  # one for images and texts, four for tables
    epochs: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    weight_decay: float = 1e-4
    rho: float | None = None  # SHARP; for texts TEXT_SHARP
    sharp_every: int = 1  # one step of so many is sharp
    average: float = 0.0  # none
    views: int | None = None  # None or 0: all that images have
    patience: int | None = None  # epochs without a lower validation log loss: PATIENCE; fewer for encoders
    batch_norm: str = ""  # on several ranks; empty: "synchronised"
    sharding: str = ""  # on several ranks; empty: "none"


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
NETWORK_KEYS = [each.name for each in fields(NetworkSettings)]
SHOWN: dict[str, tuple[str | float, str]] = {
    "backbone": ("resnet18", "of images: mlp, resnet18, resnet34 or resnet50"),
    "weights": ("FILE", "of a pretrained ResNet"),
    "size": (64, "of images, in pixels"),
    "experts": (4, "1: one network; more: a mixture"),
    "epochs": (30, "at most"),
    "batch": (128, "rows of a step"),
    "learning_rate": (0.001, "of the first step"),
    "weight_decay": (NetworkSettings.weight_decay, "pulls weights to zero"),
    "rho": (SHARP, "the radius of sharp steps, smaller for texts; 0: plain steps"),
    "sharp_every": (2, "one step of so many is sharp: trains faster, gains less"),
    "average": (0.99, "the decay of a running average of weights; 0: none"),
    "views": (1, "of an image, whose answers are pooled; 0: all ten"),
    "patience": (PATIENCE, "epochs without a lower validation log loss, then it stops"),
    "batch_norm": ("per_rank", "on several ranks; synchronised: as on one"),
    "sharding": ("full", "on several ranks, where the network does not fit on one"),
}
"""An example and a comment for each setting of a network, in the file that `calmoe init` writes."""


def with_settings(spec: TrainSpec, settings: list[str]) -> TrainSpec:
    """The spec with network settings from KEY=VALUE."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise InputError(f"--set takes KEY=VALUE, such as epochs=10, not {shown(setting)}")
        check_known("setting", key, NETWORK_KEYS)
        try:
            values[key] = tomllib.loads(f"v = {value}")["v"]
        except (ValueError, RecursionError):  # no TOML, or a number of too many digits
            values[key] = value
    return replace(spec, network=_network(values, spec.network))


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
    words = ("label", "text", "domain", "expect_shift")
    named: dict[str, Any] = {key: text(key, document[key]) for key in words if key in document}
    for key in ("groups", "shift", "drop"):
        if key in document:
            named[key] = tuple(text(key, each) for each in items(key, document[key], most=10_000))
    for key in ("data", "out"):
        if key in document:
            named[key] = beside / text(key, document[key])
    if document.get("encoder"):
        local = beside / text("encoder", document["encoder"])
        named["encoder"] = str(local) if local.is_dir() else document["encoder"]
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
        check_known("setting of [network]", key, NETWORK_KEYS)
    return TrainSpec(**named, network=_network(network, NetworkSettings()))


def _network(values: dict[str, Any], before: NetworkSettings) -> NetworkSettings:
    """The settings with these values, checked."""
    checked: dict[str, Any] = {}
    for key, value in values.items():
        match key:
            case "backbone" | "weights":
                checked[key] = text(key, value)
            case "batch_norm":
                checked[key] = one_of(key, value, BATCH_NORMS)
            case "sharding":
                checked[key] = one_of(key, value, SHARDINGS)
            case "size":
                checked[key] = whole(key, value, least=4, most=1024)
            case "views":
                checked[key] = whole(key, value, most=10)
            case "experts" | "epochs" | "batch" | "patience" | "sharp_every":
                checked[key] = whole(key, value, least=1, most=100_000)
            case "average":
                checked[key] = number(key, value, least=0, most=0.99999)
            case "learning_rate":
                checked[key] = number(key, value, above=0)
            case _:
                checked[key] = number(key, value, least=0)
    return replace(before, **checked)


def quote(value: Any) -> str:
    """A text, a list of texts, a number or a truth as TOML writes it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML allows no bare DEL


def as_toml(spec: TrainSpec, notes: list[str]) -> str:
    """The spec as a commented TOML file that `calmoe train` runs."""
    column, optional = quote("COLUMN"), lambda given: "" if given else "# "
    lines = [
        *(f"# {visible(note)}" for note in notes),
        "",
        f"data = {quote(str(spec.data))}  # as seen from this file's folder",
        f"{optional(spec.label)}label = {quote(spec.label) if spec.label else column}  # what to predict",
        f"{optional(spec.text)}text = {quote(spec.text) if spec.text else column}  # learn from its texts",
        f"{optional(spec.encoder)}encoder = {quote(spec.encoder or 'DIR')}  # the model that reads the texts",
        f"groups = {quote(list(spec.groups))}  # columns to score by; they stay columns to learn from",
        f"drop = {quote(list(spec.drop))}  # columns to leave out, such as the number of a customer",
        f'shift = {quote(list(spec.shift))}  # rows to hold out as a shift, such as "region=north"',
        f"{optional(spec.domain)}domain = {quote(spec.domain or 'NAME')}  # the domain of images to hold out",
        f"{optional(spec.expect_shift)}expect_shift = {quote(spec.expect_shift or 'COLUMN')}  "
        "# its values will be others in use: train against that",
        f"{optional(spec.held_out)}held_out = {spec.held_out or 0.2:g}  # the share of rows to score on",
        f"seed = {spec.seed}",
        f"model = {quote(spec.model)}  # auto; mixture: of models, for tables; network",
        f"out = {quote(str(spec.folder))}  # the model's folder",
        f"compare = {quote(spec.compare)}  # train the paper's methods beside it",
        "",
        '[network]  # for images, texts, and tables where model = "network"; a commented line is an example: '
        "without it the data decide",
    ]
    for name, (example, what) in SHOWN.items():
        value = getattr(spec.network, name)
        given = value != getattr(NetworkSettings, name)
        lines.append(f"{optional(given)}{name} = {quote(value if given else example)}  # {what}")
    return "\n".join([*lines, ""])
