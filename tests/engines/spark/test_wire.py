"""What travels between driver and workers comes back as it went, and goes to the part of its key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.spark import wire
from penstock.engines.spark.wire import Kind, WirePartitioner, WireRow, from_wire, pack_pieces, to_wire
from penstock.engines.wire import pack_batch, unpack_batch
from penstock.stages.rows.batch import Batch
from penstock.testing.strategies import rows

TYPES = {
    "b": pa.bool_(),
    "i": pa.int64(),
    "i8": pa.int8(),
    "f": pa.float64(),
    "f32": pa.float32(),
    "s": pa.string(),
    "y": pa.binary(),
    "d": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "n": pa.decimal128(20, 3),
    "l": pa.list_(pa.int64()),
    "r": pa.struct([("x", pa.int64()), ("s", pa.string())]),
}
SCHEMA = pa.schema(list(TYPES.items()))


@st.composite
def batches(draw: st.DrawFn, schema: pa.Schema = SCHEMA, max_size: int = 8) -> Batch:
    """Rows of the schema with times and one or two columns of order."""
    result = draw(rows(pa.schema([field for field in schema if field.name != "n"]), max_size=max_size))
    for row in result if "n" in schema.names else []:
        row["n"] = draw(st.none() | st.decimals(-(10**15), 10**15, places=3))
    times = draw(st.lists(st.integers(-(2**61), 2**61), min_size=len(result), max_size=len(result)))
    n_order = draw(st.integers(0, 2))
    order = tuple(np.arange(len(result), dtype=np.int64) * (k + 1) for k in range(n_order))
    return Batch(pa.RecordBatch.from_pylist(result, schema=schema), np.array(times, np.int64), order)


def same(one: Batch, other: Batch) -> bool:
    columns = zip(one.rows.columns, other.rows.columns, strict=True)
    return (
        one.rows.schema == other.rows.schema
        and all(repr(a.to_pylist()) == repr(b.to_pylist()) for a, b in columns)
        and one.times.tolist() == other.times.tolist()
        and [column.tolist() for column in one.order] == [column.tolist() for column in other.order]
    )


@pytest.mark.slow
@given(batches())
def test_a_batch_of_any_type_comes_back_as_it_was_packed(batch: Batch) -> None:
    assert same(unpack_batch(pack_batch(batch), batch.rows.schema), batch)


@pytest.mark.slow
@given(batches(), st.data())
def test_a_slice_is_packed_without_what_is_beside_it(batch: Batch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows))
    cut = Batch(batch.rows.slice(start), batch.times[start:], tuple(column[start:] for column in batch.order))
    assert same(unpack_batch(pack_batch(cut), SCHEMA), cut)


def test_a_great_batch_travels_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_ROWS", 4)
    schema = pa.schema([("v", pa.int64())])
    batch = Batch(pa.RecordBatch.from_pydict({"v": range(10)}, schema=schema), np.arange(10), ())
    pieces = [unpack_batch(body, schema).rows.column("v").to_pylist() for body in pack_pieces(batch)]
    assert pieces == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_batch_without_rows_does_not_travel() -> None:
    batch = Batch(pa.RecordBatch.from_pydict({"v": pa.array([], pa.int64())}), np.arange(0), ())
    assert list(pack_pieces(batch)) == []


sent = st.builds(
    WireRow,
    st.integers(-1, 9),
    st.sampled_from(Kind),
    st.integers(-1, 9),
    st.integers(0, 99),
    st.integers(0, 9),
    st.none() | st.binary(max_size=5),
)


@given(st.lists(sent, max_size=5))
def test_wire_rows_come_back_in_their_order(given_rows: list[WireRow]) -> None:
    assert list(from_wire(to_wire(given_rows))) == given_rows


KEYED = pa.schema([("k", pa.string()), ("v", pa.float64())])


@pytest.mark.slow
@given(batches(KEYED, max_size=20), st.integers(1, 300))
def test_rows_of_one_key_go_to_one_part_whatever_batch_they_are_in(batch: Batch, n_partitions: int) -> None:
    partitioner = WirePartitioner(("k", "v"), KEYED)
    whole = {row: part for part, rows in partitioner.partition(batch, 0, n_partitions) for row in _rows(rows)}
    assert sum(rows.num_rows for _, rows in partitioner.partition(batch, 0, n_partitions)) == batch.num_rows
    assert all(0 <= part < n_partitions for part in whole.values())
    for place in range(batch.num_rows):
        ((part, one),) = partitioner.partition(batch.take(np.array([place])), 0, n_partitions)
        assert whole[_rows(one)[0]] == part


@pytest.mark.slow
@given(batches(KEYED))
def test_rows_without_a_key_stay_on_their_part(batch: Batch) -> None:
    assert [part for part, _ in WirePartitioner(None, KEYED).partition(batch, 5, 8)] == [5]


def _rows(batch: Batch) -> list[str]:
    return [repr(row) for row in batch.rows.to_pylist()]
