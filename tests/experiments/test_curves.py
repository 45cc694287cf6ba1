import shutil

import pytest

from calmoe.errors import InputError
from calmoe.experiments.curves import main, run_curves
from calmoe.experiments.store import read_results
from calmoe.report.curves import read_curves


@pytest.mark.parametrize("protocol", ["corrected", "published"])
def test_curves_agree_with_the_results(reference, protocol):
    rows = {row["method"]: row for row in read_results(reference) if row["protocol"] == protocol}
    if not rows:
        with pytest.raises(InputError, match="can be judged by"):
            run_curves(reference, protocol)
        return
    found = run_curves(reference, protocol)
    assert [c["method"] for c in found] == ["single", "vanilla", "mocae", "robust"]
    for c in found:
        row = rows[c["method"]]
        assert (c["seed"], c["protocol"], c["dataset"]) == (42, protocol, "digits")
        assert c["raw"]["reliability"]["all"]["ece"] == pytest.approx(row["ece"])
        assert c["raw"]["reliability"]["hard"]["ece"] == pytest.approx(row["hard_ece"])
        if protocol == "corrected":
            assert c["scaled"]["reliability"]["all"]["ece"] == pytest.approx(row["ece_ts"])
            assert c["temperature"] == pytest.approx(row["temperature"])
    assert [c["method"] for c in found if c["history"]] == ["robust"]


def test_missing_methods_are_left_out(finished):
    whole = run_curves(finished)
    for mark in finished.glob("nodes/*/done.json"):
        history = mark.parent / "history.json"
        if history.exists() and "gamma_eff" in history.read_text():
            shutil.rmtree(mark.parent)
    assert [c["method"] for c in run_curves(finished)] == [c["method"] for c in whole][:-1]
    shutil.rmtree(finished / "nodes")
    with pytest.raises(InputError, match="no finished method"):
        run_curves(finished)


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no run in"):
        run_curves(tmp_path)


@pytest.mark.slow
def test_one_command_writes_curves_and_figures(reference, tmp_path, capsys):
    main(reference, tmp_path / "results")
    assert len(read_curves(tmp_path / "results" / "curves.json")) == 4
    assert len(list((tmp_path / "results" / "figures").glob("*.png"))) == 10
    assert "no figure" not in capsys.readouterr().out
