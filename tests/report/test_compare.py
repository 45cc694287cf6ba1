import pytest
from typer.testing import CliRunner

from calmoe.commands import app
from calmoe.experiments.checked_files import SCORES
from calmoe.experiments.spec import from_table, load_preset
from calmoe.experiments.store import RunFolder
from calmoe.experiments.sweep import make_sweep
from run_folders import record_of

ECE = [0.060, 0.062, 0.058, 0.061, 0.059]


RESNET18, RESNET50 = ({"backbone": name, "variant": "v1"} for name in ("resnet18", "resnet50"))
PRETRAINED = {"weights": "imagenet.pth"}


def folder(
    path,
    dataset="cifar10h",
    protocols=("corrected", "published"),
    method="vanilla",
    target="",
    model=RESNET18,
    eces=ECE,
    training=None,
    **more,
):
    run = RunFolder(path)
    path.mkdir()
    table = load_preset(dataset).as_table() | {"target": target}
    table["model"] |= model
    table["training"] |= training or {}
    run.write_record(record_of(from_table(table), protocols=tuple(protocols), **more))
    others = dict.fromkeys(SCORES) | {"temperature": 1.0, "temperature_status": "optimum", "n": 100}
    rows = [
        {**others, "method": method, "seed": 42 + i, "protocol": protocol, "ece": value}
        for protocol in protocols
        for i, value in enumerate(eces)
    ]
    run.write_results(rows)
    return path


def compare(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def test_published_cells_beside_ours(tmp_path):
    answer = compare(folder(tmp_path / "run"))
    assert answer.exit_code == 0, answer.output
    assert "1 of 1 cells differ from the paper by more than 2 combined SE" in answer.stdout
    (line,) = [line for line in answer.stdout.splitlines() if "0.055 ± 0.001" in line]
    assert line.split("  ")[0] == "Vanilla MoE"
    assert all(text in line for text in ("0.060 ± 0.001", "+0.005", "+5.77", "yes"))


def test_one_of_several_tables_of_a_dataset(tmp_path):
    run = folder(tmp_path / "run", dataset="pacs", model=RESNET18 | PRETRAINED)
    answer = compare(run, "--dataset", "pacs_photo")
    assert answer.exit_code == 0, answer.output
    assert "0.033 ± 0.002" in answer.stdout
    assert "no table for 'pacs'" in compare(run).stderr


def test_a_target_has_its_own_table(tmp_path):
    run = folder(tmp_path / "run", dataset="pacs", target="art_painting", model=RESNET18 | PRETRAINED)
    answer = compare(run)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == compare(run, "--dataset", "pacs_art").stdout
    assert "is a run on pacs-art_painting" in compare(run, "--dataset", "pacs_photo").stderr
    assert "(the paper:" not in answer.stdout


def test_another_backbone_is_named(tmp_path):
    model = RESNET50 | PRETRAINED
    with_target = folder(tmp_path / "art", dataset="pacs", target="art_painting", model=model)
    without = folder(tmp_path / "any", dataset="pacs", model=model)
    for answer in (compare(with_target), compare(without, "--dataset", "pacs_photo")):
        said = "ResNet-50 v1 (the paper: ResNet-18): no test of reproduction: the backbone is another"
        assert said in " ".join(answer.stdout.split())
        assert "yes" not in answer.stdout


SCRATCH = "ResNet-18, from scratch (the paper: ResNet-18, pretrained)"
TRAINED = "ResNet-18, pretrained (the paper: ResNet-18, from scratch)"


@pytest.mark.parametrize(
    ("dataset", "target", "model", "training", "told", "why"),
    [
        (
            "cifar10h",
            "",
            {},
            {"epochs": 30, "warmup": 20},
            "epochs=30, warmup=20",
            "settings are not the preset's",
        ),
        (
            "cifar10h",
            "",
            {},
            {"forget_moments": True},
            "forget_moments=true",
            "settings are not the preset's",
        ),
        ("cifar10h", "", PRETRAINED, {}, TRAINED, "the backbone is another"),
        ("pacs", "sketch", {}, {}, SCRATCH, "the backbone is another"),
    ],
)
def test_another_training_is_no_test_of_reproduction(dataset, target, model, training, told, why, tmp_path):
    run = folder(tmp_path / "run", dataset, target=target, model=RESNET18 | model, training=training)
    answer = compare(run)
    name = f"{dataset}-{target}" if target else dataset
    assert f"{name}, {told}: no test of reproduction: {why} Method" in " ".join(answer.stdout.split())
    assert "yes" not in answer.stdout


def test_one_seed_cannot_be_compared(tmp_path):
    answer = compare(folder(tmp_path / "run", eces=ECE[:1]))
    assert answer.exit_code == 0, answer.output
    assert "no cell could be compared: that takes two seeds" in answer.stdout


@pytest.mark.parametrize(
    ("made", "arguments", "said"),
    [
        ({"dataset": "digits"}, [], "the paper has no table for 'digits'"),
        ({"dataset": "digits"}, ["--dataset", "cifar10h"], "is a run on digits"),
        ({}, ["--dataset", "eta_gamma"], "the paper has no table for 'eta_gamma'"),
        ({"protocols": ["corrected"]}, [], "not judged under the published protocol"),
        ({"sweep": make_sweep("eta", (1, 2)), "method": "robust"}, [], "is a sweep"),
        ({"method": "entropic"}, [], "has no method of the paper's table"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_code_2(made, arguments, said, tmp_path):
    answer = compare(folder(tmp_path / "run", **made), *arguments)
    assert answer.exit_code == 2
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_other_folders_and_help(tmp_path):
    assert "is not a run folder" in compare(tmp_path).stderr
    assert "Example: calmoe compare " in compare("--help").stdout
