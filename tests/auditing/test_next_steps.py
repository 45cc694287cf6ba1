"""What `calmoe audit` says beside the verdict: the next command, the class, the target's labels, the page."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from calmoe.auditing import audit
from calmoe.auditing.statistics.rules import _path
from calmoe.predictions import Predictions
from calmoe.worlds import calibrated
from calmoe.worlds.binary import cancelling
from own_commands import done, refused


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch, unrendered, hasty):
    monkeypatch.chdir(tmp_path)


def rows(seed=0, n=400, names=("no", "yes")):
    return replace(calibrated(seed=0).sample(n, seed=seed), metadata={"classes": list(names)})


def write_model(path, n=3000):
    """A folder as that of a model, for the rows that it held out: enough for an advice to use them."""
    path.mkdir()
    rows(n=n).save(path / "held_out.safetensors")
    return path


def test_a_models_folder_is_asked_to_predict_first(tmp_path):
    write_model(tmp_path / "model")
    lines = [line.strip() for line in done("audit", "model").splitlines() if line.startswith("  calmoe")]
    assert lines == [
        "calmoe predict model NEW_DATA --out new-predictions.csv",
        "calmoe audit model --target new-predictions.csv",
    ]
    assert "calmoe predict" not in done("audit", "model/held_out.safetensors")


def test_raw_data_is_predicted_first(tmp_path):
    write_model(tmp_path / "model")
    (tmp_path / "new.csv").write_text("age,home\n" + "30,rent\n40,own\n" * 60)
    for arguments in (("model", "--target", "new.csv"), ("new.csv",)):
        assert "calmoe predict MODEL DATA --out predictions.csv" in refused("audit", *arguments)


def test_a_target_with_labels_can_be_audited_itself(tmp_path):
    write_model(tmp_path / "model", n=400)
    rows(seed=1).save(tmp_path / "my new.csv")
    replace(rows(seed=1), labels=None).save(tmp_path / "bare.csv")
    told = done("audit", "model", "--target", "my new.csv")
    assert "note: my new.csv: it has labels, so calmoe audit 'my new.csv' judges it directly" in told
    assert "has labels" not in done("audit", "model", "--target", "bare.csv")


def test_a_replaced_report_is_told(tmp_path):
    rows(n=100).save(tmp_path / "a.csv")
    replaced = "audit/report.html, in place of an earlier one"
    assert replaced not in done("audit", "a.csv", "--out", "audit")
    assert replaced in done("audit", "a.csv", "--out", "audit", "--seed", "1")
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["seed"] == 1
    assert "earlier" not in done("audit", "a.csv")


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_second_class_is_the_one_to_judge(tmp_path, share):
    rng = np.random.default_rng(0)
    probs = np.clip(rng.normal(share, 0.1, 300), 0.01, 0.99)
    labels = (rng.random(300) < probs).astype(int)
    metadata = {"classes": ["good", "bad"]}
    both = np.stack([1 - probs, probs], axis=1)
    Predictions.from_probs(both, labels, metadata=metadata).save(tmp_path / "p.safetensors")
    assert "--of bad; " in done("audit", "p.safetensors")


def test_a_path_may_look_like_a_place_for_a_file(tmp_path):
    write_model(tmp_path / "NEW_PREDICTIONS")
    assert "calmoe audit NEW_PREDICTIONS --target new-predictions.csv" in done("audit", "NEW_PREDICTIONS")


def test_a_yes_makes_a_no_needless_whatever_experts_are_called():
    leading = np.arange(300) % 3
    worth, one_hot = np.array([1, 0, 5])[leading], leading[:, None] == np.arange(3)
    tree = DecisionTreeRegressor(random_state=1).fit(one_hot, worth).tree_
    names = ["not deep leads", "wide leads", "trees leads"]
    texts = [_path(tree, leaf, names, ["leads"] * 3) for leaf in range(5) if tree.feature[leaf] < 0]
    assert sorted(texts) == ["not deep leads", "not trees leads and not not deep leads", "trees leads"]


def test_experts_go_by_their_names(tmp_path):
    drawn = cancelling(seed=0).sample(3000, seed=3)
    names = ["linear", "boosting", "trees"]
    assert drawn.expert_names == ("expert 0", "expert 1", "expert 2")
    assert replace(drawn, metadata={"experts": names[:1]}).expert_names == drawn.expert_names
    plain, named = audit(drawn), audit(replace(drawn, metadata={"experts": names}))
    pages = [each.files()["report.html"].decode() for each in (plain, named)]
    assert "expert 0" in pages[0]
    assert "expert 0" not in pages[1]
    for name in names:
        assert name in pages[1]
    assert any("expert" in rule.text for rule in plain.hidden.rules)
    for one, other in zip(plain.hidden.rules, named.hidden.rules, strict=True):
        expected = one.text
        for k, name in enumerate(names):
            expected = expected.replace(f"expert {k}", name)
        assert other.text == expected
        assert one.gap == other.gap


def overconfident(n=600):
    random = np.random.default_rng(0)
    logits = random.normal(0, 1.5, n)
    return 2 * logits, (random.random(n) < 1 / (1 + np.exp(-logits))).astype(int)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("file.csv", "--label 'what happened' --probs score"),
        ("file.npz", "--logits --of 1"),
        ("file.csv", "--label 'what happened' --probs score --cluster case --of 1"),
    ],
)
def test_commands_that_are_recommended_run(tmp_path, name, options):
    """They left out what the reader of the file needs."""
    logits, labels = overconfident()
    if name.endswith("npz"):
        np.savez(name, logits=np.stack([0 * logits, logits], axis=1), labels=labels)
    else:
        rows = zip(labels, 1 / (1 + np.exp(-logits)), range(len(labels)), strict=True)
        lines = [f"{label},{p},case {i}" for i, (label, p, _) in enumerate(rows)]
        (tmp_path / name).write_text("\n".join(["what happened,score,case", *lines]))
    told = done("audit", name, *shlex.split(options), "--out", "page")
    command = shlex.split(told.split("\n  calmoe ")[1].splitlines()[0])
    assert command[0] == "repair"
    applied = shlex.split(done(*command).split("next: calmoe ")[1].split(";")[0])
    done(*[{"NEW_FILE": name, "REPAIRED": "repaired.csv"}.get(word, word) for word in applied])
    page = re.sub("<[^>]*>", "", (tmp_path / "page" / "report.html").read_text())
    assert f"calmoe {shlex.join(command)}" in page.replace("&#39;", "'")


def test_labels_that_count_from_one_are_suspected():
    """A vector of numbers 1 to 3 beside three columns may mean classes 1, 2 and 3, counted from 0."""
    random = np.random.default_rng(0)
    probs = random.dirichlet([0.3, 0.3, 0.3, 0.001], 300)
    labels = np.array([random.choice(4, p=p) for p in probs])
    from_one = np.minimum(labels + 1, 3)
    for given, told in ((from_one, True), (labels, False), (from_one[:15], False)):
        Predictions.from_probs(probs[: len(given)], given).save("p.csv")
        assert ("if labels count from 1, subtract 1" in done("audit", "p.csv")) == told
