import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given

from calmoe.errors import InputError
from calmoe.mixture import MixtureOutput
from calmoe.predictions import Predictions
from strategies import generator, random_output, seeds


def predictions(seed=0, n=12, labels=True, experts=4):
    source = np.random.default_rng(seed)
    return Predictions(
        output=random_output(seed, n=n, experts=experts, dtype=torch.float32),
        labels=torch.randint(5, (n,), generator=generator(seed)) if labels else None,
        groups={
            "hard": source.random(n) < 0.5,
            "agreement": source.random(n),
            "level": source.integers(0, 4, n),
            "domain": source.choice(["photo", "sketch", "été"], n),
        },
        metadata={"method": "vanilla", "seed": seed, "classes": ["a", "b"]},
    )


def same(a, b):
    return (
        all(torch.equal(x, y) for x, y in zip(a.output, b.output, strict=True))
        and (a.labels is b.labels or torch.equal(a.labels, b.labels))
        and a.groups.keys() == b.groups.keys()
        and all(np.array_equal(a.groups[k], b.groups[k]) for k in a.groups)
        and a.metadata == b.metadata
    )


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("experts", [1, 4])
def test_a_saved_file_comes_back_identical(tmp_path, labels, experts):
    before = predictions(labels=labels, experts=experts)
    before.save(tmp_path / "p.safetensors")
    assert same(before, Predictions.load(tmp_path / "p.safetensors"))
    assert [p.name for p in tmp_path.iterdir()] == ["p.safetensors"]


def test_the_same_predictions_make_the_same_bytes(tmp_path):
    for name in "ab":
        predictions().save(tmp_path / f"{name}.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def arrays(p, log):
    prefix = "log_" if log else ""
    form = (lambda x: x.double().numpy()) if log else (lambda x: x.double().exp().numpy())
    return {
        f"{prefix}probs": form(p.output.log_probs),
        f"{prefix}routing": form(p.output.log_routing),
        f"expert_{prefix}probs": form(p.output.expert_log_probs),
    }


def close(a, b):
    for x, y in zip(a.output, b.output, strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=0, atol=1e-6)
    assert torch.equal(a.labels, b.labels)
    for name in a.groups:
        if a.groups[name].dtype.kind == "f":
            np.testing.assert_allclose(a.groups[name], b.groups[name])
        else:
            assert a.groups[name].tolist() == b.groups[name].tolist()


@pytest.mark.parametrize("log", [True, False])
def test_npz(tmp_path, log):
    p = predictions()
    np.savez(tmp_path / "p.npz", labels=p.labels.numpy(), **arrays(p, log), **p.groups)
    close(p, Predictions.load(tmp_path / "p.npz"))


def columns(p, log):
    prefix = "log_" if log else ""
    a = arrays(p, log)
    _, k, c = p.output.expert_log_probs.shape
    wide = {f"{prefix}prob_{j}": a[f"{prefix}probs"][:, j] for j in range(c)}
    wide |= {f"{prefix}routing_{i}": a[f"{prefix}routing"][:, i] for i in range(k)}
    wide |= {
        f"expert_{i}_{prefix}prob_{j}": a[f"expert_{prefix}probs"][:, i, j]
        for i in range(k)
        for j in range(c)
    }
    return wide | {"label": p.labels.numpy()} | p.groups


def write_csv(path, wide):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(wide)
        writer.writerows(zip(*wide.values(), strict=True))


@pytest.mark.parametrize("log", [True, False])
def test_csv(tmp_path, log):
    p = predictions()
    write_csv(tmp_path / "p.csv", columns(p, log))
    close(p, Predictions.load(tmp_path / "p.csv"))


@pytest.mark.parametrize("log", [True, False])
def test_parquet(tmp_path, log):
    p = predictions()
    pq.write_table(pa.table(columns(p, log)), tmp_path / "p.parquet")
    close(p, Predictions.load(tmp_path / "p.parquet"))


def test_a_plain_classifier_is_a_mixture_of_one(tmp_path):
    write_csv(tmp_path / "p.csv", {"prob_0": [0.9, 0.2], "prob_1": [0.1, 0.8], "label": [0, 1]})
    p = Predictions.load(tmp_path / "p.csv")
    assert (len(p), p.num_classes, p.num_experts) == (2, 2, 1)
    torch.testing.assert_close(p.output.expert_log_probs[:, 0], p.output.log_probs)


def test_experts_without_a_mixture_are_combined():
    p = predictions()
    a = arrays(p, log=False)
    q = Predictions.from_probs(a["probs"], p.labels, routing=a["routing"], expert_probs=a["expert_probs"])
    torch.testing.assert_close(q.output.log_probs, p.output.log_probs.double(), rtol=0, atol=1e-6)


@given(seeds)
def test_subsets_and_rows(seed):
    p = predictions(seed)
    if p.groups["hard"].any():
        hard = p.subset("hard")
        assert len(hard) == p.groups["hard"].sum()
        assert hard.groups["domain"].tolist() == p.groups["domain"][p.groups["hard"]].tolist()
    some = p.take(torch.tensor([3, 1]))
    assert torch.equal(some.labels, p.labels[[3, 1]])
    assert some.metadata == p.metadata


def test_probabilities_of_exactly_zero_and_one():
    p = Predictions.from_probs(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 0]))
    assert p.output.probs.tolist() == [[1, 0], [0, 1]]


# --- bad input: one line that says what is wrong and where


def broken(**changes):
    p = predictions()
    output = p.output._replace(**{k: v for k, v in changes.items() if k in MixtureOutput._fields})
    rest = {k: v for k, v in changes.items() if k not in MixtureOutput._fields}
    return Predictions(**({"output": output, "labels": p.labels} | rest))


def with_value(name, row, value):
    tensor = getattr(predictions().output, name).clone()
    tensor[row] = value
    return {name: tensor}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (with_value("log_probs", 3, float("nan")), "log_probs has NaN in 1 rows, first in row 3"),
        (
            with_value("expert_log_probs", 5, 0.0),
            "does not sum to 1 in 1 rows, first in row 5",
        ),
        (with_value("log_routing", 2, -9.0), "log_routing does not sum to 1"),
        ({"log_routing": torch.zeros(12, 3)}, "shapes disagree"),
        ({"log_probs": torch.zeros(12)}, "two axes"),
        ({"log_probs": torch.zeros(12, 5).long()}, "floating-point"),
        ({"labels": torch.full((12,), 5)}, "labels must lie between 0 and 4: row 0 has 5"),
        ({"labels": torch.tensor([-1, *[0] * 11])}, "row 0 has -1"),
        ({"labels": torch.zeros(11).long()}, "labels must be 12 integers"),
        ({"groups": {"hard": [True]}}, 'group column "hard" must hold 12'),
    ],
)
def test_bad_tensors_are_named(changes, message):
    with pytest.raises(InputError, match=message) as error:
        broken(**changes)
    assert "\n" not in str(error.value)


def test_no_rows():
    with pytest.raises(InputError, match="no rows"):
        Predictions.from_probs(np.zeros((0, 2)))


def test_logits_passed_as_probabilities_are_refused():
    with pytest.raises(InputError, match="between 0 and 1, row 1 does not; for logarithms use `log_probs`"):
        Predictions.from_probs(np.array([[0.5, 0.5], [2.0, -1.0]]))


def bad_file(path, make):
    make(path)
    with pytest.raises(InputError) as error:
        Predictions.load(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


def test_bad_files_are_named(tmp_path):
    good = tmp_path / "good.safetensors"
    predictions().save(good)
    data = good.read_bytes()
    for name, content, message in (
        ("cut.safetensors", data[: len(data) // 2], "not a readable safetensors"),
        ("empty.safetensors", b"", "not a readable safetensors"),
        ("noise.npz", b"PK\x03\x04 noise", "not a readable npz"),
        ("empty.csv", b"", "no rows"),
        ("header.csv", b"prob_0,prob_1\n", "no rows"),
        ("ragged.csv", b"prob_0,prob_1\n0.5,0.5\n1\n", "different lengths"),
        ("latin.csv", b"prob_0,caf\xe9\n1,1\n", "UTF-8"),
        ("twice.csv", b"prob_0,prob_0\n0.5,0.5\n", "different columns"),
        ("names.csv", b"p,q\n0.5,0.5\n", "expected `prob_0`"),
        ("gap.csv", b"prob_0,prob_2\n0.5,0.5\n", "number 1 is missing"),
        ("text.csv", b"prob_0,prob_1,label\n0.5,half,0\n", "probs must hold numbers"),
        ("label.csv", b"prob_0,prob_1,label\n0.5,0.5,0.5\n", "whole numbers"),
        ("alone.csv", b"prob_0,prob_1,routing_0\n0.5,0.5,1\n", "give both or neither"),
        ("not.parquet", b"PAR1 no", "not a readable parquet"),
        ("what.txt", b"", "unknown kind of file"),
    ):
        assert message in bad_file(tmp_path / name, lambda path, content=content: path.write_bytes(content))
    assert "no such file" in bad_file(tmp_path / "none.npz", lambda path: None)


def test_a_foreign_safetensors_file_and_pickled_arrays(tmp_path):
    import safetensors.torch

    message = bad_file(
        tmp_path / "m.safetensors", lambda p: safetensors.torch.save_file({"w": torch.zeros(2)}, p)
    )
    assert "not a predictions file" in message
    objects = np.array([{"a": 1}], dtype=object)
    message = bad_file(tmp_path / "o.npz", lambda p: np.savez(p, probs=objects))
    assert "plain arrays" in message
    missing = pa.table({"prob_0": [1.0, None], "label": [0, 0]})
    assert "missing values" in bad_file(tmp_path / "m.parquet", lambda p: pq.write_table(missing, p))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p.safetensors"
    predictions(0).save(path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        predictions(1).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["p.safetensors"]


def test_asking_for_what_is_not_there():
    p = predictions(labels=False)
    with pytest.raises(InputError, match="carry no labels"):
        _ = p.known_labels
    with pytest.raises(InputError, match=r'no group column "x" .*they have: agreement, domain, hard, level'):
        p.group("x")
    with pytest.raises(InputError, match="not boolean"):
        p.subset("domain")
