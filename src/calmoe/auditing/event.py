"""The event that an audit judges: the predicted class is right, or the label is a certain class."""

from typing import NamedTuple

import numpy as np
import torch

from calmoe.errors import InputError, check_known, cut, shown
from calmoe.metrics.checks import Of
from calmoe.metrics.scores import log_losses
from calmoe.predictions import Predictions

LONGEST = 60  # characters of a class's name in a sentence


class Judged(NamedTuple):
    """Of each row: the label, the log loss, and whether the more probable answer is right. [N] each"""

    labels: np.ndarray
    losses: np.ndarray
    hits: np.ndarray


def judge(predictions: Predictions, of: Of) -> Judged:
    """of="top": among all classes. of=c: is the label c (1) or another (0)?

    >>> import numpy as np
    >>> given = Predictions.from_probs(np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), np.array([0, 1]))
    >>> judge(given, "top").hits, judge(given, 1).labels, judge(given, 1).losses.round(3)
    (array([ True, False]), array([0, 1]), array([0.357, 2.303]))
    """
    labels, logs = predictions.known_labels, predictions.output.log_probs
    hits = logs.argmax(dim=1) == labels
    if of != "top":
        exact, labels = logs.double(), (labels == of).long()
        others = exact[:, torch.arange(exact.shape[1]) != of].logsumexp(dim=1)
        logs = torch.stack([others, exact[:, of]], dim=1)
        hits = (exact[:, of].exp().clamp(max=1) > 0.5) == (labels == 1)
    return Judged(labels.numpy(), log_losses(logs, labels).numpy(), hits.numpy())


def class_titles(predictions: Predictions) -> tuple[str, ...]:
    """What sentences call the classes: their names in one short line, or their numbers.

    >>> import numpy as np
    >>> class_titles(Predictions.from_probs(np.array([[0.9, 0.1]])))
    ('class 0', 'class 1')
    """
    names = predictions.class_names
    if names is None:
        return tuple(f"class {c}" for c in range(predictions.num_classes))
    return tuple(cut(name, LONGEST) for name in names)


def judged_class(predictions: Predictions, of: Of | str, option: str = "of") -> Of:
    """The event as the audit knows it: "top", or the number of the class that `of` names.

    >>> import numpy as np
    >>> named = Predictions.from_probs(np.array([[0.9, 0.1]]), metadata={"classes": ["no", "yes"]})
    >>> judged_class(named, "yes"), judged_class(named, "top"), judged_class(named, 0)
    (1, 'top', 0)
    """
    if not isinstance(of, str) or of == "top":
        return of  # type: ignore[return-value]
    names = predictions.class_names
    if names is not None and of in names:
        return names.index(of)
    if of.isdecimal() and of.isascii() and len(of) < 10:
        return int(of)
    if names is not None:
        check_known("class", of, names)
    highest = predictions.num_classes - 1
    raise InputError(f'{option} must be "top" or a class in 0..{highest}, got {shown(of)}: none has a name')
