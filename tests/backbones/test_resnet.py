import pytest
import torch
from torch import nn

from calmoe.backbones import ResNet, build_backbone
from calmoe.errors import InputError


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("depth", "count", "entries"), [(18, 11_176_512, 120), (34, 21_284_672, 216), (50, 23_508_032, 318)]
)
def test_torchvision_sizes(depth, count, entries):
    """Torchvision's counts without fc (11,689,512; 21,797,672; 25,557,032 with it)."""
    with torch.device("meta"):
        model = ResNet(depth, stem="imagenet")
    assert parameters(model) == count
    assert len(model.state_dict()) == entries


def test_torchvision_names():
    names = ResNet(18, stem="imagenet").state_dict().keys()
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer4.1.bn2.bias"} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.num_batches_tracked"} <= names
    assert not any(name.startswith(("layer1.0.downsample", "fc")) for name in names)
    with torch.device("meta"):
        deep = ResNet(50, stem="imagenet").state_dict()
    assert deep["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert deep["layer3.5.conv3.weight"].shape == (1024, 256, 1, 1)


@pytest.mark.parametrize(
    ("depth", "stages", "features"), [(18, 3, 256), (18, 4, 512), (34, 3, 256), (50, 3, 1024), (50, 4, 2048)]
)
def test_features(depth, stages, features):
    model = ResNet(depth, stages=stages)
    assert model.out_features == features
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, features)


def test_cifar_stem_keeps_the_resolution():
    model = ResNet(18)
    assert model.conv1.weight.shape == (64, 3, 3, 3)
    sizes = []
    model.layer1.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    model.layer3.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [(64, 32, 32), (256, 8, 8)]


def test_imagenet_stem_reduces_by_32():
    model = ResNet(18, stem="imagenet").eval()
    assert model.conv1.weight.shape == (64, 3, 7, 7)
    sizes = []
    model.layer4.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    model(torch.zeros(1, 3, 96, 96))
    assert sizes == [(512, 3, 3)]


def test_where_the_stride_is():
    with torch.device("meta"):
        new, old = (ResNet(50, stem="imagenet", variant=v).layer2[0] for v in ("v1.5", "v1"))
    assert (new.conv1.stride, new.conv2.stride) == ((1, 1), (2, 2))
    assert (old.conv1.stride, old.conv2.stride) == ((2, 2), (1, 1))


def test_initialisation():
    torch.manual_seed(0)
    model = ResNet(18)
    weight = model.layer3[1].conv2.weight
    assert abs(weight.std().item() - (2 / (256 * 9)) ** 0.5) < 1e-4
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


def test_matches_the_arithmetic_of_a_residual_block():
    torch.manual_seed(0)
    block = ResNet(18).layer2[0].eval()
    x = torch.randn(1, 64, 8, 8)
    inner = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(x)))))
    assert torch.equal(block(x), torch.relu(inner + block.downsample[1](block.downsample[0](x))))


@pytest.mark.parametrize("wrong", [{"depth": 20}, {"stem": "tiny"}, {"stages": 5}, {"variant": "v2"}])
def test_unknown_settings(wrong):
    with pytest.raises(InputError, match="choose from"):
        ResNet(**wrong)


def test_by_name():
    model = build_backbone("resnet18", (1, 16, 16), stages=4)
    assert model(torch.zeros(2, 1, 16, 16)).shape == (2, 512)
    assert build_backbone("resnet34", (3, 32, 32)).out_features == 256
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        build_backbone("resnet-18", (3, 32, 32))
    with pytest.raises(InputError, match="did you mean 'stages'"):
        build_backbone("resnet18", (3, 32, 32), stage=3)
    with pytest.raises(InputError, match="unknown option of resnet18 'depth'"):
        build_backbone("resnet18", (3, 32, 32), depth=50)
    with pytest.raises(InputError, match="needs images"):
        build_backbone("resnet18", (64,))
