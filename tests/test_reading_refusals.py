"""Columns that nothing explains, and files that hold anything: asked for or refused, in one line."""

import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import forked
from calmoe import Predictions
from calmoe.errors import InputError
from calmoe.formats.rounding import renormalised
from calmoe.reading import read_predictions
from sizes import at_size
from test_commands import calmoe as command
from test_commands import refused as refused_command
from test_reading import NAMES, P, Y, refused, write

# --- what is not certain is asked for

TWO = {"prob_0": P[:, 0], "prob_1": P[:, 1]}
UNCERTAIN = {
    "labels that no column is named after": (TWO | {"label": NAMES[Y]}, {}, "such as --classes no,yes"),
    "a score of unknown meaning": ({"y_score": P[:, 1], "y_true": NAMES[Y]}, {}, "such as --positive yes"),
    "a positive class that is not there": (
        {"y_score": P[:, 1], "y_true": NAMES[Y]},
        {"positive": "maybe"},
        "there is no class 'maybe'",
    ),
    "numbers beside named columns": (
        {"prob_cat": P[:, 0], "prob_dog": P[:, 1], "label": Y},
        {},
        "no column of labels has these classes",
    ),
    "named columns whose labels have another name": (
        {"prob_no": P[:, 0], "prob_yes": P[:, 1], "plan": NAMES[Y]},
        {},
        "with --label",
    ),
    "a label that is blank": (
        {"y": np.where(np.arange(len(Y)) == 1, np.nan, Y), "p_0": P[:, 0], "p_1": P[:, 1]},
        {"label": "y"},
        "labels 'y' are blank in row 1",
    ),
    "labels of another name": (
        {"truth": NAMES[Y], "no": P[:, 0], "yes": P[:, 1]},
        {},
        "column 'truth' holds names of other columns: if these are the labels, say so with --label truth",
    ),
    "no probabilities at all": ({"age": P[:, 0], "label": Y}, {}, "no probability columns"),
    "three labels and one score": (
        {"y_score": P[:, 1], "y": np.arange(len(Y)) % 3},
        {"label": "y"},
        "--positive",
    ),
    "two sets of columns": (
        {"p_0": P[:, 0], "p_1": P[:, 1], "y_score": P[:, 1], "label": Y},
        {},
        "say which with --probs",
    ),
    "a column that is not there": (TWO | {"label": Y}, {"label": "Label"}, "did you mean 'label'?"),
    "a label that is no class": (
        {"no": P[:, 0], "yes": P[:, 1], "y": np.where(Y, "yes", "on")},
        {"label": "y", "probs": ["no", "yes"]},
        "nothing says which",
    ),
    "too few classes": (TWO | {"label": Y}, {"classes": ["a"]}, "name one class a column"),
    "the same number twice": (
        {"prob_1": P[:, 0] * 0, "prob_01": P[:, 0], "prob_2": P[:, 1], "label": Y + 1},
        {},
        "'prob_1' and 'prob_01' have the same number: keep one",
    ),
    "numbers that begin at 1, and experts": (
        {"prob_1": P[:, 0], "prob_2": P[:, 1], "routing_0": Y * 0 + 1, "expert_0_prob_0": Y * 0 + 1},
        {},
        "columns for probs have a gap: number 0 is missing",
    ),
    "the same column twice": (TWO | {"label": Y}, {"probs": ["prob_0", "prob_0"]}, "twice"),
    "text among probabilities": (
        {"p_no": np.where(Y, "half", "0.5"), "p_yes": P[:, 1], "label": NAMES[Y]},
        {},
        "'p_no' must hold numbers only, not 'half'",
    ),
    "negative": ({"no": -P[:, 0], "yes": P[:, 1], "label": NAMES[Y]}, {}, "must lie between 0 and 1"),
    "sums": ({"no": P[:, 0], "yes": P[:, 0], "label": NAMES[Y]}, {}, "(read as: labels 'label'"),
    "NaN": ({"y_score": np.where(Y, np.nan, 0.5), "y_true": Y}, {}, "NaN"),
    "no number of a class": ({"y_score": P[:, 1], "y_true": P[:, 0]}, {}, "labels must be whole numbers"),
    "blank labels": ({"no": P[:, 0], "yes": P[:, 1], "y": np.where(Y, "yes", " ")}, {"label": "y"}, "blank"),
    "an empty option": (TWO, {"probs": []}, "probs is empty"),
}


@pytest.mark.parametrize(("columns", "options", "said"), UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_what_is_not_certain_is_asked_for(columns, options, said):
    assert said in refused(columns if said == "NaN" else pa.table(columns), **options)


READS = """
import os
import sys
from pathlib import Path
from calmoe.formats import read_table
from calmoe.formats.parquet_rows import ParquetRows

path, threads = Path(sys.argv[1]), len(os.listdir("/proc/self/task"))
read_table(path)
rows = ParquetRows([path])
next(iter(rows.batches(0, 3)))
rows.distinct("label")
assert len(os.listdir("/proc/self/task")) == threads
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_outlives_the_reading_of_a_parquet_file(tmp_path):
    """It ended a refusal with exit code 134, not 2, now and then."""
    path = tmp_path / "p.parquet"
    Predictions.from_probs(P, Y).save(path)
    done = forked.run([sys.executable, "-c", READS, str(path)], text=True)
    assert done.returncode == 0, done.stderr


def test_refusals_on_the_command_line_are_one_line(tmp_path):
    path = write(tmp_path / "p.csv", TWO | {"label": NAMES[Y]})
    assert f"error: {path}: labels 'label' are no, yes" in refused_command("audit", path)
    assert "--probs '\"a,b': write names" in refused_command("audit", path, "--probs", '"a,b')
    assert "logits" in command("audit", "--help").stdout


@pytest.mark.parametrize(
    ("probs", "explained"),
    [
        ([[0.333, 0.333, 0.332]], False),  # off by 0.002 of 0.0015
        ([[0.167] * 6], True),
        ([[0.17] * 6], True),
        ([[0.5, 0.4, 0.0]], False),  # one decimal explains too much
        ([[0.1671] * 6], False),
        ([[1.0, 1.0]], False),
        ([[float("nan"), 0.998]], False),
    ],
)
def test_only_rounding_is_mended(probs, explained):
    for kind in (torch.float64, torch.float32):
        assert (renormalised(torch.tensor(probs, dtype=kind)) is not None) == explained


# --- whatever a file holds, it is read or refused in one line

COMMON = (
    "label y y_true y_score prob_0 prob_1 p_yes p_no yes no routing_0 é expert_0_prob_1 expert_0_prob_yes"
)
WORDS = st.sampled_from(
    [*COMMON.split(), "logit_1", "prob_9999999999", "p_", "x" * 3000, 'a"b', "prob_01", ""]
)
NUMBERS = "0 1 0.5 0.333 -1 2 nan 1e999 true yes no é"
CELLS = st.sampled_from([*NUMBERS.split(), "", " ", "\0", "y" * 5000, '"'])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "label": WORDS,
        "probs": st.lists(WORDS, max_size=3),
        "classes": st.lists(WORDS, max_size=3),
        "positive": WORDS,
        "routing": st.one_of(st.lists(WORDS, max_size=2), st.lists(st.floats(), max_size=2)),
        "experts": st.lists(WORDS, max_size=3),
        "groups": st.lists(WORDS, max_size=2),
        "logits": st.booleans(),
        "routing_logits": st.booleans(),
    },
)


@settings(max_examples=at_size(150, 5000))
@given(st.data())
def test_any_csv_is_read_or_refused_in_one_line(tmp_path_factory, data):
    header = data.draw(st.lists(WORDS, max_size=5))
    row = st.one_of(st.lists(CELLS, min_size=len(header), max_size=len(header)), st.lists(CELLS, max_size=6))
    lines = [header, *data.draw(st.lists(row, max_size=4))]
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text("\n".join(",".join(line) for line in lines), encoding="utf-8")
    _read_or_refused(path, data.draw(OPTIONS))


@settings(max_examples=at_size(150, 5000))
@given(st.data())
def test_any_arrays_are_read_or_refused_in_one_line(data):
    names = st.one_of(WORDS, st.sampled_from(["probs", "labels", "routing", "expert_probs", "log_probs"]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shapes = st.sampled_from([(), (0,), (3,), (2,), (3, 2), (3, 1), (3, 0), (3, 2, 2), (2, 3)])
    kinds = st.sampled_from(["f8", "i4", "U1", "?", "c8", "f2"])
    arrays = {
        name: (random.random(data.draw(shapes)) * 2).astype(data.draw(kinds))
        for name in data.draw(st.lists(names, max_size=5, unique=True))
    }
    _read_or_refused(arrays, data.draw(OPTIONS))


def _read_or_refused(source, options):
    said = ""
    try:
        assert read_predictions(source, **options).output.probs.isfinite().all()
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 1000
