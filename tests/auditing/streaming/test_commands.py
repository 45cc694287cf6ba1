"""`calmoe audit --stream`: what it takes, when it is chosen, and Ray."""

import json
import sys
import types

import pytest

from calmoe.auditing.streaming import memory
from calmoe.auditing.streaming.memory import why_streamed
from command_line import calmoe, refused
from streaming_tables import random_predictions, write


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "p.parquet", random_predictions(4, 150))


def test_several_files_are_models_unless_they_are_one_table(file, tmp_path):
    other = write(tmp_path / "q.parquet", random_predictions(5, 150))
    assert calmoe("audit", file, other).stdout.startswith("The best of them is q, but ")
    assert "add --as-one" in refused("audit", file, other, "--stream")
    assert "go with --stream" in refused("audit", file, other, "--as-one")
    assert "go with --stream" in refused("audit", file, "--sample", "2000")
    assert "go with --stream" in refused("audit", file, "--ray", "local")
    assert "fits into memory" in refused("audit", file, "--stream", "--target", other)


@pytest.mark.usefixtures("unrendered")
def test_a_file_beyond_the_memory_is_streamed_with_a_notice(file, tmp_path, monkeypatch):
    assert why_streamed(file) is None
    in_memory = calmoe("audit", file).stdout
    cells = 150 * 17
    monkeypatch.setattr(memory, "memory", lambda: 2 * 32 * cells - 1)
    result = calmoe("audit", file, "--out", tmp_path / "audit")
    assert result.exit_code == 0, result.output
    notice, *others = result.stdout.splitlines()
    assert notice.endswith("GB: streamed")
    assert others[:-1] == in_memory.splitlines()[:-1]  # the last says where the page is
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["rows"] == 150
    monkeypatch.setattr(memory, "memory", lambda: 2 * 32 * cells)
    assert why_streamed(file) is None
    monkeypatch.setattr(memory, "NEVER_BEYOND", 8 * cells - 1)
    assert "beyond what is read into memory" in why_streamed(file)


def test_a_folder_of_somebody_else_is_refused_before_the_work(file, tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("mine")
    monkeypatch.setattr("calmoe.auditing.streaming.files.Source", lambda *_: 1 / 0)
    assert "is not empty" in refused("audit", file, "--stream", "--out", tmp_path / "theirs")


def test_help_shows_examples():
    for command in ("audit", "audit-shard", "audit-merge"):
        assert f"Example: calmoe {command} " in calmoe(command, "--help").stdout


class FakeRay(types.ModuleType):
    """Ray's part that is used, in this process; tasks end in another order than they began."""

    class exceptions:
        class RayTaskError(Exception):
            def __init__(self, cause):
                self.cause = cause

    def init(self, address, **_):
        if address == "ray://nobody:1":
            raise ConnectionError("nobody\nanswers")

    def shutdown(self):
        pass

    def cluster_resources(self):
        return {"CPU": 2.0}

    def remote(self, **_):
        return lambda function: types.SimpleNamespace(remote=lambda *arguments: (function, arguments))

    def wait(self, waiting):
        return [waiting[-1]], waiting[:-1]

    def get(self, task):
        try:
            return task[0](*task[1])
        except Exception as error:
            raise self.exceptions.RayTaskError(error) from None


def test_ray_gives_what_one_process_gives(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay("ray"))
    alone, spread = calmoe("audit", file, "--stream"), calmoe("audit", file, "--stream", "--ray", "local")
    assert spread.exit_code == 0, spread.output
    assert spread.stdout == alone.stdout
    assert "no Ray cluster at ray://nobody:1 (nobody answers)" in refused(
        "audit", file, "--stream", "--ray", "ray://nobody:1"
    )


def test_without_ray_the_extra_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'calmoe[ray]'" in refused("audit", file, "--stream", "--ray", "local")
