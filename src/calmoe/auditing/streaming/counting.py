"""One pass: what some rows add to the sums. Every number here is what the audit in memory sums up."""

import numpy as np
import torch

from calmoe.auditing.audit_report import farthest_from_experts
from calmoe.auditing.configurations import Configurations
from calmoe.auditing.event import judge
from calmoe.auditing.sections.groups import groups_event
from calmoe.auditing.statistics.gaps import Cells, cells_of_classes, cells_of_experts, in_cells
from calmoe.auditing.streaming.from_sums import WeightedGaps
from calmoe.auditing.streaming.sums import MOST, GroupColumn, Kind, Sums, Tally
from calmoe.metrics.binned import width_bins
from calmoe.metrics.checks import Of
from calmoe.predictions import Predictions

KINDS: dict[str, Kind] = {"b": "truth", "U": "words", "i": "whole numbers", "u": "whole numbers"}


def count(predictions: Predictions, of: Of, bins: int) -> Sums:
    """What these rows add.

    totals: rows; bins, a `Tally`; labels [5, L]: rows, hits, Σ loss, Σ loss², rows of infinite loss, label by
    label; classwise and experts, cells [4, size]; views and regions, `WeightedGaps` of each expert [K, 6, B];
    shares [K, 2]: Σ r, Σ r²; balances [K, 3]: Σ v, Σ v², Σ r² f_k (1 − f_k) of v = r (Y − f_k).
    peaks: unlike; heaviest, the largest r in each bin [K, B]; routing, of each expert the largest r and −r.
    """
    seen = Configurations.of(predictions, of)
    index, routing, answers = (
        seen.bins(bins),
        seen.routing.astype(np.float64),
        seen.experts.astype(np.float64),
    )
    views, regions, heaviest = _by_expert(seen, routing, bins)
    pull = routing * (seen.known_outcome[:, None] - answers)
    noise = routing**2 * answers * (1 - answers)
    return Sums(
        totals={
            "rows": np.array([len(seen)]),
            "bins": np.stack(_tally(seen, index, bins)),
            "labels": _by_label(predictions, of),
            "classwise": in_cells(classwise_cells(predictions, bins), predictions.num_classes * bins),
            "experts": in_cells(expert_cells(seen, bins), seen.num_experts * bins),
            "views": views,
            "regions": regions,
            "shares": np.stack([routing.sum(0), (routing**2).sum(0)], axis=1),
            "balances": np.stack([pull.sum(0), (pull**2).sum(0), noise.sum(0)], axis=1),
        },
        peaks={
            "unlike": np.array([farthest_from_experts(predictions)]),
            "heaviest": heaviest,
            "routing": np.stack([routing.max(0), -routing.min(0)], axis=1),
        },
        groups=_groups(predictions, of, bins, seen),
    )


def _groups(predictions: Predictions, of: Of, bins: int, seen: Configurations) -> dict[str, GroupColumn]:
    if predictions.groups and (event := groups_event(of, predictions.num_classes)) != of:
        seen = Configurations.of(predictions, event)
    index = seen.bins(bins)
    return {name: _column(seen, values, index, bins) for name, values in predictions.groups.items()}


def shapes(classes: int, experts: int, of: Of, bins: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all totals and peaks."""
    gaps = (experts, len(WeightedGaps._fields), bins)
    return {
        "rows": (1,),
        "bins": (len(Tally._fields), bins),
        "labels": (5, classes if of == "top" else 2),
        "classwise": (4, classes * bins),
        "experts": (4, experts * bins),
        "views": gaps,
        "regions": gaps,
        "shares": (experts, 2),
        "balances": (experts, 3),
        "unlike": (1,),
        "heaviest": (experts, bins),
        "routing": (experts, 2),
    }


def _tally(seen: Configurations, cell: np.ndarray, size: int) -> Tally:
    residual = seen.residual

    def sums(values: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(cell, values, minlength=size).astype(np.float64)

    return Tally(sums(), sums(residual), sums(residual**2), sums(seen.noise), sums(seen.known_outcome))


def _by_label(predictions: Predictions, of: Of) -> np.ndarray:
    """Rows, hits, Σ loss, Σ loss² and infinite losses of each label; of=c: of all others, and of c. [5, L]"""
    labels, losses, hits = judge(predictions, of)
    size = predictions.num_classes if of == "top" else 2
    finite = np.isfinite(losses)
    kept = np.where(finite, losses, 0.0)
    parts = (np.ones(len(labels)), hits, kept, kept**2, ~finite)
    return np.stack([np.bincount(labels, part.astype(np.float64), minlength=size) for part in parts])


def _by_expert(
    seen: Configurations, routing: np.ndarray, bins: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each expert by the class that it predicts: on its view, where it leads, and its largest weights."""
    assert seen.own_outcome is not None
    views, regions, heaviest = [], [], np.zeros((seen.num_experts, bins))
    for k in range(seen.num_experts):
        confidence = seen.own_confidence[:, k].astype(np.float64)
        residual, noise = seen.own_outcome[:, k] - confidence, confidence * (1 - confidence)
        index = width_bins(torch.as_tensor(seen.own_confidence[:, k]), bins).numpy()
        leads = (seen.leading == k).astype(np.float64)
        views.append(np.stack(WeightedGaps.of(residual, noise, index, bins, routing[:, k])))
        regions.append(np.stack(WeightedGaps.of(residual, noise, index, bins, leads)))
        np.maximum.at(heaviest[k], index, routing[:, k])
    return np.stack(views), np.stack(regions), heaviest


def _column(seen: Configurations, values: np.ndarray, index: np.ndarray, bins: int) -> GroupColumn:
    kind = KINDS.get(values.dtype.kind, "measurements")
    if kind == "measurements":
        return GroupColumn(kind, None)
    if kind == "truth":
        names, code = np.array([False, True]), values.astype(np.int64)
    else:
        names, code = np.unique(values, return_inverse=True)
    if len(names) > MOST[kind]:
        return GroupColumn(kind, None)
    tally = np.stack(_tally(seen, code * bins + index, len(names) * bins)).reshape(5, len(names), bins)
    return GroupColumn(kind, {str(name): tally[:, i] for i, name in enumerate(names)})


# --- cells that overlap: a row lies in one a class, or one an expert ----------------------------------------


def classwise_cells(predictions: Predictions, bins: int) -> Cells:
    """The cells of the class-wise ECE."""
    return cells_of_classes(predictions.output.log_probs, predictions.known_labels, bins)


def expert_cells(seen: Configurations, bins: int) -> Cells:
    """The cells of the experts' ECE."""
    assert seen.own_outcome is not None
    return cells_of_experts(seen.own_confidence, seen.own_outcome, seen.routing, bins)
