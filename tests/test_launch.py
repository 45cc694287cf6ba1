"""What the environment says of this process among others, and what is wrong with it."""

import socket
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from calmoe.commands import app
from calmoe.errors import InputError
from calmoe.launch import Launch, follows, launch
from calmoe.training import ranks

NAMES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
WHOLE = {
    "WORLD_SIZE": "4",
    "RANK": "3",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.fixture
def environment(monkeypatch):
    def say(**variables):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return say


def test_a_process_is_alone_or_has_its_rank(environment):
    environment()
    assert launch() is None
    environment(WORLD_SIZE="1", RANK="0")
    assert launch() is None
    assert not follows()
    environment(**WHOLE)
    assert launch() == Launch(rank=3, size=4, local=1)
    assert follows()
    environment(**WHOLE | {"RANK": "0"})
    assert not follows()


@pytest.mark.parametrize(
    "wrong",
    [
        {"WORLD_SIZE": "many"},
        {"WORLD_SIZE": "0"},
        {"RANK": ""},
        {"RANK": "4"},
        {"RANK": "-1"},
        {"LOCAL_RANK": "x"},
        {"MASTER_ADDR": ""},
        {"MASTER_PORT": ""},
    ],
)
def test_half_an_environment_is_refused_in_one_line(environment, wrong):
    environment(**WHOLE | wrong)
    with pytest.raises(InputError, match="torchrun"):
        launch()


def test_ranks_that_do_not_meet_are_told_so(environment, monkeypatch, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        environment(**WHOLE | {"MASTER_PORT": str(closed.getsockname()[1])})
    monkeypatch.setattr(ranks, "MEETING", timedelta(seconds=1))
    result = CliRunner().invoke(app, ["run", "digits", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: rank 3 of 4 did not meet the others at 127.0.0.1:")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
