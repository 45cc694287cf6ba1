import numpy as np
import pytest
import torch
from torch import nn

from calmoe import MixtureClassifier, MixtureHead, MixtureOutput
from calmoe.errors import InputError
from calmoe.mixture import combine


def head(routing="soft", experts=4, dtype=torch.float64):
    return MixtureHead(6, num_classes=3, num_experts=experts, router_hidden=8, routing=routing).to(dtype)


def features(n=7):
    return torch.randn(n, 6, dtype=torch.float64)


def test_the_mixture_is_the_routed_sum_of_its_experts():
    output = head()(features())
    expected = (output.routing.unsqueeze(2) * output.expert_probs).sum(1)
    torch.testing.assert_close(output.probs, expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(output.probs.sum(1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(output.confidence, expected.max(1).values)
    assert torch.equal(output.predicted, expected.argmax(1))


def test_one_matrix_product_equals_separate_linear_experts():
    module, x = head(), features()
    output = module(x)
    for k in range(4):
        rows = slice(3 * k, 3 * k + 3)
        expert = nn.functional.linear(x, module.experts.weight[rows], module.experts.bias[rows]).log_softmax(
            1
        )
        torch.testing.assert_close(output.expert_log_probs[:, k], expert)


def test_a_single_expert_has_no_router_and_is_a_softmax_classifier():
    module, x = head(experts=1), features()
    assert module.router is None
    output = module(x)
    torch.testing.assert_close(output.log_probs, module.experts(x).log_softmax(1))
    assert torch.equal(output.routing, torch.ones(7, 1, dtype=torch.float64))


def test_hard_routing_answers_with_the_leading_expert_alone():
    module, x = head("hard"), features()
    output = module(x)
    leading = module.router(x).argmax(1)
    assert torch.equal(output.routing, nn.functional.one_hot(leading, 4).double())
    torch.testing.assert_close(output.log_probs, output.expert_log_probs[torch.arange(7), leading])


def test_the_router_still_learns_under_hard_routing_and_only_the_chosen_expert_does():
    module, x = head("hard"), features(1)
    module(x).log_probs[0, 1].backward()
    assert module.router[2].weight.grad.abs().sum() > 0
    chosen = int(module.router(x).argmax(1))
    per_expert = module.experts.weight.grad.unflatten(0, (4, 3)).abs().sum((1, 2))
    assert per_expert[chosen] > 0
    assert per_expert.sum() == per_expert[chosen]


def test_the_hard_routers_gradient_points_to_the_better_expert():
    module = head("hard")
    x, y = features(64), torch.randint(3, (64,))
    logits = module.router(x)
    logits.retain_grad()
    experts = torch.log_softmax(module.experts(x).unflatten(1, (4, 3)), 2)
    module._route(logits, experts).log_probs[torch.arange(64), y].sum().backward()
    best = experts[torch.arange(64), :, y].argmax(1)
    assert (logits.grad[torch.arange(64), best] > 0).all()
    # exactly the soft mixture's gradient: responsibility less routing weight
    soft = combine(logits.detach().log_softmax(1), experts.detach())
    joint = soft.log_routing + soft.expert_log_probs[torch.arange(64), :, y]
    torch.testing.assert_close(logits.grad, joint.softmax(1) - soft.routing)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_top_k_keeps_the_leading_experts_and_renormalises(k):
    module, x = head(f"top{k}"), features()
    output = module(x)
    soft = module.router(x).softmax(1)
    kept = soft.topk(k, 1)
    expected = torch.zeros_like(soft).scatter(1, kept.indices, kept.values / kept.values.sum(1, keepdim=True))
    torch.testing.assert_close(output.routing, expected)
    output.log_probs.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())
    assert module.router[2].weight.grad.abs().sum() > 0


def test_exactly_k_experts_survive_a_tie():
    module = head("top2")
    nn.init.zeros_(module.router[2].weight)
    nn.init.zeros_(module.router[2].bias)
    assert torch.equal((module(features()).routing > 0).sum(1), torch.full((7,), 2))


@pytest.mark.parametrize("routing", ["soft", "hard", "top2"])
def test_gradients_in_float64(routing):
    module, x = head(routing), features(3)

    def loss(weight, bias):
        parameters = {"experts.weight": weight, "experts.bias": bias}
        return torch.func.functional_call(module, parameters, (x,)).log_probs

    inputs = [module.experts.weight.detach().requires_grad_(), module.experts.bias.detach().requires_grad_()]
    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("routing", ["soft", "hard", "top2"])
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extreme_logits_give_finite_gradients(routing, scale):
    module = head(routing, dtype=torch.float32)
    output = module(scale * features().float())
    output.log_probs.sum().backward()
    assert not any(part.isnan().any() for part in output)
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_an_impossible_class_is_minus_infinity_with_gradient_zero():
    experts = torch.tensor([[[0.0, -torch.inf], [0.0, -torch.inf]]], requires_grad=True)
    routing = torch.tensor([[0.5, 0.5]]).log().requires_grad_()
    log_probs = combine(routing, experts).log_probs
    assert log_probs[0, 1] == -torch.inf
    (log_probs[0, 0] + log_probs[0, 1].clamp(min=-5)).backward()
    assert torch.isfinite(experts.grad).all()
    assert torch.isfinite(routing.grad).all()


def test_logarithms_are_float32_under_bfloat16():
    module = MixtureHead(6, 3)
    x = torch.randn(4, 6).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = module(x)
    assert {part.dtype for part in output} == {torch.float32}
    for part, plain in zip(output, module(x.float()), strict=True):
        assert torch.equal(part, plain)  # not computed in bfloat16 and widened afterwards
    assert {part.dtype for part in module.bfloat16()(torch.randn(4, 6))} == {torch.float32}


def test_cat_and_detach():
    module, x = head(), features(8)
    parts = MixtureOutput.cat([module(x[:3]), module(x[3:])])
    for a, b in zip(parts, module(x), strict=True):
        torch.testing.assert_close(a, b)
    assert not parts.detach().log_probs.requires_grad


@pytest.mark.parametrize("routing", ["soft", "hard", "top2"])
def test_pooled_views_come_apart_again(routing):
    views = [head(routing)(features()).detach() for _ in range(5)]
    pooled = MixtureOutput.pool(views)
    torch.testing.assert_close(pooled.probs, torch.stack([view.probs for view in views]).mean(0))
    for again, view in zip(pooled.views(5), views, strict=True):
        torch.testing.assert_close(again, view)
    for count in (0, 3):
        with pytest.raises(InputError, match=f"20 experts are not {count} views"):
            pooled.views(count)


@pytest.mark.parametrize("routing", ["soft", "hard", "top2"])
def test_a_saved_head_comes_back_identical(tmp_path, routing):
    module, x = head(routing, dtype=torch.float32), features().float()
    module.save_pretrained(tmp_path / "head")
    again = MixtureHead.from_pretrained(tmp_path / "head")
    assert all(torch.equal(a, b) for a, b in zip(module(x), again(x), strict=True))
    assert {p.name for p in (tmp_path / "head").iterdir()} == {"config.json", "model.safetensors"}


def test_a_saved_classifier_comes_back_into_its_backbone(tmp_path):
    def backbone():
        return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU())

    model, x = MixtureClassifier(backbone(), MixtureHead(6, 3)), torch.randn(9, 5)
    model(x)
    model.eval().save_pretrained(tmp_path)
    again = MixtureClassifier.from_pretrained(tmp_path, backbone()).eval()
    assert torch.equal(model(x).log_probs, again(x).log_probs)
    with pytest.raises(InputError, match="do not fit this architecture"):
        MixtureClassifier.from_pretrained(tmp_path, nn.Linear(5, 6))


def test_bad_folders_are_named(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: no such file"):
        MixtureHead.from_pretrained(tmp_path)
    MixtureHead(6, 3).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(InputError, match="not a readable safetensors"):
        MixtureHead.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: no such file"):
        MixtureHead.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"in_features": 6}')
    with pytest.raises(InputError, match="expected exactly the keys"):
        MixtureHead.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(
        '{"in_features": "6", "num_classes": 3, "num_experts": 4, "router_hidden": 8, "routing": "soft"}'
    )
    with pytest.raises(InputError, match="in_features must be a whole number"):
        MixtureHead.from_pretrained(tmp_path)
    for text in ("{", "[" * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match="not a readable JSON"):
            MixtureHead.from_pretrained(tmp_path)


@pytest.mark.parametrize("given", [torch.randn(7, 5), torch.randn(6), torch.randn(2, 7, 6), None])
def test_features_of_another_shape_are_named(given):
    with pytest.raises(InputError, match=r"takes features \[N, 6\]"):
        head()(given)


def test_a_classifier_needs_a_mixture_head():
    with pytest.raises(InputError, match="must be a MixtureHead"):
        MixtureClassifier(nn.Flatten(), nn.Linear(6, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_dtype_is_kept(tmp_path, dtype):
    head(dtype=dtype).save_pretrained(tmp_path)
    assert MixtureHead.from_pretrained(tmp_path).experts.weight.dtype == dtype


def test_what_are_no_views_of_the_same_rows_is_refused():
    one, other = MixtureHead(6, 3)(torch.randn(4, 6)), MixtureHead(6, 3)(torch.randn(5, 6))
    for views, message in (
        (one, "a list of outputs"),
        ([], "a list of outputs"),
        ([one, other], "same rows"),
    ):
        with pytest.raises(InputError, match=message):
            MixtureOutput.pool(views)


def test_what_is_loaded_is_there_to_predict(tmp_path):
    backbone = nn.BatchNorm1d(6)
    MixtureClassifier(backbone, MixtureHead(6, 3)).save_pretrained(tmp_path)
    assert not MixtureClassifier.from_pretrained(tmp_path, nn.BatchNorm1d(6)).backbone.training


def test_sizes_may_be_scalars_of_numpy(tmp_path):
    head = MixtureHead(np.int64(6), np.array([0, 2, 1]).max() + 1)
    assert head.config["num_classes"] == 3
    head.save_pretrained(tmp_path)
    assert MixtureHead.from_pretrained(tmp_path).config == head.config


def test_tied_weights_can_be_saved(tmp_path):
    def backbone():
        first, second = nn.Linear(6, 6), nn.Linear(6, 6)
        second.weight = first.weight
        return nn.Sequential(first, second)

    model = MixtureClassifier(backbone(), MixtureHead(6, 3))
    model.save_pretrained(tmp_path)
    x = torch.randn(4, 6)
    again = MixtureClassifier.from_pretrained(tmp_path, backbone())
    assert torch.equal(model(x).log_probs, again(x).log_probs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"routing": "sparse"}, "routing must be"),
        ({"routing": "top1"}, 'use "hard"'),
        ({"routing": "top9"}, "not possible with num_experts=4"),
        ({"num_experts": 0}, "num_experts must be a whole number of at least 1, not 0"),
        ({"num_experts": "4"}, "num_experts must be a whole number"),
        ({"num_experts": True}, "num_experts must be a whole number"),
        ({"router_hidden": 8.0}, "router_hidden must be a whole number"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        MixtureHead(6, 3, **options)
