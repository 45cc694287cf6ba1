"""Audit the mixtures of finished runs; writes results/audit/NAME.jsonl, and CIFAR-10H reports of one seed.

    python results/audit/run.py cifar10h RUN [--seeds 42-46]        # every model on its labelled test split
    python results/audit/run.py hard RUN [--seeds 42]           # validation labelled, the hard test rows not
    python results/audit/run.py pacs RUN RUN … [--seeds 42]     # validation labelled, the target domain not
    python results/audit/run.py targets RUN RUN … [--seeds 42]  # the target domain labelled

A row is a model and a seed, as trained ("raw") and after a converged temperature ("scaled"). In PACS the
target's labels only say what came true, and test the assumption behind the forecast. Temperatures are fitted
on validation: where that is the source, its own numbers are in-sample.
"""

import argparse
import json
import shutil
from pathlib import Path

from calmoe.experiments.records import record_of
from calmoe.report.run_curves import models

from calmoe.auditing import audit
from calmoe.calibration import Temperature
from calmoe.experiments.export import rescaled
from calmoe.experiments.spec import parse_seeds

METHODS = ("vanilla", "mocae", "robust", "robust_filtered")
KEPT_SEED = 42
KL = 0.1
HERE = Path(__file__).parent


def told(estimate) -> list[float | None]:
    return [None if abs(v) == float("inf") or v != v else round(float(v), 5) for v in estimate[:3]]


def row(report) -> dict:
    """The numbers of a report that the tables quote."""
    at = list(report.fragility.configurations.radii).index(KL)
    found = {
        "rows": report.rows,
        "shares": [round(expert.share.value, 4) for expert in report.aggregate.experts],
        "accuracy": told(report.aggregate.accuracy),
        "ece": told(report.aggregate.ece),
        "witness": told(report.hidden.witness),
        "cancelled": told(report.hidden.cancelled),
        "p_hidden": report.hidden.p_hidden,
        "fragile": told(report.fragility.configurations.error[at]),
        "fragile_regions": told(report.fragility.regions.error[at]),
        "certified": told(report.certificates.signed.ece[at]),
        "repair_nll": told(report.repair.nll.change),
        "repair_kept": [report.repair.kept, report.repair.blocks],
    }
    if report.target is not None:
        there = report.target
        found |= {
            "auc": told(there.ratio.auc),
            "effective": there.ratio.effective,
            "verdict": there.verdict,
            "p_assumption": there.plausibility.p_value if there.plausibility else None,
        }
        for name in ("source", "predicted", "actual"):
            scores = getattr(there, name)
            if scores is not None:
                found |= {
                    f"{name}_{what}": told(getattr(scores, what)) for what in ("accuracy", "ece", "nll")
                }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "name", choices=("cifar10h", "hard", "pacs", "targets"), help="what to audit, as above"
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--seeds", type=parse_seeds, default=None)
    asked = parser.parse_args()
    rows = []
    for folder in asked.runs:
        record = record_of(folder)
        target = "hard" if asked.name == "hard" else record["spec"].get("target", "")
        unlabelled = asked.name in ("hard", "pacs")
        for model in models(folder, seeds=asked.seeds):
            if model.method not in METHODS:
                continue
            temperature = Temperature().fit(model.validation.output.log_probs, model.validation.known_labels)
            asked_for = model.test.subset(record["hard"]) if target == "hard" else model.test
            for kind in ("raw", "scaled"):
                validation, test = (
                    split if kind == "raw" else rescaled(split, temperature)
                    for split in (model.validation, asked_for)
                )
                report = audit(validation, target=test) if unlabelled else audit(test)
                facts = {"method": model.method, "seed": model.seed, "kind": kind}
                rows.append(({"target": target} if target else {}) | facts | row(report))
                print(json.dumps(rows[-1]), flush=True)
                if (model.seed, kind) == (KEPT_SEED, "raw") and not target:
                    page = report.save(HERE / asked.name / model.method)
                    shutil.rmtree(page.parent / "figures")  # they are in the page
                    (page.parent / "reweightings.safetensors").unlink(missing_ok=True)
    (HERE / f"{asked.name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


if __name__ == "__main__":
    main()
