"""SAM in any loop: beside two explicit passes in float64, over micro-batches and over two processes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calmoe import MixtureClassifier, MixtureHead
from calmoe.errors import InputError
from calmoe.objectives import ERM, EntropicRisk, RobustFiltered, RobustMoE, brier
from calmoe.sharpness import ascent, sharp_gradients
from ranks import on_processes, problem, sharpen
from strategies import seeds

OBJECTIVES = [ERM(), RobustMoE(2.0), RobustMoE(2.0, loss=brier), RobustFiltered(2.0), EntropicRisk(2.0)]


def reference(head, x, y, objective, rho):
    """Two explicit passes: the gradient, the move, the gradient there."""
    weights = [p.detach().clone() for p in head.parameters()]
    first = torch.autograd.grad(objective(head(x), y), list(head.parameters()))
    norm = torch.sqrt(sum((g * g).sum() for g in first))
    with torch.no_grad():
        for parameter, g in zip(head.parameters(), first, strict=True):
            parameter.add_(rho * g / norm)
    second = torch.autograd.grad(objective(head(x), y), list(head.parameters()))
    with torch.no_grad():
        for parameter, value in zip(head.parameters(), weights, strict=True):
            parameter.copy_(value)
    return second


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: f"{type(o).__name__}-{o.loss.__name__}")
@given(seed=seeds, rho=st.floats(0.001, 2.0))
def test_two_explicit_passes(objective, seed, rho):
    torch.manual_seed(seed)
    head = MixtureHead(6, num_classes=4).double()
    x, y = torch.randn(16, 6, dtype=torch.float64), torch.randint(4, (16,))
    expected = reference(head, x, y, objective, rho)
    before = [p.detach().clone() for p in head.parameters()]
    value = sharp_gradients(lambda: objective(head(x), y), head, rho)
    assert float(value) == pytest.approx(float(objective(head(x), y).detach()), rel=1e-12)
    for parameter, gradient, old in zip(head.parameters(), expected, before, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)
        assert torch.equal(parameter, old)


def test_four_micro_batches_are_one_batch():
    head, x, y = problem()
    expected = reference(head, x, y, ERM(), 0.3)

    def objective():
        for rows, labels in zip(x.split(10), y.split(10), strict=True):
            (ERM()(head(rows), labels) / 4).backward()
        return torch.zeros(())

    sharp_gradients(objective, head, 0.3)
    for parameter, gradient in zip(head.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_an_objective_without_a_gradient_is_refused():
    head, x, y = problem()
    for value in (0.5, torch.zeros(()), head(x).log_probs):  # no tensor, no gradient, no single number
        with pytest.raises(InputError, match="returns one number with its gradient"):
            sharp_gradients(lambda value=value: value, head)
    with pytest.raises(InputError, match="must be a function"):
        sharp_gradients(ERM()(head(x), y), head)

    def objective():
        ERM()(head(x), y).backward()
        return "done"

    assert sharp_gradients(objective, head) == "done"  # the gradients are there


def test_micro_batches_of_a_tilted_objective_go_by_their_weights():
    """The whole batch's weights, at the point where each pass stands; then any cut of the batch will do."""
    head, x, y = problem()
    robust = RobustMoE(2.0)
    expected = reference(head, x, y, robust, 0.3)

    def objective():
        with torch.no_grad():
            weights = robust.gradient_weights(head(x), y)
        for at in torch.arange(40).split(10):
            (weights[at] * robust.loss(head(x[at]), y[at])).sum().backward()
        return torch.zeros(())

    sharp_gradients(objective, head, 0.3)
    for parameter, gradient in zip(head.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "fully_shard"])
def test_two_processes_equal_one(tmp_path, wrapper):
    on_processes(2, sharpen, (str(tmp_path / "init"), str(tmp_path), wrapper))
    head, x, y = problem()
    for name, objective in (("erm", ERM()), ("robust", RobustMoE(2.0))):
        expected = reference(head, x, y, objective, 0.3)
        for rank in range(2):
            saved = torch.load(tmp_path / f"{rank}.pt", weights_only=True)[name]
            for saved_gradient, gradient in zip(saved, expected, strict=True):
                torch.testing.assert_close(saved_gradient, gradient, rtol=1e-9, atol=1e-12)


def test_batch_norm_moves_once_from_the_unperturbed_pass():
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7))
    model = MixtureClassifier(backbone, MixtureHead(7, num_classes=3))
    x, y = torch.randn(12, 5), torch.randint(3, (12,))
    twin = torch.nn.BatchNorm1d(7)
    twin(backbone[0](x))
    sharp_gradients(lambda: ERM()(model(x), y), model, rho=0.5)
    assert torch.equal(backbone[1].running_mean, twin.running_mean)
    assert torch.equal(backbone[1].running_var, twin.running_var)
    assert int(backbone[1].num_batches_tracked) == 1


def test_mixed_precision_and_frozen_and_unused_parameters():
    torch.manual_seed(0)
    model = MixtureClassifier(torch.nn.Linear(5, 8), MixtureHead(8, num_classes=3))
    model.unused = torch.nn.Parameter(torch.ones(2))
    model.backbone.bias.requires_grad_(False)
    x, y = torch.randn(32, 5), torch.randint(3, (32,))

    def objective():
        with torch.autocast("cpu", torch.bfloat16):
            features = model.backbone(x)
        return ERM()(model.head(features), y)

    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    sharp_gradients(objective, model, rho=0.1)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert model.unused.grad is None
    assert model.backbone.bias.grad is None
    assert model.backbone.weight.grad.isfinite().all()


@pytest.mark.parametrize("around", ["each pass", "both passes"])
def test_autocast_sees_the_weights_of_each_pass(around):
    """Autocast keeps copies of the weights until it ends: the second pass must not meet the first one's."""
    torch.manual_seed(0)
    model = MixtureClassifier(torch.nn.Linear(20, 64), MixtureHead(64, num_classes=3))
    x, y = torch.randn(64, 20), torch.randint(3, (64,))

    def in_bfloat16():
        with torch.autocast("cpu", torch.bfloat16):
            return plain()

    def plain():
        return ERM()(model(x), y)

    def gradients():
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    sharp_gradients(plain, model, rho=2.0)
    exact = gradients()
    if around == "each pass":
        sharp_gradients(in_bfloat16, model, rho=2.0)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            after = plain()
            sharp_gradients(plain, model, rho=2.0)
            assert torch.equal(plain(), after)  # nor is a copy of the moved weights left behind
    assert float((gradients() - exact).norm() / exact.norm()) < 0.03  # 0.3 with the first pass's copies


def test_a_radius_of_zero_is_one_plain_pass():
    head, x, y = problem()
    passes = []
    sharp_gradients(lambda: passes.append(1) or ERM()(head(x), y), head, rho=0)
    assert passes == [1]
    for parameter, gradient in zip(
        head.parameters(), torch.autograd.grad(ERM()(head(x), y), list(head.parameters())), strict=True
    ):
        assert torch.equal(parameter.grad, gradient)


def test_a_gradient_that_is_not_finite_leaves_the_weights():
    model = torch.nn.Linear(2, 1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    sharp_gradients(lambda: model(torch.tensor([[float("inf"), 1.0]])).sum(), model)
    assert not model.weight.grad.isfinite().all()
    assert all(map(torch.equal, model.parameters(), before))


def test_no_step_where_there_is_no_direction():
    assert torch.equal(ascent([torch.zeros(3)], 0.5)[0], torch.zeros(3))
    with pytest.raises(InputError, match="rho"):
        sharp_gradients(lambda: torch.zeros(()), torch.nn.Linear(1, 1), rho=-1)


def test_sparse_gradients_are_refused():
    model = torch.nn.Embedding(4, 2, sparse=True)
    with pytest.raises(InputError, match="sparse"):
        sharp_gradients(lambda: model(torch.tensor([1])).square().sum(), model)


def test_the_weights_come_back_even_if_the_second_pass_fails():
    model, passes = torch.nn.Linear(2, 1), []

    def objective():
        passes.append(1)
        if len(passes) == 2:
            raise RuntimeError("out of memory")
        return model(torch.ones(4, 2)).square().mean()

    before = model.weight.detach().clone()
    with pytest.raises(RuntimeError, match="out of memory"):
        sharp_gradients(objective, model)
    assert torch.equal(model.weight, before)
