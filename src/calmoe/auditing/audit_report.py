"""The audit of one file of predictions: numbers first, then words, figures and a page."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from threadpoolctl import threadpool_limits

from calmoe.arrays import as_count, as_number, check_bins
from calmoe.auditing.configurations import CHUNK, Configurations
from calmoe.auditing.folder import AUDIT
from calmoe.auditing.progress import PARTS, TARGET, Progress, Steps, silent
from calmoe.auditing.sections.auditors import Auditors, auditors, check_size
from calmoe.auditing.sections.calibration import Aggregate, aggregate
from calmoe.auditing.sections.certificates import Certificates, certificates
from calmoe.auditing.sections.fragility import Fragility, fragility
from calmoe.auditing.sections.hidden import Hidden, hidden
from calmoe.auditing.sections.repair import Repair, repair
from calmoe.auditing.sections.surface import Surface, surface
from calmoe.auditing.statistics.estimates import Estimate
from calmoe.auditing.statistics.sequential import FEWEST, learn
from calmoe.auditing.target.predict import Target, check_target, predict_target
from calmoe.defaults import BINS, LEVEL
from calmoe.errors import InputError
from calmoe.files import json_bytes
from calmoe.metrics.checks import Of
from calmoe.mixture import combine
from calmoe.ownership import PAGE, put
from calmoe.predictions import Predictions
from calmoe.render.drawing import Drawn

# what is left out of to_dict: one number a row
LARGE = ("densities", "rows", "weights", "fold", "target_ratios")
FITTED = "fitted"  # and what is fitted, which has a file of its own


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport:
    """What an audit found; each part's docstring says what it estimates. `left_out`: a part, and why.

    unlike: the largest difference between the mixture's probabilities and Σ_k r_k p_k of its experts.

    >>> from calmoe.worlds.binary import cancelling
    >>> report = audit(cancelling(seed=0).sample(4000, seed=0))
    >>> report.aggregate.ece.low, report.hidden.witness.low > 0.05
    (0.0, True)
    """

    rows: int
    classes: int
    num_experts: int
    of: Of
    bins: int
    level: float
    seed: int
    unlike: float
    surface: Surface
    aggregate: Aggregate
    hidden: Hidden | None
    fragility: Fragility | None
    indicators: Auditors
    hats: Auditors
    certificates: Certificates
    repair: Repair | None
    left_out: dict[str, str]
    target: Target | None = None

    def __repr__(self) -> str:
        return self.summary()

    def to_dict(self) -> dict[str, Any]:
        """All numbers as JSON holds them; None where not finite; arrays of one number a row are left out."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain

    def summary(self) -> str:
        """The findings in words, a line each."""
        from calmoe.auditing.presentation.summary import summary

        return "\n".join(f"{point.lead}: {point.text}" for point in summary(self))

    def figures(self) -> dict[str, Drawn]:
        """The figures by name; each carries what it shows in words."""
        from calmoe.auditing.presentation.figures import figures

        return figures(self)

    def reweightings(self) -> dict[str, np.ndarray]:
        """The reweightings of the fragility curves: `rows`, the judged rows' indices [J], and for each curve
        `NAME.radii` [R] and `NAME.densities` [R, J], the weights of these rows. Empty without the curves.

        With them `calmoe.metrics.ece(probs[rows], labels[rows], weights=densities[i])` is the curve's
        `plain_ece[i]`.
        """
        found = self.fragility
        if found is None:
            return {}
        parts = {
            f"{c.name}.{part}": getattr(c, part) for c in found.curves for part in ("radii", "densities")
        }
        return {"rows": found.rows, **parts}

    def save(self, folder: str | Path, origin: Mapping[str, str] | None = None) -> Path:
        """Write report.html, audit.json, figures/*.png, reweightings.safetensors, repair.json; its path.

        origin: where the predictions come from, by name, for the page and audit.json. The folder is new,
        empty or an earlier audit's, whose files go; others stand. All is made before the first file is
        written.
        """
        from calmoe.auditing.presentation.page import page
        from calmoe.render.drawing import rendered

        origin = dict(origin or {})
        pictures = {name: (rendered(drawn, "png"), drawn.alt) for name, drawn in self.figures().items()}
        files = {
            PAGE: page(self, pictures, origin).html().encode(),
            "audit.json": json_bytes({"origin": origin, **self.to_dict()}),
            **{f"figures/{name}.png": picture for name, (picture, _) in pictures.items()},
        }
        if self.repair is not None:
            files["repair.json"] = json_bytes(self.repair.fitted.to_dict())
        if self.fragility is not None:
            tensors = {name: np.ascontiguousarray(array) for name, array in self.reweightings().items()}
            files["reweightings.safetensors"] = safetensors.numpy.save(tensors)
        put(Path(folder), AUDIT, files)
        return Path(folder) / PAGE


def audit(
    predictions: Predictions,
    *,
    target: Predictions | None = None,
    labelled_target: Predictions | None = None,
    of: Of = "top",
    bins: int = BINS,
    level: float = LEVEL,
    seed: int = 0,
    progress: Progress = silent,
) -> AuditReport:
    """Audit a mixture's probabilities: of="top" judges "the predicted class is right", of=c "the label is c".

    target: predictions of the same mixture elsewhere, for which accuracy and ECE are predicted; labels that
    it has are only compared and test the assumption, as those of labelled_target do, rows from the same place
    (both: `Target`). progress(part, share) is called as the work goes on, with the share of it
    that is done. What is learned is learned on other rows than those it is judged on; the seed says which.
    """
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"audit needs Predictions, not {type(predictions).__name__}: Predictions.load(path) reads a "
            "file, Predictions.from_probs(probs, labels) takes arrays"
        )
    if not 0 < as_number("level", level) < 1:
        raise InputError(f"level must lie between 0 and 1, got {level}")
    as_count("seed", seed, least=0, most=2**32 - 1)
    predictions.known_labels  # noqa: B018 - the error comes before the work
    bins = check_bins(bins)
    check_size(predictions.output.log_routing.shape[1], bins)
    if labelled_target is not None and target is None:
        raise InputError("labelled target rows need a target file to say which target")
    for name, other in (("target", target), ("labelled target", labelled_target)):
        if other is not None:
            check_target(predictions, other, name)
    with threadpool_limits(1):  # the sums are small: on a busy machine two threads take three times as long
        return _audited(predictions, target, labelled_target, of, bins, level, seed, progress)


def _audited(
    predictions: Predictions,
    target: Predictions | None,
    labelled_target: Predictions | None,
    of: Of,
    bins: int,
    level: float,
    seed: int,
    progress: Progress,
) -> AuditReport:
    steps = Steps(progress, PARTS if target is None else PARTS | TARGET)
    steps.begin("experts")
    seen = Configurations.of(predictions, of)
    steps.inside(0.2)
    told = aggregate(seen, predictions, bins=bins, level=level)
    steps.begin("auditors")
    indicators, hats = (auditors(seen, kind=kind, bins=bins, level=level) for kind in KINDS)
    steps.begin("certificates")
    certified = certificates(seen, _cross_entropy(predictions), bins=bins, level=level)
    reason = _nothing_to_learn(seen)
    left_out = {} if reason is None else {"hidden miscalibration": reason, "fragility": reason}
    veiled, fragile = None, None
    if reason is None:
        steps.begin("configurations")
        learned = learn(seen, seed, inside=steps.inside)
        steps.begin("hidden miscalibration")
        veiled = hidden(seen, learned, bins=bins, level=level, seed=seed, inside=steps.inside)
        steps.begin("fragility")
        fragile = fragility(seen, learned, bins=bins, level=level, seed=seed, inside=steps.inside)
        if len(np.unique(seen.leading)) == 1:
            left_out["region reweighting"] = "one expert leads everywhere: there are no regions to reweight"
    mended = None
    if len(seen) < FEWEST:
        left_out["repair"] = f"there are {len(seen)} rows; fitting on some and judging others needs {FEWEST}"
    else:
        steps.begin("repair")
        mended = repair(predictions, of=of, bins=bins, level=level, seed=seed)
    told_of_target = None
    if target is not None and len(seen) < FEWEST:
        left_out["target"] = f"there are {len(seen)} labelled rows; predicting needs at least {FEWEST}"
    elif target is not None:
        steps.begin("target")
        told_of_target = predict_target(
            predictions, target, labelled_target, of=of, bins=bins, level=level, seed=seed
        )
    progress("done", 1.0)
    return AuditReport(
        rows=len(seen),
        classes=predictions.num_classes,
        num_experts=seen.num_experts,
        of=of,
        bins=bins,
        level=level,
        seed=seed,
        unlike=_unlike(predictions),
        surface=surface(seen, predictions, bins=bins, level=level),
        aggregate=told,
        hidden=veiled,
        fragility=fragile,
        indicators=indicators,
        hats=hats,
        certificates=certified,
        repair=mended,
        left_out=left_out,
        target=told_of_target,
    )


KINDS: tuple[Any, ...] = ("indicator", "hat")


def _cross_entropy(predictions: Predictions) -> np.ndarray:
    picked = predictions.output.log_probs.gather(1, predictions.known_labels[:, None])
    return np.maximum(-picked.squeeze(1).double().numpy(), 0.0)


def _unlike(predictions: Predictions) -> float:
    """The largest |f − Σ_k r_k p_k| over rows and classes."""
    log_probs, log_routing, expert_logs = predictions.output
    return max(
        float((log_probs[rows].exp() - combine(log_routing[rows], expert_logs[rows]).probs).abs().max())
        for rows in (slice(start, start + CHUNK) for start in range(0, len(predictions), CHUNK))
    )


def _nothing_to_learn(seen: Configurations) -> str | None:
    """Why configurations are not looked into; None where they are."""
    if seen.num_experts == 1:
        return "there is one expert: its confidence is the whole configuration, behind which nothing can hide"
    if len(seen) < FEWEST:
        few = "is 1 row" if len(seen) == 1 else f"are {len(seen)} rows"
        return f"there {few}; learning from some and judging others needs at least {FEWEST}"
    return None


def _plain(value: Any) -> Any:
    """Dataclasses, Estimates and arrays as dicts, lists, numbers and None."""
    if isinstance(value, Estimate):
        return {name: _plain(number) for name, number in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        kept = (
            field.name
            for field in fields(value)
            if field.name != FITTED and not (field.name in LARGE and _is_array(value, field.name))
        )
        return {name: _plain(getattr(value, name)) for name in kept}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    json.dumps(value)  # a number, a string, a truth value or None; anything else is a mistake of ours
    return value


def _is_array(value: Any, name: str) -> bool:
    return isinstance(getattr(value, name), np.ndarray)
