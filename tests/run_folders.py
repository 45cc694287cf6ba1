"""Run folders and their records, as tests need them."""

import shutil

from calmoe.experiments.record import Record
from calmoe.predictions import Predictions


def drop(run, method, seed=42):
    """As a method that failed: no finished node, no row."""
    for mark in run.glob("nodes/*/history.json"):
        facts = Predictions.load(mark.parent / "test.safetensors").metadata
        if (facts["method"], facts["seed"]) == (method, seed):
            shutil.rmtree(mark.parent)


def contents(folder):
    """All that two runs must share, by path: everything but dates and durations."""
    timed = ("environment.json", "history.json", "done.json", ".lock")
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.name not in timed else None
        for path in folder.rglob("*")
        if path.is_file()
    }


def record_of(spec, **facts):
    """The record of a run with this spec."""
    data = {
        "device": "cpu",
        "fingerprint": "",
        "training_fingerprint": "",
        "hard": None,
        "training_version": 2,
    }
    return Record(spec=spec, **{**data, "protocols": (spec.protocol,), **facts})
