"""The study of seeds: which fields of the verdict another seed of the audit changes."""

import json

import pytest
import typer

from calmoe import worlds
from calmoe.errors import InputError
from studies import audit_verdicts as study


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{name}.safetensors" for name in ("clear", "other")]
    for seed, path in enumerate(paths):
        worlds.cancelling(seed, delta=0.2, rule="leading").sample(250, seed=seed).save(path)
    return paths


@pytest.mark.usefixtures("hasty")
def test_the_fields_of_each_file_are_shown(files, tmp_path, capsys):
    study.audit_verdicts(files[:1], seeds=2, jobs=1, to=tmp_path / "rows.jsonl")
    shown = capsys.readouterr().out
    assert "| clear |" in shown
    assert "fragility" in shown
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["file"], row["seed"]) for row in rows] == [
        ("clear.safetensors", 0),
        ("clear.safetensors", 1),
    ]


def test_a_field_differs_where_two_decided_seeds_contradict(files, monkeypatch, capsys):
    answers = iter(["hidden", "not decided", "hidden", "hidden", "nothing found", "hidden"])
    monkeypatch.setattr(study, "fields_of", lambda task: {"truth": "off", "hidden": next(answers)})
    with pytest.raises(typer.Exit) as ended:
        study.audit_verdicts(files, seeds=3, jobs=1, to=None)
    assert ended.value.exit_code == 1
    lines = capsys.readouterr().out.splitlines()
    (first,) = [line for line in lines if line.startswith("| clear")]
    (second,) = [line for line in lines if line.startswith("| other")]
    assert first == "| clear | off | hidden 2, not decided 1 | – |"
    assert second == "| other | off | hidden 2, nothing found 1 | hidden |"


def test_missing_files_and_single_seeds_are_refused(files, tmp_path):
    with pytest.raises(InputError, match="there is no"):
        study.audit_verdicts([tmp_path / "none.safetensors"], seeds=2, jobs=1, to=None)
    with pytest.raises(InputError, match="--seeds"):
        study.audit_verdicts(files, seeds=1, jobs=1, to=None)
    with pytest.raises(InputError, match="--jobs"):
        study.audit_verdicts(files, seeds=2, jobs=0, to=None)
