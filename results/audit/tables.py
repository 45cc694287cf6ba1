"""Print the tables of README.md from the rows: python results/audit/tables.py"""

import json
from pathlib import Path

import numpy as np

NAMES = {
    "vanilla": "Vanilla MoE",
    "mocae": "MoCaE",
    "robust": "Robust MoE",
    "robust_filtered": "Robust Filtered",
}
KINDS = {"raw": "as trained", "scaled": "after a temperature"}


def read(name):
    return [json.loads(line) for line in Path(__file__).with_name(name).read_text().splitlines()]


def span(values):
    """The mean, and the smallest and largest over seeds."""
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})".replace("-", "−")


def between(estimate):
    value, low, high = estimate
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def headings(*names):
    print("| " + " | ".join(names) + " |")
    print("| --- | " + " | ".join(["---:"] * (len(names) - 1)) + " |")


def line(*cells):
    print("| " + " | ".join(cells).replace("-0.", "−0.") + " |")


def cifar10h():
    headings(
        "mixture",
        "ECE",
        "E\\|m − f\\| at least",
        "hidden, p < 0.05",
        "error forced at KL 0.1",
        "by regions alone",
        "certified at KL 0.1",
        "repair: NLL",
        "kept",
    )
    rows = read("cifar10h.jsonl")
    for kind, told in KINDS.items():
        for method, name in NAMES.items():
            own = [r for r in rows if (r["method"], r["kind"]) == (method, kind)]
            hidden = sum(r["p_hidden"] < 0.05 for r in own)
            kept, blocks = (sum(r["repair_kept"][i] for r in own) for i in (0, 1))
            gained = np.mean([r["repair_nll"][0] for r in own])
            cells = [
                f"{name}, {told}",
                span([r["ece"][0] for r in own]),
                span([max(r["witness"][1], 0.0) for r in own]),
                f"{hidden} of {len(own)}",
                span([r["fragile"][0] for r in own]),
                span([r["fragile_regions"][0] for r in own]),
                span([r["certified"][2] for r in own]),
                f"{gained:+.4f}".replace("-", "−"),
                f"{kept} of {blocks}",
            ]
            line(*cells)


def hard():
    headings(
        "mixture",
        "AUC",
        "effective rows",
        "accuracy: source",
        "predicted",
        "actual",
        "ECE: source",
        "predicted",
        "actual",
        "p",
    )
    for r in read("hard.jsonl"):
        line(
            f"{NAMES[r['method']]}, {KINDS[r['kind']]}",
            f"{r['auc'][0]:.3f}",
            f"{r['effective']:.0f}",
            f"{r['source_accuracy'][0]:.3f}",
            between(r["predicted_accuracy"]),
            between(r["actual_accuracy"]),
            f"{r['source_ece'][0]:.3f}",
            between(r["predicted_ece"]),
            between(r["actual_ece"]),
            f"{r['p_assumption']:.0e}",
        )


def by_mixture(name):
    """The rows of all seeds, by target and mixture."""
    found = {}
    for r in read(name):
        found.setdefault(f"{r['target']}, {NAMES[r['method']]}, {KINDS[r['kind']]}", []).append(r)
    return found.items()


def held(rows, what):
    """How many intervals predicted from the source hold what came true."""
    inside = [
        low <= r[f"actual_{what}"][0] <= high for r in rows for _, low, high in [r[f"predicted_{what}"]]
    ]
    return f"{sum(inside)} of {len(inside)}"


def pacs():
    """Every model with labelled source rows and unlabelled ones of a domain that it was not trained on."""
    headings(
        "target, mixture",
        "AUC",
        "refused",
        "accuracy: source",
        "predicted",
        "actual",
        "held",
        "ECE: source",
        "predicted",
        "actual",
        "held",
        "rejected",
    )
    for label, rows in by_mixture("pacs.jsonl"):
        told = [r for r in rows if not r["verdict"]]
        cells = [label, span([r["auc"][0] for r in rows]), f"{len(rows) - len(told)} of {len(rows)}"]
        for what in ("accuracy", "ece"):
            cells += [
                span([r[f"source_{what}"][0] for r in rows]),
                span([r[f"predicted_{what}"][0] for r in told]) if told else "–",
                span([r[f"actual_{what}"][0] for r in rows]),
                held(told, what) if told else "–",
            ]
        rejected = sum(r["p_assumption"] < 0.05 for r in told)
        line(*cells, f"{rejected} of {len(told)}" if told else "–")


def unseen():
    """Every model on the labelled rows of a domain that it was not trained on."""
    headings(
        "target, mixture",
        "ECE",
        "E\\|m − f\\| at least",
        "cancelled inside the bins at least",
        "hidden, p < 0.05",
        "error forced at KL 0.1",
        "by regions alone",
        "repair: NLL",
        "kept",
    )
    for label, rows in by_mixture("targets.jsonl"):
        kept, blocks = (sum(r["repair_kept"][i] for r in rows) for i in (0, 1))
        line(
            label,
            span([r["ece"][0] for r in rows]),
            span([max(r["witness"][1], 0.0) for r in rows]),
            span([max(r["cancelled"][1], 0.0) for r in rows]),
            f"{sum(r['p_hidden'] < 0.05 for r in rows)} of {len(rows)}",
            span([r["fragile"][0] for r in rows]),
            span([r["fragile_regions"][0] for r in rows]),
            f"{np.mean([r['repair_nll'][0] for r in rows]):+.3f}",
            f"{kept} of {blocks}",
        )


for table in (cifar10h, hard, pacs, unseen):
    table()
    print()
