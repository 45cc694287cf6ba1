"""Rules that a reader can name: which configurations are off, and which way."""

from dataclasses import dataclass

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from calmoe.auditing.configurations import Configurations
from calmoe.auditing.statistics.estimates import (
    Estimate,
    normal,
    proportion,
    spread,
    within,
)
from calmoe.auditing.statistics.sequential import Learned

MOST_NAMED = 30  # classes: of more, rules name none


@dataclass(frozen=True)
class Rule:
    """Configurations that a reader can name: how many they are, and which way they are off.

    The intervals of all gaps, in all rules of all splits, hold together; so do those of all shares.

    Attributes:
        text: The rule in words, such as "expert 2 leads".
        share: The share of rows that it holds for.
        gap: E[Y − f | rule].

    Example:
        >>> Rule("expert 2 leads", Estimate(0.3, 0.2, 0.4, 0.05), Estimate(-0.1, -0.15, -0.05, 0.02)).text
        'expert 2 leads'
    """

    text: str
    share: Estimate
    gap: Estimate  # E[Y − f | rule]


def rules_of(
    configurations: Configurations, learned: Learned, index: np.ndarray, bins: int, level: float
) -> tuple[Rule, ...]:
    """The leaves of a small tree on readable features, grown on the first block less the bins' own gaps.

    Shares and gaps are those of the judged rows; with n rules, each interval has level 1 − (1 − level)/n.
    """
    experts, residual = configurations.num_experts, configurations.residual
    leads = configurations.leading[:, None] == np.arange(experts if experts > 1 else 0)
    named = configurations.num_classes if configurations.num_classes <= MOST_NAMED else 0
    predicts = configurations.predicted[:, None] == np.arange(named)
    columns = {
        "routing entropy": configurations.entropy,
        "disagreement": configurations.disagreement,
        "plain average − mixture": configurations.dissent,
    }
    readable = np.column_stack([leads, predicts, *(columns.values() if experts > 1 else ())])
    names = [
        *(f"{name} leads" for name in configurations.expert_names[: leads.shape[1]]),
        *(f"{title} is predicted" for title in configurations.class_titles[:named]),
        *(columns if experts > 1 else ()),
    ]
    questions = ["leads"] * leads.shape[1] + ["is predicted"] * named  # each has one yes; numbers follow
    if not names:
        readable, names = configurations.confidence[:, None], ["confidence"]
    taught, judged = learned.taught, learned.rows
    counts = np.bincount(index[taught], minlength=bins)
    gaps = np.bincount(index[taught], residual[taught], minlength=bins) / np.maximum(counts, 1)
    least = max(50, len(taught) // 20)
    tree = DecisionTreeRegressor(max_leaf_nodes=6, min_samples_leaf=least, random_state=0)
    tree.fit(readable[taught], residual[taught] - gaps[index[taught]])
    leaf = tree.apply(readable[judged].astype(np.float32))
    nodes = np.unique(leaf)
    rules = []
    for node in nodes:
        rows = judged[leaf == node]
        gaps_here, each = residual[rows], 1 - (1 - level) / len(nodes)
        error = spread(gaps_here, configurations.noise[rows])
        gap = within(normal(float(gaps_here.mean()), error, each), -1.0, 1.0)
        share = proportion(len(rows) / len(judged), len(judged), each)
        rules.append(Rule(_path(tree.tree_, int(node), names, questions), share, gap))
    return tuple(sorted(rules, key=lambda rule: -abs(rule.gap.value * rule.share.value)))


def _path(tree: object, leaf: int, names: list[str], questions: list[str]) -> str:
    """The conditions on the way to a leaf in words, with only the tightest bound of each feature.

    The first features are answers to `questions`; a no is left out where another answer is yes.
    """
    left, right = tree.children_left, tree.children_right  # type: ignore[attr-defined]
    feature, threshold = tree.feature, tree.threshold  # type: ignore[attr-defined]
    parent = {int(child): node for side in (left, right) for node, child in enumerate(side) if child >= 0}
    bounds: dict[tuple[int, bool], float] = {}
    node = leaf
    while node in parent:
        above = parent[node]
        bounds.setdefault((int(feature[above]), int(left[above]) == node), float(threshold[above]))
        node = above  # upward from the leaf: tightest first
    answered = {questions[at] for at, upper in bounds if at < len(questions) and not upper}
    words = []
    for (at, upper), value in reversed(bounds.items()):
        if at >= len(questions):
            bound = f"{value:.3g}".replace("-", "−")
            words.append(f"{names[at]} {'≤' if upper else '>'} {bound}")
        elif not upper:
            words.append(names[at])
        elif questions[at] not in answered:
            words.append(f"not {names[at]}")
    return " and ".join(words) or "all configurations"
