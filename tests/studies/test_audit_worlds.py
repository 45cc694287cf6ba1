"""The study judges worlds by their own truth, in any number of processes, and goes on where it stopped."""

import json

import pytest

import forked
from calmoe.errors import InputError
from sizes import at_size
from studies.audit_worlds import KINDS, audit_worlds, judged, read_answers, table

KIND = "by class, one expert"


def without_time(answer):
    return {name: value for name, value in answer.items() if name != "CPU seconds"}


@pytest.mark.usefixtures("brief")
def test_worlds_are_judged_by_their_truth():
    rows = {kind: [judged((kind, 1000, 3))] for kind in ("clean, 3 classes", "by routing")}
    clean, routed = (row[0] for row in rows.values())
    assert clean["bound / E|m(S) − f|"] is None
    assert routed["rejects “nothing hidden”"]
    assert routed["E|m(S) − m(V)| ≥ bound"]
    assert 0 < routed["bound / E|m(S) − f|"] < 1
    shown = table(rows, 1000).markdown()
    assert all(kind in shown for kind in rows)


def test_every_kind_has_a_world():
    for kind, (make, origin) in KINDS.items():
        world = make(5)
        if origin is None:
            assert world.hidden == pytest.approx(0, abs=1e-9)
        elif origin:
            own = origin == "mixture's own vector"
            assert world.hidden == pytest.approx(0.1)
            assert world.without_routing == pytest.approx(0.1 if own else 0, abs=1e-9)
            assert world.routing_adds == pytest.approx(0 if own else 0.1, abs=1e-9), kind
        else:
            assert world.routing_adds == pytest.approx(0, abs=1e-9)


@pytest.mark.usefixtures("hasty")
def test_a_stopped_study_goes_on(tmp_path, capsys):
    kept, options = tmp_path / "rows.jsonl", {"rows": 300, "first": 5, "kinds": KIND, "jobs": 1}
    audit_worlds(worlds=2, **options, to=kept)
    lines = kept.read_text().splitlines()
    kept.write_text(lines[0] + "\n" + lines[1][:40])  # killed while it wrote
    capsys.readouterr()
    audit_worlds(worlds=3, **options, to=kept)
    again = kept.read_text().splitlines()
    assert again[0] == lines[0]
    assert [json.loads(line)["seed"] for line in again] == [5, 6, 7]
    assert without_time(json.loads(again[1])) == without_time(json.loads(lines[1]))
    assert f"| {KIND} | 3 |" in capsys.readouterr().out
    assert read_answers(kept).keys() == {(KIND, 300, seed) for seed in (5, 6, 7)}


def test_bad_requests_are_refused(tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text("[1]\n")
    with pytest.raises(InputError, match="line 1"):
        read_answers(other)
    with pytest.raises(InputError, match="--jobs"):
        audit_worlds(worlds=1, rows=300, first=0, kinds="", jobs=0, to=None)
    with pytest.raises(InputError, match="kind of world"):
        audit_worlds(worlds=1, rows=300, first=0, kinds="unknown", jobs=1, to=None)


@pytest.fixture
def small_processes(quick, monkeypatch):
    """At the small size processes of the pool are forked, and learn little, as this one does."""
    if at_size(True, False):
        monkeypatch.setattr("studies.processes.get_context", lambda _: forked.server())
        monkeypatch.setattr("studies.processes._one_thread", forked.begin_hastily)


@pytest.mark.slow
@pytest.mark.usefixtures("small_processes")
def test_the_number_of_processes_changes_nothing(tmp_path):
    options = {"worlds": 2, "rows": 300, "first": 5, "kinds": KIND}
    for jobs in (1, 2):
        audit_worlds(**options, jobs=jobs, to=tmp_path / f"{jobs}.jsonl")
    one, two = (read_answers(tmp_path / f"{jobs}.jsonl") for jobs in (1, 2))
    assert {task: without_time(a) for task, a in one.items()} == {t: without_time(a) for t, a in two.items()}
