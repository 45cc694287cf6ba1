import json

import numpy as np
import pytest
import torch

from calmoe.calibration import PerExpertTemperature, Temperature
from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.experiments.evaluation import as_method_reads
from calmoe.metrics import accuracy, ece
from calmoe.objectives import routing_relevant
from calmoe.predictions import Predictions
from calmoe.report.curves import curves
from calmoe.report.curves_file import LARGE, curves_file, read_curves
from calmoe.report.frontier import reachable
from synthetic_curves import HISTORY, mixture

VALIDATION, TEST = mixture(0), mixture(1)
LABELS = TEST.known_labels


@pytest.fixture(scope="module")
def numbers():
    return curves("robust", VALIDATION, TEST, "hard", HISTORY)


@pytest.fixture(scope="module")
def fitted():
    return Temperature().fit(VALIDATION.output.log_probs, VALIDATION.known_labels)


@pytest.fixture(scope="module")
def probs(fitted):
    return {"raw": TEST.output.probs, "scaled": fitted.transform(TEST.output.log_probs).exp()}


@pytest.mark.parametrize("view", ["raw", "scaled"])
@pytest.mark.parametrize("part", ["all", "hard"])
def test_reliability_adds_up_to_the_metrics(numbers, probs, view, part):
    mask = TEST.mask("hard") if part == "hard" else torch.ones(len(TEST), dtype=torch.bool)
    table = numbers[view]["reliability"][part]
    share, right = np.array(table["share"]), np.array(table["accuracy"], dtype=float)
    assert table["ece"] == pytest.approx(ece(probs[view][mask], LABELS[mask]))
    assert np.nansum(share * right) == pytest.approx(accuracy(probs[view][mask], LABELS[mask]))
    assert sum(table["count"]) == mask.sum() == numbers["rows"][part]
    assert len(table["count"]) == BINS


def test_an_empty_bin_is_none_and_json_needs_no_nan(numbers):
    table = numbers["raw"]["reliability"]["all"]
    empty = [i for i, count in enumerate(table["count"]) if count == 0]
    assert empty
    assert all(table[name][i] is None for name in ("confidence", "accuracy") for i in empty)
    json.dumps(numbers, allow_nan=False)


def test_the_temperature_is_the_one_that_validation_chooses(numbers, fitted):
    swept = numbers["frontier"]
    assert numbers["temperature"] == fitted.temperature_
    assert swept["temperature"][swept["chosen"]] == fitted.temperature_
    assert swept["ece"][swept["chosen"]] == pytest.approx(numbers["scaled"]["reliability"]["all"]["ece"])
    assert swept["hard_ece"][swept["chosen"]] == pytest.approx(
        numbers["scaled"]["reliability"]["hard"]["ece"]
    )


def test_the_frontier_passes_through_the_raw_probabilities(numbers):
    swept = numbers["frontier"]
    at = swept["temperature"].index(1.0)
    assert swept["ece"][at] == pytest.approx(ece(TEST.output.probs, LABELS), abs=1e-6)
    assert swept["hard_ece"][at] == pytest.approx(numbers["raw"]["reliability"]["hard"]["ece"], abs=1e-6)


@pytest.mark.parametrize("view", ["raw", "scaled"])
def test_groups_are_boolean_and_categorical_columns(numbers, probs, view):
    groups = numbers[view]["groups"]
    assert list(groups) == ["hard", "easy", "never", "agreement_level", "domain"]
    assert list(groups["domain"]) == ["0", "1", "2"]
    mask = torch.from_numpy(TEST.group("agreement_level") == "0.0-0.5")
    inside, labels = probs[view][mask], LABELS[mask]
    assert groups["agreement_level"]["0.0-0.5"] == pytest.approx(
        {
            "count": int(mask.sum()),
            "accuracy": accuracy(inside, labels),
            "confidence": float(inside.amax(1).double().mean()),
            "ece": ece(inside, labels),
        }
    )


def test_an_empty_group_has_a_count_and_no_values(numbers):
    assert numbers["raw"]["groups"]["never"] == {
        "never": {"count": 0, "accuracy": None, "confidence": None, "ece": None}
    }


def test_histograms_hold_every_row(numbers):
    for view in ("raw", "scaled"):
        for part, shown in numbers[view]["histogram"].items():
            assert sum(shown["count"]) == numbers["rows"][part]
        assert list(numbers[view]["histogram"]) == ["all", "easy", "hard"]


def test_without_a_hard_subset_the_frontier_is_of_validation_and_test():
    swept = curves("vanilla", VALIDATION, TEST)["frontier"]
    assert swept["of"] == ["validation ECE", "test ECE"]
    for at in (0, swept["temperature"].index(1.0), swept["chosen"]):
        for split, name in ((VALIDATION, "ece"), (TEST, "hard_ece")):
            scaled = (split.output.log_probs / swept["temperature"][at]).softmax(1)
            assert swept[name][at] == pytest.approx(ece(scaled, split.labels), abs=1e-6)


@pytest.mark.parametrize("hard", [None, "never"])
def test_without_a_hard_subset_there_is_all_else(hard):
    numbers = curves("vanilla", VALIDATION, TEST, hard)
    assert "hard" not in numbers["rows"]
    assert list(numbers["raw"]["reliability"]) == ["all"]
    assert "hard" not in numbers["routing"]["entropy"]
    assert numbers["history"] is None


def test_easy_is_the_rest_where_no_column_says_it():
    plain = Predictions(output=TEST.output, labels=LABELS, groups={"odd": TEST.group("hard")})
    rows = curves("vanilla", VALIDATION, plain, "odd")["rows"]
    assert rows["easy"] + rows["hard"] == rows["all"] == len(TEST)


def test_routing_is_measured_as_the_objective_measures_it(numbers):
    entropy, disagreement = numbers["routing"]["entropy"], numbers["routing"]["disagreement"]
    routing = TEST.output.routing.double()
    assert entropy["all"]["mean"] == pytest.approx(
        float(-(routing * routing.log()).sum(1).mean() / np.log(4))
    )
    median = disagreement["all"]["quantiles"][2]
    relevant = routing_relevant(TEST.output, LABELS, regret=1e9, disagreement=median)
    assert int(relevant.sum()) == len(TEST) // 2


def test_one_expert_has_no_routing():
    single = curves("single", mixture(0, experts=1), mixture(1, experts=1))
    assert single["routing"] is None
    assert single["experts"] == 1


def test_history_keeps_the_tilted_epochs(numbers):
    assert numbers["history"] == {"epoch": [2, 3], "negative_share": [0.25, 0.125], "gamma_eff": [2.0, 1.5]}
    told = [{k: v for k, v in entry.items() if k != "negative_share"} for entry in HISTORY]
    own = curves("entropic", VALIDATION, TEST, "hard", told)["history"]
    assert own["negative_share"] == [None, None]


def test_mocae_is_the_mixture_of_calibrated_experts():
    validation, test, temperatures = as_method_reads("mocae", VALIDATION, TEST, "corrected")
    experts = PerExpertTemperature().fit(VALIDATION.output, VALIDATION.known_labels)
    assert temperatures == experts.temperatures_
    torch.testing.assert_close(test.output, experts.transform(TEST.output))
    torch.testing.assert_close(validation.output, experts.transform(VALIDATION.output))
    assert test.groups is TEST.groups or list(test.groups) == list(TEST.groups)


def test_reachable_is_the_lower_envelope(numbers):
    swept = numbers["frontier"]
    worst, best = max(swept["ece"]), min(swept["ece"])
    lowest = reachable(swept, [best / 2, best, worst])
    assert np.isnan(lowest[0])
    assert lowest[1] >= lowest[2] == pytest.approx(min(swept["hard_ece"]))


def test_files_come_back_to_six_digits_and_large_ones_are_packed(numbers, tmp_path):
    name, data = curves_file([numbers])
    (tmp_path / name).write_bytes(data)
    (back,) = read_curves(tmp_path / name)
    assert name == "curves.json"
    assert back["frontier"]["ece"] == pytest.approx(numbers["frontier"]["ece"], rel=1e-5)
    assert back["rows"] == numbers["rows"]
    many = [numbers] * (LARGE // len(data) + 1)
    name, packed = curves_file(many)
    (tmp_path / name).write_bytes(packed)
    assert name == "curves.json.gz"
    assert len(read_curves(tmp_path / name)) == len(many)
    assert curves_file(many) == (name, packed)


def test_another_file_is_refused(tmp_path):
    for name, content in (("a.json", b"{}"), ("b.json", b"not JSON"), ("c.json.gz", b"not gzip")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="file of curves"):
            read_curves(tmp_path / name)
    with pytest.raises(InputError, match="not a readable"):
        read_curves(tmp_path / "absent.json")
