import pytest

from calmoe.report.rows_over_targets import MEAN, paired_by_target
from calmoe.report.targets_summary import AskedTargets, Verdict, targets_in_words, verdicts
from says import says

TITLES = {"photo": "Photo", "sketch": "Sketch"}
ONE, LOWER, HIGHER, AROUND = (0.30, 0.32, 0.31), (0.20, 0.221, 0.21), (0.40, 0.421, 0.41), (0.20, 0.42, 0.31)


def rows(method, ece=ONE, nll=ONE, accuracy=ONE, targets=TITLES, raw=ONE):
    """The same values on every target, one a seed; `raw`: ECE and NLL without a temperature."""
    return [
        {"method": method, "seed": 42 + i, "protocol": "corrected", "target": target, "n": 1500}
        | {"ece_ts": ece[i], "nll_ts": nll[i], "accuracy": accuracy[i], "temperature_status": "optimum"}
        | {"ece": raw[i], "nll": raw[i]}
        for target in targets
        for i in range(len(ece))
    ]


def words(found, methods=("vanilla", "robust"), seeds=(42, 43, 44), dataset="domains", **more):
    asked = AskedTargets(
        dataset=dataset, methods=methods, seeds=seeds, protocols=["corrected"], titles=TITLES, **more
    )
    points = targets_in_words(found, asked)
    return {p.lead: " ".join([p.text, *p.bullets]).strip().replace("\xa0", " ") for p in points}


VANILLA = rows("vanilla")


def test_what_was_done_names_targets_rows_and_backbone():
    told = words(VANILLA, backbone="ResNet-50 v1 (the paper: ResNet-18)")["What was done"]
    assert says(told, "1 method", "domains", "ResNet-50 v1", "(42, 43 and 44)")
    assert says(told, "2 targets", "Photo (1,500 rows)", "Sketch (1,500 rows)")


BOTH = ("ece_ts", "nll_ts")


@pytest.mark.parametrize(
    ("values", "verdict", "answer"),
    [
        ({"ece": LOWER, "nll": LOWER, "accuracy": LOWER}, Verdict(BOTH, (), True), ("Yes", "At a cost")),
        ({"ece": LOWER, "nll": LOWER, "accuracy": HIGHER}, Verdict(BOTH, (), False), ("Yes",)),
        (
            {"ece": LOWER, "nll": AROUND},
            Verdict(("ece_ts",), (), False),
            ("No robust", "In ECE+TS alone", "(no evidence in NLL+TS)"),
        ),
        (
            {"ece": HIGHER, "nll": LOWER},
            Verdict(("nll_ts",), ("ece_ts",), False),
            ("No robust", "In NLL+TS alone", "(worse in ECE+TS)"),
        ),
        ({"ece": AROUND, "nll": AROUND}, Verdict((), (), False), ("No robust", "in either: Robust MoE")),
        (
            {"ece": AROUND, "nll": HIGHER},
            Verdict((), ("nll_ts",), False),
            ("No robust", "better in none: Robust MoE"),
        ),
    ],
)
def test_the_answer_follows_the_intervals(values, verdict, answer):
    found = VANILLA + rows("robust", **values)
    columns = (*BOTH, "accuracy")
    differences = paired_by_target(found, "corrected", TITLES, columns=columns)[MEAN]
    assert verdicts(differences) == {"robust": verdict}
    told = words(found)["The answer"]
    assert says(told, *answer)
    assert told.count("Robust MoE") == 1 + verdict.costs_accuracy


def test_the_question_gives_every_difference_with_its_interval():
    told = words(VANILLA + rows("robust", ece=LOWER, nll=AROUND, accuracy=HIGHER))["The question"]
    assert says(told, "a converged temperature", "beat Vanilla MoE")
    assert says(told, "ECE+TS −0.100 [−0.101, −0.098]", "lower (better)")
    assert says(told, "NLL+TS 0.000 [−0.248, +0.248]", "no evidence")
    assert says(told, "+0.100 [+0.099, +0.102]", "higher (better)", "(3 seeds)")


def test_training_is_held_against_the_temperature_it_might_replace():
    vanilla = rows("vanilla", ece=LOWER, nll=HIGHER, raw=HIGHER)
    told = words(vanilla + rows("robust", ece=HIGHER, nll=LOWER, raw=ONE))["Instead of a temperature"]
    assert says(told, "ECE +0.100 [+0.098, +0.101]", "higher (worse)", "NLL −0.100 [", "lower (better)")
    one = rows("vanilla", ece=ONE[:1]) + rows("robust", ece=ONE[:1])
    assert "Instead of a temperature" not in words(one, seeds=(42,))


def test_methods_that_are_not_robust_are_not_the_answer():
    told = words(VANILLA + rows("fgr", ece=LOWER, nll=LOWER), methods=("vanilla", "fgr"))
    assert told["The answer"].startswith("Unknown")
    assert "By target" not in told


def test_one_seed_claims_nothing():
    found = [row for row in VANILLA + rows("robust", ece=LOWER, nll=LOWER) if row["seed"] == 42]
    told = words(found, seeds=(42,))
    assert told["The answer"].startswith("Unknown")
    assert says(told["The question"], "ECE+TS −0.100", "unknown")
    assert "By target" not in told
    assert "There is one seed" in told["Uncertain"]


def test_what_is_missing_is_named_by_target():
    partial = [r for r in rows("robust") if (r["target"], r["seed"]) != ("sketch", 43)]
    found = [*VANILLA, *partial, *rows("entropic", targets=["photo"])]
    told = words(found, methods=("vanilla", "robust", "entropic"), absent=["Art"])
    assert says(told["Missing"], "Art: there is no run")
    assert says(told["Missing"], "Sketch: no seed of Entropic Risk", "Robust MoE lacks seed 43")
    assert says(told["Missing"], "Left out", "4 models of 9")
    assert says(told["The question"], "Entropic Risk: no seed")
    assert "(2 seeds)" in told["The question"]
    assert words(VANILLA, methods=("vanilla",))["Missing"].startswith("Nothing: ")


def test_the_corrected_protocol_is_no_test_of_reproduction():
    told = words(VANILLA, dataset="pacs")["Beside the paper"]
    assert "no test of reproduction" in told
    assert "backbone" not in told
    assert "the backbone is another" in words(VANILLA, dataset="pacs", backbone="other")["Beside the paper"]
    assert "Beside the paper" not in words(VANILLA)


def test_comparisons_are_counted():
    told = words(VANILLA + rows("robust", ece=LOWER))["Uncertain"]
    assert "This summary makes 6 comparisons" in told  # two metrics on two targets and their mean
    assert "about 0.3 " in told


def test_the_answer_says_where_there_was_no_temperature():
    found = [{**row, "temperature_status": "separable"} for row in VANILLA + rows("robust", ece=LOWER)]
    told = words(found)
    assert says(told["The answer"], "In all 12 models", "separable", "T stays 1", "No robust method")
    assert says(told["What was done"], "in all 12 models", "no optimum")
    assert says(told["Instead of a temperature"], "No model of Vanilla MoE")
    assert says(told["Uncertain"], "Vanilla MoE seed 42 on Photo", "seed 43 on Sketch and 7 more (12 of 12")


def test_the_answer_counts_the_models_without_a_temperature():
    found = VANILLA + rows("robust", ece=LOWER)
    odd = ("separable", "separable", "uninformative")
    found[:3] = [{**row, "temperature_status": s} for row, s in zip(found[:3], odd, strict=True)]
    told = words(found)
    assert says(told["The answer"], "In 2 of 12 models", "separable", "In 1 of 12 models", "uniform")
    assert says(told["What was done"], "in 3 of 12 models")
    assert "as trained" in told["Instead of a temperature"]
    assert "seed 44 on Photo (3 of 12" in told["Uncertain"]


def test_the_validation_rows_are_counted():
    told = words(VANILLA, validation=[48, 1500, 48])["What was done"]
    assert "48 to 1,500 validation rows" in told
    assert "validation rows of" not in words(VANILLA)["What was done"]
