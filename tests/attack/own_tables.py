"""Tables as nobody should have them: wrong types, ragged lines, NUL, huge cells, odd headers."""

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from attack.containers import damaged_parquet
from attack.damage import damaged, damaged_json

ROWS = 40  # of every table, before any damage
NAMES = ("income", "age", "town", "since", "code", "paid", "region", "late")
LABEL, GROUP = "late", "region"
PLAIN_HEADERS = """
late income Income label labels predicted prob_no prob_0 file routing_0 expert_0_prob_no group_region domain
missing log_prob_0 probs # größe 年收入 a,b a;b ../../escaped <script> é é 1 nan None __class__
{{7*7}} %s --label |
"""
HEADERS = (
    *PLAIN_HEADERS.split(),
    *("", " ", " late ", "x\0y", "\x1b[31mred", "a\nb", "a\nseed = 7", 'a"b', "=cmd|' /C calc'!A0", "\u202e"),
    *("\ufeff", "a\x7fb", "x" * 9_000),
)
PLAIN_CELLS = """
NA NaN ? null None - #N/A inf -inf 1e999 -1e308 1e308 5e-324 0 -0 00 007 1.5 1,5 1_0 0x10 ١ 1e5 true FALSE
2026-02-30 2026-11-17 9999-12-31 0000-01-01 17.11.2026 2026-11-17T25:00 12:30 x é é a,b a;b =1+1
<b> no yes 1 2 1.0 True
"""
CELLS = (
    *PLAIN_CELLS.split(),
    *(
        "",
        " ",
        "\x1b[31m",
        "\u2028",
        "\x85",
        "\0",
        "a\0b",
        '"',
        '"x',
        'x"y',
        "a\nb",
        "a\rb",
        "\u202e",
        "\ufeff",
    ),
    *("\x07", "9" * 31, "9" * 5_000, "x" * 40_000),
)
PLAIN_LABELS = """
1/x 1/1.0 True/1 NA/no/yes 0.5/1.5 same a,b/a"b =1+1/-1 label/predicted prob_no/no 0/2 é/é a_prob_b/a -1/-2
1e3/2e3 2026-01-01/2026-01-02 9999999999999999999999999/1 ../x
"""
LABELS = (
    *(names.split("/") for names in PLAIN_LABELS.split()),
    *(
        ["a", "a "],
        ["\x1b[31m", "\u202e"],
        ["x" * 9_000, "y"],
        ["x" * 20_000, "y"],
        ["", "yes"],
        ["a\nb", "c"],
    ),
    [f"c{i}" for i in range(30)],
)
PLAIN = re.compile(r"[0-9]{1,300}(\.[0-9]+)?")
Rows = list[list[Any]]  # the header, then the rows; cells are texts


class Hostile(NamedTuple):
    """A file's suffix and content."""

    suffix: str
    data: bytes


def sound_rows(random: Random, rows: int = ROWS) -> Rows:
    """A table that trains: a number with gaps, a whole number, words, days, codes, a group, a label."""
    table: Rows = [list(NAMES)]
    for i in range(rows):
        income = random.lognormvariate(10, 1)
        table.append(
            [
                "" if random.random() < 0.1 else f"{income:.2f}",
                str(random.randrange(18, 80)),
                random.choice(["Łódź", "Kraków", "Gdańsk"]),
                f"20{random.randrange(10, 26)}-0{random.randrange(1, 10)}-11",
                f"{random.randrange(30):03}",
                random.choice(["true", "false"]),
                random.choice(["north", "south"]),
                "yes" if (income < 15_000) ^ (random.random() < 0.2) or i < 3 else "no",
            ]
        )
    return table


# --- what may be wrong with rows


def _cells(table: Rows, random: Random) -> None:
    column, cell = random.randrange(len(table[0])), random.choice(CELLS)
    for row in random.sample(table[1:], min(len(table) - 1, random.choice((1, 1, 2, 20)))):
        row[column % len(row)] = cell if random.random() < 0.7 else random.choice(CELLS)


def _column(table: Rows, random: Random) -> None:
    """A column of one value, of nothing, of a value a row, or of anything."""
    column, one, kind = random.randrange(len(table[0])), random.choice(CELLS), random.randrange(4)
    for i, row in enumerate(table[1:]):
        row[column % len(row)] = (one, "", f"key-{i}", random.choice(CELLS))[kind]


def _label(table: Rows, random: Random) -> None:
    place = table[0].index(LABEL) if LABEL in table[0] else -1
    names = random.choice(LABELS)
    for row in table[1:]:
        row[place % len(row)] = random.choice(names)


def _group(table: Rows, random: Random) -> None:
    place = table[0].index(GROUP) if GROUP in table[0] else -1
    for row in table[1:]:
        row[place % len(row)] = random.choice(CELLS)


def _header(table: Rows, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2))):
        table[0][random.randrange(len(table[0]))] = random.choice(HEADERS)


def _ragged(table: Rows, random: Random) -> None:
    row = random.choice(table)
    if random.random() < 0.5:
        del row[random.randrange(len(row)) :]
    else:
        row += [random.choice(CELLS)] * random.choice((1, 2, 1000))


def _huge(table: Rows, random: Random) -> None:
    row = random.choice(table[1:] or table)
    cell = random.choice(("x", "7", " ", "é", "x ")) * random.choice((10**5, 10**6))
    row[random.randrange(len(row))] = cell if random.random() < 0.97 else "x" * (2**24 + 1)


def _few(table: Rows, random: Random) -> None:
    del table[1 + random.choice((0, 1, 2, 19, 25)) :]


def _columns(table: Rows, random: Random) -> None:
    """Columns that are gone, doubled, or in another order."""
    order = random.choices(range(len(table[0])), k=random.choice((1, 2, 8))) if random.random() < 0.5 else []
    order = order or random.sample(range(len(table[0])), len(table[0]) - random.randrange(3))
    for row in table:
        row[:] = [row[i % len(row)] for i in order]


def _copies(table: Rows, random: Random) -> None:
    table[1:] = [list(random.choice(table[1:4] or table)) for _ in table[1:]]


WRONGS: tuple[Callable[[Rows, Random], None], ...] = (
    *(_cells, _cells, _cells, _column, _column, _label, _label, _group, _header, _header, _header),
    *(_ragged, _huge, _few, _columns, _copies),
)


def hostile_rows(random: Random, most: int = 3) -> Rows:
    """A table after one to three of them; now and then one that is sound."""
    table = sound_rows(random)
    for _ in range(random.choice((0, 1, *range(1, most + 1)))):
        random.choice(WRONGS)(table, random)
        if not all(table):  # a line without a cell
            break
    return table


# --- as files


def as_csv(table: Rows, random: Random) -> Hostile:
    stream = io.StringIO(newline="")
    tabs = random.random() < 0.05
    separator = "\t" if tabs else random.choice(",,,,,,;|\t")
    ending = random.choice(("\n", "\n", "\n", "\r\n", "\r"))
    quoting = random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    writer = csv.writer(stream, delimiter=separator, lineterminator=ending, quoting=quoting, escapechar=None)
    writer.writerows(table)
    coding = random.choice(("utf-8",) * 17 + ("utf-8-sig", "utf-16", "latin-1"))
    data = stream.getvalue().encode(coding, errors="replace")
    return Hostile(".tsv" if tabs else ".csv", damaged(data, random) if random.random() < 0.2 else data)


def as_json_lines(table: Rows, random: Random) -> Hostile:
    """Cells of every type; lines that lack keys, have a key twice, or are no tables."""
    header, *rows = table
    lines = []
    for row in rows:
        line = {name: _typed(cell, random) for name, cell in zip(header, row, strict=False)}
        lines.append(json.dumps(line, ensure_ascii=random.random() < 0.5).encode(errors="replace"))
    if lines and random.random() < 0.3:
        place = random.randrange(len(lines))
        lines[place] = damaged_json(json.loads(lines[place]), random).replace(b"\n", b" ")
    data = b"\n".join(lines)
    return Hostile(".jsonl", damaged(data, random) if random.random() < 0.2 else data)


def _typed(cell: str, random: Random) -> Any:
    if random.random() < 0.01:
        return random.choice(
            (None, True, [], {}, [1], float("nan"), float("inf"), 10**400, 2**63, -0.0, "\ud800")
        )
    if cell.isascii() and cell.isdigit() and len(cell) < 300:
        return int(cell)
    return None if cell == "" else cell


ODD_COLUMNS: tuple[Callable[[int], pa.Array], ...] = (
    lambda n: pa.array([Decimal(i) / 8 for i in range(n)], pa.decimal128(38, 10)),
    lambda n: pa.array([2**64 - 1 - i for i in range(n)], pa.uint64()),
    lambda n: pa.array([i % 2 == 0 for i in range(n)]),
    lambda n: pa.array([None] * n),
    lambda n: pa.array([[i] for i in range(n)]),
    lambda n: pa.array([{"a": i} for i in range(n)]),
    lambda n: pa.array([b"\xff\x00"] * n),
    lambda n: pa.array(["a", "b"] * (n // 2) + ["a"] * (n % 2)).dictionary_encode(),
    lambda n: pa.array([datetime(2026, 1, 1 + i % 9) for i in range(n)], pa.timestamp("ns", "UTC")),
    lambda n: pa.array([2**62 + i for i in range(n)], pa.timestamp("us")),
    lambda n: pa.array([2**52 + i for i in range(n)], pa.timestamp("s")),
    lambda n: pa.array([-(2**62)] * n, pa.timestamp("ns")),
    lambda n: pa.array([date(1, 1, 1), date(9999, 12, 31)] * (n // 2) + [None] * (n % 2)),
    lambda n: pa.array([time(i % 24) for i in range(n)]),
    lambda n: pa.array([timedelta(hours=i) for i in range(n)]),
    lambda n: pa.array([float("inf") if i == 3 else i for i in range(n)], pa.float32()),
    lambda n: pa.array([float("nan")] * n),
    lambda n: pa.array([float(i) for i in range(n)], pa.float16()),
    lambda n: pa.array([[i, i] for i in range(n)], pa.list_(pa.int8(), 2)),
    lambda n: pa.array([1e200 * (-1) ** i for i in range(n)]),
    lambda n: pa.array([i if i % 3 else None for i in range(n)], pa.int8()),
)  # fmt: skip


def as_parquet(table: Rows, random: Random) -> Hostile:
    """Columns of every type that parquet has, under any name, also one name twice."""
    header, *rows = table
    columns: list[pa.Array] = []
    for i in range(len(header)):
        cells = [row[i] if i < len(row) and row[i] != "" else None for row in rows]
        array = pa.array(cells, pa.string())
        if random.random() < 0.08 and rows:
            array = random.choice(ODD_COLUMNS)(len(rows))
        elif all(cell is None or PLAIN.fullmatch(cell) for cell in cells):
            array = pa.array([None if cell is None else float(cell) for cell in cells])
        columns.append(array)
    stream = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays(columns, names=header), stream)
    data = stream.getvalue()
    return Hostile(".parquet", damaged_parquet(data, random) if random.random() < 0.3 else data)


def hostile_file(random: Random, table: Rows) -> Hostile:
    """The table in one of the formats, and now and then damaged in its bytes."""
    return random.choices((as_csv, as_json_lines, as_parquet), weights=(3, 1, 1))[0](table, random)
