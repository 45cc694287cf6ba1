"""What determines a trained model, besides its data and its seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calmoe.methods import Method, own_settings


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
    precision: str = "auto"  # "float32", "bfloat16", or "auto": bfloat16 on a GPU, float32 on a CPU
    own: Mapping[str, float] = field(default_factory=dict)  # settings that one objective alone reads

    def value(self, name: str) -> Any:
        """The setting `name`, be it a field or one that an objective declares."""
        if name in self.__dataclass_fields__:
            return getattr(self, name)
        return self.own.get(name, own_settings()[name].default)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Epochs [start, end) under one objective: a node of the plan."""

    head: str  # "mixture" or "single"
    objective: str  # "erm", "tilted", "filtered", "entropic", "cvar"
    loss: str  # "cross_entropy" or "brier"
    rectified: bool
    start: int
    end: int

    @classmethod
    def of(cls, method: Method, start: int, end: int) -> "Stage":
        """Epochs [start, end) of the method's own training."""
        return cls(
            head=method.head,
            objective=method.objective,
            loss=method.loss,
            rectified=method.gradient == "rectified",
            start=start,
            end=end,
        )

    @property
    def switches(self) -> bool:
        """Whether it follows a warm-up with ERM and trains on another objective."""
        return self.start > 0 and self.objective != "erm"
