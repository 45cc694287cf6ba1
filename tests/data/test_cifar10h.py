import hashlib
import os
import pickle
import struct

import numpy as np
import pytest

from calmoe.data import cifar10h
from calmoe.data.safe_pickle import read_plain
from calmoe.errors import InputError

ROWS = 40
NAMES = [*cifar10h.BATCHES, cifar10h.TEST_BATCH]


def content(seed=0):
    generator = np.random.default_rng(seed)
    return {
        name: (
            generator.integers(0, 256, (ROWS, 3072), dtype=np.uint8),
            generator.integers(0, 10, ROWS, dtype=np.uint8),
        )
        for name in NAMES
    }


def write_binary(folder, batches):
    (folder / cifar10h.BINARY).mkdir(parents=True)
    for name, (images, labels) in batches.items():
        np.column_stack([labels, images]).tofile(folder / cifar10h.BINARY / f"{name}.bin")


def write_python(folder, batches, dump):
    (folder / cifar10h.PYTHON).mkdir(parents=True)
    for name, (images, labels) in batches.items():
        (folder / cifar10h.PYTHON / name).write_bytes(dump(images, labels))


def python3_dump(images, labels):
    return pickle.dumps({b"labels": labels.tolist(), b"data": images, b"batch_label": b"one"}, protocol=2)


def python2_dump(images, labels):
    """The opcodes that Python 2's cPickle used for the official files."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    files = b"".join(text(b"image_%d.png" % i) for i in range(len(labels)))
    state = (
        b"(K\x01" + b"M" + struct.pack("<H", len(images)) + b"M" + struct.pack("<H", 3072) + b"\x86"
        b"cnumpy\ndtype\nq\x0cU\x02u1K\x00K\x01\x87Rq\x0d(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<I", images.size) + images.tobytes() + b"tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x08cnumpy\nndarray\nq\x09K\x00\x85U\x01b\x87Rq\x0a" + state
    )
    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5") + b"q\x03"
        b"" + text(b"labels") + b"q\x04]q\x05(" + numbers + b"e" + text(b"data") + b"q\x07" + array + b""
        b"" + text(b"filenames") + b"]q\x0e(" + files + b"eu."
    )


def write_counts(folder, rows=ROWS):
    votes = np.full((rows, 10), 1)
    votes[:, 3] = np.arange(rows) + 11
    np.save(folder / cifar10h.COUNTS, votes)


@pytest.fixture
def binary(tmp_path):
    write_binary(tmp_path, content())
    write_counts(tmp_path)
    return tmp_path


@pytest.mark.parametrize("dump", [python2_dump, python3_dump])
def test_both_layouts_give_the_same_dataset(binary, tmp_path_factory, dump):
    other = tmp_path_factory.mktemp("python")
    write_python(other, content(), dump)
    write_counts(other)
    assert cifar10h.load(other).fingerprint() == cifar10h.load(binary).fingerprint()


def test_rows_and_order(binary):
    data = cifar10h.load(binary)
    images, labels = (np.concatenate([content()[n][i] for n in cifar10h.BATCHES]) for i in (0, 1))
    assert [len(s) for s in data.splits.values()] == [180, 20, ROWS]
    assert (data.train.inputs.flatten(1).numpy() == images[:180]).all()
    assert (data.validation.labels.numpy() == labels[180:]).all()
    assert data.input_shape == (3, 32, 32)


def test_protocols_share_training_and_differ_in_validation(binary):
    corrected, published = (cifar10h.load(binary, p) for p in ("corrected", "published"))
    assert corrected.training_fingerprint() == published.training_fingerprint()
    assert corrected.one_training
    assert published.one_training
    assert corrected.fingerprint() != published.fingerprint()
    assert (corrected.validation_augmented, published.validation_augmented) == (False, True)


def test_human_columns(binary):
    groups = cifar10h.load(binary).test.groups
    votes = np.arange(ROWS) + 11
    assert np.allclose(groups["agreement"], votes / (votes + 9))
    assert groups["hard"].tolist() == (votes < 21).tolist()  # 21 of 30 is 0.7, and not under it
    assert groups["agreement_level"][10] == "0.7-0.8"
    assert np.allclose(sum(groups[f"human_{i}"] for i in range(10)), 1)
    assert all(column.ndim == 1 for column in groups.values())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_probabilities_serve_as_well_as_counts(binary, dtype):
    counted = cifar10h.load(binary).test.groups
    votes = np.load(binary / cifar10h.COUNTS)
    (binary / cifar10h.COUNTS).unlink()
    np.save(binary / cifar10h.PROBABILITIES, (votes / votes.sum(1, keepdims=True)).astype(dtype))
    groups = cifar10h.load(binary).test.groups
    assert (groups["hard"] == counted["hard"]).all()
    assert (groups["agreement_level"] == counted["agreement_level"]).all()


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


class EvilPython2:
    def __reduce__(self):
        return eval, ("open('executed', 'w')",)


@pytest.mark.parametrize("evil", [Evil(), EvilPython2(), {b"data": Evil()}])
@pytest.mark.parametrize("protocol", range(6))
def test_pickled_code_is_refused_and_not_run(tmp_path, monkeypatch, evil, protocol):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(evil, protocol=protocol))
    with pytest.raises(InputError, match="nothing in it was run") as refusal:
        read_plain(path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("value", [np.zeros(3), np.array([None]), np.ma.array([1]), {1, 2}])
def test_other_values_are_refused(tmp_path, value):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(value, protocol=2))
    with pytest.raises(InputError):
        read_plain(path)


def test_no_damage_gives_more_than_one_line(tmp_path):
    whole = python2_dump(*(part[:3] for part in content()["test_batch"]))
    generator = np.random.default_rng(0)
    path = tmp_path / "batch"
    for _ in range(300):
        damaged = bytearray(whole[: generator.integers(1, len(whole))])
        damaged[generator.integers(min(len(damaged), 200))] = generator.integers(256)
        path.write_bytes(damaged)
        with pytest.raises(InputError) as refusal:
            read_plain(path)
        assert "\n" not in str(refusal.value)


def test_a_batch_without_its_keys(tmp_path):
    write_python(tmp_path, content(), lambda images, labels: pickle.dumps({b"data": images}, protocol=2))
    with pytest.raises(InputError, match="no `data` and `labels`"):
        cifar10h.load(tmp_path)


def damage(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (
            lambda d: damage(d, "cifar-10-batches-bin/data_batch_2.bin", lambda b: b[:-7]),
            "truncated: 122,913",
        ),
        (lambda d: damage(d, "cifar-10-batches-bin/data_batch_2.bin", lambda b: b""), "truncated: 0"),
        (lambda d: damage(d, "cifar-10-batches-bin/test_batch.bin", lambda b: b"\x0b" + b[1:]), "label 11"),
        (lambda d: damage(d, "cifar10h-counts.npy", lambda b: b[:-7]), "not a whole .npy"),
        (lambda d: damage(d, "cifar10h-counts.npy", lambda b: b""), "not a whole .npy"),
        (lambda d: write_counts(d, ROWS - 1), f"must hold {ROWS} x 10"),
        (lambda d: np.save(d / "cifar10h-counts.npy", np.zeros((ROWS, 10))), "without votes"),
        (lambda d: (d / "cifar-10-batches-bin/data_batch_5.bin").unlink(), "data_batch_5.bin is missing"),
        (lambda d: (d / "cifar10h-counts.npy").unlink(), "calmoe data cifar10h --to DIR"),
    ],
)
def test_broken_files_are_named_in_one_line(binary, break_it, words):
    break_it(binary)
    with pytest.raises(InputError, match=words) as refusal:
        cifar10h.load(binary)
    assert "\n" not in str(refusal.value)


def test_wrong_folders(tmp_path):
    with pytest.raises(InputError, match="--data DIR"):
        cifar10h.load(None)
    with pytest.raises(InputError, match="there is no folder"):
        cifar10h.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="neither cifar-10-batches-bin/ nor"):
        cifar10h.load(tmp_path)
    (tmp_path / "cifar-10-binary.tar.gz.part").touch()
    with pytest.raises(InputError, match="not unpacked"):
        cifar10h.load(tmp_path)


def test_files_as_long_as_the_official_ones_must_be_these(binary, monkeypatch):
    assert cifar10h.load(binary).notes == ()  # shorter: somebody's own
    monkeypatch.setattr(cifar10h, "OFFICIAL_ROWS", ROWS)
    (note,) = cifar10h.load(binary).notes
    assert "data_batch_1.bin differs from the official file" in note
    folder = binary / cifar10h.BINARY
    ours = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setitem(cifar10h.MD5, cifar10h.BINARY, ours)
    assert cifar10h.load(binary).notes == ()
    damage(binary, "cifar-10-batches-bin/test_batch.bin", lambda b: b[:-1] + bytes([b[-1] ^ 1]))
    assert "test_batch.bin differs from the official file" in cifar10h.load(binary).notes[0]


def test_a_batch_cut_at_the_end_of_a_row_is_named(binary, monkeypatch):
    monkeypatch.setattr(cifar10h, "OFFICIAL_ROWS", ROWS)
    path = binary / cifar10h.BINARY / "data_batch_5.bin"
    path.write_bytes(path.read_bytes()[: 3073 * (ROWS // 2)])
    with pytest.raises(InputError, match=rf"data_batch_5 has {ROWS // 2} rows instead of {ROWS}"):
        cifar10h.load(binary)


def test_missing_counts_are_called_missing(binary):
    (binary / cifar10h.COUNTS).unlink()
    with pytest.raises(InputError) as error:
        cifar10h.load(binary)
    assert "not a whole" not in str(error.value)
