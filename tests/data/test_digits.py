import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from calmoe.data import digits
from calmoe.data.shift import PROTOCOLS


@pytest.fixture(scope="module")
def loaded():
    return {protocol: digits.load(None, protocol) for protocol in PROTOCOLS}


def test_the_split_was_chosen_once(loaded):
    sizes = {p: [len(split) for split in data.splits.values()] for p, data in loaded.items()}
    assert sizes == {"corrected": [720, 179, 898], "published": [810, 89, 898]}
    assert loaded["corrected"].fingerprint() == digits.load().fingerprint()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_splits_are_a_partition_of_the_digits(loaded, protocol):
    data = loaded[protocol]
    rows = torch.cat([torch.cat([s.inputs.flatten(1), s.labels[:, None]], 1) for s in data.splits.values()])
    pixels, labels = load_digits(return_X_y=True)
    expected = np.column_stack([(pixels * 255 / 16).round(), labels])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, expected.astype(int).tolist()))


def test_images_are_bytes(loaded):
    data = loaded["corrected"]
    assert data.images
    assert data.input_shape == (1, 8, 8)
    assert data.train.inputs.max() == 255
    pixels = data.train.inputs.double() / 255
    assert abs(pixels.mean() - data.mean[0]) < 0.005
    assert abs(pixels.std() - data.std[0]) < 0.005


def test_every_class_is_in_every_corrected_split(loaded):
    for split in loaded["corrected"].splits.values():
        assert split.labels.unique().tolist() == list(range(10))


def test_hard_digits_are_enough_and_the_same_under_both_protocols(loaded):
    one, other = (data.test.groups for data in loaded.values())
    assert one["hard"].sum() == 97
    assert all((one[name] == other[name]).all() for name in one)
    assert set(one["agreement_level"][one["hard"]]) == {"0.0-0.5", "0.5-0.6", "0.6-0.7"}


def test_agreement_matches_scikit_learn(loaded):
    data = loaded["corrected"]
    pool = torch.cat([data.train.inputs, data.validation.inputs]).flatten(1).double()
    labels = torch.cat([data.train.labels, data.validation.labels]).numpy()
    pixels, tested = ((x * 16 / 255).round().numpy() for x in (pool, data.test.inputs.flatten(1).double()))
    nearest = NearestNeighbors(n_neighbors=15).fit(pixels).kneighbors(tested, return_distance=False)
    theirs = (labels[nearest] == data.test.labels.numpy()[:, None]).mean(1)
    different = np.abs(theirs - data.test.groups["agreement"]) > 1e-9
    assert different.mean() < 0.02  # equal distances may be cut differently


def test_published_validation_is_the_last_tenth_and_augmented(loaded):
    published, corrected = loaded["published"], loaded["corrected"]
    assert published.validation_augmented
    assert not corrected.validation_augmented
    stored = {tuple(row.tolist()): i for i, row in enumerate(_stored_images())}
    train, validation = (
        [stored[tuple(row.tolist())] for row in split.inputs.flatten(1)]
        for split in (published.train, published.validation)
    )
    assert max(train) < min(validation)


def _stored_images():
    return torch.from_numpy((load_digits().data * 255 / 16).round().astype(np.uint8))
