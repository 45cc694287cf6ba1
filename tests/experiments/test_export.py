import numpy as np
import pytest
import torch

from calmoe.calibration import Temperature
from calmoe.errors import InputError
from calmoe.experiments.export import export
from calmoe.experiments.run import Run
from calmoe.experiments.runner import run
from calmoe.experiments.spec import narrowed, with_settings
from calmoe.experiments.store import read_results
from calmoe.metrics import ece, nll
from calmoe.predictions import Predictions
from command_line import calmoe


@pytest.mark.parametrize("scaled", [False, True])
def test_the_files_give_the_scores_of_the_results(reference, tmp_path, scaled):
    rows = {(row["method"], row["seed"]): row for row in read_results(reference)}
    written, notes = export(reference, tmp_path, scaled=scaled)
    assert notes == []
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    assert names == {f"{m}-{s}/{split}.safetensors" for m, s in rows for split in ("validation", "test")}
    end = "_ts" if scaled else ""
    for (method, seed), row in rows.items():
        found = Predictions.load(tmp_path / f"{method}-{seed}" / "test.safetensors")
        assert ece(found.output.probs, found.labels) == pytest.approx(row[f"ece{end}"], abs=1e-6)
        assert nll(found.output.log_probs, found.labels) == pytest.approx(row[f"nll{end}"], abs=1e-6)
        assert found.metadata["method"] == method
        assert found.metadata["split"] == "test"
        assert found.metadata["temperature"] == (row["temperature"] if scaled else None)
        assert np.asarray(found.groups["hard"]).sum() == row["n_hard"]


def test_views_are_exported_as_experts(tiny, quiet, tmp_path):
    spec = narrowed(with_settings(tiny, ["views=5"]), methods=("vanilla", "mocae", "recommended"))
    rows = {row["method"]: row for row in run(spec, tmp_path / "run", console=quiet).rows}
    export(tmp_path / "run", tmp_path / "out", scaled=True, views=True)
    for method, prefix, experts in (
        ("vanilla", "views_", 20),
        ("mocae", "views_", 20),
        ("recommended", "", 5),
    ):
        pooled = Predictions.load(tmp_path / "out" / f"{method}-42" / "test.safetensors")
        assert pooled.num_experts == experts
        assert ece(pooled.output.probs, pooled.labels) == pytest.approx(
            rows[method][f"{prefix}ece_ts"], abs=1e-6
        )


def test_a_run_without_views_exports_none(reference, tmp_path):
    with pytest.raises(InputError, match="leave out --views"):
        export(reference, tmp_path / "out", ["vanilla"], views=True)
    assert not (tmp_path / "out").exists()


def test_validation_is_the_protocols_own(reference, tmp_path):
    export(reference, tmp_path)
    for model in Run.open(reference).read_models():
        own = Predictions.load(tmp_path / f"{model.method}-{model.seed}" / "validation.safetensors")
        assert torch.equal(own.output.log_probs, model.validation.output.log_probs.float())
        assert torch.equal(own.known_labels, model.validation.known_labels)


def test_a_temperature_that_is_no_optimum_is_told(reference, tmp_path, monkeypatch):
    separable = Temperature()
    separable.temperature_, separable.status_ = 1.0, "separable"
    monkeypatch.setattr(Temperature, "fit", lambda *_: separable)
    _, notes = export(reference, tmp_path, ["vanilla"], scaled=True)
    assert notes == ["vanilla-42: validation has no optimal temperature (separable, T = 1)"]


def test_nothing_is_overwritten(reference, tmp_path):
    export(reference, tmp_path, ["vanilla"])
    with pytest.raises(InputError, match="vanilla-42 is there already: damaged, of another run"):
        export(reference, tmp_path, scaled=True)
    assert {path.name for path in tmp_path.iterdir()} == {".calmoe.json", "vanilla-42"}
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--to must be a folder"):
        export(reference, tmp_path / "file")


def test_a_damaged_model_is_not_left_out_in_silence(finished, tmp_path):
    victim = next(model for model in Run.open(finished).read_models() if model.method == "robust")
    for path in finished.glob("nodes/*/test.safetensors"):
        if torch.equal(Predictions.load(path).output.log_probs, victim.test.output.log_probs):
            path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"has not finished robust seed 42: .*choose others by --methods"):
        export(finished, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(export(finished, tmp_path / "out", ["vanilla"]).files) == 2


def test_a_temperature_changes_the_mixture_and_not_its_experts(reference, tmp_path):
    export(reference, tmp_path / "raw", ["vanilla"])
    export(reference, tmp_path / "scaled", ["vanilla"], [42], scaled=True)
    raw, scaled = (
        Predictions.load(tmp_path / kind / "vanilla-42" / "test.safetensors").output
        for kind in ("raw", "scaled")
    )
    assert torch.equal(raw.expert_log_probs, scaled.expert_log_probs)
    assert torch.equal(raw.log_routing, scaled.log_routing)
    assert not torch.allclose(raw.log_probs, scaled.log_probs, atol=1e-3)
    assert not (tmp_path / "raw" / "robust-42").exists()


@pytest.mark.parametrize(
    ("methods", "seeds", "said"),
    [
        (["fgr"], None, "fgr seed 42"),
        (None, [43], "robust seed 43"),
        (["vanilla"], [42, 43], "vanilla seed 43"),
    ],
)
def test_what_is_not_trained_is_named_and_nothing_is_written(reference, tmp_path, methods, seeds, said):
    with pytest.raises(InputError, match=f"has not finished .*{said}"):
        export(reference, tmp_path / "out", methods, seeds)
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_refused(swept, tmp_path):
    with pytest.raises(InputError, match="is a sweep"):
        export(swept[0], tmp_path / "out")


@pytest.mark.usefixtures("hasty", "unrendered")
def test_the_command_and_an_audit_of_what_it_wrote(reference, tmp_path):
    def said(*arguments):
        result = calmoe(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "6 files" in said("export", reference, "--methods", "vanilla,mocae,robust", "--to", tmp_path)
    assert "Verdict: The probabilities" in said("audit", tmp_path / "mocae-42" / "test.safetensors")
