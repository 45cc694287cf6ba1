"""Settings are chosen by the mean over seeds of the validation NLL, method by method."""

from studies.choose import choice_table


def row(method, rho, seed, validation_nll, average=0.0):
    return {
        "method": method, "rho": rho, "average": average, "views": 1, "seed": seed,
        "validation_nll": validation_nll,
    }  # fmt: skip


def test_the_lowest_mean_of_each_method_is_bold():
    rows = [
        row("sharp", 0.1, 7, 0.3), row("sharp", 0.1, 8, 0.1), row("sharp", 0.2, 7, 0.25),
        row("sharp", 0.2, 8, 0.25), row("vanilla", None, 7, 0.6), row("vanilla", None, 7, 0.6),
        row("vanilla", None, 7, 0.5, average=0.998),
    ]  # fmt: skip
    table = choice_table(rows)
    shown = {
        (entries[0].values[0], entries[1].text, entries[2].text): (entries[4].text, entries[5])
        for section in table.sections
        for entries in section
    }
    assert [(key, seeds, nll.text, nll.bold) for key, (seeds, nll) in shown.items()] == [
        (("vanilla", "–", "–"), "1", "0.6000", False),  # one seed, read from two folders
        (("vanilla", "–", "0.9980"), "1", "0.5000", True),
        (("sharp", "0.100", "–"), "2", "0.2000", True),
        (("sharp", "0.200", "–"), "2", "0.2500", False),
    ]
