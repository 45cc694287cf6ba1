"""A network with its preparation and its temperatures, as one model."""

import copy
from pathlib import Path
from typing import Any

from torch import Tensor

from calmoe.backbones import Encoder
from calmoe.errors import InputError
from calmoe.formats.columns import class_values
from calmoe.mixture import MixtureClassifier, MixtureOutput
from calmoe.models.architecture import Architecture
from calmoe.models.card import Card
from calmoe.models.deployed import Deployed
from calmoe.models.inputs import ImageInputs, Inputs, TextInputs
from calmoe.models.model import Model
from calmoe.text_encoders import encoder_folder
from calmoe.validation import check_finite, check_shapes


class NetworkModel(Model):
    """`encoder` is the folder with a text encoder's configuration and tokenizer."""

    def __init__(
        self,
        network: MixtureClassifier,
        architecture: Architecture,
        inputs: Inputs,
        classes: list[str] | list[int],
        *,
        temperature: float = 1.0,
        expert_temperatures: list[float] | None = None,
        card: Card | None = None,
        encoder: Path | None = None,
    ) -> None:
        if len(classes) != network.head.num_classes:
            raise InputError(f"{len(classes)} classes do not fit a head of {network.head.num_classes}")
        experts = network.head.num_experts
        if expert_temperatures is not None and len(expert_temperatures) != experts:
            raise InputError(f"expert_temperatures must be {experts}, not {len(expert_temperatures)}")
        self.kind, self.card = inputs.kind, card or Card()
        self.classes = class_values([str(name) for name in classes])
        self.architecture, self.inputs, self.encoder = architecture, inputs, encoder
        network.eval().requires_grad_(False)
        self.deployed = Deployed(network, inputs, temperature, expert_temperatures).eval()

    @classmethod
    def of_texts(
        cls,
        network: MixtureClassifier,
        tokenizer: str | Path,
        classes: list[str] | list[int],
        *,
        temperature: float = 1.0,
        card: Card | None = None,
    ) -> "NetworkModel":
        """A model of texts out of a mixture on a text encoder, such as transformers' Trainer leaves it.

        tokenizer: the folder or hub name that the encoder came from. The network is copied.
        """
        if not isinstance(network.backbone, Encoder):
            raise InputError(f"the network reads no texts: its backbone is {type(network.backbone).__name__}")
        parts = copy.deepcopy((network.backbone, network.head))
        plain = MixtureClassifier(*parts).cpu().float()
        inputs, pooling = TextInputs(), {"pooling": network.backbone.pooling}
        architecture = Architecture(
            backbone="encoder", shape=inputs.shape, options=pooling, head=dict(plain.head.config)
        )
        folder = encoder_folder(str(tokenizer))
        return cls(plain, architecture, inputs, classes, temperature=temperature, card=card, encoder=folder)

    @property
    def network(self) -> MixtureClassifier:
        return self.deployed.network

    @property
    def temperature(self) -> float:
        return self.deployed.temperature

    @property
    def expert_temperatures(self) -> list[float] | None:
        return self.deployed.expert_temperatures

    @property
    def num_experts(self) -> int:
        views = len(self.inputs.pooled) if isinstance(self.inputs, ImageInputs) else 1
        return views * self.network.head.num_experts

    def own_output(self, X: Any) -> MixtureOutput:
        return self.deployed.answer(self.inputs.rows(X, self.encoder))

    def save(self, folder: str | Path) -> None:
        from calmoe.models.folder import save_network

        save_network(self, folder)


def with_weights(network: MixtureClassifier, weights: dict[str, Tensor]) -> MixtureClassifier:
    """The network with these weights in place of its own, which may be on the device "meta"; float32."""
    check_shapes(weights, network.state_dict())
    floats = {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
    check_finite(floats)
    network.load_state_dict(floats, assign=True)
    return network
