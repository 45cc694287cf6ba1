"""Files that load are right or refused in one line; nothing in them runs, hangs or takes the process down."""

import copy
import hashlib
import io
import json
import pickle
import random
import shutil
import struct
import sys
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from typer.testing import CliRunner

from calmoe.backbones import ResNet, fitting_weights
from calmoe.backbones.encoder import Encoder
from calmoe.backbones.weights import _read as read_weights
from calmoe.calibration import (
    Calibrator,
    PerExpertTemperature,
    RoutingRecalibration,
    Temperature,
)
from calmoe.calibration.seen_rows import SeenRows
from calmoe.commands import app
from calmoe.data import cifar10h
from calmoe.data.safe_pickle import read_plain
from calmoe.data.text import _digest, token_ids
from calmoe.errors import InputError
from calmoe.experiments.checked_files import check_sessions, parse_rows, read_history
from calmoe.experiments.record import parse_record
from calmoe.experiments.sealing import read_sealed, seal, write_sealed
from calmoe.mixture import MixtureClassifier, MixtureHead
from calmoe.report.curves import curves
from calmoe.report.curves_file import curves_file, read_curves
from calmoe.text_encoders import load_tokenizer
from calmoe.training import latest_state
from calmoe.training.checkpoints import TrainingState, save_state
from calmoe.validation import parse_json
from encoders import save_encoder
from sizes import at_size
from small_calibrators import every_kind, overconfident
from synthetic_curves import HISTORY, mixture

GONE = object()
ODD = (None, True, "x", "", -1, 0, 1, 2.5, 1e-300, 1e308, 10**12, 10**400, [], [[1, "2"]], {}, {"a": 1}, GONE)


def places(value, at=()):
    """The paths to all values inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*at, key)
        yield from places(each, (*at, key))


def mutants(value, count, seed=0):
    """Copies with one value inside another than it was, or gone."""
    generator, known = random.Random(seed), list(places(value))
    for _ in range(count):
        *before, last = generator.choice(known)
        mutant = copy.deepcopy(value)
        inner = mutant
        for key in before:
            inner = inner[key]
        odd = generator.choice(ODD)
        if odd is GONE:
            del inner[last]
        else:
            inner[last] = odd
        yield mutant


def refusal(load, *arguments):
    """The one line that refuses it."""
    with pytest.raises(InputError) as error:
        load(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def loaded(load, *arguments):
    """What loads; None where it is refused in one line."""
    try:
        return load(*arguments)
    except InputError as error:
        line = str(error)
    assert "\n" not in line
    return None


@pytest.mark.parametrize(
    "text", [b'{"a": 1, "a": 2}', b"NaN", b"1e999", b"\xff", '"é"'.encode("utf-16"), b"[" * 60 + b"]" * 60]
)
def test_json_that_readers_disagree_on_is_refused(text):
    refusal(parse_json, text)


# --- calibrators


def saved(folder):
    """Files of each kind of calibrator, with what reads and applies them."""
    output, labels = overconfident()
    kinds = every_kind(output, labels)
    routed = RoutingRecalibration(bins=2, rounds=5).fit(output, labels).with_curve(output, labels)
    routed.coefficients_ += 0.5
    routed.status_, routed.rounds_ = "repaired", 3
    for kind in ("Temperature", "ShiftedTemperature", "PerExpertTemperature"):
        path = folder / f"own {kind}.json"
        kinds[kind].save(path)
        alone = isinstance(kinds[kind], Temperature)
        yield path, type(kinds[kind]).load, output.log_probs if alone else output
    for fitted in (routed, *(kinds[kind] for kind in ("VectorScaling", "MatrixScaling", "TopLabelIsotonic"))):
        path = folder / f"{type(fitted).__name__}.json"
        Calibrator(fitted, ("a", "b", "c"), "a note", SeenRows.of(output, labels)).save(path)
        yield path, Calibrator.load, output


def log_probs(result):
    return getattr(result, "log_probs", result)


def transformed(calibrator, given):
    """The answer; as it was given where the calibrator was fitted on another number of classes."""
    try:
        return calibrator.transform(given)
    except InputError:
        return given


def test_a_calibrator_that_loads_gives_probabilities(tmp_path):
    for path, load, given in saved(tmp_path):
        content = json.loads(path.read_text())
        for mutant in mutants(content, 150):
            path.write_text(json.dumps(mutant))
            if (calibrator := loaded(load, path)) is not None:
                probs = log_probs(transformed(calibrator, given)).exp()
                assert torch.allclose(probs.sum(1), torch.ones(len(probs), dtype=probs.dtype), atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (0, "temperature", 0),
        (0, "temperature", -1.0),
        (0, "temperature", 1e-300),
        (0, "status", "negative"),
        (0, "solver", ["exact"]),
        (1, "temperature", 0),
        (2, "clamp", None),
        (2, "clamp", [10.0, 0.1]),
        (2, "weighted", 1),
        (2, "temperatures", [1.0, "2"]),
        (2, "temperatures", [1.0, 99.0]),
        (2, "statuses", ["optimum"]),
        (3, "coefficients", [[["1"] * 3] * 2] * 2),
        (3, "coefficients", [[[1e308] * 3] * 2] * 2),
        (3, "temperature", 0),
        (3, "seed", -1),
        (3, "bins", True),
        (3, "gain", [1]),
        (3, "status", "few rows"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_its_file(tmp_path, kind, field, value):
    path, load, _ = list(saved(tmp_path))[kind]
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert refusal(load, path).startswith(f"{path}: ")
    assert field in refusal(load, path).removeprefix(f"{path}: ")


def test_temperatures_come_back_however_the_fit_ended(tmp_path):
    scores = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    ends = {}
    for solver in ("exact", "published"):
        for labels in ([0, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = Temperature(solver).fit(scores, torch.tensor(labels))
            ends[fitted.status_] = fitted
    bounded = Temperature()
    bounded.temperature_, bounded.status_ = 1e6, "at bound"
    negative = Temperature("published")
    negative.temperature_, negative.status_ = -0.5, "negative"
    for fitted in (*ends.values(), bounded, negative):
        fitted.save(tmp_path / "t.json")
        assert vars(Temperature.load(tmp_path / "t.json")) == vars(fitted)
    assert {"optimum", "separable", "uninformative", "published"} <= ends.keys()


def test_a_negative_temperature_keeps_the_impossible_impossible():
    negative = Temperature("published")
    negative.temperature_, negative.status_ = -1e-30, "negative"
    probs = negative.transform(torch.tensor([[0.0, -1e20, -torch.inf]])).exp()
    assert probs.tolist() == [[0.0, 1.0, 0.0]]


# --- heads


@pytest.fixture
def head(tmp_path):
    MixtureHead(6, 3).save_pretrained(tmp_path / "head")
    return tmp_path / "head"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_features", 10**12),
        ("num_experts", 10**30),
        ("router_hidden", 10**15),
        ("num_classes", True),
        ("num_experts", 2.0),
        ("routing", "top" + "9" * 5000),
        ("routing", ["soft"]),
    ],
)
def test_a_heads_sizes_are_checked_before_it_is_built(head, field, value):
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, field: value}))
    assert str(head) in refusal(MixtureHead.from_pretrained, head)
    assert str(head) in refusal(MixtureClassifier.from_pretrained, head, nn.Flatten())


@pytest.mark.parametrize(
    "change",
    [
        lambda w: {**w, "experts.bias": w["experts.bias"] * float("nan")},
        lambda w: {**w, "experts.bias": w["experts.bias"].long()},
        lambda w: {**w, "experts.bias": w["experts.bias"].to(torch.float8_e4m3fn)},
        lambda w: {**w, "experts.bias": w["experts.bias"][:-1].clone()},
        lambda w: {k: v for k, v in w.items() if k != "experts.bias"},
        lambda w: {**w, "\x1b[31m": torch.zeros(1)},
    ],
)
def test_a_heads_weights_are_those_of_a_head(head, change):
    path = head / "model.safetensors"
    path.write_bytes(safetensors.torch.save(change(safetensors.torch.load_file(path))))
    assert str(path) in refusal(MixtureHead.from_pretrained, head)


def test_a_head_that_loads_answers(head):
    content = json.loads((head / "config.json").read_text())
    for mutant in mutants(content, 60):
        (head / "config.json").write_text(json.dumps(mutant))
        if (again := loaded(MixtureHead.from_pretrained, head)) is not None:
            assert again(torch.zeros(2, 6)).probs.isfinite().all()


# --- encoders


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def model(encoder, tmp_path):
    return shutil.copytree(encoder, tmp_path / "model")


def change_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kind", ["distilbert", "of my own"])
def test_code_in_a_models_folder_never_runs(model, tmp_path, monkeypatch, name, kind):
    (model / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Mine: pass\n")
    change_json(
        model / name,
        auto_map={"AutoConfig": "mine.Mine", "AutoModel": "mine.Mine", "AutoTokenizer": ["mine.Mine"] * 2},
    )
    change_json(model / "config.json", model_type=kind)
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n" * 20))
    for load in (Encoder, load_tokenizer, lambda folder: token_ids(["good"], str(folder))):
        assert "auto_map" in refusal(load, model)
    assert not (tmp_path / "ran").exists()
    assert sys.stdin.tell() == 0


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("index", [False, True])
def test_pickled_weights_of_an_encoder_are_not_read(model, tmp_path, index):
    (model / "model.safetensors").rename(model / ("model-00001.safetensors" if index else "gone"))
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Evil(tmp_path / "ran")}))
    if index:
        parts = {"weight_map": {"embeddings": "pytorch_model.bin"}}
        (model / "model.safetensors.index.json").write_text(json.dumps(parts))
    assert str(model) in refusal(Encoder, model)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("field", "value"), [("vocab_size", 10**12), ("n_layers", 10**4), ("dim", 10**9), ("num_labels", 10**10)]
)
def test_an_encoders_sizes_are_checked_before_it_is_built(model, field, value):
    change_json(model / "config.json", **{field: value})
    assert f"config.json: {field}" in refusal(Encoder, model)


def test_an_encoder_with_weights_that_are_no_numbers_is_refused(model):
    path = model / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    name = max(weights)
    weights[name][:] = float("nan")
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    assert name in refusal(Encoder, model)


def test_cached_tokens_that_the_tokenizer_does_not_have_are_made_anew(model, tmp_path):
    ids = token_ids(["good man"], str(model), tmp_path)
    (path,) = (tmp_path / ".calmoe-cache").iterdir()
    forged = torch.full_like(ids, 10**6)
    path.write_bytes(safetensors.torch.save({"ids": forged}, {"sha256": _digest(forged)}))
    assert torch.equal(token_ids(["good man"], str(model), tmp_path), ids)


# --- pickles


DEEP = b")" + b"\x85" * at_size(300_000, 3_000_000)  # ((((…)))): its hash takes a frame of the C stack each
SHARED = b")" + b"".join(struct.pack("<cIcIc", b"r", i, b"j", i, b"\x86") for i in range(60))  # 2^60 leaves


def checkpoint(path, pickled):
    """A file as torch.save writes it, with another pickle in it."""
    whole = io.BytesIO()
    torch.save({"a": torch.zeros(2)}, whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, pickled if name.endswith("data.pkl") else source.read(name))
    return path


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("key", [DEEP, SHARED, b"K\x01", b")"], ids=["deep", "shared", "number", "tuple"])
def test_keys_of_a_checkpoint_are_names(tmp_path, key, legacy):
    pickled, path = b"\x80\x02}" + key + b"K\x01s.", tmp_path / "w.pth"
    if legacy:
        torch.save({}, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes().replace(pickle.dumps({}, protocol=2), pickled))
    else:
        checkpoint(path, pickled)
    assert str(path) in refusal(read_weights, path)


@pytest.mark.parametrize("content", [{1: torch.zeros(1)}, {"a": [torch.zeros(1)]}, {"a": {"b": 1}}, [1], 7])
def test_a_checkpoint_holds_tensors_by_name(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    assert str(tmp_path) in refusal(read_weights, tmp_path / "w.pth")


def test_a_checkpoint_that_unpacks_to_more_than_its_length_is_refused(tmp_path):
    torch.save({"a": torch.zeros(10**7)}, tmp_path / "w.pth")
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as source,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert "bomb.pth" in refusal(read_weights, tmp_path / "bomb.pth")


@pytest.mark.parametrize("legacy", [False, True])
def test_no_damage_to_a_checkpoint_gives_more_than_one_line(tmp_path, legacy):
    path, generator = tmp_path / "w.pth", random.Random(0)
    content = {f"layer{i}.weight": torch.ones(3, 2) for i in range(3)}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    assert set(read_weights(path)[0]) == set(content)
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        path.write_bytes(damaged[: generator.choice([None, generator.randrange(len(damaged))])])
        loaded(read_weights, path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int32])
def test_weights_are_finite_numbers(tmp_path, dtype):
    backbone = ResNet(18, stem="cifar", stages=3)
    weights = backbone.state_dict()
    name = "layer1.0.conv1.weight"
    weights[name] = weights[name].to(dtype) if dtype != torch.float32 else weights[name] * float("inf")
    torch.save(weights, tmp_path / "w.pth")
    assert name in refusal(fitting_weights, backbone, tmp_path / "w.pth")


@pytest.mark.parametrize("key", [DEEP, SHARED, b"K\x01"], ids=["deep", "shared", "number"])
def test_keys_of_a_batch_are_names(tmp_path, key):
    path = tmp_path / "data_batch_1"
    for end in (b"K\x01s.", b"K\x01u."):
        path.write_bytes(b"\x80\x02}" + b"(" * (end[2:3] == b"u") + key + end)
        assert str(path) in refusal(read_plain, path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_damage_to_a_batch_gives_more_than_one_line(tmp_path):
    path, generator = tmp_path / "data_batch_1", random.Random(0)
    batch = {b"data": np.zeros((2, 3), np.uint8), b"labels": [3, 2**40], b"name": "x"}
    whole = pickle.dumps(batch, protocol=2)
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        path.write_bytes(damaged)
        loaded(read_plain, path)


@pytest.mark.parametrize("kind", ["claims", "archive"])
def test_votes_that_the_file_cannot_hold_are_refused(tmp_path, kind):
    path = tmp_path / cifar10h.COUNTS
    np.save(path, np.ones((4, 10)))
    if kind == "claims":
        path.write_bytes(path.read_bytes().replace(b"(4, 10), ", b"(4000000000000, 10), "))
    else:
        with path.open("wb") as stream:
            np.savez(stream, votes=np.ones((4, 10)))
    assert str(path) in refusal(cifar10h.human_columns, tmp_path, 4)


# --- runs


SETTINGS = ("epochs=2", "warmup=1", "hidden=[8]", "router_hidden=4")
METHODS = "vanilla,robust"


def calmoe(*words):
    """The exit code of a command that is done, or refused in one line; never a traceback."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert sum(line.startswith("error") for line in result.output.splitlines()) == (result.exit_code == 2)
    return result.exit_code, result.output


def run_again(folder, *options):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    asked = ("--methods", METHODS, "--seeds", 42, "--device", "cpu", *settings)
    return calmoe("run", "digits", *asked, "--out", folder, *options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert run_again(folder)[0] == 0
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def reseal(path, content):
    """Write what an attacker would: other content under a seal that fits."""
    if path.name in ("spec.json", "environment.json"):
        write_sealed(path, content)
    else:
        facts = read_sealed(path.parent / "done.json")
        documents = content if path.name == "results.jsonl" else [content]
        path.write_text("".join(json.dumps(document) + "\n" for document in documents))
        seal(path.parent, facts.pop("files"), **facts)


def contents(run):
    """The run's documents by path."""
    documents = {run / name: read_sealed(run / name) for name in ("spec.json", "environment.json")}
    for path in run.glob("nodes/*/history.json"):
        documents[path] = json.loads(path.read_text())
    rows = run / "results.jsonl"
    return {**documents, rows: [json.loads(line) for line in rows.read_text().splitlines()]}


def read_rows(path):
    return parse_rows(path, path.read_bytes())


def test_what_a_record_says_is_checked(run):
    checks = {"spec.json": parse_record, "environment.json": check_sessions}
    for path, content in contents(run).items():
        for mutant in mutants(content, 60):
            if path.name in checks:
                loaded(checks[path.name], path, mutant)
            else:
                reseal(path, mutant)
                loaded(
                    {
                        "history.json": read_history,
                        "results.jsonl": lambda path: parse_rows(path, path.read_bytes()),
                    }[path.name],
                    path,
                )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("spec.json", lambda c: c["spec"].pop("protocol")),
        ("spec.json", lambda c: c["spec"]["training"].pop("eta")),
        ("spec.json", lambda c: c["spec"]["training"].update(eta=10**400)),
        ("spec.json", lambda c: c.update(protocols=[])),
        ("spec.json", lambda c: c.update(device=1)),
        ("spec.json", lambda c: c.update(hard=7)),
        ("spec.json", lambda c: c.update(sweep={"setting": "eta", "values": ["x"]})),
        ("spec.json", lambda c: c.update(spec=[])),
        ("history.json", lambda c: c.clear()),
        ("history.json", lambda c: c[0].update(seconds="long")),
    ],
)
def test_a_record_without_sense_is_named_by_every_command(run, tmp_path, name, change):
    path, content = next((p, c) for p, c in contents(run).items() if p.name == name)
    change(content)
    reseal(path, content)
    code, said = calmoe("report", run, "--to", tmp_path / "report")
    assert code == 2
    assert name in " ".join(said.split())
    assert calmoe("export", run, "--to", tmp_path / "export")[0] == 2
    if name == "spec.json":
        assert {calmoe("compare", run)[0], run_again(run)[0], run_again(run, "--only-report")[0]} == {2}


def test_a_record_of_a_newer_calmoe_says_so(run):
    record = read_sealed(run / "spec.json")
    reseal(run / "spec.json", {**record, "training_version": 99})
    code, said = run_again(run, "--only-report")
    assert code == 2
    assert "update calmoe" in said


def test_sessions_and_rows_without_sense_are_set_aside(run, finished):
    reseal(run / "environment.json", {"sessions": [{"command": 1}]})
    rows = contents(run)[run / "results.jsonl"]
    reseal(run / "results.jsonl", [{**row, "ece": "x", "method": "unheard"} for row in rows])
    assert run_again(run, "--only-report")[0] == 0
    assert (run / "results.jsonl").read_bytes() == (finished / "results.jsonl").read_bytes()


def test_no_odd_value_in_a_record_is_a_traceback(run, finished, tmp_path):
    documents = contents(run)
    for seed in range(6):
        path = sorted(documents)[seed % len(documents)]
        (mutant,) = mutants(documents[path], 1, seed)
        reseal(path, mutant)
        run_again(run, "--only-report")
        calmoe("export", run, "--to", tmp_path / f"export{seed}")
        calmoe("compare", run)
        run_again(run, "--dry-run")
        shutil.rmtree(run)
        shutil.copytree(finished, run)


def forged(path, change):
    """The state at `path` changed, under the name that its new content has."""
    state = TrainingState.from_bytes(path.read_bytes())
    path.unlink()
    return save_state(change(state), path.parent)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: replace(s, tensors={k: v for k, v in s.tensors.items() if "bias" not in k}),
        lambda s: replace(s, tensors={k: v[None].clone() for k, v in s.tensors.items()}),
        lambda s: replace(s, tensors={k: v * float("nan") for k, v in s.tensors.items()}),
        lambda s: replace(s, epoch=7),
        lambda s: replace(s, history=[{"loss": "x"}]),
    ],
)
def test_a_state_of_another_model_is_refused(run, change):
    (state,) = run.glob("nodes/*/state-*")
    facts = read_sealed(state.parent / "done.json")
    path = forged(state, change)
    seal(path.parent, [path.name], key=facts["key"])
    for node in run.glob("nodes/*/history.json"):
        shutil.rmtree(node.parent)
    assert run_again(run)[0] == 2


@pytest.mark.parametrize("note", [None, "7", "[]", '{"epoch": -1, "history": []}', '{"epoch": 1}'])
def test_a_checkpoint_whose_note_has_no_sense_is_passed_over(tmp_path, note):
    good = save_state(TrainingState(epoch=1, tensors={"model.a": torch.zeros(1)}), tmp_path)
    metadata = None if note is None else {"calmoe": note}
    data = safetensors.torch.save({"model.a": torch.zeros(1)}, metadata)
    (tmp_path / f"state-00002-{hashlib.sha256(data).hexdigest()[:32]}.safetensors").write_bytes(data)
    assert latest_state(tmp_path).epoch == 1
    good.unlink()
    assert latest_state(tmp_path) is None


def test_curves_that_load_have_one_shape(tmp_path):
    numbers = [curves(method, mixture(0), mixture(1), "hard", HISTORY) for method in ("vanilla", "robust")]
    name, data = curves_file(numbers)
    path = tmp_path / name
    path.write_bytes(data)
    content = json.loads(path.read_text())
    assert read_curves(path) == content
    for mutant in mutants(content, 100):
        path.write_text(json.dumps(mutant))
        loaded(read_curves, path)
    content[1]["frontier"]["temperature"][3] = "x"
    path.write_text(json.dumps(content))
    assert "frontier.temperature" in refusal(read_curves, path)


def test_a_backbone_with_an_infinite_mask_comes_back(tmp_path):
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))

    model = MixtureClassifier(Masked(), MixtureHead(4, 3))
    model.save_pretrained(tmp_path)
    again = MixtureClassifier.from_pretrained(tmp_path, Masked())
    x = torch.randn(2, 4)
    assert torch.equal(model(x).log_probs, again(x).log_probs)


def test_json_of_a_calibrator_is_not_large(tmp_path):
    path = tmp_path / "large.json"
    path.write_bytes(b"[" + b"[]," * (6 * 2**20) + b"[]]")
    assert "longer than" in refusal(Temperature.load, path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PerExpertTemperature(clamp=None),
        lambda: PerExpertTemperature(clamp=3),
        lambda: PerExpertTemperature(clamp=("a", 2)),
        lambda: PerExpertTemperature(clamp=(1, 2, 3)),
        lambda: RoutingRecalibration(bins=None),
        lambda: RoutingRecalibration(bins=10**6),
        lambda: RoutingRecalibration(rate="x"),
        lambda: RoutingRecalibration(rate=True),
        lambda: RoutingRecalibration(rounds=2.5),
        lambda: RoutingRecalibration(seed=-1),
    ],
)
def test_calibrators_are_not_made_of_nonsense(make):
    with pytest.raises(InputError):
        make()
