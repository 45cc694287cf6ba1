"""A table in parts is read as the table, whatever names, batches and files; or refused in one line."""

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from calmoe.auditing.streaming.source import Source
from calmoe.errors import InputError
from calmoe.formats import Columns
from calmoe.formats.parquet_rows import MOST_ROWS, ParquetRows
from calmoe.reading import read_with
from streaming_tables import part, random_predictions, write

ROWS = 40


def table(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


def together(batches):
    """All batches as arrays."""
    batches = [batch for _, batch in batches]
    output = [np.concatenate(parts) for parts in zip(*(b.output for b in batches), strict=True)]
    groups = {name: np.concatenate([b.groups[name] for b in batches]) for name in batches[0].groups}
    return output, np.concatenate([b.labels for b in batches]), groups, batches[0].metadata


def same_as_whole(path, columns, most):
    source, whole = Source([path], columns, most=most), read_with(path, columns)
    output, labels, groups, metadata = together(source.batches())
    for ours, theirs in zip(output, whole.output, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(labels, whole.labels)
    assert groups.keys() == whole.groups.keys()
    for name, values in groups.items():
        np.testing.assert_array_equal(values, whole.groups[name])
    assert metadata == whole.metadata


half = np.linspace(0.1, 0.9, ROWS)
sorted_words = np.array(["cat"] * 25 + ["dog"] * 15)  # a batch of 10 rows holds one class, or two
FILES = {
    "classes by name": ({"prob_cat": half, "prob_dog": 1 - half, "label": sorted_words}, Columns()),
    "columns like labels": ({"cat": half, "dog": 1 - half, "label": sorted_words}, Columns()),
    "a lone score": ({"y_score": half, "y_true": np.arange(ROWS) >= 30}, Columns()),
    "a lone class": ({"p_yes": half, "y": np.repeat(["no", "yes"], 20)}, Columns(label="y")),
    "numbers from 1": ({"prob_1": half, "prob_2": 1 - half, "label": np.repeat([1, 2], 20)}, Columns()),
    "logits": (
        {"a": half, "b": -half, "label": np.repeat(["a", "b"], 20)},
        Columns(probs=("a", "b"), logits=True),
    ),
    "named classes": (
        {"p": half, "q": 1 - half, "label": sorted_words},
        Columns(probs=("p", "q"), classes=("cat", "dog")),
    ),
    "one routing for all": (
        {
            "prob_0": half,
            "prob_1": 1 - half,
            "label": np.repeat([0, 1], 20),
            **{f"expert_{k}_prob_{c}": half if c == k else 1 - half for k in (0, 1) for c in (0, 1)},
        },
        Columns(routing=(0.5, 0.5)),
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_whatever_the_names_batches_are_read_as_the_whole(tmp_path, kind):
    columns, asked = FILES[kind]
    same_as_whole(table(tmp_path / "p.parquet", **columns, site=sorted_words), asked, most=10)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 49), st.integers(1, 50))
def test_any_range_of_rows_in_any_files_and_row_groups(tmp_path_factory, group, most, first, length):
    folder, predictions = tmp_path_factory.mktemp("parts"), random_predictions(0, 50)
    paths = [
        write(folder / f"{a}.parquet", part(predictions, a, b), row_group_size=group)
        for a, b in ((0, 17), (17, 18), (18, 50))
    ]
    last = min(first + length, 50)
    expected = [f"row {i}" for i in range(first, last)]
    source = Source(paths, Columns(), most=most)
    batches = list(source.batches(first, last))
    assert [name for _, batch in batches for name in batch.groups["name"]] == expected
    assert [start for start, _ in batches] == [int(batch.groups["name"][0][4:]) for _, batch in batches]


def test_an_empty_part_is_no_harm(tmp_path):
    predictions = random_predictions(0, 20)
    full = write(tmp_path / "1.parquet", predictions)
    empty = tmp_path / "2.parquet"
    parquet.write_table(parquet.read_table(full).slice(0, 0), empty)
    assert len(Source([empty, full], Columns())) == 20
    with pytest.raises(InputError, match="there are no rows"):
        Source([empty], Columns())


def test_a_file_given_twice_is_refused(tmp_path):
    path = write(tmp_path / "1.parquet", random_predictions(0, 20))
    with pytest.raises(InputError, match="given twice"):
        Source([path, tmp_path / "." / "1.parquet"], Columns())


def test_files_with_other_columns_are_refused(tmp_path):
    first = write(tmp_path / "1.parquet", random_predictions(0, 20))
    other = parquet.read_table(first)
    for changed, said in (
        (other.drop(["site"]), "it lacks columns \\(site\\)"),
        (other.append_column("new", [np.zeros(20)]), "it has columns that are new \\(new\\)"),
        (other.set_column(0, "prob_0", [np.ones(20)]), "it holds double and not float in column prob_0"),
        (other.select(other.column_names[::-1]), "its columns stand in another order"),
    ):
        parquet.write_table(changed, tmp_path / "2.parquet")
        with pytest.raises(InputError, match=f"2.parquet: {said}.*give parts of one table"):
            Source([first, tmp_path / "2.parquet"], Columns())


def test_a_bad_row_is_named_by_its_place(tmp_path):
    good = {"prob_0": half, "prob_1": 1 - half, "label": np.repeat([0, 1], 20)}
    odd = good["label"].copy()
    odd[33] = 7
    path = table(tmp_path / "p.parquet", **(good | {"label": odd}))
    with pytest.raises(InputError, match=r"p\.parquet, counted from row 30: labels .* row 3 has 7"):
        list(Source([path], Columns(), most=10).batches())
    path = table(tmp_path / "p.parquet", prob_0=half, prob_1=1 - half)
    with pytest.raises(InputError, match="carry no labels"):
        Source([path], Columns()).head()


def test_rounded_rows_are_refused(tmp_path):
    thirds = np.full(ROWS, 0.33)
    columns = {f"prob_{c}": thirds for c in range(3)}
    path = table(tmp_path / "p.parquet", **columns, label=np.zeros(ROWS, int))
    assert len(read_with(path, Columns())) == ROWS
    with pytest.raises(InputError, match=r"rounded.*normalise them, or audit without --stream"):
        list(Source([path], Columns()).batches())


def test_what_is_no_parquet_file_is_refused(tmp_path):
    (tmp_path / "p.csv").write_text("prob_0,prob_1,label\n1,0,0\n")
    (tmp_path / "p.parquet").write_bytes(b"PAR1 and no more")
    for name, said in (
        ("p.csv", "only parquet files"),
        ("p.parquet", "not a readable parquet file"),
        ("missing.parquet", "no such file"),
    ):
        with pytest.raises(InputError, match=f"{name}: {said}"):
            ParquetRows([tmp_path / name])


def test_labels_of_too_many_values_are_refused_before_all_are_read(tmp_path):
    rows = 3 * MOST_ROWS
    half = np.full(rows, 0.5)
    path = table(tmp_path / "a.parquet", cat=half, dog=half, label=np.arange(rows))
    with pytest.raises(InputError, match=r"a\.parquet: labels 'label'") as refusal:
        Source([path], Columns(probs=("cat", "dog")))
    assert "\n" not in str(refusal.value)


def test_a_file_cut_short_is_refused(tmp_path):
    path = write(tmp_path / "p.parquet", random_predictions(0, 500), row_group_size=100)
    data = path.read_bytes()
    path.write_bytes(data[:200] + b"\0" * 2000 + data[2200:])
    with pytest.raises(InputError):
        list(Source([path], Columns()).batches())


def test_rows_that_taught_the_model_are_refused_wherever_they_are(tmp_path):
    columns = {"prob_0": half, "prob_1": 1 - half, "label": np.repeat([0, 1], 20)}
    marks = np.arange(ROWS) == ROWS - 1
    path = table(tmp_path / "p.parquet", **columns, taught_the_model=marks)
    for asked in (Columns(), Columns(groups=())):
        with pytest.raises(InputError, match="take them out of the file, or audit without --stream"):
            list(Source([path], asked, most=10).batches())
    table(path, **columns, taught_the_model=np.zeros(ROWS, dtype=bool))
    assert all(not batch.groups for _, batch in Source([path], Columns(), most=10).batches())
