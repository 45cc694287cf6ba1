import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch

from calmoe.data import DATASETS, ShiftDataset, Split, load_dataset
from calmoe.errors import InputError


def split(n=4, **groups):
    return Split(inputs=torch.arange(n * 3.0).reshape(n, 3), labels=torch.arange(n) % 2, groups=groups)


def dataset(**settings):
    test = split(hard=np.array([True, False, True, False]), source=np.array(["a", "b", "a", "c"]))
    settings = {"test": test, "hard": "hard", **settings}
    return ShiftDataset(
        name="tiny", train=split(6), validation=split(2), class_names=("no", "yes"), **settings
    )


def test_take_keeps_rows_and_columns_together():
    taken = dataset().test.take(np.array([3, 0]))
    assert taken.inputs[:, 0].tolist() == [9.0, 0.0]
    assert taken.labels.tolist() == [1, 0]
    assert taken.groups["source"].tolist() == ["c", "a"]


def test_take_by_mask():
    test = dataset().test
    assert len(test.take(test.groups["hard"])) == 2


def test_fingerprint_depends_on_everything():
    data = dataset()
    flipped = torch.arange(4) % 2
    flipped[0] = 1
    others = [
        replace(data, flip=True),
        replace(data, protocol="published"),
        replace(data, validation_augmented=True),
        replace(data, validation=split(3)),
        replace(data, test=replace(data.test, labels=flipped)),
        replace(data, test=replace(data.test, groups={**data.test.groups, "hard": np.ones(4, bool)})),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in others)}) == 7
    assert dataset().fingerprint() == data.fingerprint()


def test_training_fingerprint_depends_on_training_only():
    data = dataset()
    same = replace(data, protocol="published", validation_augmented=True, validation=split(3))
    assert same.training_fingerprint() == data.training_fingerprint()
    assert replace(data, train=split(5)).training_fingerprint() != data.training_fingerprint()
    assert replace(data, crop_padding=2).training_fingerprint() != data.training_fingerprint()


def test_a_slice_and_its_copy_are_the_same_content():
    test = split(8).take(range(0, 8, 2))
    strided = Split(inputs=split(8).inputs[::2], labels=split(8).labels[::2])
    assert dataset(test=test, hard=None).fingerprint() == dataset(test=strided, hard=None).fingerprint()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: dataset(hard="easy"), "boolean column"),
        (lambda: dataset(hard="source"), "boolean column"),
        (lambda: dataset(protocol="publised"), "did you mean 'published'"),
        (lambda: split(4, source=np.array(["a"] * 3)), "one bool, number or string per row"),
        (lambda: split(4, source=np.array([None] * 4)), "got object"),
        (lambda: Split(inputs=torch.zeros(2, 3), labels=torch.zeros(2)), "int64"),
        (lambda: replace(dataset(), class_names=("one",)), "outside 0..0"),
        (lambda: load_dataset("digit"), "did you mean 'digits'"),
    ],
)
def test_wrong_input_is_named(wrong, words):
    with pytest.raises(InputError, match=words):
        wrong()


def test_loaders_share_one_signature():
    for card in DATASETS.values():
        assert list(inspect.signature(card.load).parameters)[:2] == ["data", "protocol"]
    assert load_dataset("digits", None, "published").protocol == "published"
