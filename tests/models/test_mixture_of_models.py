"""MixtureOfModels: as good as its best expert, exact to repeat, honest about what it cannot do."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

import calmoe
from calmoe.errors import InputError
from calmoe.models.experts import answers
from calmoe.models.watching import watched
from models.made_tables import log_loss, mixed, noisy, quick_experts, quick_mixture
from sizes import at_size


def test_a_watcher_sees_every_fit_of_an_expert():
    table, y = mixed()
    steps = []
    with watched(lambda *step: steps.append(step)):
        quick_mixture().fit(table, y)
    seen = [(done, total) for task, done, total in steps if task == "experts, fold by fold"]
    experts, folds = len(quick_experts()), quick_mixture().cv
    assert seen == [(done, experts * folds) for done in range(experts * folds + 1)]
    before = len(steps)
    quick_mixture().fit(table, y)
    assert len(steps) == before


def test_a_mixed_table_with_gaps_and_text_labels():
    table, y = mixed()
    model = quick_mixture().fit(table, y)
    assert list(model.classes_) == ["nie", "tak"]
    assert list(model.feature_names_in_) == list(table.columns)
    probs = model.predict_proba(table)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(table)), probs)
    np.testing.assert_array_equal(model.predict(table), model.classes_[probs.argmax(axis=1)])
    assert model.score(table, y) > 0.7
    np.testing.assert_array_equal(model.predict_proba(pa.Table.from_pandas(table)), probs)


def test_the_default_experts_take_a_mixed_table():
    table, y = mixed(150)
    model = calmoe.MixtureOfModels(cv=3, random_state=0).fit(table, y)
    assert [name for name, _ in model.experts_] == ["linear", "boosting", "trees"]
    assert model.predict_proba(table).shape == (150, 2)


@pytest.mark.usefixtures("hasty")
def test_predictions_are_a_mixture_that_can_be_audited():
    table, y = mixed()
    predictions = quick_mixture().fit(table, y).predictions(table, y, groups={"town": table["klasa"]})
    assert predictions.num_experts == 2
    assert list(predictions.groups) == ["town"]
    assert calmoe.audit(predictions) is not None
    with pytest.raises(InputError, match="did not learn"):
        quick_mixture().fit(table, y).predictions(table, np.full(len(y), "może"))


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    X, y = noisy(150, classes=3)
    forest = [("trees", ExtraTreesClassifier(5)), ("linear", LogisticRegression())]

    def probs(seed):
        return quick_mixture(experts=forest, random_state=seed).fit(X, y).predict_proba(X)

    np.testing.assert_array_equal(probs(1), probs(1))
    assert (probs(1) != probs(2)).any()


def test_equal_experts_mix_to_the_expert():
    X, y = noisy(150)
    same = [LogisticRegression(), LogisticRegression(), LogisticRegression()]
    one = quick_mixture(experts=[LogisticRegression()]).fit(X, y)
    three = quick_mixture(experts=same).fit(X, y)
    np.testing.assert_allclose(three.predict_proba(X), one.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("seed", range(at_size(3, 20)))
def test_no_worse_than_the_best_expert_beyond_noise(seed):
    rng = np.random.default_rng(seed)
    X, y = noisy(1600, classes=int(rng.integers(2, 4)), seed=seed)
    if seed % 3 == 0:
        y = rng.permutation(y)  # nothing to learn
    if seed % 3 == 1:
        y = (X[:, 0] * X[:, 1] > 0).astype(int)  # nothing linear
    experts = [*quick_experts(), ("class frequencies", DummyClassifier()), ("near", KNeighborsClassifier(3))]
    train, test = slice(0, 400), slice(400, None)
    model = quick_mixture(experts=experts, random_state=seed).fit(X[train], y[train])
    prepared = model.preparation_.transform(X[test]).astype(float)
    rows = np.arange(len(y[test]))
    own = -model.predict_log_proba(X[test])[rows, y[test]]
    losses = [-answers(*expert, prepared, model.prior_)[rows, y[test]] for expert in model.experts_]
    best = min(losses, key=np.mean)
    # it was chosen on 400 rows and is judged on 1,200: three standard errors of both
    error = np.std(own - best) * (1 / 400 + 1 / 1200) ** 0.5
    assert (own - best).mean() <= 3 * error + 1e-3


def test_useless_experts_do_no_harm():
    X, y = noisy(400, seed=3)
    wrong = make_pipeline(FunctionTransformer(np.zeros_like), LogisticRegression())
    model = quick_mixture(experts=[("blind", wrong), ("linear", LogisticRegression())]).fit(X, y)
    alone = quick_mixture(experts=[LogisticRegression()]).fit(X, y)
    assert log_loss(model, X, y) < log_loss(alone, X, y) + 0.01


def test_an_expert_that_is_always_sure_does_no_harm():
    X, y = noisy(300)
    sure = DecisionTreeClassifier(random_state=0)  # gives 0 and 1 only
    model = quick_mixture(experts=[("sure", sure), ("linear", LogisticRegression())]).fit(X, y)
    assert np.isfinite(model.predict_log_proba(X)).all()
    assert min(t.log_loss for t in model.trials_) < 0.7


def test_weights_reach_experts_and_router():
    X, y = noisy(200, seed=1)
    weights = np.where(y == 1, 5.0, 1.0)
    plain, weighted = quick_mixture().fit(X, y), quick_mixture().fit(X, y, sample_weight=weights)
    assert weighted.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1
    with pytest.raises(InputError, match=r"'kneighborsclassifier' takes no sample_weight"):
        quick_mixture(experts=[KNeighborsClassifier()]).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("classes", [[3, 7], [True, False], [1.0, 2.0], ["a", "ż"]])
def test_classes_of_any_type(classes):
    X, y = noisy(80)
    labels = np.array(classes)[y]
    model = quick_mixture().fit(X, labels)
    assert set(model.predict(X)) <= set(classes)
    assert model.predict(X).dtype == labels.dtype


def test_a_class_with_fewer_members_than_folds():
    X, y = noisy(120)
    y = y.astype(int)
    y[:2] = 2
    y[2] = 3
    model = quick_mixture(cv=5).fit(X, y)
    assert list(model.classes_) == [0, 1, 2, 3]
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_one_class_only_is_refused():
    with pytest.raises(InputError, match="1 class only"):
        quick_mixture().fit(np.ones((5, 1)), ["a"] * 5)


def test_groups_are_left_out_together():
    X, y = noisy(120)
    groups = np.repeat(np.arange(12), 10)
    assert quick_mixture().fit(X, y, groups=groups).predict(X).shape == (120,)
    with pytest.raises(InputError, match="one value a row"):
        quick_mixture().fit(X, y, groups=groups[:5])
    with pytest.raises(InputError, match="one group only"):
        quick_mixture().fit(X, y, groups=np.zeros(120))


def test_splitters_and_splits_of_ones_own():
    X, y = noisy(90)
    splitter = StratifiedKFold(3)
    own = quick_mixture(cv=list(splitter.split(X, y))).fit(X, y)
    np.testing.assert_array_equal(own.predict_proba(X), quick_mixture(cv=splitter).fit(X, y).predict_proba(X))
    with pytest.raises(InputError, match="never left out"):
        quick_mixture(cv=[(np.arange(45), np.arange(45, 90))]).fit(X, y)


def test_experts_may_see_the_table_as_it_is():
    table, y = mixed(150)
    own = make_pipeline(FunctionTransformer(_only_age), LogisticRegression())
    model = quick_mixture(experts=[("age", own)], prepare=False).fit(table, y)
    assert model.score(table, y) > 0.6


def _only_age(table):
    return table[["wiek"]].fillna(40).to_numpy()


@pytest.mark.parametrize("objective", ["entropic", "tilted", "filtered", "cvar"])
def test_robust_objectives_soften(objective):
    X, y = noisy(200, seed=2)
    plain, robust = quick_mixture().fit(X, y), quick_mixture(objective=objective, eta=2.0).fit(X, y)
    assert robust.predict_proba(X).max(1).mean() < plain.predict_proba(X).max(1).mean()


def shifting_world(rows=480, shops=12, seed=0):
    """In every shop another thing matters, and all know it in their own: others are to be believed less."""
    rng = np.random.default_rng(seed)
    shop = rng.integers(0, shops, rows)
    x = rng.normal(size=rows)
    sign = np.where(np.arange(shops) % 4 == 0, -3.0, 3.0)[shop]
    y = (rng.random(rows) < 1 / (1 + np.exp(-sign * x))).astype(int)
    return pd.DataFrame({"x": x, "shop": [f"s{i}" for i in shop]}), y


def test_a_shift_that_hurts_makes_it_robust_and_one_that_does_not_leaves_it():
    table, y = shifting_world()
    experts = [("tree", DecisionTreeClassifier(min_samples_leaf=10)), ("linear", LogisticRegression())]
    model = quick_mixture(experts=experts, expect_shift="shop", etas=(0.0, 0.5, 1.0)).fit(table, y)
    assert model.eta_ >= 0.5
    assert model.shift_log_loss_[model.eta_] < model.shift_log_loss_[0.0] - 0.05
    X, labels = noisy(300)
    harmless = pd.DataFrame(X, columns=["a", "b", "c"]).assign(shop=np.arange(300) % 10)
    assert quick_mixture(expect_shift="shop").fit(harmless, labels).eta_ == 0


def test_what_expect_shift_refuses():
    table, y = mixed(80)
    for column, said in (("nic", "no column 'nic'"), ("stała", "one value only"), (99, "no column 99")):
        with pytest.raises(InputError, match=said):
            quick_mixture(expect_shift=column).fit(table, y)
    few = quick_mixture(expect_shift="zgoda").fit(
        table, y
    )  # two values: nothing to learn from leaving one out
    assert (few.eta_, few.shift_log_loss_) == (0.0, {})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"experts": []}, "must be a list of classifiers"),
        ({"experts": [LogisticRegression]}, "no classifier"),
        (
            {"experts": [("a", LogisticRegression()), ("a", LogisticRegression())]},
            "two experts are named 'a'",
        ),
        ({"experts": [("../a", LogisticRegression())]}, "letters, digits"),
        ({"experts": [RidgeClassifier()]}, "gives no probabilities"),
        ({"objective": "entropy"}, "unknown objective 'entropy': did you mean 'entropic'"),
        ({"eta": -1.0, "objective": "entropic"}, "eta must be"),
        ({"cv": 1}, "cv must be"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, said):
    X, y = noisy(40)
    with pytest.raises(InputError, match=said) as caught:
        quick_mixture(**settings).fit(X, y)
    assert "\n" not in str(caught.value)


def test_clone_pipelines_and_grid_search():
    X, y = noisy(90)
    model = quick_mixture()
    assert clone(model).get_params()["cv"] == 3
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), model),
        {"mixtureofmodels__objective": ["erm", "entropic"]},
        scoring="neg_log_loss",
        cv=2,
    )
    assert search.fit(X, y).best_score_ < 0
