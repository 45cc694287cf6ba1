"""Jumps of the loss, from a run and from stored rows."""

import json

import numpy as np
import pandas as pd
import pytest

import study_rows
from calmoe.predictions import Predictions
from studies.jumps import by_method, correlations, rows_of
from study_rows import RESULTS, column

COMPARABLE = ["robust", "robust_filtered", "entropic"]


def test_a_row_is_a_switching_method_beside_vanilla(reference):
    (row,) = rows_of([reference])  # of single, vanilla, mocae and robust, one switches
    results = study_rows.read(reference / "results.jsonl")
    own, vanilla = (
        column(results, "accuracy", method=m, protocol="corrected")[0] for m in ("robust", "vanilla")
    )
    assert (row["method"], row["seed"]) == ("robust", 42)
    assert (row["target"], row["target_less_vanilla"]) == pytest.approx((own, own - vanilla))
    (node,) = [
        mark.parent
        for mark in reference.glob("nodes/*/history.json")
        if Predictions.load(mark.parent / "test.safetensors").metadata["method"] == "robust"
    ]
    losses = [entry["loss"] for entry in json.loads((node / "history.json").read_text())]
    assert (row["loss_before"], row["highest_loss"], row["last_loss"]) == (
        losses[0],
        max(losses[1:]),
        losses[-1],
    )
    validation = Predictions.load(node / "validation.safetensors")
    right = validation.output.log_probs.argmax(1) == validation.known_labels
    assert row["source"] == pytest.approx(float(right.double().mean()))


@pytest.mark.parametrize("name", ["pacs/jumps", "digits/jumps", "digits/jumps_forget_moments"])
def test_stored_rows(name):
    rows = study_rows.read(RESULTS / f"{name}.jsonl")
    frame = pd.DataFrame(rows)
    for row in by_method(rows, list(frame.method.unique())).rows:
        losses = frame[frame.method == row[0].values[0]].highest_loss
        assert row[1].values == (len(losses),)
        assert row[3].values == pytest.approx((losses.mean(), losses.min(), losses.max()))
        assert (row[2].text == "–") == (row[0].values[0] == "robust_brier")
    for row in correlations(rows, COMPARABLE).rows:
        own = frame[frame.method.isin(row[0].values[0].split(","))]
        rank = own.highest_loss.corr(own[row[1].values[0]], method="spearman")
        assert row[2].values == (len(own),)
        assert row[3].values[0] == pytest.approx(rank)


def test_the_docs_correlations():
    rows = study_rows.read(RESULTS / "pacs/jumps.jsonl")
    ranks = [row[3].text for row in correlations(rows, COMPARABLE).rows]
    assert ranks[:2] == ["−0.60", "−0.49"]
    assert np.array(ranks[2:]).reshape(3, 2)[:, 1].tolist() == ["−0.35", "−0.42", "−0.42"]
