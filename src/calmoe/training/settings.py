"""What determines a trained model, besides its data and its seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calmoe.errors import InputError
from calmoe.methods import Method, Setting, own_settings

BATCH_NORMS, SHARDINGS = ("synchronised", "per_rank"), ("none", "full")  # on several ranks


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """A backbone and a mixture head. `hidden` is for the MLP; `stem`, `stages`, `variant` are for ResNets.

    `weights` is where a pretrained backbone's come from; `pooling` is for text encoders.
    """

    backbone: str = "mlp"
    hidden: tuple[int, ...] = (128,)
    stem: str = "cifar"
    stages: int = 3
    variant: str = "v1.5"
    experts: int = 4
    router_hidden: int = 128
    routing: str = "soft"
    weights: str = ""
    pooling: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """AdamW with a cosine schedule stepped once an epoch; the last partial batch is kept."""

    epochs: int = 50
    warmup: int = 20
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    eta: float = 2.0
    gamma: float = 2.0
    regret: float = 1e-6
    disagreement: float = 0.01
    forget_moments: bool = False  # AdamW begins anew where an objective other than ERM does
    filter_fraction: float = 0.05
    filter_variant: str = "published"
    average: float = 0.0  # of the weights, exponential: the share kept a step; 0 is none
    views: int = 1  # copies of each image that predictions pool; 0: all that the dataset has
    rho: float = 0.1  # how far sharp gradients look: the length of the step up the gradient
    sharp_every: int = 1  # of so many steps of a sharp method one is sharp, the others are plain
    precision: str = "auto"  # "float32", "bfloat16", or "auto": bfloat16 on a GPU, float32 on a CPU
    batch_norm: str = "synchronised"  # over all ranks' rows of a batch, or "per_rank"
    sharding: str = "none"  # "full": each rank keeps a part of every weight, where a model does not fit whole
    own: Mapping[str, float] = field(default_factory=dict)  # settings that one objective alone reads

    def value(self, name: str) -> Any:
        """The setting `name`, be it a field or one that an objective declares."""
        if name in self.__dataclass_fields__:
            return getattr(self, name)
        return self.own.get(name, declared_settings()[name].default)


def declared_settings() -> dict[str, Setting]:
    """The settings that objectives declare; a name that calmoe's own settings have is refused."""
    declared = own_settings()
    for name in declared:
        if name in {**ModelSettings.__dataclass_fields__, **TrainingSettings.__dataclass_fields__}:
            raise InputError(f"an objective declares {name!r}, which is a setting of calmoe: rename it")
    return declared


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Epochs [start, end) under one objective: a node of the plan."""

    head: str  # "mixture" or "single"
    objective: str  # "erm", "tilted", "filtered", "entropic", "cvar"
    loss: str  # "cross_entropy" or "brier"
    gradient: str  # "plain", "rectified" (FGR) or "sharp" (SAM)
    start: int
    end: int

    @classmethod
    def of(cls, method: Method, start: int, end: int) -> "Stage":
        """Epochs [start, end) of the method's own training."""
        return cls(
            head=method.head,
            objective=method.objective,
            loss=method.loss,
            gradient=method.gradient,
            start=start,
            end=end,
        )

    def facts(self) -> dict[str, Any]:
        """What keys of nodes know of the stage; those made before there were sharp gradients stay."""
        facts = {name: getattr(self, name) for name in ("head", "objective", "loss", "start", "end")}
        facts["rectified"] = self.gradient == "rectified"
        return facts | ({"gradient": "sharp"} if self.gradient == "sharp" else {})

    @property
    def switches(self) -> bool:
        """Whether it follows a warm-up with ERM and trains on another objective."""
        return self.start > 0 and self.objective != "erm"
