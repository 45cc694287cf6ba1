"""Baselines that cost nothing: logistic regression, and gradient boosting for tables."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from calmoe.models.experts import BOOSTING, answers
from calmoe.predictions import Predictions

LINEAR, BOOSTED = "Logistic regression", "Gradient boosting"
SIDE = 16  # pixels, to which images are shrunk for logistic regression
WORDS = 50_000


def fit_baseline(name: str, features: Any, codes: np.ndarray, seed: int) -> Any:
    """A fitted baseline, by its name in the table."""
    model = (
        LogisticRegression(max_iter=1000)
        if name == LINEAR
        else HistGradientBoostingClassifier(**BOOSTING, random_state=seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # logistic regression that has not converged is a baseline still
        return model.fit(features, codes)


def baseline_predictions(
    model: Any, features: Any, codes: np.ndarray, groups: Mapping[str, np.ndarray], prior: np.ndarray
) -> Predictions:
    """What a fitted classifier says of some rows."""
    probs = np.exp(answers("baseline", model, features, prior))
    return Predictions.from_probs(probs, labels=codes, groups=dict(groups))


def word_features(texts: list[str]) -> Any:
    """A fitted TF-IDF of words and pairs of words."""
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), max_features=WORDS, sublinear_tf=True, token_pattern=r"\S+"
    )
    return vectorizer.fit(texts if any(text.strip() for text in texts) else ["empty"])


def shrunk_images(images: np.ndarray) -> np.ndarray:
    """Pixels of images [N, C, H, W], averaged to at most 16 by 16, in [−½, ½]. [N, features]"""
    step = max(1, min(images.shape[2:]) // SIDE)
    height, width = (side // step * step for side in images.shape[2:])
    cut = images[:, :, :height, :width].astype(np.float32)
    blocks = cut.reshape(*cut.shape[:2], height // step, step, width // step, step).mean(axis=(3, 5))
    return blocks.reshape(len(images), -1) / 255 - 0.5
