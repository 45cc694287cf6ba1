"""The streaming ECE: one number however the rows arrive, in one process or two, torchmetrics or not."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torchmetrics

from calmoe.errors import InputError
from calmoe.metrics import CalibrationError, ece
from forked import server
from ranks import on_processes, stream

WITHOUT_TORCHMETRICS = """
import sys
sys.modules["torchmetrics"] = None
import numpy as np, torch
from calmoe.metrics import CalibrationError, ece
generator = np.random.default_rng(0)
probs, labels = generator.dirichlet([1, 1, 1], 90), generator.integers(3, size=90)
weights = generator.random(90)
metric = CalibrationError(bins=7, of=1).to("cpu")
for part in np.split(np.arange(90), 3):
    rows = probs[part], labels[part], weights[part]
    assert abs(metric(*rows) - ece(*rows, bins=7, of=1)) < 1e-12
assert abs(metric.compute() - ece(probs, labels, weights, bins=7, of=1)) < 1e-12
metric.update(probs[:0], labels[:0])
metric.update(probs, labels, np.zeros(90))
assert metric(probs[:0], labels[:0]).isnan()
assert abs(metric.compute() - ece(probs, labels, weights, bins=7, of=1)) < 1e-12
metric.reset()
assert metric.compute().isnan()
assert type(metric).__mro__[1].__module__ == "calmoe.metrics.streaming"
"""


@pytest.mark.parametrize("of", ["top", 2])
def test_a_stream_is_the_whole(draw, of):
    probs, labels = draw(0, rows=300)
    weights = np.random.default_rng(1).random(300)
    metric = CalibrationError(bins=10, of=of)
    for part in np.split(np.arange(300), [1, 50, 120]):
        batch = metric(probs[part], labels[part], weights[part])
        assert batch == pytest.approx(
            ece(probs[part], labels[part], weights[part], bins=10, of=of), abs=1e-12
        )
    assert metric.compute() == pytest.approx(ece(probs, labels, weights, bins=10, of=of), abs=1e-12)
    assert metric.sums.shape == (11,)
    metric.reset()
    metric.update(probs, labels)
    assert metric.compute() == pytest.approx(ece(probs, labels, bins=10, of=of), abs=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_no_rows_and_no_weight_add_nothing(kind, sample):
    probs, labels = map(kind, sample)
    metric = CalibrationError()
    metric.update(probs[:0], labels[:0])
    metric.update(probs[:0], labels[:0], kind(np.zeros(0)))
    metric.update(probs, labels, kind(np.zeros(200)))
    assert metric.compute().isnan()
    metric.update(probs, labels)
    assert metric(probs[:0], labels[:0]).isnan()
    assert metric.compute() == pytest.approx(ece(probs, labels), abs=1e-12)
    with pytest.raises(InputError, match="labels must be"):
        metric.update(probs, labels[:0])
    with pytest.raises(InputError, match="weights must be"):
        metric.update(probs, labels, kind(np.full(200, np.nan)))


def test_a_stream_under_autocast(sample):
    probs, labels = torch.as_tensor(sample[0]).float(), torch.as_tensor(sample[1])
    metric = CalibrationError()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        metric.update(probs, labels)
        assert metric.compute() == pytest.approx(ece(probs, labels), abs=1e-12)


def test_it_joins_a_collection(sample):
    probs, labels = (torch.as_tensor(array) for array in sample)
    collection = torchmetrics.MetricCollection({"top": CalibrationError(), "second": CalibrationError(of=1)})
    for part in torch.arange(200).split(64):
        collection.update(probs[part], labels[part])
    values = collection.compute()
    assert values["top"] == pytest.approx(ece(probs, labels), abs=1e-12)
    assert values["second"] == pytest.approx(ece(probs, labels, of=1), abs=1e-12)
    assert isinstance(collection["top"], torchmetrics.Metric)


@pytest.mark.slow
@pytest.mark.parametrize(("without", "cut"), [(False, 70), (True, 70), (False, 0)])
def test_two_processes_are_one(without, cut, sample, tmp_path):
    probs, labels = sample
    queue = server().SimpleQueue()
    parts = [probs[:cut], probs[cut:]], [labels[:cut], labels[cut:]]
    on_processes(2, stream, (f"file://{tmp_path}/meet", without, *parts, queue))
    for values in (queue.get(), queue.get()):
        assert values == pytest.approx([ece(probs, labels)] * 2, abs=1e-12)


@pytest.mark.slow
def test_without_torchmetrics():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCHMETRICS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
