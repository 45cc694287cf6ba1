"""The streamed audit is the audit: all of it where the sample is the table, the sums where it is not."""

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from calmoe.arrays import plain
from calmoe.auditing.audit_report import audit
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.sections.calibration import aggregate
from calmoe.auditing.sections.groups import groups, groups_event, prediction_rows
from calmoe.auditing.sections.reliability import surface
from calmoe.auditing.sections.skill import skill
from calmoe.auditing.streaming.run import pass_over, report_on
from calmoe.auditing.streaming.shards import Place, Task, merged
from calmoe.auditing.streaming.source import Source
from calmoe.defaults import BINS
from calmoe.formats import Columns
from calmoe.metrics import ece
from calmoe.mixture import MixtureOutput
from calmoe.reading import read_with
from haste import hastily
from sizes import at_size
from streaming_tables import random_predictions, write

FEW = 190  # rows of a sample that nothing is learned from, which makes an audit quick
ROWS = 2000


def close(one, other, at="report"):
    """Equal to 1e-9, number by number."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one:
            close(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for i, pair in enumerate(zip(one, other, strict=True)):
            close(*pair, f"{at}[{i}]")
    elif isinstance(one, float) and other is not None:
        assert one == pytest.approx(other, abs=1e-9), at
    else:
        assert one == other, at


def streamed(paths, *, most, of="top", shards=1, rows=500, columns=None, level=0.95):
    source = Source(paths, columns or Columns(), most=rows)
    task = Task.on(source, of=of, bins=BINS, seed=0, most=most)
    parts = [(str(i), pass_over(source, task, Place(i, shards))) for i in range(1, shards + 1)]
    return report_on(merged(parts), level=level)


def test_it_equals_the_audit_in_memory_where_the_sample_is_the_table(tmp_path):
    rows, classes, experts = at_size((300, 3, 2), (200_000, 10, 4))
    path = write(tmp_path / "p.parquet", random_predictions(1, rows, classes, experts), row_group_size=120)
    with at_size(hastily(), nullcontext()):
        whole, parts = (
            audit(read_with(path, Columns())),
            streamed([path], most=rows, shards=3, rows=at_size(70, 2**16)),
        )
    assert parts.sampled is None
    close(whole.to_dict(), parts.to_dict())
    for name, densities in whole.reweightings().items():
        np.testing.assert_allclose(densities, parts.reweightings()[name], atol=1e-9)


KINDS = {
    "mixture": {},
    "mixture, of 1": {"of": 1},
    "two classes": {"classes": 2},
    "two classes, of 0": {"classes": 2, "of": 0},
    "no experts": {"classes": 4, "experts": 1},
    "float64": {"dtype": torch.float64},
    "labels of probability zero": {"impossible": True},
    "labels of probability zero, of 1": {"impossible": True, "of": 1},
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", KINDS)
def test_sums_give_the_numbers_of_all_rows(tmp_path, kind):
    options = dict(KINDS[kind])
    of, impossible = options.pop("of", "top"), options.pop("impossible", False)
    predictions = random_predictions(len(kind), at_size(ROWS, 200_000), **options)
    if impossible:
        predictions = with_zeros(predictions)
    path = write(tmp_path / "p.parquet", predictions)
    report = streamed([path], most=FEW, of=str(of), shards=2, level=0.9)
    whole = read_with(path, Columns())
    seen = Configurations.of(whole, of)
    assert (report.rows, report.sampled.rows) == (len(whole), FEW)
    close(plain(surface(seen, level=0.9)), plain(report.surface))
    close(
        *(
            without(each, "auroc", "average_precision")
            for each in (skill(whole, of=of, level=0.9), report.skill)
        )
    )
    listed = {name: values for name, values in whole.groups.items() if name != "age"}
    event = groups_event(of, whole.num_classes)
    kinds = prediction_rows(whole) if of == "top" else []
    every = groups(Configurations.of(whole, event), listed, level=0.9, kinds=kinds)
    close(plain(every.groups), plain(report.groups.groups))
    close(plain(every.ece), plain(report.groups.ece))
    assert report.groups.unlisted.keys() == {*every.unlisted, "age"} == {"age", "name"}
    sampled = ("adaptive_ece", "smooth_ece", "classwise_ece", "experts_ece", "experts")
    in_memory = aggregate(seen, whole, level=0.9)
    close(*(without(each, *sampled) for each in (in_memory, report.aggregate)))
    for ours, theirs in zip(in_memory.experts, report.aggregate.experts, strict=True):
        close(without(ours, "excess"), without(theirs, "excess"))
    for name in ("classwise_ece", "experts_ece"):  # the sample gives the correlations, and so the last digits
        ours, theirs = getattr(in_memory, name), getattr(report.aggregate, name)
        assert theirs.value == pytest.approx(ours.value, abs=0.3 * (ours.high - ours.low))


def without(dataclass, *names):
    return {name: value for name, value in plain(dataclass).items() if name not in names}


def with_zeros(predictions):
    """Some labels get probability zero."""
    logs = predictions.output.log_probs.clone()
    rows = torch.arange(0, len(logs), 50)
    logs[rows] = -torch.inf
    logs[rows, (predictions.labels[rows] + 1) % logs.shape[1]] = 0.0
    return replace(predictions, output=MixtureOutput(logs, *predictions.output[1:]))


@pytest.mark.usefixtures("hasty")
def test_the_mixture_is_held_against_its_experts_on_all_rows(tmp_path):
    predictions = random_predictions(0, 1000)
    logs = predictions.output.log_probs.clone()
    logs[-1] = torch.tensor([0.1, 0.2, 0.7]).log()
    path = write(
        tmp_path / "p.parquet", replace(predictions, output=predictions.output._replace(log_probs=logs))
    )
    whole = audit(read_with(path, Columns()).take(np.arange(900, 1000)))
    report = streamed([path], most=FEW)
    assert report.unlike == pytest.approx(whole.unlike, abs=1e-12)
    assert report.routed


def test_reweightings_name_rows_of_the_table(tmp_path):
    path = write(tmp_path / "p.parquet", random_predictions(2, 900))
    with hastily():
        report = streamed([path], most=250)
    whole, saved = read_with(path, Columns()), report.reweightings()
    rows, weights = saved["rows"], saved["configurations.densities"][-1]
    assert rows.max() >= 250
    probs, labels = whole.output.probs[rows], whole.labels[rows]
    expected = report.fragility.configurations.plain_ece[-1]
    assert ece(probs, labels, weights=weights) == pytest.approx(expected, abs=1e-6)


@pytest.mark.usefixtures("hasty", "unrendered")
def test_the_page_says_which_numbers_rest_on_the_sample(tmp_path):
    path = write(tmp_path / "p.parquet", random_predictions(3, 600))
    files = streamed([path], most=FEW).files()
    page, numbers = files["report.html"].decode(), json.loads(files["audit.json"])
    assert page.count(f"From a sample of {FEW} rows: all of this part.") >= 3
    assert page.count(f"From a sample of {FEW} rows: AUROC and average precision.") == 1
    assert numbers["sampled"]["rows"] == FEW
    assert "predicted class" in numbers["sampled"]["numbers"]["groups"]
    assert "reliability" not in numbers["sampled"]["numbers"]
