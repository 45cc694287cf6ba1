"""Model folders: what was saved predicts the same, here and in another process; damage is refused."""

import json
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import calmoe
import forked
from calmoe.errors import InputError
from models.made_tables import mixed, noisy, quick_mixture, quick_network


@pytest.fixture(scope="module")
def table():
    return mixed(150)


@pytest.fixture(scope="module")
def saved(table, tmp_path_factory):
    """Both estimators, fitted, with the folder of each."""
    folder = tmp_path_factory.mktemp("models")
    experts = [LogisticRegression(), HistGradientBoostingClassifier(max_iter=5), ExtraTreesClassifier(5)]
    models = {"mixture": quick_mixture(experts=experts), "network": quick_network()}
    for name, model in models.items():
        model.fit(*table).save(folder / name)
    return {name: (model, folder / name) for name, model in models.items()}


@pytest.mark.parametrize("name", ["mixture", "network"])
def test_a_loaded_model_predicts_the_same(saved, table, name):
    model, folder = saved[name]
    loaded = type(model).load(folder)
    np.testing.assert_array_equal(loaded.predict_proba(table[0]), model.predict_proba(table[0]))
    np.testing.assert_array_equal(loaded.predict(table[0]), model.predict(table[0]))
    assert list(loaded.feature_names_in_) == list(model.feature_names_in_)
    assert not list(folder.rglob("*.pkl"))


def test_another_process_predicts_the_same(saved, table, tmp_path):
    X, _ = table
    X.to_parquet(tmp_path / "x.parquet")
    code = (
        "import sys, numpy, calmoe, pyarrow.parquet as parquet\n"
        "X = parquet.read_table(sys.argv[1])\n"
        "mixture = calmoe.MixtureOfModels.load(sys.argv[2])\n"
        "network = calmoe.CalibratedMoEClassifier.load(sys.argv[3])\n"
        "numpy.save(sys.argv[4], numpy.stack([model.predict_proba(X) for model in (mixture, network)]))\n"
    )
    folders = [str(folder) for _, folder in saved.values()]
    command = [sys.executable, "-c", code, str(tmp_path / "x.parquet"), *folders, str(tmp_path / "probs.npy")]
    forked.run(command, check=True, cwd=tmp_path)
    here = np.stack([model.predict_proba(X) for model, _ in saved.values()])
    np.testing.assert_allclose(np.load(tmp_path / "probs.npy"), here, atol=1e-12)


@pytest.mark.parametrize("labels", [[3, 7], [True, False], [1.0, 2.0], ["a", "ż"]])
def test_classes_keep_their_type(labels, tmp_path):
    X, y = noisy(60)
    classes = np.array(labels)
    quick_mixture().fit(X, classes[y]).save(tmp_path / "m")
    loaded = calmoe.MixtureOfModels.load(tmp_path / "m")
    assert loaded.classes_.dtype == classes.dtype
    assert set(loaded.predict(X)) <= set(labels)


class Foreign(ClassifierMixin, BaseEstimator):
    """A classifier that skops has never heard of."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_types_that_nobody_allowed_are_refused_by_name(tmp_path):
    X, y = noisy(60)
    quick_mixture(experts=[("mine", Foreign())]).fit(X, y).save(tmp_path / "m")
    name = f"{Foreign.__module__}.Foreign"
    with pytest.raises(InputError, match=f"{name}.*name them in trusted="):
        calmoe.MixtureOfModels.load(tmp_path / "m")
    loaded = calmoe.MixtureOfModels.load(tmp_path / "m", trusted=(name,))
    assert loaded.predict_proba(X).shape == (60, 2)


def test_nothing_is_overwritten_and_nothing_unfitted_is_saved(saved, tmp_path):
    model, folder = saved["network"]
    with pytest.raises(InputError, match="not an empty folder"):
        model.save(folder)
    with pytest.raises(InputError, match="not fitted"):
        calmoe.CalibratedMoEClassifier().save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["mixture", "network"])
@pytest.mark.parametrize(
    "damage",
    [
        {"format": "calmoe.model/9"},
        {"kind": "other"},
        {"classes": {"type": "<i8", "values": ["a", "b"]}},
        {"classes": {"type": "O", "values": [0, 1]}},
        {"preparation": {"columns": [], "kept": []}},
        {"settings": {}},
        {"router": {"kind": "oracle", "expert": 0}, "temperature": -1},
        {"prior": [1.0], "temperature": "hot"},
        {"experts": ["../../escape"], "validation_log_loss": 3},
    ],
)
def test_damaged_descriptions_are_refused_in_one_line(saved, tmp_path, name, damage):
    model, folder = saved[name]
    described = json.loads((folder / "model.json").read_text()) | damage
    (tmp_path / "model.json").write_text(json.dumps(described))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(InputError) as caught:
        type(model).load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_damaged_expert_is_refused(saved, tmp_path):
    model, folder = saved["mixture"]
    for path in folder.rglob("*"):
        target = tmp_path / path.relative_to(folder)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes()[:2000])
    (tmp_path / "model.json").write_bytes((folder / "model.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match="not a readable skops file"):
        type(model).load(tmp_path)


def test_no_folder_says_what_to_give(tmp_path):
    with pytest.raises(InputError, match="give a folder that save wrote"):
        calmoe.MixtureOfModels.load(tmp_path)
