"""The router: exact mathematics of its kinds, and the rule that chooses among them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from calmoe.calibration import Temperature
from calmoe.models.choice import Trial, choose, fit_chosen, standard_error, try_candidates
from calmoe.models.folds import make_folds, shift_groups, stratified_folds, value_folds
from calmoe.models.router import KINDS, PRIOR, Lessons, Router, fit_constants, objective_value
from calmoe.objectives import ERM, CVaR, EntropicRisk, RobustFiltered, RobustMoE
from sizes import at_size
from strategies import generator, random_output, seeds

THOUSANDTHS = """
    171 368 274 223 231 308 347 609 351 269 252 670 677 402 185 471 309 583 499 362 259 530 204 365
    457 255 393 419 366 444 368 231 482 254 429 462 337 518 304 444 255 647 405 486 569 430 257 448
    310 421;
    34 368 46 270 29 26 13 730 305 298 403 763 609 965 82 821 223 909 536 11 220 931 56 327 16 200
    125 974 487 963 25 104 265 175 685 463 161 45 9 431 364 814 99 918 439 520 114 20 937 354;
    284 437 249 308 234 273 314 594 368 358 389 450 475 632 330 496 299 521 485 228 266 523 329 370
    302 342 378 553 463 569 362 275 504 335 443 452 233 340 208 453 364 583 331 544 586 564 316 254
    500 367
"""
HITS = "00010001001110110010100001000001111000011111110000"
ALL = [("expert", 0), ("expert", 1), ("mean", 0), ("weights", 0)]


def lessons(seed, rows=120, experts=2, classes=3, features=2, weights=None):
    """Experts of different worth: the first knows the labels better."""
    source = generator(seed)
    labels = torch.randint(classes, (rows,), generator=source)
    noise = torch.randn(rows, experts, classes, generator=source, dtype=torch.float64)
    worth = torch.linspace(2, 1, experts, dtype=torch.float64)[None, :, None]
    logits = noise + worth * torch.nn.functional.one_hot(labels, classes)[:, None, :]
    ones = torch.ones(rows, dtype=torch.float64) if weights is None else weights
    inputs = torch.randn(rows, features, generator=source, dtype=torch.float64)
    return Lessons(inputs, logits.log_softmax(2), labels, ones)


@given(seeds)
def test_every_kind_gives_probabilities(seed):
    given_lessons = lessons(seed, rows=8)
    for kind in KINDS:
        output = Router(kind, 2, 2)(given_lessons.features, given_lessons.expert_log_probs)
        for logs in output:
            torch.testing.assert_close(logs.exp().sum(-1), torch.ones(logs.shape[:-1], dtype=torch.float64))


def test_one_expert_alone_gets_the_temperature_of_the_exact_solver():
    given_lessons = lessons(0)
    router = fit_constants([], given_lessons, ERM())["expert", 1]
    exact = Temperature().fit(given_lessons.expert_log_probs[:, 1], given_lessons.labels)
    assert router.log_temperatures[1].exp().item() == pytest.approx(exact.temperature_, rel=1e-3)


def test_equal_experts_mix_to_the_expert():
    one = lessons(0)
    same = one._replace(expert_log_probs=one.expert_log_probs[:, :1].expand(-1, 3, -1))
    routers = fit_constants([*ALL, ("expert", 2)], same, ERM())
    outputs = {key: router(same.features, same.expert_log_probs).log_probs for key, router in routers.items()}
    for log_probs in outputs.values():
        torch.testing.assert_close(log_probs, outputs["expert", 0], atol=2e-3, rtol=0)


def test_a_line_search_that_leaps_comes_back():
    """On these 50 rows it tried a temperature of exp(1e38), and the weights were NaN."""
    said = torch.tensor([list(map(int, expert.split())) for expert in THOUSANDTHS.split(";")]).T / 1000
    logs = torch.stack([1 - said, said], dim=2).double().log()
    labels, ones = torch.tensor(list(map(int, HITS))), torch.ones(50, dtype=torch.float64)
    given_lessons = Lessons(torch.zeros(50, 1, dtype=torch.float64), logs, labels, ones)
    routers = fit_constants([("mean", 0), ("weights", 0)], given_lessons, ERM())
    losses = {
        kind: objective_value(ERM(), router(given_lessons.features, logs), given_lessons).item()
        for (kind, _), router in routers.items()
    }
    assert losses["weights"] <= losses["mean"] + 1e-3 < 0.75


@settings(max_examples=at_size(8, 200))
@given(seeds)
def test_richer_constant_routers_fit_no_worse(seed):
    """But for the prior: weights pay for leaving where they begin; the temperature of the mean does not."""
    given_lessons = lessons(seed, rows=30)
    routers = fit_constants(ALL, given_lessons, ERM())

    def loss(key):
        router = routers[key]
        output = router(given_lessons.features, given_lessons.expert_log_probs)
        return objective_value(ERM(), output, given_lessons).item()

    paid = PRIOR * routers["mean", 0].log_temperature.item() ** 2  # if the weights went where the mean went
    assert loss(("weights", 0)) <= loss(("mean", 0)) + paid + 1e-9


@pytest.mark.parametrize(
    "objective", [ERM(), EntropicRisk(eta=1.0), RobustMoE(eta=1.0), RobustFiltered(eta=1.0), CVaR(gamma=2.0)]
)
def test_weights_are_repetitions_for_every_objective(objective):
    output = random_output(0, n=12)
    labels = torch.arange(12) % 5
    counts = torch.tensor([1, 2, 3] * 4)
    repeated = torch.arange(12).repeat_interleave(counts)
    # twice as many rows as the largest weight needs: drawn in proportion, each comes out exactly
    doubled = [part.repeat_interleave(2, dim=0) for part in output]
    weights = counts.double().repeat_interleave(2)
    rows = Lessons(doubled[0], doubled[2], labels.repeat_interleave(2), weights / weights.mean())
    weighted = objective_value(objective, type(output)(*doubled), rows)
    plain = objective(type(output)(*(part[repeated] for part in output)), labels[repeated])
    torch.testing.assert_close(weighted, plain)


def test_a_gate_learns_who_is_right_where():
    """Two experts, each right on one side of the first feature: only a gate can tell."""
    source = generator(0)
    features = torch.randn(900, 2, generator=source, dtype=torch.float64)
    labels = torch.randint(2, (900,), generator=source)
    side = (features[:, 0] > 0).long()
    right = torch.nn.functional.one_hot(labels, 2).double() * 3
    wrong = torch.nn.functional.one_hot(torch.randint(2, (900,), generator=source), 2).double() * 3
    logits = torch.stack([torch.where(side[:, None] == k, right, wrong) for k in (0, 1)], dim=1)
    rows = Lessons(features, logits.log_softmax(2), labels, torch.ones(900, dtype=torch.float64))
    folds = stratified_folds(labels.numpy(), 3, np.random.default_rng(0))
    trials = try_candidates(rows, folds, ERM(), True, 0)
    chosen = choose(trials, np.ones(900))
    assert chosen.kind == "gate"
    routing = fit_chosen(chosen, rows, ERM(), 0)(rows.features, rows.expert_log_probs).routing
    assert routing[torch.arange(900), side].mean().item() > 0.75
    log_loss = {trial.kind: trial.log_loss for trial in trials}
    assert log_loss["gate"] < log_loss["weights"] - 0.05


def trial(kind, losses, expert=0):
    values = np.asarray(losses, dtype=float)
    return Trial(kind, expert, values, values.mean())


def test_the_simplest_within_one_standard_error_is_taken():
    noise = np.random.default_rng(0).normal(size=400)
    base = 1 + noise
    near, far = base + 0.01 * np.sign(np.arange(400) % 2 - 0.4), base + 0.5
    assert (
        choose([trial("expert", far), trial("mean", near), trial("weights", base)], np.ones(400)).kind
        == "mean"
    )
    assert choose([trial("expert", far), trial("mean", far), trial("weights", base)], np.ones(400)).kind == (
        "weights"
    )
    best = choose([trial("expert", far), trial("expert", base, expert=1), trial("mean", far)], np.ones(400))
    assert (best.kind, best.expert) == ("expert", 1)


def test_the_standard_error_of_clusters_counts_clusters():
    values = np.repeat([0.0, 2.0], 50)
    clusters = np.repeat([0, 1], 50)
    assert standard_error(values, np.ones(100), clusters) == pytest.approx(1.0)
    assert standard_error(values, np.ones(100)) == pytest.approx(values.std(ddof=1) / 10)


def test_folds_spread_every_class():
    labels = np.array([0] * 50 + [1] * 7 + [2] * 2)
    folds = stratified_folds(labels, 5, np.random.default_rng(0))
    assert np.bincount(folds).max() - np.bincount(folds).min() <= 1
    counts = np.array([np.bincount(folds[labels == c], minlength=5) for c in range(3)])
    assert (np.ptp(counts, axis=1) <= 1).all()


def test_grouped_folds_keep_groups_together():
    rng = np.random.default_rng(0)
    groups, labels = rng.integers(0, 12, 100), rng.integers(0, 2, 100)
    folds = make_folds(4, labels, groups, np.arange(100), None, labels, 0)
    assert all(len(set(folds[groups == g])) == 1 for g in range(12))
    assert folds.max() == 3


def test_values_with_most_rows_are_never_left_out():
    values = np.array([0] * 60 + [1] * 20 + [2] * 15 + [3] * 5)
    folds = value_folds(values, 2)
    assert (folds[values == 0] == -1).all()
    assert sorted(set(folds[values > 0])) == [0, 1]


def test_many_numbers_are_left_out_in_ranges():
    numbers = np.random.default_rng(0).normal(size=500)
    groups = shift_groups("x", numbers)
    assert groups.max() == 9
    assert numbers[groups == 0].max() < numbers[groups == 9].min()
