"""Small made-up mixtures and their curves, for the tests of numbers and figures."""

import numpy as np
import torch

from calmoe.mixture import combine
from calmoe.predictions import Predictions
from calmoe.report.curves import curves
from calmoe.report.figure_cards import RunNumbers, draw_figures
from calmoe.report.figure_list import run_figures
from calmoe.report.sections import CONFIDENCE, FRONTIER, GROUPS, INSIDE

HISTORY = [
    {"epoch": 1, "loss": 1.0},
    {"epoch": 2, "loss": 0.5, "negative_share": 0.25, "gamma_eff": 2.0},
    {"epoch": 3, "loss": 0.4, "negative_share": 0.125, "gamma_eff": 1.5},
]


def mixture(seed, rows=400, experts=4, sharpness=3.0, groups=True):
    """Predictions over five classes; the later rows are harder."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (rows,), generator=draw)
    right = torch.nn.functional.one_hot(labels, 5)[:, None] * torch.linspace(1.5, 0, rows)[:, None, None]
    logits = sharpness * (right + 0.5 * torch.randn(rows, experts, 5, generator=draw))
    routing = torch.log_softmax(torch.randn(rows, experts, generator=draw), dim=1)
    agreement = np.linspace(1, 0, rows)
    columns = {
        "hard": agreement < 0.3,
        "easy": agreement > 0.6,
        "never": agreement > 2,
        "agreement": agreement,
        "agreement_level": np.where(agreement < 0.5, "0.0-0.5", "0.5-1.0"),
        "domain": np.arange(rows) % 3,
        "row": np.arange(rows),
    }
    output = combine(routing, torch.log_softmax(logits, dim=2))
    return Predictions(output=output, labels=labels, groups=columns if groups else {})


def run(methods=("vanilla", "robust"), seeds=(1, 2, 3), hard="hard", **options):
    """The curves of a run; "robust" alone is tilted, "single" has one expert."""
    return [
        {"protocol": "corrected", "seed": seed}
        | curves(
            method,
            mixture(1000 * i + seed, experts=1 if method == "single" else 4, **options),
            mixture(1000 * i + seed + 500, experts=1 if method == "single" else 4, **options),
            hard,
            HISTORY if method == "robust" else (),
        )
        for i, method in enumerate(methods)
        for seed in seeds
    ]


def numbers(curves, hard=True, **more):
    """What a run's page knows about these curves."""
    return RunNumbers(dataset="digits", protocol="corrected", curves=curves, hard=hard, **more)


def draw(curves):
    """The figures that take curves, by name, and by name why one is missing."""
    captioned, missing = draw_figures(run_figures(), numbers(curves))
    return {name: figure for name, (figure, _) in captioned.items()}, missing


def draw_without_curves(cards, numbers):
    """As `draw_figures`, without the figures that take curves: they take seconds and have their own tests."""
    slow = (CONFIDENCE, FRONTIER, GROUPS, INSIDE)
    return draw_figures([card for card in cards if card.section not in slow], numbers)
