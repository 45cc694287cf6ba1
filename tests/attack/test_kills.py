import json
import os

import pytest

from attack import kills
from attack.children import KILLED, End
from attack.trials import comparable, plant, portrait, sealed
from sizes import at_size


@pytest.mark.slow
def test_what_is_killed_full_or_planted_loses_nothing_and_ends_as_if_undisturbed():
    tallies = kills.attack(at_size(0.004, 0.1), 0, lambda *_: None)
    assert [failure for tally in tallies for failure in tally.failures] == []
    assert sum(tally.failed for tally in tallies) == 0
    assert sum(tally.cases for tally in tallies) >= at_size(10, 100)


@pytest.mark.parametrize("name", [".notes.0123456789abcdef", "mine/notes", "mine.link"])
def test_the_attack_sees_that_somebody_was_there(tmp_path, name):
    planted = plant(tmp_path)
    before = {path: portrait(path) for path in planted}
    assert before == {path: portrait(path) for path in planted}
    path = tmp_path / name
    data, facts = path.read_bytes(), path.stat()
    path.unlink()
    assert portrait(path) != before[path]
    path.write_bytes(data)
    assert portrait(path) != before[path]
    path.chmod(facts.st_mode)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (portrait(path) == before[path]) is (name != "mine.link")


def test_two_folders_may_differ_in_times_only(tmp_path):
    for name, seconds, loss in (("one", 1, 0.5), ("same", 2, 0.5), ("other", 1, 0.6)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "history.json").write_text(json.dumps([{"seconds": seconds, "loss": loss}]))
    one, same, other = (comparable(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same != other
    (tmp_path / "same" / ".page.html.0123456789abcdef").touch()
    assert comparable(tmp_path / "same") != one


def test_only_what_a_whole_mark_vouches_for_is_sealed(tmp_path):
    data = tmp_path / "results.jsonl"
    data.write_text("{}\n")
    digest = "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"
    (tmp_path / "done.json").write_text(json.dumps({"files": {data.name: digest}}))
    assert sealed(tmp_path) == {data: b"{}\n"}
    data.write_text("{")
    assert sealed(tmp_path) == {}


@pytest.mark.parametrize(
    ("code", "stderr", "clean", "refusal"),
    [
        (0, "", True, False),
        (2, "error: full\n", True, True),
        (2, "error: full\nmore\n", True, False),
        (1, "Traceback (most recent call last):\n", False, False),
        (139, "", False, False),
        (KILLED, "", True, False),
    ],
)
def test_how_a_command_ended(code, stderr, clean, refusal):
    end = End(code, stderr, 0.0, 0.0, 0.0, False)
    assert (end.is_clean, end.is_refusal) == (clean, refusal)
