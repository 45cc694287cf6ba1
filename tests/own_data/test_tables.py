import json
import random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from calmoe.errors import InputError
from calmoe.own_data.tables import read_table
from sizes import at_size


def written(tmp_path, data, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_cells_are_what_they_look_like(tmp_path):
    table = read_table(
        written(
            tmp_path,
            "\ufeffnumber,tag,day,größe,yes\n1.5,007,2026-01-02,NA,true\n,008,,klein,FALSE\n2,009,2026-02-03,groß,\n",
        )
    )
    np.testing.assert_array_equal(table.columns["number"], [1.5, np.nan, 2])
    assert table.columns["tag"].tolist() == ["007", "008", "009"]
    assert table.columns["day"].astype(str).tolist()[0].startswith("2026-01-02")
    assert table.columns["größe"].tolist() == [None, "klein", "groß"]
    assert table.columns["yes"].tolist() == ["True", "False", None]


def test_other_separators_and_decimal_commas(tmp_path):
    table = read_table(written(tmp_path, "a;b\n1,5;x\n2,25;y\n"))
    assert table.columns["a"].tolist() == [1.5, 2.25]
    assert table.notes == ["columns are separated by ';'", "a has decimal commas"]
    assert read_table(written(tmp_path, "a\tb\n1\tx,y\n", "t.tsv")).columns["b"].tolist() == ["x,y"]


def test_a_few_words_among_numbers_count_as_missing(tmp_path):
    cells = [*map(str, range(99)), "inf"]
    table = read_table(written(tmp_path, "\n".join(["x,y", *(f"{cell},1" for cell in cells)])))
    assert np.isnan(table.columns["x"][-1])
    assert table.notes == ["x holds numbers but for 1 values such as 'inf': they count as missing"]


def test_a_row_number_without_a_name_is_left_out(tmp_path):
    table = read_table(written(tmp_path, ",x\n0,5\n1,6\n"))
    assert list(table.columns) == ["x"]


def test_texts_keep_every_character(tmp_path):
    table = read_table(written(tmp_path, 't,y\n" NA ",1\n"two\nlines, ""quoted""",2\n'), "t")
    assert table.texts == [" NA ", 'two\nlines, "quoted"']


def test_json_lines_and_parquet_read_alike(tmp_path):
    rows = [{"x": 1, "c": "ä"}, {"x": None, "c": "b"}, {"x": 2.5}]
    lines = written(tmp_path, "\n".join(map(json.dumps, rows)), "t.jsonl")
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    for table in (read_table(lines), read_table(path)):
        np.testing.assert_array_equal(table.columns["x"], [1, np.nan, 2.5])
        assert table.columns["c"].tolist() == ["ä", "b", None]


REFUSED = {
    "there are no rows": ["", "a,b\n", "\n\n"],
    "a workbook": [b"PK\x03\x04rest"],
    "compressed": [b"\x1f\x8brest"],
    "UTF-16": ["a,b\n1,2\n".encode("utf-16")],
    "no text": [bytes(range(256)) * 20],
    "line 3 has 3 values": ["a,b\n1,2\n1,2,3\n"],
    "line 2 holds a NUL": [b"a,b\n1,\x00\n"],
    "line 2 is not UTF-8": [b"a,b\n1,\xff\n"],
    "both named 'a'": ["a,a\n1,2\n", "a, a\n1,2\n"],
    "column 2 has no name": ["a,\n1,2\n"],
    "is not readable": ['a,b\n1,"2\n', f"a,b\n1,{'x' * (2**24 + 1)}\n"],
}


@pytest.mark.parametrize(("told", "data"), [(told, data) for told, many in REFUSED.items() for data in many])
def test_broken_files_are_refused_in_one_line(tmp_path, told, data):
    with pytest.raises(InputError, match=told) as error:
        read_table(written(tmp_path, data))
    assert "\n" not in str(error.value)


def test_json_lines_are_refused_by_line(tmp_path):
    for line, told in (
        ("{x", "not readable JSON"),
        ("[1]", "no JSON table"),
        ('{"a": [1]}', "holds a list"),
        (r'{"a": "\ud800"}', "half a character"),
    ):
        with pytest.raises(InputError, match=f"line 2.*{told}"):
            read_table(written(tmp_path, f'{{"a": 1}}\n{line}\n', "t.jsonl"))
    with pytest.raises(InputError, match="not a readable parquet file"):
        read_table(written(tmp_path, b"PAR1junk", "t.parquet"))
    with pytest.raises(InputError, match=r"give a table that ends in \.csv"):
        read_table(written(tmp_path, b"PK", "t.xlsx"))


def test_numbers_and_dates_beyond_all_bounds_are_refused(tmp_path):
    with pytest.raises(InputError, match="'x' contains infinity in row 1"):
        read_table(written(tmp_path, f'{{"x": 1}}\n{{"x": 1{"0" * 400}}}\n', "t.jsonl"))
    with pytest.raises(InputError, match="'c' holds a NUL"):
        read_table(written(tmp_path, r'{"c": "a\u0000b"}', "t.jsonl"))
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"day": pa.array([2**62], pa.timestamp("us")), "x": [1]}), path)
    with pytest.raises(InputError, match="holds no texts"):
        read_table(path, "day")


def test_fuzzed_rows_give_a_table_or_one_line(tmp_path):
    generator = random.Random(0)
    pieces = [
        "1",
        "x",
        ",",
        ",",
        "\n",
        "\n",
        '"',
        '""',
        ";",
        "\0",
        "\r",
        "é",
        "NA",
        "1e999",
        "2026-02-30",
        " ",
    ]
    for _ in range(at_size(300, 5000)):
        body = "".join(generator.choices(pieces, k=generator.randrange(60)))
        data = f"a,b\n{body}".encode()
        if generator.random() < 0.2:
            data = bytes(byte ^ (generator.random() < 0.02) * generator.randrange(256) for byte in data)
        try:
            table = read_table(written(tmp_path, data))
            assert len({len(column) for column in table.columns.values()}) == 1
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
