import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from calmoe.calibration import PerExpertTemperature, Temperature
from calmoe.experiments.evaluation import as_method_reads, evaluate
from calmoe.metrics import accuracy, adaptive_ece, brier_score, ece, nll, smooth_ece
from calmoe.mixture import MixtureOutput, combine
from calmoe.predictions import Predictions
from calmoe.report import main_table, summarise
from calmoe.report.temperatures import temperature_notes


def predictions(n=200, groups=True):
    generator = torch.Generator().manual_seed(0)
    result = {}
    for split in ("validation", "validation_augmented", "test"):
        labels = torch.randint(4, (n,), generator=generator)
        logits = 2 * torch.randn(n, 3, 4, generator=generator)
        logits[torch.arange(n), :, labels] += 2
        output = combine(torch.randn(n, 3, generator=generator).log_softmax(1), logits.log_softmax(2))
        hard = {"hard": np.arange(n) % 4 == 0} if groups else {}
        result[split] = Predictions(output=output, labels=labels, groups=hard)
    return result


PROTOCOLS = pytest.mark.parametrize(
    ("protocol", "split", "solver"),
    [("corrected", "validation", "exact"), ("published", "validation_augmented", "published")],
)


@PROTOCOLS
def test_a_row_is_what_the_metrics_say(protocol, split, solver):
    given = predictions()
    row = evaluate("vanilla", 7, protocol, given, "hard")
    validation, test = given[split], given["test"]
    fitted = Temperature(solver).fit(validation.output.log_probs, validation.labels)
    assert row["temperature"] == fitted.temperature_
    scaled = fitted.transform(test.output.log_probs)
    assert row["accuracy"] == accuracy(test.output.probs, test.labels)
    assert row["ece"] == ece(test.output.probs, test.labels)
    assert row["ece_ts"] == ece(scaled.exp(), test.labels)
    assert row["nll_ts"] == nll(scaled, test.labels)
    assert row["hard_ece_ts"] == ece(scaled[::4].exp(), test.labels[::4])
    for name, metric in (("brier", brier_score), ("smooth_ece", smooth_ece), ("adaptive_ece", adaptive_ece)):
        assert row[name] == metric(test.output.probs, test.labels)
        assert row[f"{name}_ts"] == metric(scaled.exp(), test.labels)
    assert (row["n"], row["n_hard"], row["seed"], row["protocol"]) == (200, 50, 7, protocol)


@PROTOCOLS
def test_mocae_stacks_a_temperature_on_its_calibrated_experts(protocol, split, solver):
    given = predictions()
    row = evaluate("mocae", 7, protocol, given, "hard")
    validation, test = given[split], given["test"]
    experts = PerExpertTemperature(solver=solver).fit(validation.output, validation.labels)
    calibrated = experts.transform(test.output)
    stacked = Temperature(solver).fit(experts.transform(validation.output).log_probs, validation.labels)
    assert row["temperatures"] == experts.temperatures_
    assert len(row["temperatures"]) == 3
    assert row["temperature"] == stacked.temperature_
    assert row["ece"] == ece(calibrated.probs, test.labels)
    assert row["ece_ts"] == ece(stacked.transform(calibrated.log_probs).exp(), test.labels)


def test_mocae_has_one_temperature_an_expert_in_all_of_its_views():
    """Brute force: expert k's T minimises the cross-entropy of all of its views of all rows."""
    given, experts, views = predictions(), 3, 4
    for split in ("validation", "test"):
        generator, labels = torch.Generator().manual_seed(1), given[split].labels
        looks = []
        for view in range(views):
            sharpness = torch.tensor([0.5, 1.0, 3.0]).unsqueeze(1) * (1 + view)
            logits = torch.randn(200, experts, 4, generator=generator)
            logits[torch.arange(200), :, labels] += 1
            routing = torch.randn(200, experts, generator=generator).log_softmax(1)
            looks.append(combine(routing, (sharpness * logits).log_softmax(2)))
        given[f"views_{split}"] = replace(given[split], output=MixtureOutput.pool(looks))
    row = evaluate("mocae", 7, "corrected", given, "hard")

    def split_by_view(name):
        pooled = given[f"views_{name}"].output
        return [part.double().unflatten(1, (views, experts)) for part in pooled[1:]]  # [N, V, K(, C)]

    def calibrated(name, temperatures):
        log_routing, log_experts = split_by_view(name)
        tempered = (log_experts / temperatures[:, None]).softmax(-1)
        return (log_routing.exp().unsqueeze(-1) * tempered).sum((1, 2))

    validation, test = given["views_validation"], given["views_test"]
    _, log_experts = split_by_view("validation")

    def loss(log_t, expert):
        tempered = (log_experts[:, :, expert] / np.exp(log_t)).log_softmax(-1)
        return -float(tempered[torch.arange(200), :, validation.labels].mean())

    best = [minimize_scalar(loss, (-1, 1), args=(k,), options={"xtol": 1e-12}).x for k in range(experts)]
    temperatures = torch.tensor(np.exp(best))
    assert temperatures.min() > 0.1
    assert temperatures.max() < 10
    fitted = as_method_reads("mocae", validation, test, "corrected", views)[2]
    assert fitted == pytest.approx(temperatures.tolist(), rel=1e-5)
    probs = calibrated("test", temperatures)
    assert row["views_nll"] == pytest.approx(nll(probs.log(), test.labels), abs=1e-5)
    stacked = Temperature().fit(calibrated("validation", temperatures).log(), validation.labels)
    assert row["views_temperature"] == pytest.approx(stacked.temperature_, rel=1e-4)
    scaled = stacked.transform(probs.log())
    assert row["views_brier_ts"] == pytest.approx(brier_score(scaled.exp(), test.labels), abs=1e-5)
    assert row["views_accuracy"] == accuracy(probs, test.labels)


def test_without_a_hard_subset_its_fields_are_null():
    row = evaluate("vanilla", 7, "corrected", predictions(groups=False))
    assert row["n_hard"] == 0
    assert row["hard_ece"] is None
    assert row["hard_accuracy"] is None
    with_hard = evaluate("vanilla", 7, "corrected", predictions(), "hard")
    assert set(row) == set(with_hard)
    json.dumps(row, allow_nan=False)


def test_temperatures_that_are_no_optimum_are_one_line_a_kind_and_protocol():
    rows = [
        {
            "method": "robust",
            "seed": seed,
            "protocol": protocol,
            "temperature": t,
            "temperature_status": status,
        }
        for seed in range(8)
        for protocol, t, status in (
            ("corrected", 1e6, "uninformative") if seed < 7 else ("corrected", 1.0, "separable"),
            ("published", -1.0 - seed, "negative") if seed < 2 else ("published", 1.2, "published"),
        )
    ]
    assert temperature_notes(rows) == [
        "corrected protocol: temperature 1e+06, uninformative, in 7 of 8 rows: seed 0 robust, seed 1 robust, "
        "seed 2 robust, seed 3 robust, seed 4 robust, …",
        "published protocol: temperature -2 to -1, negative, in 2 of 8 rows: seed 0 robust, seed 1 robust",
        "corrected protocol: temperature 1, separable, in 1 of 8 rows: seed 7 robust",
    ]
    swept = [{**row, "setting": "eta", "value": 2} for row in rows[-2:-1]]
    assert temperature_notes(swept)[0].endswith("in 1 of 1 row: seed 7 robust eta 2")


def test_separable_validation_is_told_not_warned(recwarn):
    given = predictions()
    right = given["validation"].output.log_probs.argmax(1)
    given["validation"] = Predictions(output=given["validation"].output, labels=right)
    row = evaluate("vanilla", 7, "corrected", given)
    assert (row["temperature"], row["temperature_status"]) == (1.0, "separable")
    assert not recwarn.list


def with_groups(**columns):
    given = predictions()
    given["test"] = replace(given["test"], groups=given["test"].groups | columns)
    return given


def test_worst_groups_are_the_extremes_of_each_metric():
    level = np.where(np.arange(200) < 60, "low", "high")
    given = with_groups(level=level, domain=np.arange(200) % 2, female=np.arange(200) >= 100)
    row = evaluate("vanilla", 7, "corrected", given, "hard")
    test, fitted = given["test"], Temperature()
    fitted.fit(given["validation"].output.log_probs, given["validation"].labels)
    masks = {
        "level low": level == "low",
        "level high": level == "high",
        "domain 0": np.arange(200) % 2 == 0,
        "domain 1": np.arange(200) % 2 == 1,
        "female": np.arange(200) >= 100,
    }
    scaled = fitted.transform(test.output.log_probs).exp()
    for name, metric, probs, worst in (
        ("accuracy", accuracy, test.output.probs, min),
        ("ece", ece, test.output.probs, max),
        ("ece_ts", ece, scaled, max),
    ):
        of = {group: metric(probs[mask], test.labels[mask]) for group, mask in masks.items()}
        assert row[f"worst_group_{name}"] == worst(of.values())
        assert row["worst_group"][name] == worst(of, key=of.get)
    json.dumps(row, allow_nan=False)


def test_small_groups_measurements_and_hard_and_easy_rows_are_no_groups():
    wrong = predictions()["test"]
    missed = (wrong.output.probs.argmax(1) != wrong.labels).numpy()
    assert missed.sum() > 10
    few = np.where(missed & (missed.cumsum() <= 10), "few", "many")
    given = with_groups(level=few, agreement=np.linspace(0, 1, 200), row=np.arange(200), easy=missed)
    row = evaluate("vanilla", 7, "corrected", given, "hard")
    assert set(row["worst_group"].values()) == {"level many"}
    least = evaluate("vanilla", 7, "corrected", with_groups(level=np.arange(200) < 30), "hard")
    assert set(least["worst_group"].values()) == {"level"}  # 30 rows are enough
    none = evaluate("vanilla", 7, "corrected", predictions(), "hard")
    assert [none[f"worst_group{name}"] for name in ("", "_accuracy", "_ece", "_ece_ts")] == [None] * 4


def test_older_rows_have_no_worst_group_and_their_table_says_so():
    row = evaluate("vanilla", 7, "corrected", with_groups(level=np.array(["a", "b"] * 100)), "hard")
    older = {name: value for name, value in row.items() if not name.startswith("worst_group")}
    columns = ("accuracy", "worst_group_ece_ts")
    new, old = (main_table(summarise([r], "corrected"), columns) for r in (row, older))
    assert new.rows[0][-1].text == f"{row['worst_group_ece_ts']:.3f}"
    assert new.headings[-1].title == "Worst-Group ECE+TS"
    assert old.rows[0][-1].text == "–"
