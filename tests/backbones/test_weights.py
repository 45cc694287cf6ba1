import os
import pickle
import sys
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from calmoe.backbones import MLP, ResNet, fitting_weights, load_pretrained, weights_digest
from calmoe.errors import InputError


@pytest.fixture(scope="module")
def weights():
    """Of three stages: a quarter of the parameters."""
    torch.manual_seed(1)
    fc = {"fc.weight": torch.zeros(1000, 256), "fc.bias": torch.zeros(1000)}
    return small().state_dict() | fc


@pytest.fixture(scope="module")
def whole():
    fc = {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    return ResNet(18, stem="imagenet").state_dict() | fc


@pytest.fixture
def path(tmp_path):
    return tmp_path / "resnet18.safetensors"


def small(depth=18, **options):
    return ResNet(depth, stem="imagenet", stages=3, **options)


@cache
def usual():
    """One model for all refusals: none of them may change it."""
    return small()


def refused(path, words, model=None):
    model = model or usual()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError, match=words) as refusal:
        load_pretrained(model, path)
    assert "\n" not in str(refusal.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return str(refusal.value)


@pytest.mark.parametrize("counters", [True, False])
@pytest.mark.parametrize("kind", ["safetensors", "pth", "pt"])
def test_weights_load(weights, tmp_path, counters, kind):
    path = tmp_path / f"resnet18.{kind}"
    content = {k: v for k, v in weights.items() if counters or "num_batches" not in k}
    (save_file if kind == "safetensors" else torch.save)(content, path)
    model = small()
    load_pretrained(model, str(path))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_weights_that_do_not_fit_are_named(weights, path):
    content = {k: v for k, v in weights.items() if k != "layer1.0.conv1.weight"}
    save_file(content | {"extra": torch.zeros(1), "conv1.weight": torch.zeros(64, 3, 3, 3)}, path)
    said = refused(path, "does not fit this ResNet's depth, stem and stages")
    for words in (
        "1 missing: layer1.0.conv1.weight",
        "1 unexpected: extra",
        "1 of another shape: conv1.weight",
        str(path),
    ):
        assert words in said


def test_another_depth_stem_or_backbone_is_refused(whole, path):
    save_file(whole, path)
    refused(path, r"80 missing: layer1\.2\.bn1\.bias, .*, \.\.\.", ResNet(34, stem="imagenet"))
    refused(path, "1 of another shape: conv1.weight", ResNet(18, stem="cifar", stages=4))
    refused(path, "30 unexpected: layer4", ResNet(18, stem="imagenet", stages=3))
    refused(path, "choose backbone resnet18", MLP(4, (2,)))


def test_what_to_set_for_other_weights_is_said(whole, path):
    save_file(whole | {"fc.weight": torch.zeros(3, 512)}, path)
    refused(path, r"stages, give --set backbone=resnet18 \(", ResNet(50, stem="imagenet"))
    refused(path, r"stages, give --set stem=imagenet --set stages=4 \(", ResNet(18))
    save_file({"layer1.0.conv1.weight": torch.zeros(1)}, path)
    refused(path, r"depth, stem and stages \(")  # no ResNet of ours


def test_a_folder_is_not_called_missing(tmp_path):
    refused(tmp_path, "is a folder, not a file: give a .safetensors or .pth file")


def test_the_variant_is_checked_where_the_file_tells_it(path):
    old = small(50, variant="v1")
    save_file(old.state_dict(), path, metadata={"variant": "v1: stride in the first 1x1"})
    refused(path, r"is of variant v1, this ResNet of v1\.5: set variant=v1", small(50))
    load_pretrained(small(50, variant="v1"), path)
    shallow = small()
    save_file(shallow.state_dict(), path, metadata={"variant": "v1"})
    load_pretrained(small(), path)  # has no bottleneck: the variants are one


def test_a_fit_can_be_tried_without_memory(weights, path):
    save_file(weights, path)
    with torch.device("meta"):
        model, other = small(), small(34)
    assert fitting_weights(model, path).keys() == model.state_dict().keys()
    with pytest.raises(InputError, match="missing"):
        fitting_weights(other, path)


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_damaged_and_evil_files(weights, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(tmp_path / "nothing.pth", r"there is no file .*nothing\.pth")
    save_file(weights, path)
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "resnet18.safetensors: not a readable safetensors file")
    pth = tmp_path / "resnet18.pth"
    torch.save(weights, pth)
    pth.write_bytes(pth.read_bytes()[:-5000])
    refused(pth, "resnet18.pth is not a whole checkpoint")
    pth.write_bytes(pickle.dumps({"conv1.weight": Evil()}, protocol=2))
    refused(pth, "nothing in it was run")
    torch.save({"conv1.weight": Evil()}, pth)
    refused(pth, "nothing in it was run")
    assert not (tmp_path / "executed").exists()
    torch.save({"epoch": 3, "state_dict": {}}, pth)
    refused(pth, r"save the model's state_dict\(\)")


@pytest.mark.parametrize("protocol", range(6))
def test_a_foreign_pickle_is_refused_without_warnings(tmp_path, protocol, recwarn):
    path = tmp_path / "foreign.pth"
    path.write_bytes(pickle.dumps({"a": [1, 2]}, protocol=protocol))
    refused(path, "foreign.pth is not a whole checkpoint")
    assert not recwarn.list


def test_the_digest_is_of_the_content(weights, tmp_path):
    here, there, other = (tmp_path / f"{name}.safetensors" for name in ("here", "there", "other"))
    save_file(weights, here)
    save_file(weights, there)
    save_file(weights | {"conv1.weight": weights["conv1.weight"] + 1}, other)
    assert weights_digest(here) == weights_digest(str(there)) != weights_digest(other)


def test_the_hub(weights, path, monkeypatch):
    save_file(weights, path)
    asked = []

    def download(repo, file):
        asked.append((repo, file))
        if "none" in repo:
            raise OSError("we cannot connect\nand say so at length")
        return str(path)

    hub = SimpleNamespace(hf_hub_download=download, try_to_load_from_cache=lambda *_: None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    model = small()
    load_pretrained(model, "hf:timm/resnet18.tv_in1k")
    load_pretrained(model, "hf:own/model/folder/file.safetensors")
    assert asked == [("timm/resnet18.tv_in1k", "model.safetensors"), ("own/model", "folder/file.safetensors")]
    hub.try_to_load_from_cache = lambda repo, file: str(path) if repo == "own/model" else None
    load_pretrained(model, "hf:own/model")
    assert len(asked) == 2  # what is here is not asked for again
    refused("hf:none/none", r"cannot get hf:none/none from .* hub \(we cannot connect\): give a local file")
    refused("hf:resnet18", "names no repository: write hf:owner/name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused("hf:timm/resnet18.tv_in1k", r"needs huggingface_hub: pip install 'calmoe\[hub\]'")
