"""Draw reweighting.png: a calibrated mixture before and after a change of its configurations only.

    python docs/figures/reweighting.py

40,000 simulated predictions. At every confidence two kinds of routing configuration meet, one 15 points more
often right than it says, one 15 points less often: they cancel, and the mixture is calibrated. Then the first
kind becomes rarer. No label, no expert and no router changes.
"""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from calmoe.metrics import reliability

rng = np.random.default_rng(0)
n = 40_000
confidence = rng.uniform(0.6, 0.85, n)
kind = rng.random(n) < 0.5
correct = rng.random(n) < confidence + np.where(kind, 0.15, -0.15)
probs = np.stack([confidence, 1 - confidence], axis=1)
labels = np.where(correct, 0, 1)

figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.1), sharey=True, layout="constrained")
for axis, weights, title in (
    (axes[0], np.ones(n), "training distribution"),
    (axes[1], np.where(kind, 0.25, 1.0), "configurations reweighted"),
):
    curve = reliability(probs, labels, weights)
    axis.plot([0.5, 1], [0.5, 1], color="0.6", linewidth=1, zorder=1)
    low, high = curve.interval().T
    axis.errorbar(
        curve.confidence,
        curve.accuracy,
        yerr=[curve.accuracy - low, high - curve.accuracy],
        fmt="o-",
        color="#0072B2" if axis is axes[0] else "#D55E00",
        capsize=2,
        markersize=4,
    )
    axis.set(title=f"{title}\nECE {curve.ece:.3f}", xlabel="confidence", xlim=(0.55, 0.9), ylim=(0.45, 0.95))
axes[0].set_ylabel("accuracy")
figure.savefig(Path(__file__).with_suffix(".png"), dpi=160)
