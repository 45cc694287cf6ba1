"""Run folders and their records, as tests need them."""

import json
import shutil

from calmoe.predictions import Predictions


def drop(run, method, seed=42):
    """As a method that failed: no finished node, no row."""
    for mark in run.glob("nodes/*/history.json"):
        facts = Predictions.load(mark.parent / "test.safetensors").metadata
        if (facts["method"], facts["seed"]) == (method, seed):
            shutil.rmtree(mark.parent)


def plain(spec):
    """The record of a run with this spec, as far as it goes."""
    return {"spec": json.loads(json.dumps(spec, default=vars))}
