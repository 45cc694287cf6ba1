"""Baselines that cost nothing: class shares, logistic regression, and gradient boosting for tables."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from calmoe.models.experts import answers
from calmoe.own_data.parts import Labelled
from calmoe.own_data.scores import Row
from calmoe.predictions import Predictions

BASE_RATE, LINEAR, BOOSTED = "Base rate (class shares)", "Logistic regression", "Gradient boosting"
SIDE = 16  # pixels, to which images are shrunk for logistic regression
WORDS = 50_000


def base_rate(data: Labelled) -> Row:
    """The same answer for every row: how often each class is among the rows to learn from."""
    return _row(
        BASE_RATE, {part: np.tile(data.shares, (len(at), 1)) for part, at in data.judged.items()}, data
    )


def baseline_row(name: str, model: Any, features: Mapping[str, Any], data: Labelled) -> Row:
    """What a fitted classifier says of the rows that are scored; their features by part."""
    probs = {part: np.exp(answers("baseline", model, each, data.shares)) for part, each in features.items()}
    return _row(name, probs, data)


def linear_on_words(data: Labelled) -> Row:
    """Logistic regression on the words of texts."""
    texts = data.source.texts
    vectorizer = word_features([texts[i] for i in data.parts.fit])
    return _linear("words", vectorizer.transform(texts), data)


def linear_on_pixels(data: Labelled, images: np.ndarray) -> Row:
    """Logistic regression on shrunk images [N, C, H, W]."""
    return _linear("pixels", shrunk_images(images), data)


def _linear(what: str, features: Any, data: Labelled) -> Row:
    fit = data.parts.fit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one that has not converged is a baseline still
        model = LogisticRegression(max_iter=1000).fit(features[fit], data.codes[fit])
    judged = {part: features[at] for part, at in data.judged.items()}
    return baseline_row(f"{LINEAR} on {what}", model, judged, data)


def _row(name: str, probs: Mapping[str, np.ndarray], data: Labelled) -> Row:
    parts = {}
    for part, rows in data.judged.items():
        groups = data.source.take(rows).groups
        parts[part] = Predictions.from_probs(probs[part], labels=data.codes[rows], groups=groups)
    return Row.of(name, parts, data.rare)


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
