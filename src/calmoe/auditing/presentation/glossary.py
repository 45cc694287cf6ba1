"""What the audit calls things, and what the words and signs of its page mean."""

from typing import TYPE_CHECKING

from calmoe.metrics.checks import Of
from calmoe.render.grid import Grid, Heading, label

if TYPE_CHECKING:
    from calmoe.auditing.audit_report import AuditReport

WORDS = {
    "f": "the mixture's probability that its predicted class is right (or that the label is the one asked)",
    "Y": "1 where that came true, else 0; Y − f is the residual",
    "f_k, r_k": "expert k's probability of the same, and its routing weight",
    "S, configuration": "a row's routing weights and experts' probabilities together",
    "m(S)": "how often rows of that configuration come true",
    "ECE": "the mean gap between how often rows of a confidence come true and that confidence",
    "balance": "how often right, less the mean confidence: below zero is overconfident on average",
    "routing-weighted view": "all rows, each counted as much as the router gives the expert",
    "disagreement": "how far the experts are from the mixture, Σ r_k (f_k − f)²",
    "witness": "the sign of m(S) − f, guessed from other rows: what it finds is a lower bound",
    "reweighting with KL ε": "other shares of the same rows: with KL 0.1 a group of 20 % can become 39 %, "
    "with 0.3 55 %",
    "effective rows": "how many equally weighted rows would be as sure as these weighted ones",
    "auditor": "a weight on rows, such as an expert's routing in a bin of confidence; its moment is 0 if "
    "calibrated",
    "√J": "the root of the mean squared residual, above every auditor's moment",
    "certificate": "a bound that no reweighting within the KL radius exceeds",
}


def rate_name(of: Of | str) -> str:
    """What E[Y] is called."""
    return "accuracy" if of == "top" else f"share of label {of}"


def subject_name(report: "AuditReport") -> str:
    """What is audited: a model without experts is no mixture."""
    return "mixture" if report.num_experts > 1 else "model"


def glossary() -> Grid:
    """One word a line."""
    rows = tuple((label(word, word), label(meaning, meaning)) for word, meaning in WORDS.items())
    headings = (Heading("word", ("word",)), Heading("meaning", ("meaning",)))
    return Grid("Words and signs of this page", headings, (rows,))
