"""Tables that tests make: mixed types, gaps, a known truth."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from calmoe import CalibratedMoEClassifier, MixtureOfModels


def mixed(rows=240, seed=0):
    """A DataFrame with numbers, text, booleans, categories, dates and gaps, and its labels."""
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 12, rows)
    town = rng.choice(["Łódź", "Gdańsk", "Kraków"], rows)
    chance = 1 / (1 + np.exp(-(age - 40) / 6 - (town == "Łódź")))
    table = pd.DataFrame(
        {
            "wiek": np.where(rng.random(rows) < 0.1, np.nan, age),
            "miasto": pd.Series(town).where(rng.random(rows) > 0.1, None),
            "zgoda": rng.random(rows) < 0.5,
            "klasa": pd.Categorical(rng.choice(["a", "b"], rows)),
            "dzień": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, rows), "D"),
            "stała": 7,
        }
    )
    return table, np.where(rng.random(rows) < chance, "tak", "nie")


def noisy(rows=200, classes=2, seed=0, features=3):
    """Numbers, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    scores = X @ rng.normal(size=(features, classes)) + rng.gumbel(size=(rows, classes))
    return X, scores.argmax(axis=1)


def quick_experts():
    return [("linear", LogisticRegression()), ("tree", DecisionTreeClassifier(max_depth=3))]


def quick_mixture(**settings):
    return MixtureOfModels(**{"experts": quick_experts(), "cv": 3, "random_state": 0, **settings})


def quick_network(**settings):
    small = {"hidden": (8,), "router_hidden": 4, "max_epochs": 8, "learning_rate": 1e-2, "batch_size": 64}
    return CalibratedMoEClassifier(**{**small, "random_state": 0, **settings})


def log_loss(model, X, y):
    return model.predictions(X, y).output.log_probs[np.arange(len(y)), model._codes(y)].neg().mean().item()
