"""Audits of the mixtures of finished runs."""

import json
import math
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from calmoe.auditing import AuditReport, audit
from calmoe.calibration import Temperature
from calmoe.errors import InputError
from calmoe.experiments.export import rescaled
from calmoe.experiments.run import Model, Run
from calmoe.experiments.spec import parse_seeds
from studies.rows import write_lines

METHODS = ("vanilla", "mocae", "robust", "robust_filtered")
KEPT_SEED = 42  # whose reports are kept whole
KL = 0.1
SIMPLEST = ("nothing", "temperature")


class Question(StrEnum):
    """What is audited."""

    CIFAR10H = "cifar10h"  # the labelled test split
    HARD = "hard"  # validation with labels, the hard test rows without
    PACS = "pacs"  # validation with labels, the target domain without
    TARGETS = "targets"  # the target domain with labels


UNLABELLED = (Question.HARD, Question.PACS)


def audits(
    question: Annotated[Question, typer.Argument(help="What to audit.")],
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    seeds: Annotated[str | None, typer.Option(help="Such as 42-44; all if not given.")] = None,
    to: Annotated[Path, typer.Option(help="Where the rows go.")] = Path("results/audit"),
) -> None:
    """What do the mixtures of a run hide behind their ECE?

    Audits every mixture as trained and after a temperature. cifar10h: every model on its labelled test
    split. hard: validation labelled, the hard test rows not. pacs: validation labelled, the target domain
    not. targets: the target domain labelled. Writes TO/QUESTION.jsonl, one row a model, and prints the rows;
    of cifar10h it keeps seed 42's whole reports. Temperatures are fitted on validation: where that is the
    source, its own numbers are in-sample.

    Example: python -m studies audits pacs runs/photo runs/sketch --seeds 42-44
    """
    rows = []
    for run in runs:
        for facts, report in audited(Run.open(run), question, parse_seeds(seeds) if seeds else None):
            rows.append(facts | row(report))
            print(json.dumps(rows[-1]), flush=True)
            if "target" not in facts and (facts["seed"], facts["kind"]) == (KEPT_SEED, "raw"):
                _keep(report, to / question / facts["method"])
    write_lines(to / f"{question}.jsonl", rows)


def audited(
    run: Run, question: Question, seeds: tuple[int, ...] | None
) -> Iterator[tuple[dict[str, Any], AuditReport]]:
    """Every model's report, as trained ("raw") and after a converged temperature ("scaled")."""
    hard = run.record.hard if question == Question.HARD else None
    target = "hard" if question == Question.HARD else run.spec.target
    for model in run.read_models(seeds=seeds, methods=METHODS):
        temperature = Temperature().fit(model.validation.output.log_probs, model.validation.known_labels)
        test = model.test.subset(hard) if hard else model.test
        raw = model._replace(test=test)
        scaled = raw._replace(
            validation=rescaled(raw.validation, temperature), test=rescaled(raw.test, temperature)
        )
        for kind, as_judged in (("raw", raw), ("scaled", scaled)):
            facts = {"method": model.method, "seed": model.seed, "kind": kind}
            yield ({"target": target} if target else {}) | facts, _report(as_judged, question)


def _report(model: Model, question: Question) -> AuditReport:
    return audit(model.validation, target=model.test) if question in UNLABELLED else audit(model.test)


def row(report: AuditReport) -> dict[str, Any]:
    """The numbers of a report that the tables quote."""
    hidden, fragility, repair = report.hidden, report.fragility, report.repair
    if hidden is None or fragility is None or repair is None:
        raise InputError("the audit left out what the tables quote: give runs of mixtures with more rows")
    at = list(fragility.configurations.radii).index(KL)
    numbers = {
        "rows": report.rows,
        "shares": [round(expert.share.value, 4) for expert in report.aggregate.experts],
        "accuracy": _rounded(report.aggregate.accuracy),
        "ece": _rounded(report.aggregate.ece),
        "witness": _rounded(hidden.witness),
        "cancelled": _rounded(hidden.cancelled),
        "p_hidden": hidden.p_hidden,
        "fragile": _rounded(fragility.configurations.error[at]),
        "fragile_regions": _rounded(fragility.regions.error[at]),
        "certified": _rounded(report.certificates.signed.ece[at]),
        "repair_nll": _rounded(repair.choosing.nll.against_temperature),
        "repair_kept": [sum(name not in SIMPLEST for name in repair.picked), len(repair.picked)],
    }
    if report.target is not None:
        there = report.target
        numbers |= {
            "auc": _rounded(there.ratio.auc),
            "effective": there.ratio.effective,
            "verdict": there.verdict,
            "p_assumption": there.plausibility.p_value if there.plausibility else None,
        }
        for name in ("source", "predicted", "actual"):
            scores = getattr(there, name)
            if scores is not None:
                numbers |= {
                    f"{name}_{metric}": _rounded(getattr(scores, metric))
                    for metric in ("accuracy", "ece", "nll")
                }
    return numbers


def _rounded(estimate: Any) -> list[float | None]:
    """The value and its interval; None where there is no finite number."""
    return [round(float(value), 5) if math.isfinite(value) else None for value in estimate[:3]]


def _keep(report: AuditReport, folder: Path) -> None:
    page = report.save(folder)
    shutil.rmtree(page.parent / "figures")  # they are in the page
    (page.parent / "reweightings.safetensors").unlink(missing_ok=True)
