"""`calmoe run domains`, from folders of images to the report; tiny images, a real ResNet-18."""

import json
import os
import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import save_file

from calmoe.backbones import ResNet, weights_digest
from calmoe.data import DATASETS, domains, load_dataset
from calmoe.data.image_cache import CACHE
from calmoe.errors import InputError
from calmoe.experiments.engines import work as work_module
from calmoe.experiments.engines.work import Work
from calmoe.experiments.store import RunFolder
from calmoe.training import Trainer
from command_line import calmoe
from image_folders import write_images

SMALL = ["--methods", "vanilla,mocae", "--seeds", "42", "--set", "epochs=1", "--set", "batch=40"]


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        small = replace(domains.CARD, load=partial(domains.load, size=32))
        patch.setitem(DATASETS, "domains", small)
        yield


def run(data, out, *options, target="photo"):
    return calmoe("run", "domains", "--data", data, "--target", target, *SMALL, "--out", out, *options)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), count=12)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    save_file(ResNet(18, stem="imagenet").state_dict(), path)
    return path


@pytest.fixture(scope="module")
def finished(images, weights, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    result = run(images, out, "--set", f"weights={weights}")
    assert result.exit_code == 0, result.output
    settings = f"weights={weights.name}, epochs=1, warmup=0, batch=40"
    assert f"domains-photo, {settings}, corrected protocol" in " ".join(result.stdout.split())
    assert "from scratch" not in result.stdout
    return out


def test_the_record_tells_target_and_weights(finished, weights):
    record = json.loads((finished / "spec.json").read_text())
    assert record["spec"]["target"] == "photo"
    assert record["weights"] == weights_digest(weights)
    assert record["protocols"] == ["corrected"]  # the published split trains on other rows
    rows = [json.loads(line) for line in (finished / "results.jsonl").read_text().splitlines()]
    assert [(row["method"], row["n"], row["n_hard"]) for row in rows] == [
        ("vanilla", 36, 0),
        ("mocae", 36, 0),
    ]


@pytest.mark.usefixtures("unrendered")
def test_the_report_needs_no_hard_subset(finished, images, tmp_path):
    result = calmoe("report", finished, "--to", tmp_path / "report", "--data", images)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report/figures/frontier.png").exists()
    page = (tmp_path / "report/report.html").read_text()
    assert "Calibration on domains-photo" in page
    assert "These data have no hard subset" in page
    assert "levels" not in result.stdout + page
    assert "“hard”" not in page
    assert "Temperatures are fitted on " in page
    assert "calmoe run domains --data DIR --target photo" in page
    assert (tmp_path / "report/figures/examples.png").exists()
    assert "by 3 classes" in page
    assert "photo (target)" in page


def test_the_same_weights_elsewhere_are_the_same_run(finished, images, weights, tmp_path, monkeypatch):
    copied, out = (
        shutil.copy(weights, tmp_path / "copy.safetensors"),
        shutil.copytree(finished, tmp_path / "run"),
    )
    monkeypatch.setattr(Trainer, "train", lambda *_: pytest.fail("trained again"))
    assert run(images, out, "--set", f"weights={copied}").exit_code == 0


def test_a_worker_elsewhere_has_the_weights_of_the_plan(finished, images, weights, tmp_path, monkeypatch):
    record = RunFolder(finished).record()
    spec = replace(record.spec, model=replace(record.spec.model, weights=weights.name))
    dataset = load_dataset(spec.dataset, images, spec.protocol, spec.target)
    monkeypatch.setattr(work_module, "plugins_of", lambda _: ())  # small images are a dataset of pytest's
    work = Work(spec=spec, dataset=dataset, data=images, device=torch.device("cpu"), threads=1)
    monkeypatch.chdir(weights.parent)
    planned, changed = work.as_text(record.weights), work.as_text("0" * 64)
    monkeypatch.chdir(tmp_path)
    assert Work.from_text(planned).spec.model.weights == str(weights)
    with pytest.raises(InputError, match="other weights"):
        Work.from_text(changed)


def test_other_weights_targets_and_images_are_refused(finished, images, weights, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file(ResNet(18, stem="imagenet").state_dict(), other)
    said = run(images, finished, "--set", f"weights={other}").stderr
    assert "(the weights differ: other weights than those this folder was trained on)" in said
    assert "(the weights differ: some there, none here)" in run(images, finished).stderr
    elsewhere = run(images, finished, "--set", f"weights={weights}", target="sketch")
    assert "(target is 'photo' there, 'sketch' here)" in elsewhere.stderr


def test_a_dry_run_refuses_what_the_run_refuses(finished, images, weights, tmp_path):
    plain = ("run", "domains", "--target", "photo", *SMALL, "--out", finished, "--dry-run")
    unchecked = calmoe(*plain)
    assert unchecked.exit_code == 0, unchecked.output
    assert unchecked.stdout.startswith("note: data, weights, device and version were not checked")
    assert "0 to do in 0 nodes" in unchecked.stdout
    right = calmoe(*plain, "--data", images, "--set", f"weights={weights}")
    assert right.exit_code == 0, right.output
    assert "note:" not in right.stdout
    assert "0 to do in 0 nodes" in right.stdout
    other = tmp_path / "other.safetensors"
    save_file(ResNet(18, stem="imagenet").state_dict(), other)
    fewer = write_images(tmp_path / "fewer", count=11)
    for data, file, said in ((images, other, "the weights differ"), (fewer, weights, "the data differ")):
        result = calmoe(*plain, "--data", data, "--set", f"weights={file}")
        assert result.exit_code == 2, result.output
        assert f"holds another run ({said}" in result.stderr


def test_columns_that_no_row_has_are_not_shown(finished, images, weights):
    shown = run(images, finished, "--set", f"weights={weights}").stdout
    assert "ECE+TS" in shown
    assert "Hard" not in shown


def test_from_scratch_is_said(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = calmoe(
        "run", "domains", "--data", images, "--target", "sketch", *SMALL, "--protocol", "published"
    )
    assert result.exit_code == 0, result.output
    assert "note: the backbone starts from scratch; --set weights=FILE" in result.stdout
    assert (tmp_path / "runs/domains-sketch/results.jsonl").exists()


SMALLER = ["--set", "backbone=mlp", "--set", "hidden=[4]"]


def test_what_was_passed_over_is_said_first(tmp_path):
    root = write_images(tmp_path / "images", count=4)
    (root / "photo/dog/[b]one.heic").write_bytes(b"")
    shutil.rmtree(root / "sketch/owl")
    told = ["note: 1 file passed over, photo/dog/[b]one.heic: ", "note: class owl: no image in domain sketch"]
    for options in (["--dry-run"], []):
        result = run(root, tmp_path / "out", *SMALLER, *options)
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert [line.startswith(said) for line, said in zip(lines, told, strict=False)] == [True, True]
        assert "weights=FILE" not in result.stdout  # an MLP takes none


def test_a_path_that_is_not_utf8_runs(tmp_path, monkeypatch):
    root = write_images(tmp_path / os.fsdecode(b"\xff"), count=4)
    monkeypatch.setattr("sys.argv", ["calmoe", "run", "domains", "--data", str(root)])
    result = run(root, tmp_path / "out", *SMALLER)
    assert result.exit_code == 0, result.output
    sessions = json.loads((tmp_path / "out/environment.json").read_text())["sessions"]
    assert sessions[0]["command"][-1] == str(root)


def test_a_wrong_folder_of_images_is_no_report(finished, tmp_path):
    (tmp_path / "none").mkdir()
    result = calmoe("report", finished, "--to", tmp_path / "report", "--data", tmp_path / "none")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"error: {tmp_path / 'none'} needs at least two domains")
    assert not (tmp_path / "report").exists()


def test_a_sweep_has_a_target_too(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["sweep", "eta", "domains", "--data", images, "--target", "sketch", "--values", "1,2"]
    result = calmoe(*command, "--seeds", "42", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "domains-sketch, 1 method x 1 seed x 2 values of eta" in result.stdout


def corrupt(root, _):
    (root / "sketch/dog/003.jpg").write_bytes(b"\xff\xd8\xff and no more")
    return [], "sketch/dog/003.jpg is"


def empty(root, _):
    shutil.rmtree(root / "photo/dog")
    shutil.rmtree(root / "photo/cat")
    for path in (root / "photo/owl").iterdir():
        path.unlink()
    return [], "photo has no images in class folders"


def lonely(root, _):
    shutil.rmtree(root / "sketch")
    shutil.rmtree(root / "clipart")
    return [], "needs at least two domains"


def no_weights(root, _):
    return ["--set", f"weights={root / 'none.pth'}"], "there is no file"


def other_depth(root, weights):
    return ["--set", "backbone=resnet34", "--set", f"weights={weights}"], f"{weights} does not fit"


def other_stem(root, weights):
    return ["--set", "stem=cifar", "--set", f"weights={weights}"], f"{weights} does not fit"


def not_weights(root, _):
    path = root / "sketch/dog/003.jpg"
    return ["--set", f"weights={path}"], "003.jpg: not a readable safetensors file"


def other_target(root, _):
    return ["--target", "sketches"], "unknown domain of"


def no_target(root, _):
    return ["--target", ""], "give --target, one of clipart, photo, sketch"


@pytest.mark.parametrize(
    "broken",
    [corrupt, empty, lonely, no_weights, other_depth, other_stem, not_weights, other_target, no_target],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(tmp_path, weights, broken):
    root = write_images(tmp_path / "images", count=4)
    options, said = broken(root, weights)
    result = run(root, tmp_path / "out", *options)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert not [path for path in root.glob(f"{CACHE}/.*") if path.name != ".lock"]
