"""Folders named after values: the names, which rows go where, what is refused, and that it reads back."""

from __future__ import annotations

import math
import os
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
import penstock.write as write
from penstock.connect.writers import staged_files
from penstock.connect.writers.partition_folders import NULL, split_by_partition
from penstock.errors import ConnectorError, SchemaError
from penstock.expr.values import from_plain, to_plain
from tests.connect.test_round_trip import NESTED, SIMPLE, TEXT

NAMES = [
    (pa.string(), ["DE", "a b/c=d%", "grün", "日本", None], ["DE", "a%20b%2Fc%3Dd%25", "grün", "日本", NULL]),
    (pa.bool_(), [True, False, None], ["true", "false", NULL]),
    (pa.int8(), [-128, 7], ["-128", "7"]),
    (pa.int64(), [-(2**63)], ["-9223372036854775808"]),
    (pa.float64(), [0.1, 1e20, -0.0, 0.0, 5e-324], ["0.1", "1e20", "-0.0", "0.0", "5e-324"]),
    (pa.float64(), [math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
    (pa.float32(), [0.1, 16777216.0], ["0.1", "1.6777216e07"]),
    (pa.date32(), [date(1, 1, 1), date(2026, 1, 31)], ["0001-01-01", "2026-01-31"]),
    (
        pa.timestamp("us"),
        [datetime(2026, 1, 31, 12), datetime(2026, 1, 31, 12, 0, 0, 1)],
        ["2026-01-31%2012%3A00%3A00", "2026-01-31%2012%3A00%3A00.000001"],
    ),
    (pa.timestamp("us", "Europe/Rome"), [0], ["1970-01-01%2000%3A00%3A00Z"]),
    (pa.decimal128(20, 2), [Decimal("1.5"), Decimal("-0.01"), Decimal(0)], ["1.50", "-0.01", "0.00"]),
    (pa.decimal128(38, 10), [Decimal("1E-10"), Decimal("1E+5")], ["0.0000000001", "100000.0000000000"]),
]


def folders_of(rows: pa.RecordBatch, *columns: str) -> dict[str, list[dict[str, Any]]]:
    return {folder: part.to_pylist() for folder, part in split_by_partition(rows, columns)}


@pytest.mark.parametrize(("type_", "values", "names"), NAMES, ids=[str(type_) for type_, *_ in NAMES])
def test_every_type_has_its_text(type_: pa.DataType, values: list[Any], names: list[str]) -> None:
    rows = pa.record_batch({"p": pa.array(values, type_), "n": range(len(values))})
    assert folders_of(rows, "p") == {f"p={name}": [{"n": n}] for n, name in enumerate(names)}


def test_rows_stay_in_order_and_folders_come_by_their_first_row() -> None:
    rows = pa.record_batch({"n": range(6), "b": list("xyxxzy"), "a": [1, 1, 2, 1, 1, 1]})
    assert list(folders_of(rows, "a", "b").items()) == [
        ("a=1/b=x", [{"n": 0}, {"n": 3}]),
        ("a=1/b=y", [{"n": 1}, {"n": 5}]),
        ("a=2/b=x", [{"n": 2}]),
        ("a=1/b=z", [{"n": 4}]),
    ]


def test_nulls_go_together_and_so_do_all_kinds_of_nan() -> None:
    nans = pa.array([0x7FF8000000000000, 0x7FF8000000000001, None], pa.int64()).view(pa.float64())
    rows = pa.record_batch({"p": nans, "n": [1, 2, 3]})
    parts = [(folder, part.to_pylist()) for folder, part in split_by_partition(rows, ["p"])]
    assert parts == [("p=NaN", [{"n": 1}]), ("p=NaN", [{"n": 2}]), (f"p={NULL}", [{"n": 3}])]


@pytest.mark.parametrize(
    ("column", "prefix"), [("_day", "%5Fday="), (".day", "%2Eday="), ("a=b/c", "a%3Db%2Fc="), ("tür", "tür=")]
)
def test_the_name_of_a_column_never_hides_its_folders(tmp_path: Path, column: str, prefix: str) -> None:
    rows = pa.record_batch({column: ["x"], "n": [1]})
    assert list(folders_of(rows, column)) == [f"{prefix}x"]
    save_rows(rows, tmp_path, [column])
    assert read_back(rows.schema, tmp_path, [column]) == rows_of(rows)


def test_columns_of_many_values_are_told_apart_though_their_product_is_beyond_any_integer() -> None:
    n, columns = 300, list("abcdefgh")
    rows = pa.record_batch({**{name: [i * 7919 % n for i in range(n)] for name in columns}, "n": range(n)})
    assert n ** len(columns) > 2**64
    parts = [(folder, part.to_pylist()) for folder, part in split_by_partition(rows, columns)]
    assert parts == [("/".join(f"{name}={i * 7919 % n}" for name in columns), [{"n": i}]) for i in range(n)]


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("", 'column "p" holds an empty text, which no folder can show'),
        (NULL, f'column "p" holds "{NULL}", which means null'),
        ("x" * 254, 'column "p" holds a value that makes a name of 256 bytes, too long for a folder'),
        ("ü" * 127, 'column "p" holds a value that makes a name of 256 bytes, too long for a folder'),
    ],
    ids=["empty", "null", "long", "wide"],
)
def test_text_that_would_not_read_back_stops_the_run(value: str, fact: str) -> None:
    rows = pa.record_batch({"p": ["fine", value], "n": [1, 2]})
    with pytest.raises(ConnectorError) as caught:
        list(split_by_partition(rows, ["p"]))
    assert caught.value.fact == fact
    assert "partition by other columns" in str(caught.value.hint)


def test_a_time_that_text_cannot_show_stops_the_run() -> None:
    rows = pa.record_batch({"p": pa.array([2**61], pa.timestamp("us")), "n": [1]})
    with pytest.raises(ConnectorError, match='column "p" holds a time outside the years 1 to 9999') as caught:
        list(split_by_partition(rows, ["p"]))
    assert caught.value.hint == "keep it as a column of parquet files, or filter such rows"


SCHEMA = pa.schema(
    [("country", pa.string()), ("day", pa.date32()), ("tags", pa.list_(pa.string())), ("raw", pa.binary())]
)


@pytest.mark.parametrize(
    ("columns", "fact", "hint"),
    [
        ("contry", 'there is no column "contry" to partition by', 'did you mean "country"?'),
        (
            "tags",
            'column "tags" of type list<item: string> cannot name folders',
            "partition by columns of text",
        ),
        ("raw", 'column "raw" of type binary cannot name folders', "partition by columns of text"),
    ],
)
def test_a_column_that_cannot_name_folders_is_refused(
    tmp_path: Path, columns: str, fact: str, hint: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        write.parquet(tmp_path / "out", partition_by=columns).open(SCHEMA, "sink")
    assert (caught.value.fact, str(caught.value.hint)[: len(hint)]) == (fact, hint)
    assert not (tmp_path / "out").exists()


def test_files_need_a_column_of_their_own(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("country"), SCHEMA.field("day")])
    with pytest.raises(SchemaError, match="partition_by= names every column") as caught:
        write.csv(tmp_path, partition_by=["day", "country"]).open(schema, "sink")
    assert caught.value.detail == "the columns are country, day"


def test_the_graph_refuses_such_columns_when_it_is_built(tmp_path: Path) -> None:
    graph = ps.PipeGraph("wrong")
    rows = graph.source(ps.read.rows([{"country": "DE", "n": 1}]))
    with pytest.raises(SchemaError, match='there is no column "contry" to partition by') as caught:
        rows.sink(ps.write.jsonl(tmp_path, partition_by="contry"), name="out")
    assert caught.value.step == "out"
    assert caught.value.where is not None


@pytest.mark.parametrize("columns", [3, [3], {"day": 1}, b"day"])
def test_what_does_not_name_columns_is_refused(columns: Any) -> None:
    with pytest.raises(ConnectorError, match="does not name columns") as caught:
        write.parquet("out", partition_by=columns)
    assert caught.value.hint == 'name one or several: partition_by=["country", "day"]'


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(ConnectorError, match='partition_by= names column "day" twice'):
        write.parquet("out", partition_by=["day", "country", "day"])


def test_no_column_is_no_partition() -> None:
    assert write.parquet("out", partition_by=[]).partition_by == ()


def save_rows(
    rows: pa.RecordBatch, folder: Path, columns: list[str], cut: int = 1, max_rows: int = 3
) -> None:
    out = write.parquet(folder, partition_by=columns, max_rows_per_file=max_rows).open(rows.schema, "sink")
    out.write(0, rows.slice(0, cut))
    out.write(0, rows.slice(cut))
    out.commit(0)
    out.write(1, rows)
    out.commit(1)
    out.close()


def rows_of(table: pa.Table | pa.RecordBatch, times: int = 2) -> Counter[str]:
    """Its rows, so that NaN equals itself and -0.0 does not equal 0.0."""
    columns = [
        [value for chunk in column.chunks for value in to_plain(chunk)] for column in pa.table(table).columns
    ]
    return Counter(repr(row) for row in list(zip(*columns, strict=True)) * times)


def read_back(schema: pa.Schema, folder: Path, columns: list[str]) -> Counter[str]:
    """All rows, by pyarrow, which can read decimals from names as strings only."""
    names = pa.schema(
        [
            field.with_type(pa.string()) if pa.types.is_decimal(field.type) else field
            for field in (schema.field(name) for name in columns)
        ]
    )
    dataset = ds.dataset(folder, format="parquet", partitioning=ds.partitioning(names, flavor="hive"))
    return rows_of(dataset.to_table().select(schema.names).cast(schema), 1)


TEXTS = TEXT.filter(lambda text: text not in ("", NULL))
KINDS = {**SIMPLE, "text": (pa.string(), TEXTS)}


@st.composite
def partitioned_rows(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[str]]:
    columns = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    kinds = {**KINDS, **NESTED, "n": (pa.int64(), st.integers(0, 9))}
    file_columns = draw(st.lists(st.sampled_from(sorted(set(kinds) - set(columns))), min_size=1, unique=True))
    n_rows = draw(st.integers(1, 12))
    arrays = {}
    for name in draw(st.permutations(columns + file_columns)):
        type_, values = kinds[name]
        few = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
        choice = st.none() | (few if name in columns else values)
        arrays[name] = from_plain(draw(st.lists(choice, min_size=n_rows, max_size=n_rows)), type_)
    return pa.record_batch(arrays), columns


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(example=partitioned_rows(), data=st.data())
def test_what_is_written_into_folders_reads_back_the_same(
    example: tuple[pa.RecordBatch, list[str]], data: st.DataObject
) -> None:
    rows, columns = example
    cut, max_rows = data.draw(st.integers(0, rows.num_rows)), data.draw(st.integers(1, 4))
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_files, "MAX_OPEN_FILES", data.draw(st.integers(1, 3)))
        patch.setattr(os, "fsync", lambda descriptor: None)  # slow, and of no matter here
        save_rows(rows, Path(name), columns, cut, max_rows)
        files = list(Path(name).rglob("part-*"))
        assert max(ds.dataset(file, format="parquet").count_rows() for file in files) <= max_rows
        assert read_back(rows.schema, Path(name), columns) == rows_of(rows)
