import pytest

from calmoe.report.targets_summary import AskedTargets, targets_in_words

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
    assert told.startswith(
        "1 method on domains, ResNet-50 v1 (the paper: ResNet-18), 3 seeds (42, 43 and 44)."
    )
    assert "2 targets: Photo (1,500 rows) and Sketch (1,500 rows)" in told


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        (
            {"ece": LOWER, "nll": LOWER, "accuracy": LOWER},
            "Yes, in ECE+TS and NLL+TS: Robust MoE. At a cost in accuracy: Robust MoE.",
        ),
        ({"ece": LOWER, "nll": LOWER, "accuracy": HIGHER}, "Yes, in ECE+TS and NLL+TS: Robust MoE."),
        (
            {"ece": LOWER, "nll": AROUND},
            "No robust method is seen to beat Vanilla MoE in both. "
            "In ECE+TS alone: Robust MoE (no evidence in NLL+TS).",
        ),
        (
            {"ece": HIGHER, "nll": LOWER},
            "No robust method is seen to beat Vanilla MoE in both. "
            "In NLL+TS alone: Robust MoE (worse in ECE+TS).",
        ),
        (
            {"ece": AROUND, "nll": AROUND},
            "No robust method is seen to beat Vanilla MoE in both. "
            "No evidence of a difference in either: Robust MoE.",
        ),
        (
            {"ece": AROUND, "nll": HIGHER},
            "No robust method is seen to beat Vanilla MoE in both. "
            "Worse in at least one and better in none: Robust MoE.",
        ),
    ],
)
def test_the_answer_follows_the_intervals(values, answer):
    assert words(VANILLA + rows("robust", **values))["The answer"] == answer


def test_the_question_gives_every_difference_with_its_interval():
    told = words(VANILLA + rows("robust", ece=LOWER, nll=AROUND, accuracy=HIGHER))["The question"]
    assert (
        "After a converged temperature from the source domains, does a robust method beat Vanilla MoE" in told
    )
    assert (
        "Robust MoE: ECE+TS −0.100 [−0.101, −0.098], lower (better); NLL+TS 0.000 [−0.248, +0.248], no "
        in told
    )
    assert "accuracy +0.100 [+0.099, +0.102], higher (better) (3 seeds)." in told


def test_training_is_held_against_the_temperature_it_might_replace():
    vanilla = rows("vanilla", ece=LOWER, nll=HIGHER, raw=HIGHER)
    told = words(vanilla + rows("robust", ece=HIGHER, nll=LOWER, raw=ONE))["Instead of a temperature"]
    assert "Robust methods as trained, less Vanilla MoE after its temperature" in told
    assert "Robust MoE: ECE +0.100 [+0.098, +0.101], higher (worse); NLL −0.100 [" in told
    assert told.endswith("lower (better) (3 seeds).")
    one = rows("vanilla", ece=ONE[:1]) + rows("robust", ece=ONE[:1])
    assert "Instead of a temperature" not in words(one, seeds=(42,))


def test_methods_that_are_not_robust_are_not_the_answer():
    told = words(VANILLA + rows("fgr", ece=LOWER, nll=LOWER), methods=("vanilla", "fgr"))
    assert told["The answer"].startswith("Unknown")
    assert "By target" not in told


def test_one_seed_claims_nothing():
    found = [row for row in VANILLA + rows("robust", ece=LOWER, nll=LOWER) if row["seed"] == 42]
    told = words(found, seeds=(42,))
    assert told["The answer"] == "Unknown: an interval takes at least two seeds that have every target."
    assert "ECE+TS −0.100, interval unknown" in told["The question"]
    assert "By target" not in told
    assert "There is one seed" in told["Uncertain"]


def test_what_is_missing_is_named_by_target():
    partial = [r for r in rows("robust") if (r["target"], r["seed"]) != ("sketch", 43)]
    found = [*VANILLA, *partial, *rows("entropic", targets=["photo"])]
    told = words(found, methods=("vanilla", "robust", "entropic"), absent=["Art"])
    assert told["Missing"] == (
        "Art: there is no run. Every mean is over the other targets alone. "
        "Sketch: no seed of Entropic Risk; Robust MoE lacks seed 43. "
        "Left out of the mean over targets, for lack of one: 4 models of 9 (a method and a seed)."
    )
    assert "Entropic Risk: no seed has every target" in told["The question"]
    assert "(2 seeds)" in told["The question"]
    assert words(VANILLA, methods=("vanilla",))["Missing"].startswith("Nothing: every method has all 3 seeds")


def test_the_corrected_protocol_is_no_test_of_reproduction():
    told = words(VANILLA, dataset="pacs")["Beside the paper"]
    assert told.endswith("this is no test of reproduction.")
    assert "backbone" not in told
    assert "the backbone is another" in words(VANILLA, dataset="pacs", backbone="other")["Beside the paper"]
    assert "Beside the paper" not in words(VANILLA)


def test_comparisons_are_counted():
    told = words(VANILLA + rows("robust", ece=LOWER))["Uncertain"]
    assert "These are 6 comparisons" in told  # two metrics on two targets and their mean
    assert "about 0.3 would still stand out" in told
    assert "says nothing of another domain" in told


SEPARABLE = (
    "the validation rows are separable (every label already has the highest probability), so no temperature "
    "is optimal and T stays 1: +TS is the raw value there."
)


def test_the_answer_says_where_there_was_no_temperature():
    found = [{**row, "temperature_status": "separable"} for row in VANILLA + rows("robust", ece=LOWER)]
    told = words(found)
    assert told["The answer"].startswith(f"In all 12 models {SEPARABLE} No robust method is seen to beat")
    assert told["What was done"].endswith("not augmented; in all 12 models there is no optimum.")
    assert told["Instead of a temperature"] == (
        "No model of Vanilla MoE has an optimal temperature: there is none to replace."
    )
    assert told["Uncertain"].endswith(
        "Validation found no optimal temperature for Vanilla MoE seed 42 on Photo, Vanilla MoE seed 43 on "
        "Photo, Vanilla MoE seed 44 on Photo, Vanilla MoE seed 42 on Sketch, Vanilla MoE seed 43 on Sketch "
        "and 7 more (12 of 12 models)."
    )


def test_the_answer_counts_the_models_without_a_temperature():
    found = VANILLA + rows("robust", ece=LOWER)
    odd = ("separable", "separable", "uninformative")
    found[:3] = [{**row, "temperature_status": s} for row, s in zip(found[:3], odd, strict=True)]
    told = words(found)
    assert told["The answer"].startswith(f"In 2 of 12 models {SEPARABLE} In 1 of 12 models the validation ")
    assert told["What was done"].endswith("; in 3 of 12 models there is no optimum.")
    assert "Robust methods as trained" in told["Instead of a temperature"]
    assert "Vanilla MoE seed 44 on Photo (3 of 12 models)." in told["Uncertain"]


def test_the_validation_rows_are_counted():
    told = words(VANILLA, validation=[48, 1500, 48])["What was done"]
    assert "temperatures are fitted on 48 to 1,500 validation rows of those." in told
    assert "temperatures are fitted on rows of those." in words(VANILLA)["What was done"]
