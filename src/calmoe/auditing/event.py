"""The event that an audit judges: the predicted class is right, or the label is a certain class."""

from calmoe.errors import InputError, check_known, shown
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions


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
