"""Predictions from anywhere: columns of any name, by what is certain and by what the user says."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

import calmoe
from calmoe import Predictions, read_predictions
from calmoe.errors import InputError
from calmoe.formats import asked
from calmoe.reading import read_with
from says import says
from test_commands import calmoe as command
from test_commands import refused as refused_command

ROWS = 40
SOURCE = np.random.default_rng(0)
P = SOURCE.dirichlet([1, 1], ROWS)
Y = np.r_[0, 1, (SOURCE.random(ROWS - 2) < P[2:, 1]).astype(int)]
NAMES = np.array(["no", "yes"])
REGION = SOURCE.choice(["north", "south"], ROWS)
WIDE = SOURCE.dirichlet(np.ones(6), ROWS)
EXPERTS = SOURCE.dirichlet([1, 1], (ROWS, 3))
WEIGHTS = np.array([0.2, 0.3, 0.5])


def write(path, columns):
    """The same columns as csv, parquet or npz."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return path


def refused(source, **options):
    with pytest.raises(InputError) as error:
        read_predictions(source, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def same(predictions, probs=P, labels=Y):
    torch.testing.assert_close(predictions.output.probs.double(), torch.as_tensor(probs), rtol=0, atol=1e-6)
    assert predictions.labels.tolist() == labels.tolist()
    return predictions


# --- the seven files of a new user

ROUNDED = WIDE.round(3)
NATURAL = {
    "class-named columns": ({"no": P[:, 0], "yes": P[:, 1], "label": NAMES[Y]}, {}),
    "string labels": ({"prob_no": P[:, 0], "prob_yes": P[:, 1], "label": NAMES[Y]}, {}),
    "string labels, numbered columns": (
        {"prob_0": P[:, 0], "prob_1": P[:, 1], "label": NAMES[Y]},
        {"classes": ["no", "yes"]},
    ),
    "a lone score": ({"y_true": Y, "y_score": P[:, 1]}, {}),
    "only prob_1": ({"prob_1": P[:, 1], "label": Y}, {}),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
@pytest.mark.parametrize(("columns", "options"), NATURAL.values(), ids=NATURAL.keys())
def test_natural_files(tmp_path, columns, options, suffix):
    path = write(tmp_path / f"p.{suffix}", columns | {"region": REGION})
    predictions = same(read_predictions(path, **options))
    assert list(predictions.groups) == ["region"]
    assert "\n" not in predictions.metadata["read_as"]
    named = Predictions.load(path).class_names if not options else predictions.class_names
    assert named == (("no", "yes") if columns.get("label", Y).dtype.kind == "U" else None)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_three_decimals_are_made_to_sum_to_one(tmp_path, suffix):
    assert np.abs(ROUNDED.sum(1) - 1).max() > 1e-3
    labels = np.arange(ROWS) % 6
    columns = {f"prob_{c}": ROUNDED[:, c] for c in range(6)} if suffix != "npz" else {"probs": ROUNDED}
    predictions = Predictions.load(write(tmp_path / f"p.{suffix}", columns | {"label": labels}))
    filled = np.where(ROUNDED == 0, 1e-4, ROUNDED)
    same(predictions, filled / filled.sum(1, keepdims=True), labels)
    assert says(predictions.metadata["read_as"], "rounded to 3 decimals")


def test_a_zero_of_rounded_probabilities_is_what_rounding_hides():
    """Three zeros at the label made a good model worse than the base rates."""
    rounded = np.array([[0.33, 0.33, 0.33, 0.0], [0.5, 0.5, 0.0, 0.0]] * 10)
    predictions = read_predictions(
        {f"prob_{c}": rounded[:, c] for c in range(4)} | {"label": np.arange(20) % 4}
    )
    assert predictions.output.probs.min() == pytest.approx(0.001, rel=0.02)
    assert says(predictions.metadata["read_as"], "zeros taken for what rounding hides")


def test_one_routing_for_all_rows(tmp_path):
    mixture = np.einsum("k,nkc->nc", WEIGHTS, EXPERTS)
    path = write(tmp_path / "p.npz", {"routing": WEIGHTS, "expert_probs": EXPERTS, "labels": Y})
    predictions = same(Predictions.load(path), mixture)
    assert says(predictions.metadata["read_as"], "one routing for all rows")
    flat = {f"expert_{k}_prob_{c}": EXPERTS[:, k, c] for k in range(3) for c in range(2)}
    path = write(tmp_path / "p.csv", flat | {"label": Y})
    same(read_predictions(path, routing=WEIGHTS), mixture)


@pytest.mark.usefixtures("hasty")
def test_of_takes_names(tmp_path):
    path = write(tmp_path / "p.csv", NATURAL["class-named columns"][0])
    result = command("audit", path, "--of", "yes")
    assert result.exit_code == 0, result.output
    assert says(result.stdout, "note: ", "classes 0 = no, 1 = yes", "Verdict: ")
    assert "unknown class 'maybe': known: no, yes" in refused_command("audit", path, "--of", "maybe")
    assert calmoe.audit(read_predictions(path), of="yes").of == 1


# --- what the user says


@pytest.mark.usefixtures("hasty")
def test_the_command_of_the_docs(tmp_path):
    columns = {"y": NAMES[Y], "p_yes": P[:, 1], "p_no": P[:, 0], "region": REGION, "id": range(ROWS)}
    path = write(tmp_path / "preds.csv", columns)
    options = ["--label", "y", "--probs", "p_yes,p_no", "--groups", "region", "--of", "no"]
    result = command("audit", path, *options)
    assert result.exit_code == 0, result.output
    assert says(result.stdout, "labels 'y'; probabilities p_yes, p_no; classes 0 = yes, 1 = no", "Verdict: ")
    predictions = read_predictions(path, label="y", probs=["p_yes", "p_no"], groups="region")
    same(predictions, P[:, ::-1].copy(), 1 - Y)
    assert list(predictions.groups) == ["region"]


def test_a_mixture_of_named_columns(tmp_path):
    experts = {f"{e}_{c}": EXPERTS[:, k, i] for k, e in enumerate("abc") for i, c in enumerate(NAMES)}
    routing = {f"w_{e}": np.full(ROWS, WEIGHTS[k]) for k, e in enumerate("abc")}
    columns = {"p_no": P[:, 0], "p_yes": P[:, 1], "y": NAMES[Y], **experts, **routing}
    path = write(tmp_path / "p.parquet", columns)
    swapped = ["a_yes", "a_no", "b_no", "b_yes", "c_no", "c_yes"]  # each by its name
    for named in (["a", "b", "c"], list(experts), swapped):
        predictions = same(read_predictions(path, label="y", experts=named, routing=list(routing)))
        torch.testing.assert_close(predictions.output.expert_probs, torch.as_tensor(EXPERTS))
        torch.testing.assert_close(predictions.output.routing[0], torch.as_tensor(WEIGHTS))
        assert not predictions.groups
    assert "there is no column 'd_no'" in refused(path, label="y", experts=["a", "d"], routing=[0.5, 0.5])
    line = refused(path, label="y", experts=["a", "b"], routing=list(routing))
    assert "the routing is of 3 experts, the probabilities of 2" in line
    line = refused_command("audit", path, "--label", "y", "--experts", "a,b,c", "--routing", "1,2")
    assert "the routing is of 2 experts" in line


def test_experts_of_a_lone_score(tmp_path):
    columns = {"score": P[:, 1], "y": NAMES[Y], "tree": EXPERTS[:, 0, 1], "line": EXPERTS[:, 1, 1]}
    path = write(tmp_path / "p.csv", columns)
    options = {"label": "y", "probs": "score", "positive": "yes", "experts": ["tree", "line"]}
    predictions = same(read_predictions(path, **options, routing=[0.5, 0.5]))
    torch.testing.assert_close(predictions.output.expert_probs, torch.as_tensor(EXPERTS[:, :2]))
    numbered = {"prob_1": P[:, 1], "label": Y, "routing_0": np.ones(ROWS), "expert_0_prob_1": P[:, 1]}
    assert same(read_predictions(numbered | {"site": REGION})).num_experts == 1


def test_experts_named_by_class_and_by_number_alone(tmp_path):
    named = {f"expert_{k}_prob_{c}": EXPERTS[:, k, i] for k in range(3) for i, c in enumerate(NAMES)}
    routing = {f"routing_{k}": np.full(ROWS, WEIGHTS[k]) for k in range(3)}
    columns = {"prob_yes": P[:, 1], "prob_no": P[:, 0], "label": NAMES[Y], **routing}
    predictions = read_predictions(write(tmp_path / "p.csv", columns | named))
    assert predictions.class_names == ("yes", "no")
    expected = torch.as_tensor(EXPERTS[:, :, ::-1].copy())
    torch.testing.assert_close(predictions.output.expert_probs, expected)
    counted = {f"expert_{k}_prob_{c}": EXPERTS[:, k, c] for k in range(3) for c in range(2)}
    path = write(tmp_path / "q.csv", columns | counted)
    assert "nothing says which class each column of the experts is" in refused(path)
    same(read_predictions(path, classes=["no", "yes"]))


def test_logits_only_where_the_user_says_so(tmp_path):
    logits, odds = np.log(P) + 3, np.log(P[:, 1] / P[:, 0])
    columns = {"logit_no": logits[:, 0], "logit_yes": logits[:, 1], "label": NAMES[Y]}
    path = write(tmp_path / "p.csv", columns)
    assert "say so with --logits" in refused(path)
    same(read_predictions(path, logits=True))
    lone = write(tmp_path / "l.csv", {"y_score": odds, "y_true": Y})
    assert "log-odds with --logits" in refused(lone)
    same(read_predictions(lone, logits=True))
    arrays = {"logits": logits, "labels": Y, "expert_probs": np.log(EXPERTS), "routing": np.log(WEIGHTS) - 1}
    predictions = same(read_predictions(arrays, logits=True, routing_logits=True))
    torch.testing.assert_close(predictions.output.routing[3], torch.as_tensor(WEIGHTS))
    line = refused({"log_probs": np.log(P), "labels": Y}, logits=True)
    assert "logarithms by name: leave out --logits" in line


def test_arrays_by_name(tmp_path):
    arrays = {"f": P, "e": EXPERTS, "w": WEIGHTS, "truth": NAMES[Y], "site": REGION}
    options = {"label": "truth", "probs": "f", "experts": "e", "routing": "w", "classes": ["no", "yes"]}
    path = write(tmp_path / "p.npz", arrays)
    same(read_predictions(path, **options))
    numeric = {name: values for name, values in arrays.items() if values.dtype.kind != "U"}
    safetensors.numpy.save_file(numeric | {"y": Y}, tmp_path / "p.safetensors")
    same(read_predictions(tmp_path / "p.safetensors", **options | {"label": "y", "classes": None}))


def test_a_file_of_our_own_takes_groups_and_names_only(tmp_path):
    path = tmp_path / "p.safetensors"
    Predictions.from_probs(P, Y, groups={"region": REGION, "id": np.arange(ROWS)}).save(path)
    predictions = read_predictions(path, groups=["region"], classes=["no", "yes"])
    assert (list(predictions.groups), predictions.class_names) == (["region"], ("no", "yes"))
    assert "leave out label" in refused(path, label="y")
    assert "there is no group 'x'" in refused(path, groups=["x"])


# --- tables in memory


def test_frames_and_arrow():
    pandas = pytest.importorskip("pandas")
    columns = {"p_no": P[:, 0], "p_yes": P[:, 1], "y": NAMES[Y], "region": REGION}
    frame = pandas.DataFrame(columns)
    for source in (frame, frame[::1].set_index(np.arange(ROWS)[::-1]), pa.table(columns), columns):
        assert list(same(read_predictions(source, label="y")).groups) == ["region"]
    assert same(read_predictions(pa.table(columns).to_batches()[0], label="y")).class_names == ("no", "yes")
    views = pa.table(columns | {"y": pa.array(NAMES[Y], pa.string_view())})  # as polars gives text
    same(read_predictions(views, label="y"))
    numbered = pandas.DataFrame(P).assign(label=Y)  # the columns of predict_proba
    same(read_predictions(numbered))
    frame["when"] = pandas.Timestamp("2026-01-01")
    assert {text[:10] for text in read_predictions(frame, label="y").groups["when"]} == {"2026-01-01"}
    frame["when"] = [{"a": 1}] * ROWS
    assert "column 'when' holds struct" in refused(frame, label="y")
    same(read_predictions(frame, label="y", groups=["region"]))
    assert "got int" in refused(3)
    assert "'mixed' must hold" in refused({"mixed": np.array([1, "a"], dtype=object)})


@pytest.mark.parametrize(
    ("labels", "names"),
    [(Y == 1, ("False", "True")), (Y * 2 - 1, ("-1", "1")), (Y.astype(float), None), (Y * 0, None)],
    ids=["booleans", "signs", "floats", "one class only"],
)
def test_labels_of_a_lone_score(labels, names):
    predictions = read_predictions({"y_score": P[:, 1], "y_true": labels})
    assert predictions.labels.tolist() == (np.asarray(labels) == max(labels.max(), 1)).astype(int).tolist()
    assert predictions.class_names == names


def test_classes_that_count_from_one_and_booleans_beside_two_columns():
    predictions = same(read_predictions(pa.table({"prob_1": P[:, 0], "prob_2": P[:, 1], "label": Y + 1})))
    assert predictions.class_names == ("1", "2")
    same(read_predictions(pa.table({"prob_0": P[:, 0], "prob_1": P[:, 1], "label": Y == 1})))
    same(read_predictions(pa.table({"p_1": P[:, 1], "p_0": P[:, 0], "label": Y})))


@pytest.mark.usefixtures("hasty")
def test_a_target_takes_the_sources_order(tmp_path):
    """The target has no labels and its columns the other way round."""
    world = np.random.default_rng(1).dirichlet([2, 2], 600)
    labels = (np.random.default_rng(2).random(600) < world[:, 1]).astype(int)
    source = write(tmp_path / "s.csv", {"y": NAMES[labels], "no": world[:, 0], "yes": world[:, 1]})
    other = np.random.default_rng(3).dirichlet([2, 4], 600)
    target = write(tmp_path / "t.csv", {"yes": other[:, 1], "no": other[:, 0]})
    result = command("audit", source, "--label", "y", "--target", target, "--of", "yes")
    assert result.exit_code == 0, result.output
    assert says(result.stdout, "s.csv: labels 'y'", "t.csv: probabilities yes, no; classes 0 = no, 1 = yes")


@pytest.mark.parametrize(
    ("names", "options"),
    [(NAMES, {"positive": "yes"}), (np.array([False, True]), {})],
    ids=["words", "booleans"],
)
def test_a_lone_score_elsewhere_is_of_the_same_classes(names, options):
    source = read_predictions({"y_score": P[:, 1], "y_true": names[Y]}, **options)
    for labels in ({}, {"y_true": names[Y * 0 + 1]}):
        columns = asked(**options, like=source.class_names, label_optional=True)
        assert read_with({"y_score": P[:, 1], **labels}, columns).class_names == source.class_names
