import io

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from calmoe import MixtureHead
from calmoe.errors import InputError
from calmoe.objectives import ERM
from calmoe.rectification import _quantisers, frequency_filter, rectified_backward, rectify, soft_ece
from strategies import generator, random_output, seeds


def smooth_images(n, channels, height, width):
    """Something like photographs: smooth, with detail."""
    coarse = torch.rand(n, channels, 4, 4)
    images = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    return (images + 0.05 * torch.randn(n, channels, height, width)).clamp(0, 1)


def reference_filter(image, quality):
    """The published filter for one [3, 8a, 8b] image, block by block with SciPy's DCT."""
    r, g, b = 255 * image.double().numpy()
    planes = [
        0.299 * r + 0.587 * g + 0.114 * b,
        -0.168736 * r - 0.331264 * g + 0.5 * b + 128,
        0.5 * r - 0.418688 * g - 0.081312 * b + 128,
    ]
    tables = _quantisers((quality,), "published", torch.device("cpu"))[0].double().numpy()
    for plane, table in zip(planes, tables, strict=True):
        for i in range(0, plane.shape[0], 8):
            for j in range(0, plane.shape[1], 8):
                block = scipy.fft.dctn(plane[i : i + 8, j : j + 8], norm="ortho")
                plane[i : i + 8, j : j + 8] = scipy.fft.idctn(np.round(block / table) * table, norm="ortho")
    y, cb, cr = planes[0], planes[1] - 128, planes[2] - 128
    rgb = np.stack([y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb])
    return torch.from_numpy(rgb.clip(0, 255) / 255)


@pytest.mark.parametrize("quality", [15, 18, 25])
def test_the_published_filter_against_a_block_by_block_reference(quality):
    images = smooth_images(4, 3, 32, 24)
    filtered = frequency_filter(images, fraction=1.0, qualities=(quality,))
    for image, result in zip(images, filtered, strict=True):
        difference = (result.double() - reference_filter(image, quality)).abs()
        # float32 may round a coefficient on the boundary the other way: rare, and then a whole block moves
        assert float((difference > 1e-4).double().mean()) < 0.05


@pytest.mark.parametrize("quality", [15, 18, 25])
def test_the_jpeg_variant_is_jpeg(quality):
    """Pillow's encoder at the same quality, without chroma subsampling, differs by rounding only."""
    images = (255 * smooth_images(3, 3, 64, 48)).round() / 255
    filtered = frequency_filter(images, fraction=1.0, qualities=(quality,), variant="jpeg")
    for image, result in zip(images, filtered, strict=True):
        buffer = io.BytesIO()
        pixels = (255 * image).byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=0)
        decoded = torch.from_numpy(np.array(Image.open(buffer))).permute(2, 0, 1)
        assert float((255 * result - decoded.float()).abs().mean()) < 1.0


def test_the_jpeg_variant_is_about_twice_as_coarse():
    device = torch.device("cpu")
    published, jpeg = (_quantisers((15, 18, 25), variant, device) for variant in ("published", "jpeg"))
    ratio = (jpeg.clamp(max=250) / published)[:, 0, 0, :4].mean(dim=1)
    assert torch.allclose(ratio, torch.tensor([1.93, 1.66, 1.32]), atol=0.1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (32, 32), (13, 27), (1, 1), (5, 40)])
def test_any_size_colour_or_grey(channels, height, width):
    images = torch.rand(3, channels, height, width)
    filtered = frequency_filter(images, fraction=1.0)
    assert filtered.shape == images.shape
    assert filtered.min() >= 0
    assert filtered.max() <= 1
    assert not filtered.isnan().any()


def test_high_frequencies_go_and_flat_images_stay():
    flat = torch.full((1, 3, 16, 16), 0.5)
    assert (frequency_filter(flat, fraction=1.0) - flat).abs().max() < 0.07  # DC is quantised too
    checkerboard = ((torch.arange(16).view(-1, 1) + torch.arange(16)) % 2).float().mul(0.1).add(0.45)
    filtered = frequency_filter(checkerboard.expand(1, 1, 16, 16), fraction=1.0)
    assert filtered.std() < 1e-4


@given(st.integers(1, 200), st.floats(0.001, 1))
def test_the_fraction_is_a_count_of_at_least_one_image(n, fraction):
    images = torch.rand(n, 1, 8, 8, generator=generator(n))
    changed = (frequency_filter(images, fraction=fraction) != images).flatten(1).any(1)
    assert int(changed.sum()) == max(1, int(fraction * n))


def test_filtered_images_keep_their_layout() -> None:
    """A compiled backbone would be compiled again for another."""
    images = torch.rand(4, 16, 16, 3, generator=generator(0)).permute(0, 3, 1, 2)
    assert frequency_filter(images, fraction=0.5).stride() == images.stride()


def test_autocast_changes_nothing():
    images = smooth_images(4, 3, 16, 16)
    main, calibration = [torch.randn(40)], [torch.randn(40)]
    plain = frequency_filter(images, fraction=1.0, generator=generator(0)), *rectify(main, calibration)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = frequency_filter(images, fraction=1.0, generator=generator(0)), *rectify(main, calibration)
    assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


def test_every_quality_is_drawn_and_coarser_ones_change_more():
    images = smooth_images(1, 3, 32, 32).expand(300, 3, 32, 32)
    filtered = frequency_filter(images, fraction=1.0, qualities=(1, 50, 99), generator=generator(0))
    distances = (filtered - images).square().mean((1, 2, 3))
    kinds = distances.unique(return_counts=True)
    assert len(kinds[0]) == 3
    assert (kinds[1] > 60).all()


def test_published_quantisers_never_fall_below_one():
    assert float(_quantisers((100,), "published", torch.device("cpu")).min()) == 1.0


def test_borders_are_filled_by_repetition():
    """A 4 x 4 image is the corner of the 8 x 8 block that repeats its last row and column."""
    image = smooth_images(1, 1, 4, 4)
    repeated = torch.nn.functional.pad(image, (0, 4, 0, 4), mode="replicate")
    small, large = (frequency_filter(i, fraction=1.0, qualities=(25,)) for i in (image, repeated))
    torch.testing.assert_close(small, large[:, :, :4, :4])


def test_six_of_128_and_reproducible_with_a_generator():
    images = torch.rand(128, 3, 8, 8)
    first = frequency_filter(images, generator=generator(3))
    assert int((first != images).flatten(1).any(1).sum()) == 6
    assert torch.equal(first, frequency_filter(images, generator=generator(3)))
    assert not torch.equal(first, frequency_filter(images, generator=generator(4)))
    assert torch.equal(frequency_filter(images, fraction=0.0), images)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": torch.rand(2, 4, 8, 8)}, "images must be"),
        ({"images": torch.rand(2, 8, 8)}, "images must be"),
        ({"images": torch.zeros(2, 3, 8, 8, dtype=torch.uint8)}, "divide by 255"),
        ({"images": torch.rand(2, 3, 8, 8), "fraction": 1.5}, "fraction must be"),
        ({"images": torch.rand(2, 3, 8, 8), "variant": "webp"}, "variant must be"),
        ({"images": torch.rand(2, 3, 8, 8), "qualities": (0,)}, "each of qualities must be"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        frequency_filter(**arguments)


# --- soft ECE


@given(seeds)
def test_soft_ece_against_a_loop(seed):
    output = random_output(seed)
    labels = torch.randint(5, (32,), generator=generator(seed))
    confidence, correct = output.confidence, (output.predicted == labels).double()
    total = 0.0
    members = [
        torch.softmax(
            torch.tensor([-((float(c) - (b + 0.5) / 15) ** 2) / 0.01 for b in range(15)]).double(), 0
        )
        for c in confidence
    ]
    for b in range(15):
        weight = sum(m[b] for m in members)
        accuracy = sum(m[b] * y for m, y in zip(members, correct, strict=True)) / weight
        mean_confidence = sum(m[b] * c for m, c in zip(members, confidence, strict=True)) / weight
        total += weight / 32 * (accuracy - mean_confidence) ** 2
    assert float(soft_ece(output, labels)) == pytest.approx(float((total + 1e-10) ** 0.5), abs=1e-6)


def test_soft_ece_has_correct_gradients():
    head = MixtureHead(4, 3).double()
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,))

    def value(weight):
        return soft_ece(torch.func.functional_call(head, {"experts.weight": weight}, (x,)), y)

    assert torch.autograd.gradcheck(value, head.experts.weight.detach().requires_grad_())


def test_soft_ece_at_certainty_has_finite_gradients():
    head = MixtureHead(4, 3)
    soft_ece(head(1e4 * torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


# --- rectification


@given(seeds)
def test_rectified_gradients_never_hurt_calibration(seed):
    source = generator(seed)
    shapes = [(3, 4), (5,), ()]
    main, calibration = (
        [torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes] for _ in range(2)
    )
    flat = [torch.cat([part.flatten() for part in parts]) for parts in (main, calibration)]
    result = torch.cat([part.flatten() for part in rectify(main, calibration)])
    dot = flat[0] @ flat[1]
    if dot >= 0:
        assert torch.equal(result, flat[0])
    else:
        assert abs(float(result @ flat[1])) < 1e-8
        torch.testing.assert_close(
            result, flat[0] - dot / flat[1].square().sum() * flat[1], rtol=1e-8, atol=1e-8
        )


def test_the_order_of_memory_does_not_matter():
    plain = [torch.randn(4, 3, 2, 5), torch.randn(6)]
    against = [-plain[0] + torch.randn(4, 3, 2, 5), torch.randn(6)]
    expected = rectify(plain, against)
    lasting = [plain[0].to(memory_format=torch.channels_last), plain[1]]
    strided = [torch.randn(4, 3, 2, 10)[..., ::2].copy_(against[0]), against[1]]
    for main, calibration in ((lasting, against), (plain, strided), (lasting, strided), (strided, lasting)):
        wanted = expected if main is not strided else rectify(against, plain)
        rectified = rectify(main, calibration)
        for a, b, like in zip(rectified, wanted, main, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == like.stride() or main is strided


def test_mixed_precision_gradients_keep_their_dtypes():
    main = [torch.randn(3).bfloat16(), torch.randn(4)]
    result = rectify(main, [-part for part in main])
    assert [part.dtype for part in result] == [torch.bfloat16, torch.float32]


def test_a_tiny_calibration_gradient_is_damped_by_epsilon():
    (result,) = rectify([torch.tensor([1.0])], [torch.tensor([-1e-5])])
    assert float(result) == pytest.approx(0.5, rel=1e-3)  # ‖c‖² = ε = 1e-10: half of it is taken away


def test_a_zero_calibration_gradient_changes_nothing():
    main = [torch.randn(4)]
    assert torch.equal(rectify(main, [torch.zeros(4)])[0], main[0])


def two_losses(head):
    x = torch.randn(32, 6)
    y = torch.randint(3, (32,))
    output = head(x)
    return ERM()(output, y), soft_ece(output, y)


def test_rectified_backward_projects_all_parameters_or_some():
    for seed in range(20):
        torch.manual_seed(seed)
        head = MixtureHead(6, 3)
        main, calibration = two_losses(head)
        parameters = list(head.parameters())
        g = torch.autograd.grad(main, parameters, retain_graph=True)
        c = torch.autograd.grad(calibration, parameters, retain_graph=True)
        rectified_backward(*_again(head, seed), parameters)
        for parameter, wanted in zip(parameters, rectify(g, c), strict=True):
            torch.testing.assert_close(parameter.grad, wanted)
        only = list(head.experts.parameters())
        rectified_backward(*_again(head, seed), parameters, only=only)
        expected = dict(zip(only, rectify(g[:2], c[:2]), strict=True))
        for parameter, plain in zip(parameters, g, strict=True):
            torch.testing.assert_close(parameter.grad, expected.get(parameter, plain))


def _again(head, seed):
    torch.manual_seed(seed)
    MixtureHead(6, 3)
    return two_losses(head)


def test_unused_and_foreign_parameters():
    head, unused = MixtureHead(6, 3), torch.nn.Parameter(torch.ones(2))
    main, calibration = two_losses(head)
    rectified_backward(main, calibration, [*head.parameters(), unused])
    assert torch.equal(unused.grad, torch.zeros(2))
    main, calibration = two_losses(head)
    with pytest.raises(InputError, match="not among"):
        rectified_backward(main, calibration, head.parameters(), only=[unused])
