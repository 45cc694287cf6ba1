"""Cells: a row a reading, whose numbers are those of the run's own table."""

from functools import partial

import numpy as np
import pytest
import torch

from calmoe.auditing import hidden
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.metrics.routing import routing_entropy
from calmoe.mixture import MixtureOutput, combine
from calmoe.predictions import Predictions
from studies import cells
from studies.cells import entropy_of_a_view, rows_of


@pytest.mark.usefixtures("quick")
def test_a_row_a_reading(tiny, quiet, tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "hidden", partial(hidden, splits=1))
    methods = ("recommended", "mocae", "sharp_single", "sharp")
    spec = narrowed(with_settings(tiny, ["average=0.9", "views=5"]), methods=methods)
    run(spec, tmp_path / "run", console=quiet)
    opened = Run.open(tmp_path / "run")
    rows = list(rows_of(opened))
    table = {row["method"]: row for row in opened.rows}
    prefixes = {
        ("averaged", 1): "",
        ("averaged", 5): "views_",
        ("last", 1): "last_",
        ("last", 5): "last_views_",
    }
    assert len(rows) == 1 + 3 * len(prefixes)  # the recommended recipe is read in one way
    for row in rows:
        own = row["method"] == "recommended"
        prefix, of_run = "" if own else prefixes[row["weights"], row["views"]], table[row["method"]]
        for name in ("accuracy", "ece_ts", "nll_ts"):
            assert row[name] == pytest.approx(of_run[prefix + name], abs=1e-6)
            assert row[f"hard_{name}"] == pytest.approx(of_run[f"{prefix}hard_{name}"], abs=1e-6)
        assert row["average"] == (0.9 if row["weights"] == "averaged" else 0)
        assert row["rho"] == {"recommended": 0.2, "mocae": None}.get(row["method"], 0.1)
        assert (row["routing_entropy"] is None) == (row["method"] in ("recommended", "sharp_single"))
        assert row["witness"][1] <= row["witness"][0]
        assert 0 < row["validation_nll"] < np.log(10)
    assert {row["views"] for row in rows if row["method"] == "recommended"} == {5}


def test_entropy_of_a_view_is_the_mean_over_the_views():
    views = [
        combine(torch.randn(50, 3).log_softmax(1), torch.randn(50, 3, 4).log_softmax(2)) for _ in range(5)
    ]
    pooled = Predictions(output=MixtureOutput.pool(views), labels=torch.zeros(50, dtype=torch.long))
    mean = np.mean([routing_entropy(view.routing.double().numpy()).mean() for view in views])
    assert entropy_of_a_view(pooled, 5) == pytest.approx(mean, abs=1e-6)
