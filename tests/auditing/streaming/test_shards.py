"""Shards in files: what was written is what is read, and what does not belong together is refused."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from calmoe.auditing.streaming.files import merge_files, shard_file
from calmoe.auditing.streaming.run import pass_over
from calmoe.auditing.streaming.shards import Place, Shard, Task, _digest
from calmoe.auditing.streaming.source import Source
from calmoe.defaults import BINS
from calmoe.errors import InputError
from calmoe.formats import Columns
from calmoe.tensor_files import read_tensors
from command_line import calmoe, refused
from streaming_tables import part, random_predictions, write

ROWS = 120


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Two files of one table, and the three shards of both."""
    folder, predictions = tmp_path_factory.mktemp("table"), random_predictions(5, ROWS)
    paths = [
        write(folder / f"part-{i}.parquet", part(predictions, a, b))
        for i, (a, b) in ((1, (0, 50)), (2, (50, ROWS)))
    ]
    for i in (1, 2, 3):
        shard_file(paths, Columns(), place=Place(i, 3), out=folder / f"{i}.sums")
    return folder


@pytest.fixture
def folder(parts, tmp_path):
    shutil.copytree(parts, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_what_was_written_is_what_is_read(folder):
    source = Source(sorted(folder.glob("*.parquet")), Columns())
    task = Task.on(source, of="top", bins=BINS, seed=0, most=30)
    shard = pass_over(source, task, Place(2, 3))
    shard.save(folder / "again.sums")
    read = Shard.load(folder / "again.sums")
    assert (read.task, read.place) == (shard.task, shard.place)
    for ours, theirs in ((read.sums.totals, shard.sums.totals), (read.sums.peaks, shard.sums.peaks)):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert read.sums.groups.keys() == shard.sums.groups.keys()
    assert read.sums.groups["site"].values.keys() == shard.sums.groups["site"].values.keys()
    np.testing.assert_array_equal(read.sample.numbers, shard.sample.numbers)
    for ours, theirs in zip(read.sample.predictions.output, shard.sample.predictions.output, strict=True):
        assert ours.equal(theirs)
    for name, column in shard.sample.predictions.groups.items():
        np.testing.assert_array_equal(read.sample.predictions.groups[name], column)


def test_shards_by_hand_give_the_audit_of_the_files_as_one(folder):
    merged = calmoe("audit-merge", *sorted(folder.glob("*.sums"), reverse=True))
    streamed = calmoe("audit", *sorted(folder.glob("*.parquet")), "--stream", "--as-one")
    assert merged.exit_code == streamed.exit_code == 0, (merged.output, streamed.output)
    assert merged.stdout == streamed.stdout


def test_a_shard_missing_or_twice_is_refused(folder):
    one, two, three = (folder / f"{i}.sums" for i in (1, 2, 3))
    assert "of 3 shards 2 is missing" in refused("audit-merge", one, three)
    assert "of 3 shards 1, 3 are missing" in refused("audit-merge", two)
    copy = shutil.copy(one, folder / "copy.sums")
    assert "are both shard 1: give each one once" in refused("audit-merge", one, two, three, copy)
    assert "are both shard 1" in refused("audit-merge", one, one, two, three)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shard", "2/4"], "one of 4, not of 3"),
        (["--shard", "2/3", "--bins", "7"], f"--bins is 7, not {BINS}"),
        (["--shard", "2/3", "--of", "1"], "--of is 1, not top"),
        (["--shard", "2/3", "--seed", "1"], "--seed is 1, not 0"),
        (["--shard", "2/3", "--sample", "1000"], "--sample is 1000, not 200000"),
        (["--shard", "2/3", "--classes", "2,1,0"], "other classes"),
    ],
)
def test_shards_of_another_audit_are_refused(folder, options, said):
    files = sorted(folder.glob("*.parquet"))
    result = calmoe("audit-shard", *files, *options, "--out", folder / "2.sums")
    assert result.exit_code == 0, result.output
    assert said in refused("audit-merge", *sorted(folder.glob("*.sums")))


def test_shards_of_another_table_are_refused(folder):
    write(folder / "part-2.parquet", random_predictions(6, 70))
    files = sorted(folder.glob("*.parquet"))
    calmoe("audit-shard", *files, "--shard", "2/3", "--out", folder / "2.sums")
    assert "the files have changed" in refused("audit-merge", *sorted(folder.glob("*.sums")))
    calmoe("audit-shard", files[0], "--shard", "2/3", "--out", folder / "2.sums")
    assert "other files" in refused("audit-merge", *sorted(folder.glob("*.sums")))


def test_a_damaged_file_is_refused(folder):
    path = folder / "2.sums"
    data = bytearray(path.read_bytes())
    for at in np.random.default_rng(0).integers(0, len(data), 60):
        flipped = bytearray(data)
        flipped[at] ^= 1 + at % 255
        path.write_bytes(flipped)
        with pytest.raises(InputError, match=r"2\.sums: ") as refusal:
            Shard.load(path)
        assert "\n" not in str(refusal.value)
    for short in (0, 4, 1000, len(data) - 1):
        path.write_bytes(data[:short])
        with pytest.raises(InputError, match=r"2\.sums: "):
            Shard.load(path)
    assert "no such file" in refused("audit-merge", folder / "4.sums")


@pytest.mark.parametrize("change", ["no bins", "other shape", "no place", "no labels", "half precision"])
def test_a_forged_file_is_refused(folder, change):
    path = folder / "2.sums"
    tensors, notes = read_tensors(path)
    arrays, header = {name: each.numpy() for name, each in tensors.items()}, json.loads(notes["calmoe"])
    header.pop("digest")
    if change == "no bins":
        del arrays["total.bins"]
    elif change == "other shape":
        arrays["total.views"] = arrays["total.views"][:1]
    elif change == "no place":
        del header["place"]
    elif change == "no labels":
        del arrays["sample.labels"]
    else:
        arrays["sample.labels"] = arrays["sample.labels"].astype(np.float16) + np.float16(0.5)
    note = json.dumps(header | {"digest": _digest(header, arrays)})
    path.write_bytes(safetensors.numpy.save(arrays, {"calmoe": note}))
    assert "2.sums: " in refused("audit-merge", path)


@pytest.mark.parametrize(
    "place", [[1, 10**9], [1, "x"], [0, 0], [4, 3], [True, 3], [2.0, 3], [2, 2], [2], [2, 3, 3], None]
)
def test_a_forged_place_is_refused(folder, place):
    path = folder / "2.sums"
    tensors, notes = read_tensors(path)
    arrays, header = {name: each.numpy() for name, each in tensors.items()}, json.loads(notes["calmoe"])
    header = {**header, "place": place}
    del header["digest"]
    note = json.dumps(header | {"digest": _digest(header, arrays)})
    path.write_bytes(safetensors.numpy.save(arrays, {"calmoe": note}))
    with pytest.raises(InputError, match=r"2\.sums: "):
        Shard.load(path)


def test_bad_options_are_refused_before_the_work(folder):
    files, out = sorted(folder.glob("*.parquet")), folder / "x.sums"
    for shard in ("0/3", "4/3", "3", "a/b", "1/0", "-1/3"):
        assert "--shard" in refused("audit-shard", *files, f"--shard={shard}", "--out", out)
    assert "give fewer shards" in refused("audit-shard", *files, "--shard", "1/121", "--out", out)
    assert "end the name in .sums" in refused("audit-shard", *files, "--shard", "1/3", "--out", folder / "x")
    nowhere = folder / "no" / "x.sums"
    assert "create it first" in refused("audit-shard", *files, "--shard", "1/3", "--out", nowhere)
    assert "sample" in refused("audit-shard", *files, "--shard", "1/3", "--out", out, "--sample", "10")
    assert not out.exists()
    with pytest.raises(InputError, match="level must lie"):
        merge_files([out], out=None, level=2.0)
