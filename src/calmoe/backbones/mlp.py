"""A multilayer perceptron over flattened rows."""

from collections.abc import Iterable
from itertools import pairwise

from torch import Tensor, nn

from calmoe.backbones.backbone import Backbone


class MLP(Backbone):
    """Linear and ReLU, once per hidden width: [N,...] -> [N, hidden[-1]].

    >>> MLP(64, hidden=(128,)).out_features
    128
    """

    def __init__(self, in_features: int, hidden: Iterable[int] = (128,)) -> None:
        super().__init__()
        widths = [in_features, *hidden]
        self.layers = nn.Sequential(
            *(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU()))
        )
        self.out_features = widths[-1]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.flatten(1))
