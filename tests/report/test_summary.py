import pytest

from calmoe.report.run_summary import Asked, in_words
from says import says

BASE = {"n": 900, "n_hard": 97, "temperature_status": "optimum"}


def rows(method, nll, ece=None, hard=None, protocol="corrected", first_seed=42, **more):
    """One row a seed; ECE and hard ECE are the NLL's numbers if not given."""
    columns = zip(nll, ece or nll, hard or nll, strict=True)
    return [
        {"method": method, "seed": seed, "protocol": protocol, "nll_ts": a, "ece_ts": b, "hard_ece_ts": c}
        | BASE
        | more
        for seed, (a, b, c) in enumerate(columns, first_seed)
    ]


def words(
    found,
    methods=("vanilla", "robust"),
    seeds=(42, 43, 44),
    protocols=("corrected",),
    dataset="digits",
    backbone="",
):
    asked = Asked(dataset=dataset, methods=methods, seeds=seeds, protocols=protocols, backbone=backbone)
    points = in_words(found, asked)
    return {p.lead: " ".join([p.text, *p.bullets]).strip().replace("\xa0", " ") for p in points}


VANILLA = rows("vanilla", [0.20, 0.22, 0.21])


def test_what_was_done_is_named():
    told = words(VANILLA + rows("robust", [0.3, 0.3, 0.3]))["What was done"]
    assert says(told, "2 methods", "digits", "(42, 43 and 44)", "Vanilla MoE and Robust MoE")
    assert says(told, "900 rows", "97 of them hard", "Corrected protocol")


def test_an_interval_that_includes_zero_is_no_evidence():
    told = words(VANILLA + rows("robust", [0.10, 0.30, 0.20]))
    assert says(told["Lowest means"], "NLL: Robust MoE", "0.200 ± 0.058", "Vanilla MoE has 0.210 ± 0.006")
    assert told["Lowest means"].count("no evidence of a difference") == 3
    assert says(told["Against Vanilla MoE"], "NLL: No evidence", "Robust MoE")
    assert "better" not in told["Against Vanilla MoE"]


def test_an_interval_that_leaves_out_zero_is_told_with_its_ends():
    told = words(VANILLA + rows("robust", [0.10, 0.121, 0.11]))
    assert says(told["Against Vanilla MoE"], "NLL: Lower (better)", "Robust MoE, −0.100 [−0.101, −0.098]")
    worse = words(VANILLA + rows("robust", [0.30, 0.321, 0.31]))
    assert says(worse["Against Vanilla MoE"], "NLL: Higher (worse)", "Robust MoE, +0.100 [+0.099, +0.102]")
    assert says(worse["Lowest means"], "NLL: Vanilla MoE", "0.210 ± 0.006")


def test_a_bound_close_to_zero_shows_its_side():
    near = [0.20 - 0.00100, 0.22 - 0.00104, 0.21 - 0.00102]
    told = words(VANILLA + rows("robust", near))["Against Vanilla MoE"]
    assert "[−0.001, −0.001]" in told
    nearer = [0.20 - 0.00020, 0.22 - 0.00024, 0.21 - 0.00022]
    assert "[−0.0003, −0.0002]" in words(VANILLA + rows("robust", nearer))["Against Vanilla MoE"]


def test_the_best_of_many_is_said_to_be_picked():
    found = VANILLA + rows("robust", [0.10, 0.121, 0.11]) + rows("fgr", [0.2, 0.2, 0.2])
    told = words(found, methods=("vanilla", "fgr", "robust"))
    assert says(told["Lowest means"], "leaves out zero", "picked", "out of 3")
    assert says(told["Uncertain"], "6 comparisons", "not corrected", "about 0.3 ")


def test_a_tie_is_shared():
    told = words(VANILLA + rows("robust", [0.2101, 0.2101, 0.2101]))["Lowest means"]
    assert says(told, "NLL: Vanilla MoE and Robust MoE", "0.210")


def test_missing_methods_and_seeds_are_named():
    found = VANILLA + rows("robust", [0.3], first_seed=43)
    told = words(found, methods=("vanilla", "fgr", "robust"))["Missing"]
    assert says(told, "FGR: no seed", "Robust MoE: 2 seeds of 3", "(42 and 44)")
    assert "Vanilla" not in told
    assert words(VANILLA, methods=("vanilla",))["Missing"].startswith("Nothing: ")


def test_a_best_with_fewer_seeds_says_so():
    told = words(VANILLA + rows("robust", [0.1, 0.1]))["Lowest means"]
    assert says(told, "Robust MoE", "0.100 ± 0.000 over 2 seeds only")


def test_one_seed_has_no_intervals():
    told = words(rows("vanilla", [0.2]) + rows("robust", [0.1]), seeds=(42,))
    assert says(told["Uncertain"], "one seed", "no intervals")
    assert says(told["Lowest means"], "one seed", "chance")
    assert "Against Vanilla MoE" not in told
    assert "[" not in " ".join(told.values())


def test_without_a_hard_subset_nothing_is_said_of_it():
    found = [{**row, "hard_ece_ts": None, "n_hard": 0} for row in VANILLA + rows("robust", [0.1, 0.3, 0.2])]
    told = words(found)
    assert "no hard subset" in told["Missing"]
    assert "Hard ECE" not in " ".join(told.values())
    assert "900 rows." in told["What was done"]


def test_without_a_baseline_there_is_nothing_to_compare():
    told = words(rows("robust", [0.1, 0.2, 0.3]))
    assert "no results of Vanilla MoE" in told["Against Vanilla MoE"]
    assert "Vanilla MoE: no seed" in told["Missing"]


def test_temperatures_without_an_optimum_are_named():
    found = VANILLA + rows("robust", [0.1, 0.3, 0.2], temperature_status="at the bound")
    assert says(words(found)["Uncertain"], "no optimal temperature", "Robust MoE seed 42")


def test_what_makes_numbers_doubtful_is_told():
    mocae = rows("mocae", [0.2, 0.2, 0.2], temperatures=[1.0, 2.0])
    mocae[1]["temperatures"] = [0.1, 2.0]
    told = words(VANILLA + mocae, ("vanilla", "mocae"))["Uncertain"]
    assert says(told, "97 rows", "binning")
    assert says(told, "MoCaE, seed 43", "bound")
    large = words([{**row, "n_hard": 1000} for row in VANILLA], ("vanilla",))["Uncertain"]
    assert "binning" not in large
    assert "MoCaE" not in large


def test_the_converged_protocol_is_spoken_of_and_the_paper_compared():
    published = [{**row, "protocol": "published", "ece": 0.0551} for row in VANILLA]
    published[0]["ece"] = 0.0549
    told = words(VANILLA + published, ("vanilla",), protocols=("corrected", "published"), dataset="cifar10h")
    assert "Corrected protocol" in told["What was done"]
    assert says(told["Beside the paper"], "42 cells", "3 can be compared", "1 lie within", "2 beyond")
    (one, *_) = published
    said = words([one], ("vanilla",), seeds=(42,), protocols=("published",), dataset="cifar10h")
    assert said["Beside the paper"].startswith("No cell could be compared")
    only = words(published, ("vanilla",), protocols=("published",))
    assert "stops before it converges" in only["What was done"]


def test_another_backbone_is_no_test_of_reproduction():
    found = [{**row, "protocol": "published", "ece": 0.2 + 0.001 * row["seed"]} for row in VANILLA]
    asked = {"protocols": ("published",), "dataset": "pacs_sketch"}
    assert words(found, ("vanilla",), **asked)["Beside the paper"].endswith("2 beyond.")
    told = words(found, ("vanilla",), **asked, backbone="ResNet-50 (the paper: ResNet-18)")
    assert says(told["Beside the paper"], "backbone", "no test of reproduction")
    own = [{**row, "method": "mine"} for row in found]
    assert "Beside the paper" not in words(own, ("mine",), **asked)


@pytest.mark.parametrize("claim", ["win", "beat", "significant", "prove"])
def test_no_big_words(claim):
    found = VANILLA + rows("robust", [0.10, 0.121, 0.11]) + rows("fgr", [0.2, 0.3, 0.2])
    assert claim not in " ".join(words(found, methods=("vanilla", "fgr", "robust")).values()).lower()


def test_where_there_was_no_temperature_the_scaled_values_are_said_to_be_raw():
    found = VANILLA + rows("robust", [0.1, 0.3, 0.2], temperature_status="separable")
    told = words(found)
    assert says(told["What was done"], "In 3 of 6 models", "separable", "T stays 1", "+TS is the raw value")
    assert says(told["Lowest means"], "after one temperature", "an optimal one.")
    one = words([{**VANILLA[0], "temperature_status": "separable"}], ("vanilla",), seeds=(42,))
    assert says(one["What was done"], "In the one model", "separable")
    fitted = words(VANILLA + rows("robust", [0.1, 0.3, 0.2]))
    assert "separable" not in fitted["What was done"]
    assert "after one temperature." in fitted["Lowest means"]


def test_a_long_list_of_models_is_cut():
    found = rows("vanilla", [0.2] * 7, temperature_status="separable")
    told = words(found, ("vanilla",), seeds=range(42, 49))["Uncertain"]
    assert told.endswith("seed 46 and 2 more (7 of 7 models).")
    assert "seed 47" not in told


def test_a_temperature_below_zero_has_its_own_reason():
    found = [{**row, "protocol": "published", "temperature_status": "negative"} for row in VANILLA]
    told = words(found, ("vanilla",), protocols=("published",))["What was done"]
    assert says(told, "In all 3 models", "published solver", "not positive")


def test_the_validation_rows_are_counted():
    asked = Asked(
        dataset="mine", methods=["vanilla"], seeds=[42], protocols=["corrected"], validation=[180, 180]
    )
    assert "180 validation rows" in in_words(VANILLA, asked)[0].text
