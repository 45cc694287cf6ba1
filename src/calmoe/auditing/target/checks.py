"""Check that a source and a target can be compared: one mixture, different rows, enough of them."""

import numpy as np
import torch

from calmoe.auditing.target.assumption import FEWEST_LABELLED
from calmoe.auditing.target.decimals import written_alike
from calmoe.auditing.target.density import FEWEST_ROWS
from calmoe.errors import InputError, shown
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions

MARKS = (9, 6)  # digits after the point of a row's mark: in one format, and where formats mostly agree
SAYS_WHICH = ("dataset", "target", "protocol", "method", "seed", "temperature", "calibrator", "experts")
"""Metadata that are the same in all predictions of one model."""
FEW = 0.01  # of the rows: halves are rounded up or down
MOST_SHARED = 0.5  # the largest share of a target's rows that may be rows of the source


class UnfitTarget(InputError):
    """The source cannot be compared with this target. role: "target" or "labelled target"."""

    def __init__(self, role: str, why: str) -> None:
        super().__init__(why)
        self.role = role


def check_targets(source: Predictions, target: Predictions | None, labelled: Predictions | None) -> None:
    """Refuse a target, or labelled rows of it, that the source says nothing about."""
    if labelled is not None and target is None:
        raise InputError("labelled target rows need a target file to say which target")
    for role, other in (("target", target), ("labelled target", labelled)):
        if other is not None:
            check_target(source, other, role)


def check_target(source: Predictions, target: Predictions, role: str = "target") -> None:
    """Refuse predictions of another mixture, too few rows, missing labels, and rows of the source itself."""
    why = _why_unfit(source, target, role)
    if why is not None:
        raise UnfitTarget(role, why)


def another_model(source: Predictions, target: Predictions) -> str | None:
    """A note where the metadata of both say that they are of different models; None where they do not.

    >>> one, other = (Predictions.from_probs(np.eye(2), metadata={"seed": seed}) for seed in (42, 43))
    >>> another_model(one, other)
    "these look like another model's predictions: seed 43, and 42 in the source; nothing here holds for them"
    """
    ours, theirs = source.metadata, target.metadata
    for name in SAYS_WHICH:
        if name in ours and name in theirs and ours[name] != theirs[name]:
            return (
                f"these look like another model's predictions: {name} {shown(theirs[name])}, and "
                f"{shown(ours[name])} in the source; nothing here holds for them"
            )
    return None


def _why_unfit(source: Predictions, target: Predictions, role: str) -> str | None:
    for what, ours, theirs in (
        ("classes", source.num_classes, target.num_classes),
        ("experts", source.num_experts, target.num_experts),
    ):
        if ours != theirs:
            return (
                f"the source has {ours} {what} and the {role} {theirs}: give predictions of the same mixture"
            )
    if role == "target" and len(target) < FEWEST_ROWS:
        return f"the target has {len(target)} rows; at least {FEWEST_ROWS} are needed to know it"
    if role == "labelled target" and target.labels is None:
        return "the labelled target carries no labels: give rows that do, or leave it out"
    if role == "labelled target" and len(target) < FEWEST_LABELLED:
        return f"there are {len(target)} labelled target rows: a test needs at least {FEWEST_LABELLED}"
    if (shared := _shared(source, target)) > MOST_SHARED:
        return (
            f"{shared:.0%} of the {role}'s rows are rows of the source, whose labels would judge what they "
            "taught: give rows that the source does not hold"
        )
    return None


def _shared(source: Predictions, target: Predictions) -> float:
    """The share of target rows that the source holds just once: chance would not find so many of those."""

    def marks(output: MixtureOutput) -> np.ndarray:  # a number a row, the same in every format
        experts = output.expert_log_probs if source.num_experts > 1 else output.log_probs
        said = torch.cat([output.log_routing, experts.flatten(1)], dim=1).double().exp()
        return (said @ torch.linspace(1, 2, said.shape[1], dtype=said.dtype).sqrt()).numpy()

    def share(digits: int) -> float:
        ours, theirs = (marks(each.output).round(digits) for each in alike)
        values, counts = np.unique(ours, return_counts=True)
        if len(ours) == len(theirs):
            apart, by_chance = ((ours != other).mean() for other in (theirs, np.roll(theirs, 1)))
            if apart < FEW and apart < by_chance / 10:
                return 1.0
        return float(np.isin(theirs, values[counts == 1]).mean())

    alike = written_alike([source, target])
    return max(map(share, MARKS))
