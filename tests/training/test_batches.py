import numpy as np
import pytest
import torch
from hypothesis import given

from calmoe.data import ShiftDataset, Split
from calmoe.training.batches import Batches
from strategies import generator, seeds

CPU = torch.device("cpu")


def images(n=6, channels=3, height=8, width=10):
    source = generator(0)
    return torch.randint(0, 256, (n, channels, height, width), dtype=torch.uint8, generator=source)


def dataset(inputs, padding=2, flip=True):
    split = Split(inputs=inputs, labels=torch.arange(len(inputs)) % 3)
    channels = inputs.shape[1]
    return ShiftDataset(
        name="test",
        train=split,
        validation=split,
        test=split,
        class_names=("a", "b", "c"),
        mean=(0.4,) * channels,
        std=(0.2,) * channels,
        crop_padding=padding,
        flip=flip,
    )


@given(seeds)
def test_crop_and_flip_against_padding_and_slicing(seed):
    inputs = images()
    batches = Batches(dataset(inputs).train, dataset(inputs), CPU)
    batches.draw(generator(seed))
    taken, labels = batches.take(torch.arange(6))
    padded = torch.nn.functional.pad(inputs.float() / 255, (2, 2, 2, 2))  # zeros, before normalisation
    for i, row in enumerate(batches.order.tolist()):
        top, left = batches.corner[i].tolist()
        crop = padded[row, :, top : top + 8, left : left + 10]
        expected = crop.flip(2) if batches.flipped[i] else crop
        torch.testing.assert_close(taken[i], expected)
        assert labels[i] == row % 3


def test_without_a_draw_the_rows_come_as_they_are():
    inputs = images()
    batches = Batches(dataset(inputs).train, dataset(inputs), CPU)
    taken, _ = batches.take(torch.tensor([4, 1]))
    torch.testing.assert_close(taken, inputs[[4, 1]].float() / 255)
    torch.testing.assert_close(batches.normalise(taken), (inputs[[4, 1]].float() / 255 - 0.4) / 0.2)
    assert taken.is_contiguous(memory_format=torch.channels_last)


def test_every_offset_and_both_flips_occur():
    inputs = images(n=2000, channels=1, height=2, width=2)
    batches = Batches(dataset(inputs).train, dataset(inputs), CPU)
    batches.draw(generator(1))
    offsets = np.unique(batches.corner.numpy(), axis=0)
    assert len(offsets) == 25
    assert 0.45 < batches.flipped.float().mean() < 0.55
    assert torch.equal(batches.order.sort().values, torch.arange(2000))


def test_a_draw_without_shuffling_keeps_the_order():
    inputs = images()
    batches = Batches(dataset(inputs).train, dataset(inputs), CPU)
    batches.draw(generator(0), shuffle=False)
    assert torch.equal(batches.order, torch.arange(6))


def test_features_pass_untouched():
    features = torch.randn(5, 4)
    split = Split(inputs=features, labels=torch.zeros(5, dtype=torch.long))
    data = ShiftDataset(name="f", train=split, validation=split, test=split, class_names=("a",))
    batches = Batches(split, data, CPU)
    batches.draw(generator(0))
    taken, _ = batches.take(torch.arange(5))
    assert torch.equal(batches.normalise(taken), features[batches.order])


@pytest.mark.parametrize("flip", [True, False])
def test_flips_only_where_asked(flip):
    inputs = images(n=50)
    batches = Batches(dataset(inputs, flip=flip).train, dataset(inputs, flip=flip), CPU)
    batches.draw(generator(2))
    assert bool(batches.flipped.any()) == flip


def test_crops_of_224_pixels_with_padding_28():
    """As PACS has them: [N,H,W,C] in memory, corners at the extremes, and flipped."""
    inputs = images(n=3, height=224, width=224).contiguous(memory_format=torch.channels_last)
    data = dataset(inputs, padding=28)
    batches = Batches(data.train, data, CPU)
    assert batches.inputs.data_ptr() == inputs.data_ptr()  # nothing is copied
    batches.corner.copy_(torch.tensor([[0, 56], [56, 0], [28, 28]]))
    batches.flipped.copy_(torch.tensor([False, True, True]))
    taken, _ = batches.take(torch.arange(3))
    padded = torch.nn.functional.pad(inputs.float() / 255, (28, 28, 28, 28))
    expected = padded[0, :, :224, 56:], padded[1, :, 56:, :224].flip(2), padded[2, :, 28:-28, 28:-28].flip(2)
    torch.testing.assert_close(taken, torch.stack(expected))
    assert (taken[0, :, :28] == 0).all()  # black, beyond the border
