"""The study of own data in small: three commands agree in processes of their own, refusals leave nothing."""

import json
import sys
import time

import pytest

from calmoe.errors import InputError
from forked import in_place_of_subprocess, run
from sizes import at_size
from studies.own_data import CLOSE, as_grid, measure
from studies.own_data_made import OwnData, made_data, real_tables, write_credit

QUICK = ("--model", "network", "--set", "epochs=2")


def timed(home, *arguments):
    """As the study's own function, in a process that need not import everything."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "calmoe", *arguments]
    run(command, cwd=home, check=True, hasty=at_size(True, False))
    return time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.parametrize("number", at_size([0], [0, 1, 2]))
def test_three_commands_agree_in_other_processes_and_folders(tmp_path, monkeypatch, number):
    """Predict, elsewhere, says what training reported, to 1e-6."""
    if number:
        data = made_data(tmp_path)[number]
    else:
        path = write_credit(tmp_path / "data.csv", rows=400)
        data = OwnData("credit", path, ("--label", "late", "--group", "region", *QUICK))
        monkeypatch.setattr("studies.own_data.subprocess", in_place_of_subprocess)
        monkeypatch.setattr("studies.own_data.calmoe", timed)
    measured = measure(data, tmp_path / "study")
    assert measured.difference < CLOSE
    assert measured.refusals == 3
    assert min(measured.seconds) > 0
    assert f"| {measured.name} | {measured.rows} |" in as_grid([measured]).markdown()


def test_tables_are_those_of_their_list(tmp_path):
    facts = {"credit": {"label": "Status", "groups": ["Home", "Job"], "shift": None}}
    (tmp_path / "tables.json").write_text(json.dumps(facts))
    (table,) = real_tables(tmp_path)
    assert table.options == ("--label", "Status", "--group", "Home", "--group", "Job")
    (tmp_path / "tables.json").write_text("{")
    with pytest.raises(InputError, match=r"tables\.json"):
        list(real_tables(tmp_path))
