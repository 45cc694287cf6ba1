"""Settings are chosen by the mean over runs of the validation NLL, method by method."""

import pytest

from calmoe.errors import InputError
from studies.choose import choice_table


def row(method, rho, seed, validation_nll, average=0.0, target=""):
    return {
        "method": method, "rho": rho, "average": average, "views": 1, "seed": seed, "target": target,
        "validation_nll": validation_nll,
    }  # fmt: skip


def shown(rows):
    """Method, ρ, average, runs, mean and whether it is bold, row by row."""
    return [
        (e[0].values[0], e[1].text, e[2].text, e[4].text, e[5].text, e[5].bold)
        for e in choice_table(rows).rows
    ]


def test_the_lowest_mean_of_each_method_is_bold():
    rows = [
        row("sharp", 0.1, 7, 0.3), row("sharp", 0.1, 8, 0.1), row("sharp", 0.2, 7, 0.25),
        row("sharp", 0.2, 8, 0.25), row("vanilla", None, 7, 0.6), row("vanilla", None, 7, 0.6),
        row("vanilla", None, 7, 0.5, average=0.998),
    ]  # fmt: skip
    assert shown(rows) == [
        ("vanilla", "–", "–", "1", "0.6000", False),  # one training, read from two folders
        ("vanilla", "–", "0.9980", "1", "0.5000", True),
        ("sharp", "0.100", "–", "2", "0.2000", True),
        ("sharp", "0.200", "–", "2", "0.2500", False),
    ]


def test_targets_of_one_seed_count_apart():
    rows = [row("sharp", 0.1, 7, 0.3, target="art"), row("sharp", 0.1, 7, 0.1, target="photo")]
    assert shown(rows) == [("sharp", "0.100", "–", "2", "0.2000", True)]


def test_two_rows_of_one_choice_and_place_are_refused():
    with pytest.raises(InputError, match="two rows of one sharp, art 7, differ"):
        choice_table([row("sharp", 0.1, 7, nll, target="art") for nll in (0.3, 0.1)])


def test_a_choice_that_lacks_a_seed_is_not_compared():
    rows = [row("sharp", 0.1, 7, 0.3), row("sharp", 0.1, 8, 0.4), row("sharp", 0.2, 7, 0.1)]
    assert [(runs, bold) for *_, runs, _, bold in shown(rows)] == [("2", True), ("1", False)]
    assert not any(bold for *_, bold in shown(rows[1:]))  # each has a seed that the other lacks
