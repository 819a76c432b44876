"""Few rows stay plain, and say the same as columns; what needs a closer look is not taken."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as ps
from penstock.connect.batching import MAX_ROWS, RowConverter, SourceRowBatch

SCHEMA = pa.schema(
    [("n", pa.int8()), ("x", pa.float64()), ("text", pa.string()), ("yes", pa.bool_()), ("at", pa.date32())]
)


def test_plain_rows_have_all_columns_in_their_order_and_numbers_from_the_first() -> None:
    batch = RowConverter(SCHEMA).batch([{"text": "a", "n": 1}, {"x": 0.5, "yes": True}], 7)
    assert batch is not None
    assert [list(row.values()) for row in batch.plain] == [
        [1, None, "a", None, None],
        [None, 0.5, None, True, None],
    ]
    assert batch.rows.schema == SCHEMA
    assert batch.rows.to_pylist() == [dict(row) for row in batch.plain]
    assert batch.seq.to_pylist() == [7, 8]
    assert batch.num_rows == 2
    assert batch.bad == ()


@pytest.mark.parametrize(
    "row",
    [
        {"n": 128},
        {"n": True},
        {"n": 1.0},
        {"x": 1},
        {"text": "\ud800"},
        {"text": b"a"},
        {"yes": 1},
        {"z": 1},
        5,
        None,
    ],
)
def test_a_row_that_needs_a_closer_look_is_not_plain(row: object) -> None:
    assert RowConverter(SCHEMA).batch([{"n": 1}, row], 0) is None


def test_a_promise_goes_with_the_batch() -> None:
    batch = SourceRowBatch([{"n": 1}], pa.schema({"n": pa.int64()}), 3)
    assert batch.watermark is None
    assert batch.with_watermark(9).watermark == 9
    assert batch.with_watermark(9).seq.to_pylist() == [3]


def test_an_iterable_gives_few_rows_plain_and_many_as_columns() -> None:
    rows = [{"n": 1}] * (MAX_ROWS + 1)
    few = next(iter(ps.read.iterable(rows, schema={"n": "int64"}, batch=MAX_ROWS).batches()))
    many = next(iter(ps.read.iterable(rows, schema={"n": "int64"}, batch=MAX_ROWS + 1).batches()))
    assert isinstance(few, SourceRowBatch)
    assert not isinstance(many, SourceRowBatch)
    assert many.rows.slice(0, MAX_ROWS).equals(few.rows)


def test_memory_shows_plain_rows_as_it_shows_columns() -> None:
    schema = pa.schema({"n": pa.int64(), "at": pa.timestamp("us")})
    memory = ps.write.memory()
    output = memory.open(schema, "out")
    output.write_plain(0, [{"n": 1, "at": 1_000_000}], schema)
    output.write(0, pa.RecordBatch.from_pylist([{"n": 2, "at": None}], schema=schema))
    output.commit(0)
    output.write_plain(1, [{"n": 3, "at": None}], schema)
    output.close()
    assert [batch.num_rows for batch in memory.batches()] == [2]
    assert [row["n"] for row in memory.rows()] == [1, 2]
    assert memory.rows()[0]["at"].second == 1
