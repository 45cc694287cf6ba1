"""FGR, frequency-aware gradient rectification (Zhang et al., 2025), in both published strengths.

A step takes the main gradient on a batch in which a few images lost their high frequencies, and a calibration
gradient (soft ECE) on the clean batch. Where the two conflict, the main gradient is projected onto the
hyperplane on which calibration does not get worse.
"""

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from calmoe.arrays import as_count, as_number, check_bins, check_word, widen
from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput
from calmoe.objectives import check_batch
from calmoe.reducers import Group, count_of, total

__all__ = ["frequency_filter", "rectified_backward", "rectify", "soft_ece"]

# ITU-T T.81 (JPEG), annex K: quantisation tables for luminance and chrominance
_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
_TO_YCBCR = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))
SOFT_BINS = 15  # of the published soft ECE: part of how FGR trains, whatever metrics use


@torch.no_grad()
def frequency_filter(
    images: Tensor,
    fraction: float = 0.05,
    qualities: Sequence[int] = (15, 18, 25),
    variant: str = "published",
    generator: torch.Generator | None = None,
    share: tuple[int, int] | None = None,
) -> Tensor:
    """Take the high frequencies out of a random `fraction` of the batch (at least one image).

    Args:
        images: Images in [0, 1], before normalisation, any size, on any device. [N, 1 or 3, H, W]
        fraction: The share of images to filter.
        qualities: Each chosen image draws one of them; lower is coarser.
        variant: "published" is the calibrated-MoE authors' quantiser, JPEG tables × (101 − quality)/50;
            "jpeg" is JPEG's own at that quality (4:4:4), about twice as coarse, as the FGR authors used it.
        generator: The source of the draws.
        share: (first, rows), where the images are a rank's: those from `first` on of a batch of `rows`.
            Ranks whose generators are alike then filter together what one process would.

    Returns:
        The images, as many and as large. [N, 1 or 3, H, W]

    Example:
        >>> frequency_filter(torch.rand(8, 3, 20, 28)).shape
        torch.Size([8, 3, 20, 28])
    """
    shape = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
    if not isinstance(images, Tensor) or len(shape) != 4 or shape[1] not in (1, 3) or 0 in shape[2:]:
        raise InputError(f"images must be [N, 1 or 3, H, W] with values in [0, 1], not {shape}")
    if not images.is_floating_point():
        raise InputError(f"images must be floats in [0, 1], not {images.dtype}: divide by 255 first")
    check_word("variant", variant, ("published", "jpeg"))
    tables = _quantisers(_checked_qualities(qualities), variant, images.device)
    fraction, (first, rows) = as_number("fraction", fraction, 0, 1), share or (0, len(images))
    chosen, drawn = _chosen(rows, fraction, len(tables), images.device, generator)
    if share is not None:
        own = (chosen >= first) & (chosen < first + len(images))
        chosen, drawn = chosen[own] - first, drawn[own]
    if not len(chosen):
        return images
    with torch.autocast(images.device.type, enabled=False):
        shift = 128.0 if variant == "jpeg" else 0.0
        filtered = _quantise_blocks(images[chosen].float(), tables[drawn], shift)
    return images.clone().index_copy_(0, chosen, filtered.to(images.dtype))  # in the layout of `images`


def _chosen(
    rows: int, fraction: float, qualities: int, device: torch.device, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Which rows of a batch lose their high frequencies, and the quality that each draws."""
    count = min(rows, max(1, int(fraction * rows))) if fraction > 0 else 0
    if not count:
        return (torch.empty(0, dtype=torch.int64, device=device),) * 2
    chosen = torch.rand(rows, device=device, generator=generator).argsort()[:count]
    return chosen, torch.randint(qualities, (count,), device=device, generator=generator)


def soft_ece(
    output: MixtureOutput,
    labels: Tensor,
    bins: int = SOFT_BINS,
    temperature: float = 0.01,
    group: Group = None,
) -> Tensor:
    """Differentiable ECE: √(Σ_b share_b (accuracy_b − confidence_b)² + 1e-10) over soft bins.

    An example belongs to bin b with weight softmax_b(−(confidence − centre_b)² / temperature). Given a
    process group it is that of all ranks' rows, as in `calmoe.reducers`.

    Args:
        output: What the mixture says about N examples.
        labels: The true classes. [N]
        bins: The number of soft bins.
        temperature: How soft they are; small is hard.
        group: A process group whose ranks share the rows.

    Returns:
        A scalar with a gradient.

    Example:
        >>> from calmoe.mixture import combine
        >>> output = combine(torch.zeros(2, 1), torch.tensor([[[0.9, 0.1]], [[0.9, 0.1]]]).log())
        >>> soft_ece(output, torch.tensor([0, 1]))
        tensor(0.4000)
    """
    labels = check_batch(output, labels)
    rows = count_of(labels, group)
    bins, temperature = check_bins(bins), as_number("temperature", temperature, least=1e-9)
    confidence = output._replace(log_probs=widen(output.log_probs)).confidence
    correct = (output.predicted == labels).to(confidence.dtype)
    centres = (torch.arange(bins, device=confidence.device, dtype=confidence.dtype) + 0.5) / bins
    membership = torch.softmax(-(confidence.unsqueeze(1) - centres).square() / temperature, dim=1)
    weight = total(membership, group, dim=0)
    gap = total(membership * (correct - confidence).unsqueeze(1), group, dim=0) / weight.clamp(min=1e-8)
    return torch.sqrt((weight / rows * gap.square()).sum() + 1e-10)


def rectify(
    main: Sequence[Tensor], calibration: Sequence[Tensor], epsilon: float = 1e-10, group: Group = None
) -> list[Tensor]:
    """g − min(0, ⟨g, c⟩) c / (‖c‖² + ε): the main gradient g, less what it takes from calibration c.

    Args:
        main: The gradient g, a list of tensors read as one long vector.
        calibration: The gradient c, tensors of the same shapes.
        epsilon: Keeps the division finite where c is zero.
        group: A process group of which each rank has a piece of both vectors.

    Returns:
        The rectified gradient, in the shapes of `main`.

    Example:
        >>> rectify([torch.tensor([1.0, 1.0])], [torch.tensor([-2.0, 0.0])])
        [tensor([0., 1.])]
    """
    main = [_dense(part) for part in main]
    alike = [_laid_out_like(part, g) for part, g in zip(calibration, main, strict=True)]
    # in the order of memory, so that channels-last tensors are not copied; a handful of kernels in all
    g, c = (widen(torch.cat([p.as_strided((p.numel(),), (1,)) for p in parts])) for parts in (main, alike))
    with torch.autocast(g.device.type, enabled=False):
        products = g @ c, c @ c
        if group is not None:
            products = _summed(products, group)
        rectified = torch.addcmul(g, -products[0].clamp(max=0) / (products[1] + epsilon), c)
    pieces = rectified.split([part.numel() for part in main])
    return [
        piece.as_strided(part.shape, part.stride(), piece.storage_offset()).to(part.dtype)
        for piece, part in zip(pieces, main, strict=True)
    ]


def rectified_backward(
    main_loss: Tensor,
    calibration_loss: Tensor,
    parameters: Iterable[nn.Parameter],
    only: Iterable[nn.Parameter] | None = None,
) -> None:
    """Like `main_loss.backward()`, with the gradient rectified against `calibration_loss`.

    The two losses may share one forward pass. DistributedDataParallel does not see these gradients: average
    `.grad` over the ranks yourself.

    Args:
        main_loss: The objective, a scalar.
        calibration_loss: What must not get worse, such as `soft_ece`; a scalar.
        parameters: The parameters whose `.grad` is set (it does not accumulate).
        only: The parameters to project, the head's say; the others keep the main gradient. All unless given.

    Example:
        >>> from calmoe import MixtureHead
        >>> from calmoe.objectives import ERM
        >>> head, labels = MixtureHead(4, num_classes=2), torch.tensor([0, 1, 1])
        >>> output = head(torch.ones(3, 4))
        >>> rectified_backward(ERM()(output, labels), soft_ece(output, labels), head.parameters())
        >>> all(parameter.grad is not None for parameter in head.parameters())
        True
    """
    parameters = list(parameters)
    rectified = {id(p) for p in (parameters if only is None else only)}
    chosen = [p for p in parameters if id(p) in rectified]
    if len(chosen) != len(rectified):
        raise InputError("`only` names parameters that are not among `parameters`")
    main = torch.autograd.grad(
        main_loss, parameters, allow_unused=True, materialize_grads=True, retain_graph=True
    )
    calibration = torch.autograd.grad(calibration_loss, chosen, allow_unused=True, materialize_grads=True)
    for parameter, gradient in zip(parameters, main, strict=True):
        parameter.grad = gradient
    projected = rectify([g for p, g in zip(parameters, main, strict=True) if id(p) in rectified], calibration)
    for parameter, gradient in zip(chosen, projected, strict=True):
        parameter.grad = gradient


def _summed(products: tuple[Tensor, Tensor], group: Group) -> tuple[Tensor, Tensor]:
    """Both over all ranks."""
    both = torch.stack(products)
    dist.all_reduce(both, group=group)
    return both[0], both[1]


def _dense(tensor: Tensor) -> Tensor:
    """The tensor without gaps in memory; channels-last tensors without gaps stay as they are."""
    channels_last = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor if channels_last else tensor.contiguous()


def _laid_out_like(tensor: Tensor, other: Tensor) -> Tensor:
    return tensor if tensor.stride() == other.stride() else torch.empty_like(other).copy_(tensor)


def _checked_qualities(qualities: Sequence[int]) -> tuple[int, ...]:
    values = np.atleast_1d(np.asarray(qualities, dtype=object))
    if not values.size:
        raise InputError("qualities must name at least one, such as (15, 18, 25)")
    return tuple(as_count("each of qualities", value, 1, 100) for value in values)


@functools.cache
def _quantisers(qualities: tuple[int, ...], variant: str, device: torch.device) -> Tensor:
    """One quantisation table per quality and channel. [Q, 3, 8, 8]"""
    base = torch.tensor([_LUMINANCE, _CHROMINANCE, _CHROMINANCE], dtype=torch.float32, device=device)
    if variant == "published":
        scales = [(101 - quality) / 50 for quality in qualities]
        return torch.stack([(base * scale).clamp(min=1) for scale in scales])
    percents = [5000 // quality if quality < 50 else 200 - 2 * quality for quality in qualities]
    return torch.stack([((base * percent + 50) / 100).floor().clamp(1, 255) for percent in percents])


@functools.cache
def _dct(device: torch.device) -> Tensor:
    """The orthonormal 8-point DCT-II matrix."""
    k, i = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    matrix = torch.cos(math.pi * (2 * i + 1) * k / 16) * 0.5
    matrix[0] = math.sqrt(1 / 8)
    return matrix.to(device)


@functools.cache
def _matrix(rows: tuple[tuple[float, ...], ...], device: torch.device) -> Tensor:
    return torch.tensor(rows, device=device)


def _quantise_blocks(images: Tensor, tables: Tensor, shift: float) -> Tensor:
    """Round every 8 × 8 block's frequencies to multiples of its table; borders are filled by repetition."""
    channels, height, width = images.shape[1:]
    pixels = 255 * images.clamp(0, 1)
    if channels == 3:
        pixels = torch.einsum("cd,ndhw->nchw", _matrix(_TO_YCBCR, images.device), pixels)
        pixels[:, 1:] += 128
    pixels = nn.functional.pad(pixels - shift, (0, -width % 8, 0, -height % 8), mode="replicate")
    dct = _dct(images.device)
    blocks = pixels.unflatten(3, (-1, 8)).unflatten(2, (-1, 8)).transpose(3, 4)  # [n, c, H/8, W/8, 8, 8]
    quantum = tables[:, :channels, None, None]
    coefficients = torch.round(dct @ blocks @ dct.T / quantum) * quantum
    pixels = (dct.T @ coefficients @ dct).transpose(3, 4).flatten(4, 5).flatten(2, 3) + shift
    pixels = pixels[:, :, :height, :width]
    if channels == 3:
        pixels[:, 1:] -= 128
        pixels = torch.einsum("cd,ndhw->nchw", _matrix(_TO_RGB, images.device), pixels)
    return pixels.clamp(0, 255) / 255
