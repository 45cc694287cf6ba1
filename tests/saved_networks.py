"""Small networks with everything that a model folder holds, for tests."""

from calmoe.backbones import build_backbone
from calmoe.mixture import MixtureClassifier, MixtureHead
from calmoe.models.architecture import Architecture
from calmoe.models.card import Card
from calmoe.models.inputs import ImageInputs
from calmoe.models.network_model import NetworkModel

IMAGES = ImageInputs(shape=(3, 8, 8), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2), mirrors=True, views=10)


def network(inputs, backbone="mlp", encoder=None, experts=2, **options):
    options = options or {"hidden": (6,)}
    extra = {"weights": str(encoder)} if encoder else {}
    made = build_backbone(backbone, inputs.shape, **options, **extra)
    model = MixtureClassifier(made, MixtureHead(made.out_features, 3, num_experts=experts, router_hidden=4))
    return NetworkModel(
        model,
        Architecture(backbone=backbone, shape=inputs.shape, options=options, head=model.head.config),
        inputs,
        ["kľúč", "b", "c"],
        temperature=1.7,
        expert_temperatures=[0.5, 2.0] if experts == 2 else None,
        card=Card(dataset="mine", label="y", rows=7, scores={"held out": {"rows": 3.0, "ece": 0.25}}),
        encoder=encoder,
    )
