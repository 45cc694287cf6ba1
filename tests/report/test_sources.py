import shutil
from contextlib import nullcontext

import pytest

from calmoe.calibration import PerExpertTemperature, Temperature
from calmoe.errors import InputError
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed
from calmoe.experiments.store import read_results
from calmoe.render import drawing
from calmoe.render.drawing import save
from calmoe.report import write
from calmoe.report.curves_file import read_curves
from calmoe.report.frontier import frontier
from calmoe.report.sources import run_curves
from calmoe.report.write import write_report
from calmoe.training.diagnostics import tilt_diagnostics
from haste import unrendered
from sizes import at_size


@pytest.fixture(scope="module")
def published(tiny, quiet, tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "run"
    run(narrowed(tiny, protocol="published"), folder, console=quiet)
    return folder


@pytest.mark.parametrize("protocol", ["corrected", "published"])
def test_curves_agree_with_the_results(reference, published, protocol):
    path = {"corrected": reference, "published": published}[protocol]
    rows = {row["method"]: row for row in read_results(path)}
    found = run_curves(Run.open(path))
    assert [c["method"] for c in found] == ["single", "vanilla", "mocae", "robust"]
    for c in found:
        row = rows[c["method"]]
        assert (c["seed"], c["protocol"], c["dataset"]) == (42, protocol, "digits")
        assert row["protocol"] == protocol
        assert c["raw"]["reliability"]["all"]["ece"] == pytest.approx(row["ece"])
        assert c["raw"]["reliability"]["hard"]["ece"] == pytest.approx(row["hard_ece"])
        if protocol == "corrected":
            assert c["scaled"]["reliability"]["all"]["ece"] == pytest.approx(row["ece_ts"])
            assert c["temperature"] == pytest.approx(row["temperature"])
    assert [c["method"] for c in found if c["history"]] == ["robust"]
    with pytest.raises(InputError, match=f"can be judged by {protocol}, not 'other'"):
        run_curves(Run.open(path), "other")


def test_published_temperatures_converge_on_the_augmented_rows_but_for_mocaes_experts(published):
    opened = Run.open(published)
    found = {c["method"]: c for c in run_curves(Run.open(published))}
    for _, method, _, key, _ in opened.finished():
        validation = opened.folder.predictions(key)["validation_augmented"]
        output = validation.output
        if method == "mocae":
            as_published, exact = (
                PerExpertTemperature(solver=s).fit(output, validation.labels) for s in ("published", "exact")
            )
            assert as_published.temperatures_ != pytest.approx(exact.temperatures_, rel=0.05)
            output = as_published.transform(output)
        converged = Temperature().fit(output.log_probs, validation.labels)
        assert found[method]["temperature"] == pytest.approx(converged.temperature_)


def test_the_entropic_risk_has_no_negative_weights(tiny, quiet, tmp_path, monkeypatch):
    def as_before(losses, eta, batch, _):  # when every history had the tilted mean's
        return tilt_diagnostics(losses, eta, batch, True)

    monkeypatch.setattr("calmoe.training.trainer.tilt_diagnostics", as_before)
    run(narrowed(tiny, methods=("robust", "entropic")), tmp_path / "run", console=quiet)
    robust, entropic = (c["history"] for c in run_curves(Run.open(tmp_path / "run")))
    assert None not in robust["negative_share"]
    assert entropic["negative_share"] == [None, None]


def test_missing_methods_are_left_out(finished):
    whole = run_curves(Run.open(finished))
    for mark in finished.glob("nodes/*/done.json"):
        history = mark.parent / "history.json"
        if history.exists() and "gamma_eff" in history.read_text():
            shutil.rmtree(mark.parent)
    assert [c["method"] for c in run_curves(Run.open(finished))] == [c["method"] for c in whole][:-1]
    shutil.rmtree(finished / "nodes")
    with pytest.raises(InputError, match="no finished method"):
        run_curves(Run.open(finished))


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a run folder"):
        run_curves(Run.open(tmp_path))


@pytest.mark.slow
def test_a_report_has_curves_and_figures(reference, tmp_path, monkeypatch):
    alt, others = frontier(run_curves(Run.open(reference))).alt, at_size(unrendered, nullcontext)

    def rendered(figure, kind):
        with nullcontext() if figure.alt == alt else others():
            return drawing.rendered(figure, kind)

    monkeypatch.setattr(write, "rendered", rendered)
    written = write_report([reference], tmp_path / "results")
    of_runs = read_curves(tmp_path / "results" / "curves.json")
    assert len(of_runs) == 4
    (again,) = save(frontier(of_runs), tmp_path / "frontier", formats=("png",))
    assert again.stat().st_size > 10_000
    assert again.read_bytes() == (tmp_path / "results" / "figures" / "frontier.png").read_bytes()
    found = {path.stem for path in (tmp_path / "results" / "figures").glob("*.png")}
    assert found == set(written.figures)
    assert len(found) == 11
    assert not written.missing
