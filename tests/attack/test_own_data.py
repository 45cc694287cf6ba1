"""The attack on own data: sound tables load, another reading agrees, and tells another file."""

from random import Random

import pytest

from attack.own_data import Sound
from attack.own_readings import check_table
from attack.own_tables import (
    NAMES,
    ROWS,
    as_csv,
    as_json_lines,
    as_parquet,
    hostile_file,
    hostile_rows,
    sound_rows,
)
from attack.running import Wrong
from calmoe.errors import InputError
from calmoe.own_data.tables import read_table


@pytest.mark.parametrize("form", [as_csv, as_json_lines, as_parquet])
def test_sound_tables_are_read_alike_and_others_are_told(form, tmp_path):
    table = sound_rows(Random(0))
    suffix, data = form(table, Sound(0))
    path = tmp_path / f"t{suffix}"
    path.write_bytes(data)
    columns = read_table(path).columns
    assert tuple(columns) == NAMES
    assert {len(column) for column in columns.values()} == {ROWS}
    check_table(columns, path)
    for place, cell in ((0, "1234567.5"), (2, "Elsewhere"), (7, "maybe")):
        other = [list(row) for row in table]
        other[5][place] = cell
        path.write_bytes(form(other, Sound(0)).data)
        with pytest.raises(Wrong):
            check_table(columns, path)
    path.write_bytes(form(table[:-1], Sound(0)).data)
    with pytest.raises(Wrong):
        check_table(columns, path)


def test_hostile_tables_are_of_every_kind(tmp_path):
    """Some are read and most refused, in all three formats; none twice the same."""
    files = [hostile_file(random, hostile_rows(random)) for random in map(Random, range(120))]
    assert {file.suffix for file in files} >= {".csv", ".jsonl", ".parquet"}
    assert len({file.data for file in files}) > 115
    read = 0
    for i, file in enumerate(files):
        path = tmp_path / f"{i}{file.suffix}"
        path.write_bytes(file.data)
        try:
            check_table(read_table(path).columns, path)
            read += 1
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
    assert 20 < read < 100
