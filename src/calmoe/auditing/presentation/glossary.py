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
    "reweighting with KL ε": "other shares of the same rows: with KL 0.1 a group of 20 % can become 40 %, "
    "with 0.3 55 %",
    "effective rows": "how many equally weighted rows would be as sure as these weighted ones",
    "auditor": "a weight on rows, such as an expert's routing in a bin of confidence; its moment is 0 if "
    "calibrated",
    "√J": "the root of the mean squared residual, above every auditor's moment",
    "certificate": "a bound that no reweighting within the KL radius exceeds",
}

TERMS = {
    "ECE": "expected calibration error: how far, on average, the share of right answers is from the "
    "confidence. 0.02 means 2 points in 100",
    "points": "hundredths: probabilities of 80 % that come true 78 times in 100 are off by 2 points",
    "confidence": "the probability that the model gives to the class it predicts",
    "overconfident": "it is right less often than it says",
    "underconfident": "it is right more often than it says",
    "calibrated": "of all rows that it calls 80 % sure, 80 % come true",
    "base rates": "the share of each class among all rows: what one can say without looking at a row",
    "AUROC": "the chance that a positive row gets a higher probability than a negative one: 0.5 is guessing, "
    "1 is perfect",
    "average precision": "how many of the rows that score highest are positive, averaged over all positives",
    "log loss": "minus the logarithm of the probability given to the true class, on average: lower is better",
    "NLL": "log loss: minus the logarithm of the probability given to the true class, on average",
    "interval": "where the true number lies, with the certainty given at the end of the page, usually 95 %",
    "balance": WORDS["balance"],
    "shift": "other shares of the same kinds of rows, such as more from one site; in a strong one a group "
    "grows from 20 % to 40 % of rows",
    "experts": "the models inside a mixture; a router weighs their answers row by row",
    "expert": "one of the models inside a mixture; a router weighs their answers row by row",
    "router": "the part of a mixture that gives each expert its weight, row by row",
    "routing": "the weights that a mixture gives its experts, row by row",
    "leads": "has the largest weight",
    "disagree": "give probabilities that are at least 5 points apart, as far as they are asked",
    "temperature": "one number that makes all probabilities less, or more, extreme; it changes no prediction",
    "configuration": WORDS["S, configuration"],
    "configurations": WORDS["S, configuration"],
    "witness": WORDS["witness"],
    "KL": "Kullback-Leibler divergence, how large a shift is: with 0.1 a group of 20 % of rows can become "
    "40 %, with 0.3 55 %",
    "effective rows": WORDS["effective rows"],
    "auditor": WORDS["auditor"],
    "moments": "the mean of a weight times the residual; zero where calibrated",
    "certificate": WORDS["certificate"],
    "certificates": WORDS["certificate"],
    "Vacuous": "no lower than what holds whatever the labels are: it says nothing",
    "bins": "equal steps of confidence into which rows are sorted",
    "by chance": "a perfectly calibrated model would show about as much, as rows are few",
}
"""Words that explain themselves wherever the page uses them."""


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
