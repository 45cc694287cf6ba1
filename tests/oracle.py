"""What `learn` gives to somebody who needs no learning: a judge of every row, known before its labels."""

import numpy as np

from calmoe.auditing.statistics.sequential import Learned, blocks


def taught(judgement, seed=0):
    """The m(S) − f that is expected of each row [N], in the blocks of `learn`; it takes no time."""
    parts = blocks(len(judgement), seed)
    past = tuple(np.concatenate(parts[:i][::-1]) for i in range(1, len(parts)))
    rows = np.concatenate(parts[1:])
    return Learned(
        rows=rows,
        block=np.repeat(np.arange(1, len(parts)), [len(part) for part in parts[1:]]),
        expected=judgement[rows],
        taught=parts[0],
        past=past,
        recalled=tuple(judgement[part] for part in past),
    )


def spare_learning(monkeypatch):
    """`hidden` learns from the mixture's vector, and rules: neither, for a judge who needs no learning."""
    section = "calmoe.auditing.sections.hidden"
    monkeypatch.setattr(f"{section}.learn_without_routing", lambda rows, learned, seed: learned.expected)
    monkeypatch.setattr(f"{section}.rules_of", lambda *_: ())


def oracle(world, predictions, seed=0):
    """Knows the world's m(S) − f."""
    return taught(world.gap[predictions.groups["configuration"]], seed)
