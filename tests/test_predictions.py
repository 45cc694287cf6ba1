import csv
import decimal
import io
import os
import stat
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given

from calmoe.errors import InputError
from calmoe.mixture import MixtureHead, MixtureOutput
from calmoe.predictions import Predictions
from calmoe.reading import read_predictions
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


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_tensors_that_share_memory_are_saved(tmp_path, kind):
    """The one expert is the mixture, and a group column may be the labels."""
    probs, labels = np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32), np.array([0, 1])
    before = Predictions.from_probs(kind(probs), kind(labels), groups={"site": labels, "again": labels[::-1]})
    before.save(tmp_path / "p.safetensors")
    assert same(before, Predictions.load(tmp_path / "p.safetensors"))


@pytest.mark.parametrize("routing", ["soft", "hard"])
@pytest.mark.parametrize("experts", [1, 3])
def test_a_heads_own_output_is_saved(tmp_path, experts, routing):
    output = MixtureHead(4, num_classes=3, num_experts=experts, routing=routing)(torch.randn(6, 4))
    Predictions(output=output).save(tmp_path / "p.safetensors")
    assert same(Predictions(output=output), Predictions.load(tmp_path / "p.safetensors"))


@pytest.mark.parametrize("bad", ["", "a" * 61, "two\nlines", "\x1b[31m", "tree", 3])
def test_experts_have_names_that_can_be_shown_or_numbers(bad):
    output = random_output(0, experts=2)
    named = Predictions(output=output, metadata={"experts": ["tree", "$line"]})
    assert named.expert_names == ("tree", "$line")
    for other in (["tree", bad], ["tree"], "tree", None):
        numbered = Predictions(output=output, metadata={"experts": other})
        assert numbered.expert_names == ("expert 0", "expert 1")


def test_files_hold_float32(tmp_path):
    Predictions(output=random_output(0)).save(tmp_path / "p.safetensors")
    loaded = Predictions.load(tmp_path / "p.safetensors").output
    assert {part.dtype for part in loaded} == {torch.float32}


def test_a_file_is_as_open_as_the_umask_allows(tmp_path):
    before = os.umask(0o027)
    try:
        predictions().save(tmp_path / "p.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "p.safetensors").stat().st_mode) == 0o640


def test_where_and_what_cannot_be_saved(tmp_path):
    p = predictions()
    with pytest.raises(InputError, match=r"p\.txt: .* end the name in one of them"):
        p.save(tmp_path / "p.txt")
    with pytest.raises(InputError, match=r"there is no folder .*/nowhere: create it"):
        p.save(tmp_path / "nowhere" / "p.safetensors")
    for metadata in ({"when": {1, 2}}, {"n": np.int64(3)}):
        with pytest.raises(InputError, match="metadata must be what JSON can hold"):
            Predictions(output=p.output, metadata=metadata).save(tmp_path / "p.safetensors")
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("log", [True, False])
def test_safetensors_with_the_names_of_npz(tmp_path, log):
    p, path = predictions(), tmp_path / "p.safetensors"
    numeric = {name: column for name, column in p.groups.items() if column.dtype.kind != "U"}
    tensors = arrays(p, log) | {"label": p.labels.numpy()} | numeric
    safetensors.numpy.save_file(tensors, path, metadata={"made": "elsewhere"})
    read = Predictions.load(path)
    assert set(read.groups) == set(numeric)
    close(Predictions(output=p.output, labels=p.labels, groups=numeric), read)


def test_safetensors_of_bfloat16(tmp_path):
    probs = torch.tensor([[0.75, 0.25]], dtype=torch.bfloat16)
    safetensors.torch.save_file({"probs": probs, "level": probs[:, 0].clone()}, tmp_path / "p.safetensors")
    read = Predictions.load(tmp_path / "p.safetensors")
    assert read.output.probs.tolist() == [[0.75, 0.25]]
    assert read.groups["level"].tolist() == [0.75]


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


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_a_file_name_need_not_be_utf8(tmp_path, suffix):
    path = tmp_path / os.fsdecode(b"caf\xe9." + suffix.encode())
    with path.open("wb") as stream:
        if suffix == "npz":
            np.savez(stream, probs=np.ones((1, 1)))
        elif suffix == "parquet":
            pq.write_table(pa.table({"prob_0": [1.0]}), stream)
        else:
            stream.write(b"prob_0\n1\n")
    assert len(Predictions.load(path)) == 1


def test_a_plain_classifier_is_a_mixture_of_one(tmp_path):
    write_csv(tmp_path / "p.csv", {"prob_0": [0.9, 0.2], "prob_1": [0.1, 0.8], "label": [0, 1]})
    p = Predictions.load(tmp_path / "p.csv")
    assert (len(p), p.num_classes, p.num_experts) == (2, 2, 1)
    torch.testing.assert_close(p.output.expert_log_probs[:, 0], p.output.log_probs)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_experts_without_a_mixture_are_combined(tmp_path, suffix, log):
    p, path = predictions(), tmp_path / f"p{suffix}"
    if suffix == ".npz":
        given = {name: array for name, array in arrays(p, log).items() if name not in ("probs", "log_probs")}
        np.savez(path, labels=p.labels, **given, **p.groups)
    else:
        wide = columns(p, log)
        write_csv(path, {name: wide[name] for name in wide if not name.startswith(("prob_", "log_prob_"))})
    close(p, Predictions.load(path))


def test_probabilities_that_are_not_the_experts_mixture_are_kept():
    p = predictions()
    a = arrays(p, log=False)
    tempered = (p.output.log_probs.double() / 2).softmax(1)
    q = Predictions.from_probs(tempered, routing=a["routing"], expert_probs=a["expert_probs"])
    torch.testing.assert_close(q.output.probs, tempered)
    torch.testing.assert_close(q.output.routing, p.output.routing.double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["label", "labels"])
def test_label_and_labels_are_one_name(tmp_path, name):
    rows = {"prob_0": [0.9, 0.2], "prob_1": [0.1, 0.8], name: [0, 1]}
    write_csv(tmp_path / "p.csv", rows)
    pq.write_table(pa.table(rows), tmp_path / "p.parquet")
    np.savez(tmp_path / "p.npz", probs=np.array([[0.9, 0.1], [0.2, 0.8]]), **{name: [0, 1]})
    for suffix in ("csv", "parquet", "npz"):
        p = Predictions.load(tmp_path / f"p.{suffix}")
        assert p.labels.tolist() == [0, 1]
        assert not p.groups


def test_csv_columns_keep_their_kind_and_blank_lines_are_nothing(tmp_path):
    (tmp_path / "p.csv").write_text(
        " prob_0 ,prob_1, label,level,share,hard,easy,code,key,huge,mixed\n"
        "1,0,00,1,1,TRUE,false,007,1_0,1,1\n\n"
        "0.5,0.5,01,-2,0.5,FALSE,true,12,2,99999999999999999999,x\n\n   \n\n"
    )
    p = Predictions.load(tmp_path / "p.csv")
    assert p.labels.tolist() == [0, 1]
    kinds = dict(zip(p.groups, "ifbbUUUU", strict=True))
    assert {name: column.dtype.kind for name, column in p.groups.items()} == kinds
    assert p.groups["level"].dtype == np.int64
    assert p.groups["level"].tolist() == [1, -2]
    assert p.groups["hard"].tolist() == [True, False]
    assert p.groups["code"].tolist() == ["007", "12"]


def test_groups_and_labels_from_pandas_and_numpy(tmp_path):
    pandas = pytest.importorskip("pandas")
    words, probs = ["b", "a"], np.array([[0.9, 0.1], [0.2, 0.8]])
    groups = {
        "object": np.array(words, dtype=object),
        "series": pandas.Series(words),
        "categorical": pandas.Categorical(words),
        "hard": pandas.Series([True, False]),
        "flags": np.array([True, False], dtype=object),
        "tensor": torch.tensor([3, 4]),
    }
    p = Predictions.from_probs(pandas.DataFrame(probs), pandas.Series([0, 1]), groups=groups)
    assert [column.dtype.kind for column in p.groups.values()] == list("UUUbbi")
    assert all(p.groups[name].tolist() == words for name in ("object", "series", "categorical"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pandas gives read-only columns
        assert len(p.subset("hard")) == 1
        p.save(tmp_path / "p.safetensors")
    loaded = Predictions.load(tmp_path / "p.safetensors")
    assert {k: v.tolist() for k, v in loaded.groups.items()} == {k: v.tolist() for k, v in p.groups.items()}
    with pytest.raises(InputError, match="'mixed' must hold 2 booleans, numbers or strings"):
        Predictions.from_probs(probs, groups={"mixed": np.array(["a", 1], dtype=object)})


@pytest.mark.parametrize("gap", ["None", "NaN", "NA"])
def test_missing_groups_are_a_group(gap):
    pandas = pytest.importorskip("pandas")
    gap = {"None": None, "NaN": float("nan"), "NA": pandas.NA}[gap]
    probs, flags = torch.full((3, 2), 0.5), np.array([True, gap, False], dtype=object)
    towns = pandas.Series(["x", gap, "y"], dtype="category" if gap is None else object)
    groups = Predictions.from_probs(probs, groups={"town": towns, "flag": flags}).groups
    assert groups["town"].tolist() == ["x", "(missing)", "y"]
    assert groups["flag"].tolist() == ["True", "(missing)", "False"]


@pytest.mark.parametrize("labels", [np.array([0, 1]), torch.tensor([0, 1], dtype=torch.int32), [0, 1]])
def test_labels_of_any_integer_kind_are_kept_as_int64(labels):
    output = Predictions.from_probs(np.array([[0.9, 0.1], [0.2, 0.8]])).output
    p = Predictions(output=output, labels=labels)
    assert p.labels.dtype == torch.int64
    assert p.labels.tolist() == [0, 1]
    with pytest.raises(InputError, match="whole numbers"):
        Predictions(output=output, labels=np.array([0.5, 1.0]))


def test_half_precision_and_rounding_are_no_fault():
    half = torch.tensor([[0.999, 0.001], [0.0021, 0.9979]], dtype=torch.float16)
    torch.testing.assert_close(Predictions.from_probs(half).output.probs, half.float())
    rounded = Predictions.from_probs(np.array([[1.0 + 1e-12, -1e-12]]))
    assert rounded.output.probs.tolist() == [[1, 0]]


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
            r"expert_log_probs: probabilities sum to 5 in row 5, not 1 \(1 such rows\): give log-prob",
        ),
        (with_value("log_routing", 2, -9.0), "log_routing: probabilities sum to 0.000"),
        ({"log_routing": torch.zeros(12, 3)}, "shapes disagree"),
        ({"log_probs": torch.zeros(12)}, r"log_probs \[12\], log_routing \[12, 4\], .* expected \[N, C\]"),
        ({"log_probs": torch.zeros(12, 5).long()}, "floating-point"),
        ({"labels": torch.full((12,), 5)}, "labels must lie between 0 and 4: row 0 has 5"),
        ({"labels": torch.tensor([-1, *[0] * 11])}, "row 0 has -1"),
        ({"labels": torch.zeros(11).long()}, "labels must be 12 integers"),
        ({"groups": {"hard": [True]}}, "group column 'hard' must hold 12"),
    ],
)
def test_bad_tensors_are_named(changes, message):
    with pytest.raises(InputError, match=message) as error:
        broken(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("groups", [{"a": ["x", "\ud800"]}, {"\udfff": [1, 2]}])
def test_halves_of_surrogate_pairs_are_named(groups):
    with pytest.raises(InputError, match=r"group column '(a|\\udfff)' holds half of a surrogate pair"):
        Predictions.from_probs(np.full((2, 2), 0.5), groups=groups)


def test_no_rows():
    with pytest.raises(InputError, match="no rows"):
        Predictions.from_probs(np.zeros((0, 2)))


def test_logits_passed_as_probabilities_are_refused():
    with pytest.raises(InputError, match=r"probs must lie between 0 and 1, row 1 .*softmax") as error:
        Predictions.from_probs(np.array([[0.5, 0.5], [2.0, -1.0]]))
    assert "log_probs" not in str(error.value)  # from_probs has no such argument


def test_probabilities_that_miss_1_are_to_be_normalised(tmp_path):
    message = r"probs: probabilities sum to 0\.99 in row 1, not 1 \(2 such rows\): normalise them"
    probs = np.array([[0.5, 0.5], [0.33, 0.66], [0.5, 0.6]])
    with pytest.raises(InputError, match=message):
        Predictions.from_probs(probs)
    write_csv(tmp_path / "p.csv", {"prob_0": probs[:, 0], "prob_1": probs[:, 1]})
    with pytest.raises(InputError, match=message):
        Predictions.load(tmp_path / "p.csv")
    with pytest.raises(InputError, match="probs has NaN in 1 rows, first in row 0"):
        Predictions.from_probs(np.array([[np.nan, 0.5]]))
    with pytest.raises(InputError, match=r"log_probs: probabilities sum to 0\.99 in row 1.*log_softmax"):
        predictions_of(np.log(probs))


def predictions_of(log_probs):
    logs = torch.as_tensor(log_probs)
    return Predictions(output=MixtureOutput(logs, torch.zeros(len(logs), 1), logs[:, None]))


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
        ("ragged.csv", b"prob_0,prob_1\n0.5,0.5\n1\n", "line 3 has 1 values, but the header names 2 columns"),
        ("long.csv", b"prob_0,prob_1\n0.5,0.5,1\n", "line 2 has 3 values"),
        ("semicolons.csv", b"prob_0;prob_1\n0,5;0,5\n", "separated by ';': separate them by commas"),
        ("tabs.csv", b"prob_0\tprob_1\n0.5\t0.5\n", r"separated by '\t'"),
        ("index.csv", b",prob_0,prob_1\n0,0.5,0.5\n", "index=False"),
        ("latin.csv", b"prob_0,caf\xe9\n1,1\n", "UTF-8"),
        ("twice.csv", b"prob_0,prob_0\n0.5,0.5\n", "columns 1 and 2 are both named"),
        ("names.csv", b"p,q\n0.5,0.5\n", "expected `prob_0`"),
        ("gap.csv", b"prob_0,prob_2\n0.5,0.5\n", "number 1 is missing"),
        (
            "text.csv",
            b"prob_0,prob_1,label\n0.5,half,0\n",
            "column 'prob_1' must hold numbers only: line 2 has 'half'",
        ),
        (
            "blank.csv",
            b"prob_0,prob_1\n0.5,0.5\n0.5,\n",
            "column 'prob_1' must hold numbers only: line 3 is blank",
        ),
        (
            "cat.csv",
            b"prob_0,prob_1,label\n0.5,0.5,0\n0.5,0.5,cat\n",
            "column 'label' must hold numbers only: line 3 has 'cat'",
        ),
        (
            "nothing.csv",
            b"prob_0,prob_1,label\n0.5,0.5,\n",
            "column 'label' must hold numbers only: line 2 is blank",
        ),
        ("both.csv", b"prob_0,label,labels\n1,0,0\n", "both `label` and `labels`"),
        (
            "label.csv",
            b"prob_0,prob_1,label\n0.5,0.5,0.5\n",
            "whole numbers (class indices from 0): row 0 has 0.5",
        ),
        (
            "many.csv",
            b"prob_0,label\n1,0\n1," + b"9" * 5000,
            "whole numbers (class indices from 0): row 1 has a n",
        ),
        ("large.csv", b"prob_0,label\n1,99999999999999999999", "row 0 has a number too large"),
        ("nan.csv", b"prob_0,label\n1,nan", "row 0 has nan"),
        ("alone.csv", b"prob_0,prob_1,routing_0\n0.5,0.5,1\n", "give both or neither"),
        ("not.parquet", b"PAR1 no", "not a readable parquet"),
        ("what.txt", b"", "unknown kind of file"),
    ):
        assert message in bad_file(tmp_path / name, lambda path, content=content: path.write_bytes(content))
    assert "no such file" in bad_file(tmp_path / "none.npz", lambda path: None)
    for name in ("folder.npz", "folder"):
        assert "this is a folder" in bad_file(tmp_path / name, lambda path: path.mkdir())


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("part", [1, 2])
def test_shapes_are_compared_before_sums_under_the_files_own_names(tmp_path, part, log):
    given = arrays(predictions(), log)
    names = list(given)
    for axis in range(given[names[part]].ndim):
        cut = given | {
            names[part]: np.take(given[names[part]], range(3), axis)
        }  # a row less, or sums below 1
        message = bad_file(tmp_path / "p.npz", lambda p, cut=cut: np.savez(p, **cut))
        assert f"shapes disagree: {names[0]} [12, 5], {names[1]} {list(cut[names[1]].shape)}, " in message
        assert message.endswith("; expected [N, C], [N, K], [N, K, C]")
    cut.pop(names[0])
    message = bad_file(tmp_path / "p.npz", lambda p: np.savez(p, **cut | {names[1]: np.ones((12, 9))}))
    assert message.endswith("; expected [N, K], [N, K, C]")


def test_one_axis_and_booleans_are_told_in_numpys_words(tmp_path):
    message = bad_file(tmp_path / "p.npz", lambda p: np.savez(p, probs=np.full(6, 0.5)))
    assert "probs must be [N, C], a row per example, a column per class, not [6]" in message
    with pytest.raises(InputError, match="probs must hold numbers, not bool"):
        Predictions.from_probs(np.ones((2, 1), bool))
    with pytest.raises(InputError, match="not booleans"):
        Predictions.from_probs(np.ones((2, 1)), np.zeros(2, bool))


def test_damaged_and_misnamed_archives(tmp_path):
    message = bad_file(tmp_path / "bare.npz", lambda p: p.write_bytes(npy(np.eye(2))))
    assert "write named arrays with np.savez" in message

    def damage(path):
        np.savez_compressed(path, probs=np.random.default_rng(0).random((500, 2)))
        data = bytearray(path.read_bytes())
        data[200:2000] = bytes(1800)
        path.write_bytes(data)

    assert "not a readable npz" in bad_file(tmp_path / "damaged.npz", damage)

    def misname(path):
        pq.write_table(pa.table({"prob_0": [1.0], "caf_": [1]}), path)
        path.write_bytes(path.read_bytes().replace(b"caf_", b"caf\xe9"))

    assert "not a readable parquet" in bad_file(tmp_path / "latin.parquet", misname)
    text = pa.table({"prob_0": [0.5], "prob_1": ["half"]})
    assert "prob_1 must hold numbers" in bad_file(tmp_path / "t.parquet", lambda p: pq.write_table(text, p))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([[1, 2], [3]]), "list"),
        (pa.array([[1, 2], [3, 4]]), "list"),
        (pa.array([{"a": 1}, {"a": 2}]), "struct"),
        (pa.array([b"a", b"b"]), "binary"),
        (pa.array([0, 1], pa.time32("s")), "time32"),
    ],
    ids=["ragged lists", "lists", "dicts", "bytes", "times"],
)
def test_a_parquet_column_of_no_plain_kind_is_named(tmp_path, values, kind):
    table = pa.table({"prob_0": [1.0, 1.0], "where": values})
    message = bad_file(tmp_path / "p.parquet", lambda p: pq.write_table(table, p))
    assert f"column 'where' holds {kind}" in message
    assert "give booleans, numbers, dates or strings" in message
    assert "--groups" in message


def test_parquet_groups_may_be_dates_and_have_gaps(tmp_path):
    values = {
        "plan": pa.array(["x", None, "y"]).dictionary_encode(),
        "visits": pa.array([1, None, 3]),
        "new": pa.array([True, None, False]),
        "date": pa.array([0, None, 86400], pa.timestamp("s")),
    }
    pq.write_table(pa.table({"prob_0": [1.0, 1.0, 1.0]} | values), tmp_path / "p.parquet")
    groups = Predictions.load(tmp_path / "p.parquet").groups
    assert groups["plan"].tolist() == ["x", "", "y"]
    np.testing.assert_array_equal(groups["visits"], [1, np.nan, 3])
    assert groups["new"].tolist() == ["true", "", "false"]
    assert [text[:10] for text in groups["date"].tolist()] == ["1970-01-01", "", "1970-01-02"]


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_long_numbers_with_gaps_keep_their_digits(tmp_path, ending):
    """As floats, ids of 19 digits would become the same."""
    ids = [2**60 + 7 * i if i else None for i in range(20)]
    table = pa.table({"prob_0": [0.5] * 20, "prob_1": [0.5] * 20, "id": pa.array(ids, pa.int64())})
    if ending == "csv":
        lines = [f"0.5,0.5,{'' if each is None else each}" for each in ids]
        (tmp_path / "p.csv").write_text("\n".join(["prob_0,prob_1,id", *lines, ""]))
    else:
        pq.write_table(table, tmp_path / "p.parquet")
    given = table if ending == "frame" else tmp_path / f"p.{ending}"
    assert read_predictions(given).groups["id"].tolist() == ["", *map(str, ids[1:])]


def test_parquet_categories_and_decimals_are_read(tmp_path):
    values = {
        "words": pa.array(["b", "a"]).dictionary_encode(),
        "levels": pa.array([2, 1]).dictionary_encode(),
        "price": pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.25")]),
    }
    pq.write_table(pa.table({"prob_0": [1.0, 1.0]} | values), tmp_path / "p.parquet")
    groups = Predictions.load(tmp_path / "p.parquet").groups
    lists = {name: column.tolist() for name, column in groups.items()}
    assert lists == {"words": ["b", "a"], "levels": [2, 1], "price": [1.5, 2.25]}


def test_any_damage_is_one_line(tmp_path):
    """Bytes overwritten at random: the file is read or refused, whatever the reader below us raised."""
    p, source = predictions(), np.random.default_rng(0)
    p.save(tmp_path / "p.safetensors")
    np.savez_compressed(tmp_path / "p.npz", labels=p.labels, **arrays(p, log=False), **p.groups)
    pq.write_table(pa.table(columns(p, log=False)), tmp_path / "p.parquet")
    write_csv(tmp_path / "p.csv", columns(p, log=False))
    refusals = []
    for path in sorted(tmp_path.glob("p.*")):
        damaged = tmp_path / f"damaged{path.suffix}"
        for _ in range(100):
            data = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
            data[source.integers(len(data), size=source.integers(1, 20))] = source.integers(256)
            damaged.write_bytes(data.tobytes())
            try:
                Predictions.load(damaged)
            except InputError as error:
                refusals.append(str(error))
    assert len(refusals) > 200
    assert not [refusal for refusal in refusals if "\n" in refusal]


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_a_foreign_safetensors_file_and_pickled_arrays(tmp_path):
    message = bad_file(
        tmp_path / "m.safetensors", lambda p: safetensors.torch.save_file({"w": torch.zeros(2)}, p)
    )
    assert "not a predictions file" in message
    other = {"calmoe": '{"format": "calmoe.predictions/9"}'}
    probs = {"probs": torch.ones(1, 1)}
    path = tmp_path / "v.safetensors"
    assert "of the format" in bad_file(path, lambda p: safetensors.torch.save_file(probs, p, metadata=other))
    head = '{"format": "calmoe.predictions/1", "metadata": {}, "categories": '
    for note in ("[" * 100_000, f"{head}{{}}, 'x': {'1' * 5000}}}", f'{head}{{"a": 3}}}}', f"{head}[]}}"):
        zeros, path = {"group.a": torch.zeros(1, dtype=torch.int64)}, tmp_path / "h.safetensors"
        safetensors.torch.save_file(zeros, path, metadata={"calmoe": note.replace("'", '"')})
        assert "damaged header" in (message := bad_file(path, lambda p: None))
        assert "Error" not in message
    objects = np.array([{"a": 1}], dtype=object)
    message = bad_file(tmp_path / "o.npz", lambda p: np.savez(p, probs=objects))
    assert "holds Python objects: save it" in message
    assert "pickle" not in message
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
    with pytest.raises(InputError, match=r"no group column 'x' .*they have: agreement, domain, hard, level"):
        p.group("x")
    with pytest.raises(InputError, match="not boolean"):
        p.subset("domain")
