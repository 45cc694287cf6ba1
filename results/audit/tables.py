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
            print("| " + " | ".join(cells) + " |")


def targets(name):
    headings(
        "target, mixture",
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
    for r in read(f"{name}.jsonl"):
        told = {} if r["verdict"] else r
        cells = [
            f"{r['target']}, {NAMES[r['method']]}, {KINDS[r['kind']]}",
            f"{r['auc'][0]:.3f}",
            f"{r['effective']:.0f}",
            f"{r['source_accuracy'][0]:.3f}",
            between(told["predicted_accuracy"]) if told else "–",
            between(r["actual_accuracy"]),
            f"{r['source_ece'][0]:.3f}",
            between(told["predicted_ece"]) if told else "–",
            between(r["actual_ece"]),
            f"{r['p_assumption']:.0e}" if told else "–",
        ]
        print("| " + " | ".join(cells) + " |")


def unseen():
    """Every model on the labelled rows of a domain that it was not trained on."""
    headings(
        "target, mixture",
        "ECE",
        "E\\|m − f\\| at least",
        "cancelled inside the bins at least",
        "p, nothing hidden",
        "error forced at KL 0.1",
        "by regions alone",
        "repair: NLL",
        "kept",
    )
    for r in read("targets.jsonl"):
        kept, blocks = r["repair_kept"]
        cells = [
            f"{r['target']}, {NAMES[r['method']]}, {KINDS[r['kind']]}",
            between(r["ece"]),
            f"{max(r['witness'][1], 0):.3f}",
            f"{max(r['cancelled'][1], 0):.3f}",
            f"{r['p_hidden']:.0e}",
            between(r["fragile"]),
            f"{r['fragile_regions'][0]:.3f}",
            f"{r['repair_nll'][0]:+.3f}",
            f"{kept} of {blocks}",
        ]
        print("| " + " | ".join(cells).replace("-0.", "−0.") + " |")


cifar10h()
for name in ("hard", "pacs"):
    print()
    targets(name)
print()
unseen()
