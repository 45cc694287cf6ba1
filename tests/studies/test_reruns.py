"""Reruns beside the table, against plain loops over stored rows and against noise of known size."""

import numpy as np
import pytest

import study_rows
from calmoe.errors import InputError
from studies.reruns import ARMS, both_intervals, moves, reruns, trainings
from study_rows import RESULTS, student

SEEDS, TARGETS = (42, 43, 44), ("photo", "art_painting", "cartoon", "sketch")
COLUMNS = ("accuracy", "ece", "ece_ts", "nll_ts", "brier_ts")
METHODS = ("robust", "vanilla")


def made(draw, noise, methods=METHODS, seed_effect=0.0):
    """A model for each method, target and seed: what its seed gives it, and its own noise."""
    return [
        {"method": method, "protocol": "corrected", "target": target, "seed": seed}
        | {c: seed_effect * (seed - 43) + float(draw.normal(0, noise)) for c in COLUMNS}
        for method in methods
        for target in TARGETS
        for seed in SEEDS
    ]


def stored():
    """The table's rows, the switch study's, and those of the study of truer probabilities."""
    table, switch, truer = (
        study_rows.read(RESULTS / path)
        for path in ("pacs/results.jsonl", "pacs/switch.jsonl", "truer/pacs.jsonl")
    )
    switch = [{**row, "method": ARMS[row["arm"]]} for row in switch if row["arm"] in ARMS]
    return table, switch, [row for row in truer if (row["weights"], row["views"]) == ("last", 1)]


def by_labels(grid):
    return {tuple(e.values[0] for e in row[:2]): row[2:] for row in grid.rows}


def test_the_noise_of_a_training_is_found_whatever_the_seeds_do():
    draw, deviations, errors = np.random.default_rng(0), [], []
    for _ in range(50):
        runs = [made(draw, 0.02, seed_effect=1.0) for _ in range(3)]
        trained = trainings(runs)
        deviations += [row[4].values[0] ** 2 for row in moves(runs, trained).rows]
        errors += [row[5].values[0] ** 2 for row in both_intervals(runs[0], trained).rows]
    assert np.sqrt(np.mean(deviations)) == pytest.approx(0.02, rel=0.05)
    assert np.sqrt(np.mean(errors)) == pytest.approx(0.02 * np.sqrt(2 / 12), rel=0.1)


def test_a_training_that_comes_out_the_same_is_counted_and_no_rerun():
    draw = np.random.default_rng(0)
    first, second = made(draw, 0.02), made(draw, 0.02)
    rounded = [{**row} | {c: round(row[c], 6) for c in COLUMNS} for row in first]
    shown, with_copy = (
        by_labels(moves(runs, trainings(runs))) for runs in ([first, second], [first, second, rounded])
    )
    for labels, (again, same, *sizes) in shown.items():
        assert (again.values, same.values) == ((12,), (0,))
        assert [entry.values for entry in with_copy[labels]] == [(24,), (12,), *(e.values for e in sizes)]


def test_the_interval_over_seeds_is_students_of_the_means_over_targets():
    rows, *again = stored()
    robust, vanilla = (
        np.array([[r["ece_ts"] for r in rows if (r["method"], r["seed"]) == (name, s)] for s in SEEDS])
        for name in METHODS
    )
    difference, error, interval, of_reruns, _ = by_labels(both_intervals(rows, trainings([rows, *again])))[
        "robust", "ece_ts"
    ]
    estimate, low, high = student((robust - vanilla).mean(1))
    assert difference.values == pytest.approx((estimate,))
    assert interval.values == pytest.approx((low, high))
    assert of_reruns.values[0] > 5 * error.values[0]  # what the pages say of it


def test_stored_reruns_against_a_plain_loop():
    runs = stored()
    shown = by_labels(moves(runs, trainings(runs)))
    accuracies = {}
    for row in (row for run in runs for row in run if row["method"] == "vanilla"):
        accuracies.setdefault((row["target"], row["seed"]), set()).add(round(row["accuracy"], 5))
    spans = [max(values) - min(values) for values in accuracies.values()]
    squares = sum(np.var(list(values)) * len(values) for values in accuracies.values())
    reruns = sum(len(values) - 1 for values in accuracies.values())
    again, same, deviation, largest = (entry.values[0] for entry in shown["vanilla", "accuracy"])
    assert (again, again - same) == (20, reruns)
    assert deviation == pytest.approx(np.sqrt(squares / reruns), abs=1e-5)
    assert largest == pytest.approx(max(spans), abs=1e-5)


def test_other_rows_are_further_trainings(capsys):
    for also in (None, RESULTS / "truer/pacs.jsonl"):
        reruns(RESULTS / "pacs", also)
    alone, together = capsys.readouterr().out.split("The same target and seed trained again")[1:]
    for text, methods in ((alone, 2), (together, 5)):
        assert text.count("| NLL+TS |") == 2 * methods - 1


def test_another_protocol_is_left_out(tmp_path, capsys):
    rows = study_rows.read(RESULTS / "pacs/results.jsonl")
    study_rows.write(tmp_path / "results.jsonl", [*rows, *({**r, "protocol": "published"} for r in rows)])
    (tmp_path / "switch.jsonl").write_bytes((RESULTS / "pacs/switch.jsonl").read_bytes())
    for folder in (tmp_path, RESULTS / "pacs"):
        reruns(folder, None)
    ours, stored_alone = capsys.readouterr().out.split("The same target and seed trained again")[1:]
    assert ours == stored_alone


def test_without_reruns_there_is_nothing_to_compare():
    draw = np.random.default_rng(1)
    table = made(draw, 0.1)
    with pytest.raises(InputError, match="no rerun of Vanilla MoE: train 'ERM' first"):
        trainings([table, made(draw, 0.1, ("robust",))])
