"""`calmoe train`, `predict` and `init` called in this process, and a table of credits for them."""

import csv

import numpy as np
from typer.testing import CliRunner

from calmoe.commands import app

NETWORK = ("--model", "network", "--set", "epochs=4")


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = command(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments):
    result = command(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def write_credit(path, rows=400, seed=0):
    """A table of credits with gaps, dates, a rare class of default and a region of three rows."""
    rng = np.random.default_rng(seed)
    income, age = rng.lognormal(10, 0.5, rows).round(2), rng.integers(18, 80, rows)
    risk = rng.random(rows) < 0.1 + 0.2 * (income < 20_000)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Kunde", "Einkommen", "age", "größe", "seit", "region", "unit", "default"])
        for i in range(rows):
            region = "islands" if i < 3 else ["north", "south"][i % 2]
            since, size, gap = f"20{i % 20:02}-03-01", ["klein", "groß"][i % 2], i % 7 == 0
            label = ["no", "yes"][int(risk[i])]
            writer.writerow([f"K{i}", "" if gap else income[i], age[i], size, since, region, "EUR", label])
    return path
