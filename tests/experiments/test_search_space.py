import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from calmoe.errors import InputError
from calmoe.experiments.checked_files import SCORES, parse_rows
from calmoe.experiments.record import parse_record
from calmoe.experiments.search_space import (
    Range,
    check_space,
    grid,
    paired,
    parse_axis,
    parse_space,
    random_points,
)
from calmoe.experiments.spec import load_preset, narrowed
from calmoe.experiments.sweep import MOST_POINTS, MOST_SETTINGS, make_points, make_sweep, row_point
from run_folders import record_of

SPACE = ["eta=0..4", "learning_rate=1e-4..1e-2:log", "warmup=0..10", "routing=soft,hard"]


def robust(**changes):
    return narrowed(load_preset("digits"), methods=("robust",), seeds=(42,), **changes)


def test_a_grid_has_every_combination_whatever_the_order_of_the_words():
    words = ["warmup=5,0", "eta=2,1,2"]
    sweep = grid(parse_space(words))
    assert sweep == grid(parse_space(words[::-1]))
    assert sweep.name == "eta-warmup"
    assert {*sweep.points} == {*product((1, 2), (0, 5))}
    assert [point[1] for point in sweep.points] == [0, 0, 5, 5]  # shorter warm-ups first
    variants = sweep.variants(robust())
    assert {(spec.training.eta, spec.training.warmup) for spec in variants.values()} == {*sweep.points}


def test_pairs_go_together():
    assert paired(parse_space(["eta=1,2,1", "warmup=5,0,0"])).points == ((1, 0), (2, 0), (1, 5))
    with pytest.raises(InputError, match=r"eta 3, warmup 2"):
        paired(parse_space(["eta=1,2,1", "warmup=5,0"]))


def test_random_points_follow_from_their_seed_setting_by_setting():
    sweep = random_points(parse_space(SPACE), 30, seed=1)
    assert sweep == random_points(parse_space(SPACE[::-1]), 30, seed=1)
    assert {*random_points(parse_space(SPACE), 12, seed=1).points} < {*sweep.points}
    assert {point[0] for point in random_points(parse_space(SPACE[:1]), 30, seed=1).points} == {
        point[0] for point in sweep.points
    }
    assert not {*sweep.points} & {*random_points(parse_space(SPACE), 30, seed=2).points}
    for eta, rate, routing, warmup in sweep.points:
        assert 0 <= eta <= 4
        assert 1e-4 <= rate <= 1e-2
        assert rate == float(f"{rate:.4g}")
        assert routing in ("soft", "hard")
        assert type(warmup) is int
        assert 0 <= warmup <= 10


@pytest.mark.parametrize("log", [False, True])
def test_draws_fill_their_range_evenly(log):
    """Kolmogorov's distance of 4,000 draws is under 1.95 / √n once in a thousand times."""
    generator = np.random.default_rng(0)
    axis = Range("learning_rate", 1e-4, 1.0, log)
    drawn = np.sort([axis.draw(generator) for _ in range(4000)])
    share = np.log(drawn / 1e-4) / np.log(1e4) if log else (drawn - 1e-4) / (1 - 1e-4)
    assert np.abs(share - (np.arange(4000) + 0.5) / 4000).max() < 1.95 / math.sqrt(4000)


def test_whole_numbers_are_equally_likely_and_include_both_ends():
    axis, generator = Range("warmup", 0, 3), np.random.default_rng(0)
    counts = np.bincount([axis.draw(generator) for _ in range(4000)], minlength=4)
    assert len(counts) == 4
    assert ((counts - 1000) ** 2 / 1000).sum() < 16.3  # χ² with 3 degrees of freedom, once in a thousand


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["etta=1,2"], "setting to sweep"),
        (["eta"], "its values"),
        (["=1"], "its values"),
        (["eta="], "numbers by commas"),
        (["eta=1;2"], "numbers by commas"),
        (["eta=1..."], "a range such as"),
        (["eta=4..1"], "goes up"),
        (["eta=1..1"], "goes up"),
        (["eta=0..1:log"], "above 0"),
        (["eta=1..2:lin"], "after the colon"),
        (["eta=0..inf"], "finite"),
        (["warmup=0.5..2"], "whole numbers"),
        (["routing=a..b"], "a range such as"),
        (["routing=1..2"], "takes no numbers"),
        (["eta=1", "eta=2"], "given twice"),
        (["forget_moments=1"], "true or false"),
    ],
)
def test_what_no_space_is_is_refused_in_a_line(words, message):
    with pytest.raises(InputError, match=message) as error:
        parse_space(words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learning_rate=1e-3..100"], "learning_rate"),
        (["warmup=0..60"], "must not exceed epochs=50"),
        (["warmup=0..20", "epochs=10..50"], "must not exceed epochs=10"),
        (["routing=soft,top9"], "rout"),
        (["gamma=1..2"], "robust has no gamma: sweep a method that has, such as cvar"),
        (["variant=v1,v1.5"], "the backbone mlp has no variant"),
    ],
)
def test_a_space_whose_corner_cannot_be_trained_is_refused(words, message):
    with pytest.raises(InputError, match=message):
        check_space(parse_space(words), robust())


def test_ranges_need_a_way_to_draw_from_them_and_points_have_bounds():
    with pytest.raises(InputError, match="--random"):
        grid(parse_space(["eta=0..4"]))
    with pytest.raises(InputError, match="10,000 points"):
        grid([parse_axis(f"{name}={','.join(map(str, range(100)))}") for name in ("eta", "regret")])
    with pytest.raises(InputError, match="points"):
        random_points(parse_space(["eta=0..4"]), 10**9, 0)
    settings = ["eta", "rho", "gamma", "regret", "batch", "warmup", "epochs", "views", "average"]
    assert len(settings) > MOST_SETTINGS
    with pytest.raises(InputError, match="1 to 8 settings"):
        make_points(settings, [tuple(range(9))])
    many = make_sweep("eta", range(MOST_POINTS))
    with pytest.raises(InputError, match="points in a folder"):
        many.merged(make_sweep("eta", [0.5]))


def test_records_and_rows_give_the_sweep_back():
    for sweep in (
        make_sweep("eta", (0, 0.5)),
        make_sweep("routing", ("soft", "hard")),
        make_sweep("hidden", ((8,), (8, 8))),
        grid(parse_space(["eta=0,0.5", "hidden=[8],[8,8]", "forget_moments=true,false"])),
    ):
        document = json.loads(json.dumps(record_of(robust(), sweep=sweep).as_json()))
        assert parse_record(Path("spec.json"), document).sweep == sweep
        for point in sweep.points:
            row = json.loads(json.dumps(sweep.row_facts(point)))
            assert tuple(row_point(row)[setting] for setting in sweep.settings) == point
    assert "setting" in document["sweep"] or {"settings", "points"} == document["sweep"].keys()


@pytest.mark.parametrize(
    "sweep",
    [
        {"settings": ["eta", "warmup"], "points": [[1]]},
        {"settings": ["eta", "warmup"], "points": [[1, "x"]]},
        {"settings": ["eta", "warmup"], "points": []},
        {"settings": ["eta", "eta"], "points": [[1, 1]]},
        {"settings": ["eta", ["x"]], "points": [[1, 1]]},
        {"settings": [], "points": [[]]},
        {"settings": ["eta", "hidden"], "points": [[1, [[1]]]]},
        {"settings": ["eta", "hidden"], "points": [[1, {}]]},
        {"settings": "eta", "points": [[1]]},
        {"setting": "eta", "values": [True]},
        {"setting": "eta", "values": [[1]]},
        {"setting": "weights", "values": ["x"]},
        [],
    ],
)
def test_a_damaged_record_of_a_sweep_is_refused(sweep):
    document = record_of(robust(), sweep=make_sweep("eta", (1,))).as_json() | {"sweep": sweep}
    with pytest.raises(InputError, match=r"spec\.json"):
        parse_record(Path("spec.json"), document)


@pytest.mark.parametrize(
    "point", [[], {"weights": "x"}, {"eta": None}, {"eta": {}}, {"hidden": [[1]]}, {"eta": 1e400}]
)
def test_a_damaged_point_of_a_row_is_refused(point):
    whole = {"method": "robust", "seed": 42, "protocol": "corrected", "n": 1, "batch": 32}
    row = whole | {"temperature": 1.0, "temperature_status": "optimum"} | dict.fromkeys(SCORES, 0.5)
    with pytest.raises(InputError, match="line 1"):
        parse_rows(Path("results.jsonl"), json.dumps(row | {"point": point}).encode())
    sound = row | {"point": {"eta": 1, "hidden": [8]}}
    assert parse_rows(Path("results.jsonl"), json.dumps(sound).encode()) == [sound]
