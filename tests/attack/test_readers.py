"""Hostile and careless prediction files: read exactly, or refused in one line, without much memory."""

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from calmoe.errors import InputError
from calmoe.formats.budget import Budget
from calmoe.formats.csv import _column, _with_gaps
from calmoe.predictions import Predictions
from sizes import at_size

PROBS = np.array([[0.9, 0.1], [0.2, 0.8]])
MEMORY = 200 * 2**20


def refused(path, **arguments):
    """The line that refuses a file, for which little memory was taken."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as error:
            Predictions.load(path, **arguments)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        assert pa.default_memory_pool().max_memory() < 2 * MEMORY  # writing takes some, too
    finally:
        tracemalloc.stop()
    message = str(error.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 600
    return message


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "p.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


# --- columns: counts are compared, never allocated


@pytest.mark.parametrize(
    "names",
    [
        "prob_0,prob_3000000000",
        "prob_0,prob_20000000",
        f"prob_0,prob_{10**30}",
        f"prob_0,prob_{'9' * 5000}",
        "prob_0,expert_0_prob_0,expert_999999999_prob_999999999",
        "prob_0,expert_0_prob_0,expert_1_prob_1",
        "prob_0,prob_00",
        "prob_0,routing_0,expert_0_prob_0,expert_0_prob_00",
        "prob_0,label,labels",
        "prob_0,prob_0",
        "prob_0, prob_0",
        "prob_0,site,site ",
        "prob_0, ",
    ],
    ids=lambda names: names[:30],
)
def test_columns_that_cannot_be_are_refused(csv, tmp_path, names):
    cells = ["0" if "label" in name else "1" for name in names.split(",")]
    refused(csv(f"{names}\n{','.join(cells)}\n"))
    pq.write_table(pa.table([[float(cell)] for cell in cells], names.split(",")), tmp_path / "p.parquet")
    refused(tmp_path / "p.parquet")


def test_digits_of_other_scripts_number_no_column(csv):
    p = Predictions.load(csv("prob_0,prob_１\n1,0\n"))
    assert (p.num_classes, list(p.groups)) == (1, ["prob_１"])


def test_columns_padded_with_zeros_are_read(csv):
    assert Predictions.load(csv("prob_01,prob_00\n0.25,0.75\n")).output.probs.tolist() == [[0.75, 0.25]]


def test_parquet_columns_of_one_name_are_refused(tmp_path):
    pq.write_table(pa.table([[1.0], [1], [2]], ["prob_0", "site", "site"]), tmp_path / "p.parquet")
    assert "columns 2 and 3" in refused(tmp_path / "p.parquet")


def test_a_hundred_thousand_columns_are_refused_soon(csv):
    names = ",".join(f"g{i}" for i in range(100_000))
    refused(csv(f"prob_0,{names}\n1{',1' * 100_000}\n"))


# --- csv: a line is a row


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('prob_0,site\n1,"north\n1,south\n1,east\n', "line 2, column 2"),
        ('prob_0,site\n1,"north\n1,"south\n', "line 2, column 2"),
        ('prob_0,site\n1,"\n1,"\n', "line 2, column 2"),
        ('prob_0,site\n1,north\n1,"south', "line 3, column 2"),
        ('prob_0,site\n1,nor"th\n1,so"uth\n', "line 2, column 2"),
        ('prob_0,site\n1,"nor"th\n', "line 2, column 2"),
        ('prob_0,site,a\n1,"x,y",b"\n', "line 2, column 3"),
        ('prob_0,site\n1,"nor\nth"\n', "line 2, column 2"),
        ('prob_0,site\r1,"nor\rth"\r', "line 2, column 2"),
        ('"prob_0,site\n1,north\n', "line 1, column 1"),
        ("prob_0,site\n1,north\n\n1\n", "line 4"),
        ("prob_0,site\n1,north\n1,south,2\n", "line 3"),
        ('prob_0,site\n1,"a,b"\n1,a,b\n', "line 3"),
        (b"prob_0,site\n1,a\n1,caf\xe9\n", "line 3"),
        (b"prob_0,site\n1,a\r\n1,b\r\n1,c\0\r\n", "line 4"),
        ("prob_0,label\n1,0\n  \n1,x\n", "line 4"),
        ("prob_0,label\n1,0\n1,1_0\n", "line 3"),
        ("prob_0,prob_1\n0.9_0,0.1\n", "line 2"),
        ("prob_0,prob_1\n0x1p-1,0.5\n", "line 2"),
        ("prob_0,prob_1\n1+0j,0\n", "line 2"),
    ],
)
def test_csv_that_is_not_strict_is_refused_by_line_and_column(csv, text, where):
    assert where in refused(csv(text))


@pytest.mark.parametrize("note", ["", ',"a, ""b"""'], ids=["plain", "with quotes"])
def test_a_quote_anywhere_loses_no_row(csv, note):
    rows = "".join(f"1,0,site {i}{note}\n" for i in range(30))
    text = f"prob_0,label,site{',note' if note else ''}\n{rows}"
    source = np.random.default_rng(0)
    for _ in range(200):
        quoted = text
        for place in source.integers(len(text), size=source.integers(1, 4)):
            cell = max(quoted.rfind(",", 0, place), quoted.rfind("\n", 0, place)) + 1
            quoted = f'{quoted[:cell]}"{quoted[cell:]}'
        try:
            p = Predictions.load(csv(quoted))
        except InputError:
            continue
        assert len(p) == 30


def test_quotes_that_are_strict_are_read_exactly(csv):
    text = '﻿"prob_0","site"\r\n"1","a ""b"""\r\n1,"x,y"\r\n"1",""\r\n1,""""\r\n'
    assert Predictions.load(csv(text)).groups["site"].tolist() == ['a "b"', "x,y", "", '"']


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blank_lines_are_no_rows(csv, end):
    lines = ["", "  ", "prob_0,site", "", "1,a", " \t ", "1,b", "", "  "]
    p = Predictions.load(csv(end.join(lines)))
    assert p.groups["site"].tolist() == ["a", "b"]
    assert len(Predictions.load(csv(end.join(["prob_0", "1", "  ", "1", " "])))) == 2


def test_lines_longer_than_a_block_are_read(csv):
    p = Predictions.load(csv(f"prob_0,site\n1,{'x' * 3_000_000}\n1,b\n"))
    assert [len(value) for value in p.groups["site"].tolist()] == [3_000_000, 1]


CELLS = [
    *("1", "+2", "-3", " 4", "0", "-0", "007", "-01", "0x1F", "0.5", "1.", ".5", "1e5", "1e400", "5e-324"),
    *("inf", "nan", "nan(x)", "true", "FALSE", "x", "", "1_0", "é", "１"),
    *("9" * 20, "9007199254740993", "9223372036854775807", "9223372036854775808", "00.5", "1 "),
]


@given(st.lists(st.sampled_from(CELLS), min_size=1, max_size=4))
def test_arrows_numbers_are_ours(values):
    column = _column("g", pa.chunked_array([values], pa.string()), Budget(0))
    typed = _with_gaps(values)
    expected = np.array(values) if typed is None else typed
    assert column.dtype == expected.dtype
    assert np.array_equal(column, expected, equal_nan=column.dtype.kind == "f")


def test_numbers_that_a_float_would_lose_stay_text(csv):
    p = Predictions.load(csv(f"prob_0,a,b,c\n1,0.5,{'9' * 5000},0.1\n1,9007199254740993,1,0.2\n"))
    assert [column.dtype.kind for column in p.groups.values()] == list("UUf")


# --- what a small file may unpack to


def npz(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__npy", ".npy"), content)
    return path


def npy(shape, content=b"", descr="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


def bomb(kind, folder):
    path = folder / f"bomb.{kind.split()[0]}"
    if kind == "npz":
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("probs.npy", "w") as out,
        ):
            out.write(npy((2**25, 4), descr="|u1"))
            for _ in range(128):
                out.write(bytes(2**20))
    elif kind == "npz text":
        np.savez_compressed(path, probs=np.ones((40, 1)), site=np.array(["a" * 2**19] * 40))
    elif kind == "parquet rows":
        zeros = pa.chunked_array([pa.array(np.zeros(2**20, bool))] * 10)
        pq.write_table(pa.table({f"prob_{i}": zeros for i in range(4)}), path)
    elif kind == "parquet text":
        site = pa.DictionaryArray.from_arrays(np.zeros(10**5, np.int32), pa.array(["a" * 10**6]))
        pq.write_table(pa.table({"prob_0": np.ones(10**5), "site": site}), path)
    elif kind == "parquet pages":
        site = pa.array([f"{i}{'a' * 10**6}" for i in range(70)])
        table = pa.table({"prob_0": np.ones(70), "site": site})
        pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    elif kind == "csv text":
        path.write_text(f"prob_0,site\n1,{'x' * 10**6}\n" + "1,a\n" * 10**5)
    else:
        note = {"format": "calmoe.predictions/1", "metadata": {}, "categories": {"site": ["a" * 10**6]}}
        parts = {name: torch.zeros(10**5, 1) for name in ("log_probs", "log_routing")}
        parts |= {"expert_log_probs": torch.zeros(10**5, 1, 1), "group.site": torch.zeros(10**5).byte()}
        safetensors.torch.save_file(parts, path, {"calmoe": json.dumps(note)})
    assert path.stat().st_size < 3 * 2**20
    return path


BOMBS = ["npz", "npz text", "parquet rows", "parquet text", "parquet pages", "csv text", "safetensors"]


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_does_not_fill_the_memory(tmp_path, kind):
    assert "CALMOE_READ_LIMIT" in refused(bomb(kind, tmp_path))


def test_the_limit_can_be_raised(tmp_path, monkeypatch):
    path = bomb("npz text", tmp_path)
    assert len(Predictions.load(path, limit=2**30)) == 40
    monkeypatch.setenv("CALMOE_READ_LIMIT", str(2**30))
    assert len(Predictions.load(path)) == 40
    assert "limit" in refused(path, limit=1000)
    for wrong in ("-1", "1e9", "lots", "1_0", "9" * 5000):
        monkeypatch.setenv("CALMOE_READ_LIMIT", wrong)
        assert "CALMOE_READ_LIMIT must be" in refused(path)
    for wrong in (-1, True, 1e9, "1"):
        assert "limit must be" in refused(path, limit=wrong)


# --- npz


def test_an_array_longer_or_shorter_than_its_member_is_refused(tmp_path):
    for shape in ((10**15, 2), (2**40, 2**40), (3, 2), (1, 2), (-1, 2), (2,)):
        refused(npz(tmp_path / "p.npz", probs__npy=npy(shape, PROBS.tobytes())))


def test_arrays_without_numbers_are_refused_whatever_they_claim(tmp_path):
    for shape in ((10**18, 0), (0, 2), (2, 0)):
        refused(npz(tmp_path / "p.npz", probs__npy=npy(shape)))
    site = npy((10**18,), descr="<U0")
    refused(npz(tmp_path / "p.npz", probs__npy=npy((2, 2), PROBS.tobytes()), site__npy=site))


def test_members_without_npy_in_their_names(tmp_path):
    array = npy((2, 2), PROBS.tobytes())
    assert len(Predictions.load(npz(tmp_path / "p.npz", probs=array))) == 2
    assert "probs" in refused(npz(tmp_path / "p.npz", probs=PROBS.tobytes()))
    assert "notes.txt" in refused(npz(tmp_path / "p.npz", probs__npy=array, **{"notes.txt": b"mine"}))
    assert "two members" in refused(npz(tmp_path / "p.npz", probs__npy=array, probs=array))
    assert refused(npz(tmp_path / "p.npz", probs__npy=array, label=array, labels=array))


def test_arrays_of_another_machine_are_read(tmp_path):
    labels, site = np.array([0, 1], ">i4"), np.array(["a", "b"], ">U1")
    np.savez(tmp_path / "p.npz", probs=PROBS.astype(">f4"), labels=labels, level=labels, site=site)
    p = Predictions.load(tmp_path / "p.npz")
    p.save(tmp_path / "p.safetensors")
    again = Predictions.load(tmp_path / "p.safetensors")
    assert (again.labels.tolist(), again.groups["site"].tolist()) == ([0, 1], ["a", "b"])


# --- safetensors


def saved(path, codes=(0, 1), values=("a", "b"), metadata=None, note=None, **tensors):
    p = Predictions.from_probs(PROBS)
    parts = {name: part.contiguous().clone() for name, part in p.output._asdict().items()}
    parts |= {"group.site": torch.as_tensor(codes)} | tensors
    plain = {"format": "calmoe.predictions/1", "metadata": metadata, "categories": {"site": list(values)}}
    plain["metadata"] = {} if metadata is None else metadata
    safetensors.torch.save_file(parts, path, {"calmoe": note or json.dumps(plain)})
    return path


HEAD = '{"format": "calmoe.predictions/1", "metadata": {}, "categories": '


@pytest.mark.parametrize(
    "changes",
    [
        {"codes": (0, -1)},
        {"codes": (0, 2)},
        {"codes": (0.0, 1.0)},
        {"codes": (True, False)},
        {"codes": (0j, 1j)},
        {"codes": ((0, 1), (1, 0))},
        {"values": ("a", "a\0")},
        {"values": ("a", 1)},
        {"values": ("a", ["b"])},
        {"values": ()},
        {"metadata": [1]},
        {"metadata": "x"},
        {"note": "[]"},
        {"note": '"x"'},
        {"note": HEAD + '{"site": "ab"}}'},
        {"note": HEAD + '{"elsewhere": ["a"]}}'},
        {"note": HEAD + '{"site": ["a", "b"], "site": ["b", "a"]}}'},
        {"labels": torch.tensor([0j, 1])},
        {"labels": torch.tensor([[0, 1]])},
        {"group.": torch.zeros(2)},
        {"group.a\0": torch.zeros(2)},
        {"group.site ": torch.zeros(2)},
        {"group.odd": torch.zeros(2, dtype=torch.complex64)},
    ],
    ids=str,
)
def test_a_saved_file_that_does_not_hold_together_is_refused(tmp_path, changes):
    refused(saved(tmp_path / "p.safetensors", **changes))


SMALL = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_columns_of_few_bits_are_read(tmp_path, dtype):
    level = torch.tensor([0.5, 1.0]).to(dtype)
    p = Predictions.load(saved(tmp_path / "p.safetensors", **{"group.level": level}))
    assert p.groups["level"].tolist() == [0.5, 1]
    half = torch.tensor([[0.5, 0.5]]).to(dtype)
    safetensors.torch.save_file({"probs": half, "level": level[:1].clone()}, tmp_path / "q.safetensors")
    q = Predictions.load(tmp_path / "q.safetensors")
    assert q.output.probs.tolist() == [[0.5, 0.5]]
    q.save(tmp_path / "again.safetensors")
    assert Predictions.from_probs(PROBS, groups={"level": level}).groups["level"].tolist() == [0.5, 1]


# --- what Predictions takes


@pytest.mark.parametrize("labels", [np.array([0j, 1]), torch.tensor([0, 1], dtype=torch.complex64)])
def test_complex_labels_are_refused(tmp_path, labels):
    with pytest.raises(InputError, match="complex"):
        Predictions.from_probs(PROBS, labels)
    with pytest.raises(InputError, match="complex"):
        Predictions(output=Predictions.from_probs(PROBS).output, labels=labels)
    np.savez(tmp_path / "p.npz", probs=PROBS, labels=np.asarray(labels))
    refused(tmp_path / "p.npz")


@pytest.mark.parametrize(
    "site",
    [["a", "a\0"], np.array(["a", "a\0"], dtype=object), ["a\0b", "a"], np.array(["a\0b", "a"])],
    ids=["list", "objects", "inside", "array"],
)
def test_nul_merges_no_groups(site):
    with pytest.raises(InputError, match="NUL"):
        Predictions.from_probs(PROBS, groups={"site": site})


def test_nul_in_files_and_names(tmp_path, csv):
    pq.write_table(pa.table({"prob_0": [1.0, 1.0], "site": ["a", "a\0"]}), tmp_path / "p.parquet")
    assert "NUL" in refused(tmp_path / "p.parquet")
    pq.write_table(pa.table({"prob_0": [1.0], "a": [1], "a\0": [2]}), tmp_path / "p.parquet")
    refused(tmp_path / "p.parquet")
    assert "NUL" in refused(csv("prob_0,site\n1,a\n1,a\0\n"))
    with pytest.raises(InputError, match="NUL"):
        Predictions.from_probs(PROBS, groups={"a\0": [1, 2]})


def test_groups_of_bytes_are_text_or_refused(tmp_path):
    np.savez(tmp_path / "p.npz", probs=PROBS, site=np.array(["été".encode(), b"b"]))
    p = Predictions.load(tmp_path / "p.npz")
    p.save(tmp_path / "p.safetensors")
    assert Predictions.load(tmp_path / "p.safetensors").groups["site"].tolist() == ["été", "b"]
    np.savez(tmp_path / "p.npz", probs=PROBS, site=np.array([b"caf\xe9", b"b"]))
    assert "UTF-8" in refused(tmp_path / "p.npz")


@pytest.mark.parametrize(
    "given",
    [
        {"groups": {1: [1, 2]}},
        {"groups": {"": [1, 2]}},
        {"groups": [1, 2]},
        {"groups": {"a": [[1], [1, 2]]}},
        {"groups": {"a": np.array([1, 2], np.longdouble)}},
        {"groups": {"a": np.array(["2024-01-01", "2024-01-02"], "M8[D]")}},
        {"metadata": [1]},
    ],
    ids=str,
)
def test_what_could_not_be_saved_is_refused_at_once(given):
    with pytest.raises(InputError):
        Predictions.from_probs(PROBS, **given)


def test_metadata_that_would_not_come_back_is_not_saved(tmp_path):
    deep = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for metadata in ({1: "a", "1": "b"}, deep):
        with pytest.raises(InputError, match="metadata"):
            Predictions.from_probs(PROBS, metadata=metadata).save(tmp_path / "p.safetensors")
    assert not list(tmp_path.iterdir())


# --- damage


@pytest.mark.parametrize("suffix", ["npz", "parquet", "safetensors", "csv"])
def test_any_damaged_byte_is_read_or_refused(tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    sites = ["a", "b", "a"]
    if suffix == "npz":
        np.savez(path, probs=np.ones((3, 1)), site=sites)
    elif suffix == "parquet":
        table = pa.table({"prob_0": [1.0] * 3, "site": sites}).replace_schema_metadata()
        pq.write_table(table, path, compression="none", write_statistics=False, store_schema=False)
    elif suffix == "safetensors":
        Predictions.from_probs(np.ones((3, 1)), groups={"site": sites}).save(path)
    else:
        path.write_text("prob_0,site\n" + "".join(f'1,"{site}"\n' for site in sites))
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x7F
        path.write_bytes(damaged)
        try:
            p = Predictions.load(path)
        except InputError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017
        else:
            assert len(p) <= 3


# --- files that are no files


def test_pipes_and_devices_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    assert "regular" in refused(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    assert "regular" in refused(tmp_path / "zero.csv")


def _varint(rows):
    number, out = 2 * rows, b""
    while number >= 128:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def test_a_parquet_footer_that_names_fewer_rows_is_refused(tmp_path):
    path, table = tmp_path / "p.parquet", pa.table({"prob_0": [0.5] * 4000, "prob_1": [0.5] * 4000})
    pq.write_table(table, path, row_group_size=1000)
    data = path.read_bytes()
    at = data.rindex(_varint(4000))
    path.write_bytes(data[:at] + _varint(1001) + data[at + 2 :])
    with pytest.raises(InputError, match="rows that it names"):
        Predictions.load(path)


def test_npz_members_packed_or_headed_as_numpy_never_does_are_refused(tmp_path):
    array = io.BytesIO()
    np.lib.format.write_array(array, np.full((4, 2), 0.5), version=(1, 0))
    later = io.BytesIO()
    np.lib.format.write_array(later, np.full((4, 2), 0.5), version=(2, 0))
    for name, data, packing in (
        ("bzip2", array, zipfile.ZIP_BZIP2),
        ("lzma", array, zipfile.ZIP_LZMA),
        ("version 2", later, zipfile.ZIP_DEFLATED),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w", packing) as archive:
            archive.writestr("probs.npy", data.getvalue())
        with pytest.raises(InputError, match=r"member|header"):
            Predictions.load(tmp_path / f"{name}.npz")


def test_a_refused_csv_ends_the_process_as_promised(tmp_path):
    """pyarrow's threads, where they outlived the refusal, aborted two processes of three."""
    path = tmp_path / "one.csv"
    path.write_text("prob_2,label\n" + "0.5,1\n" * 600)
    for _ in range(at_size(1, 8)):
        ended = subprocess.run(
            [sys.executable, "-m", "calmoe", "audit", path], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
