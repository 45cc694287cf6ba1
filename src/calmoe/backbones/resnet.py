"""ResNet-18, 34 and 50 without the last layer, under torchvision's parameter names: its weights load."""

from torch import Tensor, nn

from calmoe.backbones.backbone import Backbone
from calmoe.errors import InputError

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
STAGES = {"cifar": 3, "imagenet": 4}  # the default number of stages for each stem
VARIANTS = ("v1.5", "v1")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, variant: str) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 around a shortcut; the stride is in the 3x3 (v1.5) or in the first 1x1 (v1)."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, variant: str) -> None:
        super().__init__()
        first, second = (stride, 1) if variant == "v1" else (1, stride)
        self.conv1 = _conv(inputs, width, 1, first)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, second)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(inputs, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(Backbone):
    """Images [N,C,H,W] -> features [N, out_features]. The CIFAR stem is one 3x3 of stride 1 and no pooling.

    >>> ResNet(18, stem="cifar", stages=3).out_features
    256
    """

    def __init__(
        self,
        depth: int = 18,
        *,
        stem: str = "cifar",
        stages: int | None = None,
        variant: str = "v1.5",
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        _check("depth", depth, tuple(BLOCKS))
        _check("stem", stem, tuple(STAGES))
        _check("variant", variant, VARIANTS)
        self.stages = STAGES[stem] if stages is None else stages
        _check("stages", self.stages, (3, 4))
        self.variant, self.bottleneck = variant, depth == 50
        block = Bottleneck if self.bottleneck else BasicBlock

        self.conv1 = _conv(in_channels, 64, 3) if stem == "cifar" else _conv(in_channels, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(3, stride=2, padding=1)
        inputs = 64
        for stage in range(self.stages):
            width, blocks = 64 << stage, []
            for position in range(BLOCKS[depth][stage]):
                stride = 2 if stage and not position else 1
                blocks.append(block(inputs, width, stride, variant))
                inputs = block.expansion * width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.out_features = inputs
        self._initialise()

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return x.mean(dim=(2, 3))

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """A strided 1x1 projection where the shape changes, else nothing."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def _check(what: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise InputError(f"unknown ResNet {what} {value!r}: choose from {', '.join(map(repr, known))}")
