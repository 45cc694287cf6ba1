"""The study of worlds judges each by its own truth."""

from calmoe.worlds.cancellation import WORLDS
from studies.audit_worlds import ORIGINS, judged, table


def test_worlds_are_judged_by_their_truth():
    assert set(ORIGINS) < set(WORLDS)
    rows = {kind: [judged(WORLDS[kind], kind, 1500, 3)] for kind in ("clean, 3 classes", "by routing")}
    clean, routed = (row[0] for row in rows.values())
    assert clean["bound / E|m(S) − f|"] is None
    assert routed["rejects “nothing hidden”"]
    assert routed["E|m(S) − m(V)| ≥ bound"]
    assert 0 < routed["bound / E|m(S) − f|"] < 1
    shown = table(rows, 1500).markdown()
    assert all(kind in shown for kind in rows)
