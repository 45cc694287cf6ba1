"""The settings of a network that `--set` and a spec give: what they may be, and who reads which."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from calmoe.errors import InputError
from calmoe.render.wording import listed
from calmoe.training.settings import BATCH_NORMS, SHARDINGS
from calmoe.validation import number, one_of, text, whole

NUM_EXPERTS = 4  # of a mixture, where nobody says it
PATIENCE = 10  # epochs, likewise
SHARP, TEXT_SHARP = 0.2, 0.02
"""The radius of sharp steps on images or tables, and on texts: as the recommended method has it."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """How a network is trained. Where a field is None or empty the recipe decides, or the data."""

    backbone: str = ""  # "mlp", "resnet18", "resnet34", "resnet50"; texts always have the encoder
    weights: str = ""  # a pretrained ResNet's
    size: int | None = None  # of images, in pixels
    experts: int | None = None  # one for images and texts, four for tables
    epochs: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    rho: float | None = None  # SHARP; for texts TEXT_SHARP
    sharp_every: int | None = None  # one step of so many is sharp
    average: float | None = None  # of the weights
    views: int | None = None  # None or 0: all that images have
    patience: int | None = None  # epochs without a lower validation log loss: PATIENCE; fewer for encoders
    batch_norm: str = ""  # on several ranks
    sharding: str = ""  # on several ranks

    @property
    def given(self) -> dict[str, Any]:
        """What the user gave, by name."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


SETTINGS = tuple(NetworkSettings.__dataclass_fields__)
MIXTURE = "a mixture of models"
TABLE_NETWORK, TEXT_NETWORK = "a network for tables", "a network for texts"
IMAGE_NETWORK = "a network for images"
TRAINING = ("experts", "epochs", "batch", "learning_rate", "weight_decay", "rho", "average", "patience")
READ: dict[str, tuple[str, ...]] = {
    MIXTURE: (),
    f"{MIXTURE} with --compare": ("experts", "epochs"),  # of the networks beside it
    TABLE_NETWORK: TRAINING,
    TEXT_NETWORK: (*TRAINING, "sharp_every", "sharding"),
    IMAGE_NETWORK: SETTINGS,
}
"""Which settings each thing that `calmoe train` trains reads."""

SHOWN: dict[str, tuple[str | float, str]] = {
    "backbone": ("resnet18", "of images: mlp, resnet18, resnet34 or resnet50"),
    "weights": ("FILE", "of a pretrained ResNet"),
    "size": (64, "of images, in pixels"),
    "experts": (4, "1: one network; more: a mixture"),
    "epochs": (30, "at most"),
    "batch": (128, "rows of a step"),
    "learning_rate": (0.001, "of the first step"),
    "weight_decay": (0.0001, "pulls weights to zero"),
    "rho": (SHARP, "the radius of sharp steps, smaller for texts; 0: plain steps"),
    "sharp_every": (2, "one step of so many is sharp: trains faster, gains less"),
    "average": (0.99, "the decay of a running average of weights; 0: none"),
    "views": (1, "of an image, whose answers are pooled; 0: all ten"),
    "patience": (PATIENCE, "epochs without a lower validation log loss, then it stops"),
    "batch_norm": ("per_rank", "on several ranks; synchronised: as on one"),
    "sharding": ("full", "on several ranks, where the network does not fit on one"),
}
"""An example and a comment for each setting, in the file that `calmoe init` writes."""


def trainee(kind: str, model: str, compare: bool) -> str:
    """What is trained on data of this kind, with these options: a key of READ.

    >>> trainee("tables", "auto", compare=False), trainee("texts", "auto", compare=True)
    ('a mixture of models', 'a network for texts')
    """
    if kind == "tables" and model != "network":
        return f"{MIXTURE} with --compare" if compare else MIXTURE
    return {"tables": TABLE_NETWORK, "texts": TEXT_NETWORK, "images": IMAGE_NETWORK}[kind]


def check_read(settings: NetworkSettings, reader: str) -> None:
    """Refuse settings that `reader`, a key of READ, does not read."""
    read = READ[reader]
    if unread := [name for name in settings.given if name not in read]:
        them = "it" if len(unread) == 1 else "them"
        other = f"it reads {listed(read)}" if read else f"--model network reads {listed(READ[TABLE_NETWORK])}"
        raise InputError(f"{reader} does not read {listed(unread)}: leave {them} out; {other}")


def with_values(settings: NetworkSettings, values: Mapping[str, Any]) -> NetworkSettings:
    """The settings with these values instead, checked."""
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
    return replace(settings, **checked)
