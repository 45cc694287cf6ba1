"""Write several files with the same decimals: else a classifier tells a file by how it was rounded.

A file of three decimals holds zeros and whole thousandths, one of full precision holds neither. So all files
are rounded as the coarsest was, and each row is divided by its sum. What a reader puts in the place of zeros
(`calmoe.formats.rounding`) becomes zero again.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from calmoe.auditing.configurations import CHUNK
from calmoe.auditing.vectors import chunk_rows
from calmoe.formats.rounding import DECIMALS, FARTHEST, HIDDEN
from calmoe.mixture import MixtureOutput, combine
from calmoe.predictions import Predictions

ROWS = 10_000  # in which decimals are looked for
FEWEST, DIFFERENT = 20, 2  # values that show them, and how many of these differ
NEARLY_ALL = 0.99  # of the values that could show them
SLACK = 0.02  # of a unit of the last decimal: what float32 loses
TOLD = 0.25  # of a unit: a sum that misses 1 moves larger values too far
MIXED = 1e-5  # how far a mixture may be from its experts' probabilities


def written_alike(files: Sequence[Predictions]) -> list[Predictions]:
    """The files with the decimals of the coarsest of them; as they are where none was rounded.

    >>> chance = torch.linspace(0.1, 0.9, 60)
    >>> fine = Predictions.from_probs(torch.stack([chance, 1 - chance], dim=1))
    >>> coarse = Predictions.from_probs(fine.output.probs.round(decimals=2))
    >>> ours, theirs = written_alike([fine, coarse])
    >>> torch.allclose(ours.output.probs, theirs.output.probs)
    True
    """
    outputs = [each.output for each in files]
    parts = MixtureOutput._fields if files[0].num_experts > 1 else ("log_probs",)
    decimals = {part: _fewest([getattr(output, part) for output in outputs]) for part in parts}
    rounded = {part: fewest for part, fewest in decimals.items() if fewest is not None}
    if not rounded:
        return list(files)
    written = [
        output._replace(**{part: _rounded(getattr(output, part), d) for part, d in rounded.items()})
        for output in outputs
    ]
    if "log_probs" not in rounded and all(map(_is_mixed, outputs)):
        # a mixture of rounded experts has more decimals than they
        written = [combine(output.log_routing, output.expert_log_probs) for output in written]
    return [replace(each, output=output) for each, output in zip(files, written, strict=True)]


def decimals_of(probs: Tensor) -> int | None:
    """The decimals that vectors [N, C] were rounded to, though they may sum to 1 again; None if to none.

    >>> probs = torch.tensor([[0.123, 0.877], [0.45, 0.55], [0.018, 0.982]]).repeat(10, 1)
    >>> decimals_of(probs), decimals_of(probs.sqrt())
    (3, None)
    """
    return next((decimals for decimals in DECIMALS if _has_decimals(probs, decimals)), None)


def _has_decimals(probs: Tensor, decimals: int) -> bool:
    """Whether values that could show it are whole numbers of units, or stand in the place of a zero.

    Sums of rounded values miss 1, and a row that sums to 1 again has other units, in proportion to its miss.
    """
    unit, classes = 10.0**-decimals, probs.shape[1]
    missed = (classes + 1) // 2 - 1  # units, at most: two classes' errors are opposite
    stretch = min(FARTHEST, unit * (missed + HIDDEN * classes)) if missed else 0.0
    units = probs.double() / unit
    inside = (units > SLACK) & (units < 10**decimals - SLACK)  # 0 and 1 have any number of decimals
    shown = units[inside & (units * stretch <= TOLD)]
    written = shown.round()
    written[written == 0] = HIDDEN
    fits = (shown - written).abs() <= SLACK + stretch * written
    enough = len(shown) >= FEWEST and len(written.unique()) >= DIFFERENT
    return enough and float(fits.double().mean()) >= NEARLY_ALL


def _fewest(parts: Sequence[Tensor]) -> int | None:
    """The decimals of the coarsest of several files' logarithms, [N, C] or [N, K, C] each."""
    known = [decimals_of(logs[_some(logs)].double().exp().flatten(0, -2)) for logs in parts]
    return min((decimals for decimals in known if decimals is not None), default=None)


def _some(logs: Tensor) -> Tensor:
    """The numbers of rows from all over the file."""
    most = chunk_rows(logs[0].numel(), 1, ROWS)
    return torch.linspace(0, len(logs) - 1, min(most, len(logs)), dtype=torch.float64).long()


def _is_mixed(output: MixtureOutput) -> bool:
    """Whether the mixture's probabilities are those of its experts: no temperature, no repair."""
    some = output.take(_some(output.expert_log_probs))
    apart = some.probs - combine(some.log_routing, some.expert_log_probs).probs
    return float(apart.abs().max()) < MIXED


def _rounded(logs: Tensor, decimals: int) -> Tensor:
    """Logarithms of what was written with these decimals, divided by its sum; of rows that are nothing but
    zeros then, as they were."""
    has_them = _fewest([logs]) == decimals

    def rounded(rows: Tensor) -> Tensor:
        probs = rows.double().exp()
        units = probs * 10.0**decimals
        written = units.where(units >= 0.5, 0.0) if has_them else units.round()
        sums = written.sum(dim=-1, keepdim=True)
        return torch.where(sums > 0, written / sums, probs).log().to(rows.dtype)

    return torch.cat([rounded(rows) for rows in logs.split(chunk_rows(logs[0].numel(), 1, CHUNK))])
