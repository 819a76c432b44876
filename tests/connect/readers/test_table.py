"""Tables in memory."""

from __future__ import annotations

from datetime import datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.read as read
from penstock.connect.batching import MAX_ROWS, SourceRowBatch
from penstock.connect.protocol import SourceBatch
from penstock.errors import SchemaError
from tests.support.reader_contents import cuts_of, rows_of

ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    "data",
    [
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS),
    ],
    ids=["table", "batch", "polars", "pandas"],
)
def test_arrow_pandas_and_polars_tables_are_read_alike(data: object) -> None:
    reader = read.table(data)
    assert reader.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert rows_of(reader) == ROWS
    assert reader.describe() == "table (2 rows)"


def test_foreign_types_become_canonical_and_nanoseconds_are_floored() -> None:
    data = pa.table(
        {
            "d": pa.array(["x", "y"]).dictionary_encode(),
            "u": pa.array([1, 2], pa.uint32()),
            "t": pa.array([-1, 1_999], pa.timestamp("ns")),
        }
    )
    reader = read.table(data)
    assert reader.schema.types == [pa.string(), pa.int64(), pa.timestamp("us")]
    assert [row["t"] for row in rows_of(reader)] == [
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1970, 1, 1, 0, 0, 0, 1),
    ]


def test_a_table_of_many_chunks_is_cut_by_rows_alone() -> None:
    chunks = pa.chunked_array([[1], [2, 3], []], pa.int64())
    assert cuts_of(read.table(pa.table({"a": chunks}), batch=2)) == [[{"a": 1}, {"a": 2}], [{"a": 3}]]


def test_a_named_index_of_pandas_is_a_column_and_an_unnamed_one_is_not() -> None:
    frame = pd.DataFrame({"a": [1]}, index=pd.Index([7], name="id"))
    assert rows_of(read.table(frame)) == [{"id": 7, "a": 1}]
    assert rows_of(read.table(frame.rename_axis(None))) == [{"a": 1}]


def test_a_schema_picks_columns_and_casts_where_no_value_changes() -> None:
    data = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"], "c": pa.nulls(1)})
    reader = read.table(data, schema={"c": str, "a": int})
    assert reader.schema == pa.schema([("c", pa.string()), ("a", pa.int64())])
    assert rows_of(reader) == [{"c": None, "a": 1}]


def test_a_table_without_rows_still_has_its_columns() -> None:
    assert read.table(pa.schema([("a", pa.int64())]).empty_table()).schema.names == ["a"]


def test_a_cast_that_would_change_a_value_is_refused() -> None:
    with pytest.raises(SchemaError, match='column "a" of type double cannot be read as int64') as caught:
        read.table(pa.table({"a": [1.5]}), schema={"a": int})
    assert caught.value.hint == 'declare "a" as double'


def test_a_column_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(SchemaError, match='there is no column "prize"') as caught:
        read.table(pa.table({"ad": [1], "price": [1]}), schema={"prize": int})
    assert caught.value.detail == "the columns are price, ad"


def test_uint64_is_refused() -> None:
    with pytest.raises(SchemaError, match="uint64"):
        read.table(pa.table({"a": pa.array([1], pa.uint64())}))


def test_a_column_of_mixed_objects_is_refused() -> None:
    with pytest.raises(SchemaError, match="the DataFrame cannot be read as columns") as caught:
        read.table(pd.DataFrame({"a": [1, "x"]}))
    assert "one type that rows can hold" in str(caught.value.hint)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}),
        pd.DataFrame({"a": [1j]}),
    ],
    ids=["one name twice", "sparse", "complex"],
)
def test_frames_that_rows_cannot_hold_are_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(SchemaError, match="the DataFrame cannot be read as columns"):
        read.table(frame)


def test_categories_are_read_as_what_they_stand_for() -> None:
    frame = pl.DataFrame(
        {
            "c": pl.Series(["x", None, "y"], dtype=pl.Categorical),
            "e": pl.Series(["q"] * 3, dtype=pl.Enum(["q"])),
        }
    )
    assert rows_of(read.table(frame)) == [{"c": c, "e": "q"} for c in ("x", None, "y")]
    categories = pd.DataFrame({"c": pd.Categorical(["x", None, "y"])})
    assert rows_of(read.table(categories)) == [{"c": c} for c in ("x", None, "y")]


def test_nullable_and_zoned_columns_of_pandas_keep_their_values() -> None:
    frame = pd.DataFrame(
        {
            "i": pd.array([2**62 + 1, None], dtype="Int64"),
            "b": pd.array([True, None], dtype="boolean"),
            "t": pd.to_datetime(["2020-01-01T00:00Z", None]).tz_convert("Europe/Berlin"),
        }
    )
    first, second = rows_of(read.table(frame))
    assert (first["i"], first["b"], first["t"].isoformat()) == (2**62 + 1, True, "2020-01-01T01:00:00+01:00")
    assert second == {"i": None, "b": None, "t": None}


def test_what_is_no_table_is_refused() -> None:
    for wrong in ([{"a": 1}], pl.LazyFrame({"a": [1]}), pd.Series([1], name="a"), {"a": [1]}, None):
        with pytest.raises(SchemaError, match="is not a table"):
            read.table(wrong)


SIMPLE = {"n": "int64", "s": "int8", "x": "float64", "text": "string", "yes": "bool", "raw": "binary"}


def test_single_rows_are_plain_and_say_the_same_as_batches_of_one() -> None:
    rows = [
        {"n": 2**63 - 1, "s": -128, "x": 0.5, "text": "ü", "yes": True, "raw": b"\x00"},
        {"n": None, "s": None, "x": None, "text": None, "yes": None, "raw": None},
        *({"n": n, "s": 1, "x": -0.0, "text": "", "yes": False, "raw": b""} for n in range(MAX_ROWS)),
    ]
    reader = read.rows(rows, schema=SIMPLE, batch=1)
    plain = list(reader.rows_or_batches())
    assert plain == rows
    assert [SourceRowBatch((row,), reader.schema, 0).rows for row in plain] == [
        batch.rows for batch in reader.batches()
    ]


@pytest.mark.parametrize(("schema", "batch"), [({"n": "int64"}, 2), ({"n": "timestamp"}, 1)])
def test_other_batches_are_columns(schema: dict[str, str], batch: int) -> None:
    reader = read.rows([{"n": None}] * 3, schema=schema, batch=batch)
    assert all(isinstance(batch_, SourceBatch) for batch_ in reader.rows_or_batches())


@given(
    sizes=st.lists(st.integers(0, 5), max_size=6),
    batch=st.integers(1, 7) | st.none(),
    position=st.integers(0, 3),
)
def test_a_table_of_many_chunks_gives_the_batches_of_one(
    sizes: list[int], batch: int | None, position: int
) -> None:
    chunks = [pa.array(range(size), pa.int64()) for size in sizes]
    many = pa.table({"v": pa.chunked_array(chunks, pa.int64())})
    of_many, of_one = (read.table(data, batch=batch) for data in (many, many.combine_chunks()))
    position = min(position, len(of_one.starts))
    batches = [[(one.rows, one.seq) for one in reader.batches(position)] for reader in (of_many, of_one)]
    assert batches[0] == batches[1]


def test_rows_of_a_table_stay_where_they_are_unless_a_batch_crosses_chunks() -> None:
    chunks = [pa.array(range(10)), pa.array(range(10))]
    reader = read.table(pa.table({"v": pa.chunked_array(chunks)}), batch=4)
    places = [one.rows.column("v").buffers()[1].address for one in reader.batches()]
    owners = [chunk.buffers()[1].address for chunk in chunks]
    assert [places[number] for number in (0, 1, 3, 4)] == [owners[0], owners[0], owners[1], owners[1]]
    assert places[2] not in owners
