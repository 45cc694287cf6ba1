"""Claims about made-up and stored rows, against scipy and plain loops."""

import json
from itertools import product

import numpy as np
import pytest
from scipy import stats

import study_rows
import synthetic_curves
from calmoe.errors import InputError
from calmoe.report.curves_file import curves_file
from studies.claims import MOMENT_RUNS, all_claims
from studies.curve_claims import BUDGETS
from study_rows import RESULTS, column, numbers, student

SPEC = {"dataset": "mine", "training": {"eta": 2.0, "warmup": 20}, "methods": ["vanilla", "robust"]}


def claims(folder, baseline="vanilla"):
    """Every table and sentence."""
    return list(all_claims(folder, baseline))


def table(parts, *words):
    """The one whose caption has these words."""
    (grid,) = [part for part in parts if hasattr(part, "caption") and all(w in part.caption for w in words)]
    return grid


@pytest.fixture
def folder(tmp_path):
    study_rows.write(tmp_path / "results.jsonl", study_rows.made(("vanilla", "robust", "mocae")))
    (tmp_path / "sources.json").write_text(json.dumps([{"spec": SPEC}]))
    return tmp_path


@pytest.mark.parametrize("protocol", ["corrected", "published"])
@pytest.mark.parametrize("baseline", ["vanilla", "mocae"])
def test_every_method_less_the_baseline(folder, protocol, baseline):
    rows = study_rows.read(folder / "results.jsonl")
    grid = table(claims(folder, baseline), f"{protocol} protocol")
    others = [method for method in ("vanilla", "mocae", "robust") if method != baseline]
    assert list(dict.fromkeys(row[0].values[0] for row in grid.rows)) == others
    for method, name in product(others, ("accuracy", "hard_ece_ts", "worst_group_ece_ts")):
        pair = (column(rows, name, method=m, protocol=protocol) for m in (method, baseline))
        assert numbers(grid, method, name) == pytest.approx(student(np.subtract(*pair)))


def test_stored_rows_of_cifar10h_say_what_the_docs_say():
    parts, rows = claims(RESULTS / "cifar10h"), study_rows.read(RESULTS / "cifar10h/results.jsonl")
    for method, name in (("robust", "hard_ece_ts"), ("entropic", "accuracy"), ("mocae", "ece")):
        pair = (column(rows, name, method=m, protocol="corrected") for m in (method, "vanilla"))
        interval = numbers(table(parts, "Less Vanilla MoE, corrected"), method, name)
        assert interval == pytest.approx(student(np.subtract(*pair)))
    grid = table(parts, "Less Vanilla MoE, corrected")
    assert [round(v, 4) for v in numbers(grid, "robust", "hard_ece_ts")] == [0.0042, -0.0384, 0.0468]


def test_a_sweep_is_compared_with_the_table_and_with_its_own_default(folder):
    rows = study_rows.read(folder / "results.jsonl")
    swept = [
        row
        for value in (1.0, 2.0)
        for row in study_rows.made(("robust",), (42, 43), value=value, setting="eta", batch=128)
    ]
    for row in swept:
        row["accuracy"] = round(row["accuracy"] / row["value"] / 2, 6)
        row["hard_ece_ts"] = round(row["hard_ece_ts"] / row["value"] ** 2, 6)
    study_rows.write(folder / "sweep_eta.jsonl", swept)
    parts = claims(folder)
    beside, own = table(parts, "less Vanilla MoE of the table"), table(parts, "less its own η = 2")
    vanilla = column(rows, "accuracy", method="vanilla", protocol="corrected")[:2]
    robust = column(rows, "accuracy", method="robust", protocol="corrected")[:2]
    here = column(swept, "accuracy", value=1.0, protocol="corrected")
    assert numbers(beside, "η = 1", "accuracy") == pytest.approx(student(here - vanilla))
    assert numbers(beside, "in the table, η = 2", "accuracy") == pytest.approx(student(robust - vanilla))
    one, two = (column(swept, "hard_ece_ts", value=v, protocol="corrected") for v in (1.0, 2.0))
    assert numbers(own, "η = 1", "hard_ece_ts") == pytest.approx(student(one - two))
    assert len(own.rows) == 1


# --- curves


@pytest.fixture(scope="module")
def made_curves():
    return synthetic_curves.run(("vanilla", "robust", "single"), (42, 43, 44))


@pytest.fixture
def curves(folder, made_curves):
    name, data = curves_file(made_curves)
    (folder / name).write_bytes(data)
    return made_curves


def lowest(run, budget):
    """The lowest hard ECE within the budget, by a fine walk along the curve."""
    swept = run["frontier"]
    walk = np.linspace(0, len(swept["ece"]) - 1, 20_001)
    ece, hard = (np.interp(walk, np.arange(len(swept["ece"])), swept[name]) for name in ("ece", "hard_ece"))
    within = hard[ece <= budget]
    return within.min() if len(within) else np.nan


def by_seed(curves, method):
    return sorted((run for run in curves if run["method"] == method), key=lambda run: run["seed"])


def test_the_frontier_by_budget(folder, curves):
    grid = table(claims(folder), "Lowest hard ECE")
    reached = 0
    for method, budget in product(("robust", "single"), BUDGETS):
        pairs = [
            [lowest(run, budget) for run in pair]
            for pair in zip(by_seed(curves, method), by_seed(curves, "vanilla"), strict=True)
        ]
        differences = [a - b for a, b in pairs if np.isfinite(a - b)]
        if len(differences) > 1:
            reached += 1
            interval = numbers(grid, method, f"ECE ≤ {budget:g}")
            assert interval == pytest.approx(student(differences), abs=2e-3)
    assert reached


def test_the_baseline_s_curve_beside_points_as_trained(folder, curves):
    grid = table(claims(folder), "frontier reaches")
    for row in grid.rows:
        pairs = zip(by_seed(curves, row[0].values[0]), by_seed(curves, "vanilla"), strict=True)
        points = [(run["raw"]["reliability"], vanilla) for run, vanilla in pairs]
        passes = [lowest(vanilla, raw["all"]["ece"]) <= raw["hard"]["ece"] for raw, vanilla in points]
        assert [entry.values[0] for entry in row[1:]] == [sum(passes), 3]


def test_confidence_and_routing_are_means_over_seeds(folder, curves):
    parts = claims(folder)
    for row in table(parts, "Mean confidence").rows:
        runs = by_seed(curves, row[0].values[0])
        cells = [
            np.mean([run[view]["histogram"][row[1].text][name] for run in runs])
            for view, name in product(("raw", "scaled"), ("confidence", "accuracy"))
        ]
        assert [entry.values[0] for entry in row[2:]] == pytest.approx(cells, rel=1e-5)
    rows = table(parts, "Routing entropy").rows
    assert [row[0].values[0] for row in rows] == ["vanilla", "robust"]  # a single expert does not route
    for row in rows:
        own = [run["routing"]["entropy"]["all"]["mean"] for run in by_seed(curves, row[0].values[0])]
        assert row[2].values[0] == pytest.approx(np.mean(own), rel=1e-5)
        assert row[1].text == " ".join(f"{share:.3f}" for share in own)


# --- several targets


def test_means_over_targets_on_stored_rows():
    parts, rows = claims(RESULTS / "pacs"), study_rows.read(RESULTS / "pacs/results.jsonl")
    targets = ("photo", "art_painting", "cartoon", "sketch")

    def mean(method, name):
        return np.mean([column(rows, name, method=method, target=target) for target in targets], axis=0)

    grid = table(parts, "Less Vanilla MoE, corrected protocol, mean over photo")
    robust = ("robust", "robust_filtered", "fgr_robust", "entropic", "robust_brier")
    for method, name in product(robust, ("accuracy", "ece_ts", "nll_ts")):
        interval = numbers(grid, method, name)
        assert interval == pytest.approx(student(mean(method, name) - mean("vanilla", name)))
    scaled = table(parts, "after its temperature")
    assert numbers(scaled, "robust", "ece") == pytest.approx(
        student(mean("robust", "ece") - mean("vanilla", "ece_ts"))
    )
    tested = {(row[0].values[0], row[1].values[0]): row[2] for row in table(parts, "Bonferroni").rows}
    assert set(tested) == set(product(robust, ("accuracy", "ece", "ece_ts", "nll_ts")))
    for (method, name), entry in tested.items():
        p = stats.ttest_1samp(mean(method, name) - mean("vanilla", name), 0.0).pvalue
        assert entry.values[0] == pytest.approx(p)
        assert entry.bold == (p < 0.05 / 20)
    assert {key for key, entry in tested.items() if entry.bold} == {
        ("robust", "accuracy"),
        ("entropic", "ece_ts"),
    }
    sketch = table(parts, "corrected protocol, sketch")
    (row,) = [r for r in sketch.rows if (r[0].values[0], r[1].values[0]) == ("robust", "accuracy")]
    assert row[5].text == "−0.123 +0.013 +0.025"
    assert parts[-1].startswith("17 of 60 ")


# --- AdamW's moments


def test_forgotten_moments_on_stored_rows():
    runs = {run: study_rows.read(RESULTS / f"digits/{run}/results.jsonl") for run in MOMENT_RUNS}
    parts = claims(RESULTS / "digits")
    assert parts[0].endswith("yes.")

    def own(run, name, method="robust"):
        return column(runs[run], name, method=method, protocol="corrected")

    gained = own("forget_moments", "nll_ts") - own("plain", "nll_ts")
    of_erm = own("eta0_forget_moments", "nll_ts") - own("eta0", "nll_ts")
    reset = own("forget_moments", "nll_ts") - own("eta0_forget_moments", "nll_ts")
    for words, name, differences in (
        ("less without", "robust", gained),
        ("less without", "ERM (η = 0)", of_erm),
        (
            "Both with moments",
            "robust",
            reset,
        ),
        ("Both without", "robust", own("plain", "nll_ts") - own("eta0", "nll_ts")),
        ("changes in ERM", "robust", gained - of_erm),
    ):
        assert numbers(table(parts, words), name, "nll_ts") == pytest.approx(student(differences))


def test_a_control_that_is_not_vanilla_is_told(tmp_path):
    for run in MOMENT_RUNS:
        rows = study_rows.made(("robust",) if "eta0" in run else ("vanilla", "robust"))
        study_rows.write(tmp_path / run / "results.jsonl", rows)
    assert claims(tmp_path)[0].endswith("no.")


# --- refusals


def test_what_is_no_results_folder_is_refused(tmp_path, folder):
    with pytest.raises(InputError, match="there is no"):
        claims(tmp_path / "none")
    study_rows.write(tmp_path / "empty/results.jsonl", [])
    with pytest.raises(InputError, match="has no rows"):
        claims(tmp_path / "empty")
    with pytest.raises(InputError, match="no rows of 'fgr'"):
        claims(folder, "fgr")
