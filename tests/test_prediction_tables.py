"""Predictions as csv and parquet tables: what was written is what is read, classes by name included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calmoe.formats.columns import class_values
from calmoe.predictions import Predictions
from calmoe.reading import read_predictions

KINDS = (".csv", ".parquet")


def made(classes, rows=6, experts=2, labelled=True, groups=None, seed=0):
    rng = np.random.default_rng(seed)
    count = len(classes)
    return Predictions.from_probs(
        rng.dirichlet(np.ones(count), rows),
        labels=rng.integers(count, size=rows) if labelled else None,
        routing=rng.dirichlet(np.ones(experts), rows) if experts > 1 else None,
        expert_probs=rng.dirichlet(np.ones(count), (rows, experts)) if experts > 1 else None,
        groups=groups or {},
        metadata={"classes": [str(name) for name in classes]},
    )


def check_same(saved, loaded, classes):
    """Equal numbers, class by class; `loaded` may have the classes in another order."""
    names = list(loaded.class_names or map(str, range(len(classes))))
    if set(names) != set(classes):
        names = [str(name) for name in classes]  # by number: the same order
    order = [names.index(name) for name in classes]
    for ours, theirs in zip(saved.output, loaded.output, strict=True):
        places = order if theirs.shape[-1] == len(classes) and theirs is not loaded.output[1] else slice(None)
        np.testing.assert_allclose(theirs[..., places], ours, rtol=1e-12, atol=1e-12)
    if saved.labels is not None:
        assert [names[i] for i in loaded.labels] == [classes[i] for i in saved.labels]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(
    "classes",
    [
        ["no", "yes"],
        ["sehr gut", "sehr übel", "mittel"],
        ["very_good", "very_bad"],
        ["1", "2", "3"],
        ["-1", "1"],
        ["False", "True"],
    ],
)
def test_names_come_back(tmp_path, kind, labelled, classes):
    saved = made(classes, rows=12, labelled=labelled, groups={"region": np.array(["n", "s"] * 6)})
    saved.save(tmp_path / f"p{kind}")
    loaded = read_predictions(tmp_path / f"p{kind}")
    check_same(saved, loaded, classes)
    assert set(loaded.class_names) == set(classes)
    assert loaded.groups["region"].tolist() == ["n", "s"] * 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("classes", "groups"),
    [
        (["1", "x"], {}),
        (["true", "false"], {}),
        (["0.5", "1.5"], {}),
        (["a\nb", 'c,"d"'], {}),
        ([" a", "a"], {}),
        (["0", "2", "5"], {}),
        (["no", "yes"], {"no": np.arange(6.0), "yes": np.ones(6)}),
        (["no", "yes"], {"y_score": np.arange(6.0)}),
        (["no", "yes"], {"prob_no": np.arange(6.0), "label": np.arange(6), "labels": np.arange(6)}),
    ],
)
def test_names_that_would_mislead_are_numbers(tmp_path, kind, classes, groups):
    saved = made(classes, groups=groups)
    saved.save(tmp_path / f"p{kind}")
    loaded = read_predictions(tmp_path / f"p{kind}")
    check_same(saved, loaded, classes)
    assert set(loaded.groups) == {
        f"group_{name}" if name in ("prob_no", "label", "labels") else name for name in groups
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_group_takes_the_place_of_another(tmp_path, kind):
    columns = {"labels": np.arange(6) % 3, "group_labels": np.arange(6) % 2, "label": np.arange(6) % 5}
    saved = made(["no", "yes"], groups=columns)
    saved.save(tmp_path / f"p{kind}")
    loaded = read_predictions(tmp_path / f"p{kind}").groups
    for there, name in (("group_group_labels", "labels"), ("group_labels",) * 2, ("group_label", "label")):
        np.testing.assert_array_equal(loaded[there], columns[name])
    assert len(loaded) == 3


@settings(max_examples=40, deadline=None)
@given(
    classes=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4),
        min_size=2,
        max_size=4,
        unique=True,
    ),
    labelled=st.booleans(),
    experts=st.integers(1, 2),
    kind=st.sampled_from(KINDS),
)
def test_any_names_survive_or_become_numbers(tmp_path_factory, classes, labelled, experts, kind):
    path = tmp_path_factory.mktemp("p") / f"p{kind}"
    saved = made(classes, labelled=labelled, experts=experts)
    saved.save(path)
    check_same(saved, read_predictions(path), classes)


def test_numbers_stay_numbers():
    assert class_values(["3", "-1"]) == [3, -1]
    assert class_values(["3", "3.0"]) == ["3", "3.0"]
