from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SchemaError
from penstock.expr import canonical, canonical_batch, canonical_schema, to_plain

US = pa.timestamp("us")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pa.bool_(), pa.bool_()),
        (pa.int8(), pa.int8()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), US),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal64(12, 2), pa.decimal128(12, 2)),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.uint8()), pa.int16()),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.list_(pa.float16(), 2), pa.list_(pa.float32())),
        (pa.struct({"t": pa.list_(pa.timestamp("ns"))}), pa.struct({"t": pa.list_(US)})),
        (pa.uuid(), pa.binary()),
    ],
)
def test_the_type_that_a_column_is_read_as(given: pa.DataType, expected: pa.DataType) -> None:
    assert canonical(given, "a") == expected


@pytest.mark.parametrize(
    "refused",
    [
        pa.uint64(),
        pa.null(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.map_(pa.string(), pa.int64()),
        pa.dense_union([pa.field("x", pa.int64())]),
        pa.decimal256(50, 2),
        pa.list_view(pa.int64()),
    ],
)
def test_types_that_rows_cannot_hold_are_refused_by_name(refused: pa.DataType) -> None:
    with pytest.raises(SchemaError, match='column "price"') as caught:
        canonical(refused, "price")
    assert str(refused) in caught.value.fact
    assert caught.value.hint


def test_a_nested_type_is_refused_by_its_path() -> None:
    with pytest.raises(SchemaError, match=r'column "cart\[\]\.id"'):
        canonical(pa.list_(pa.struct({"id": pa.uint64()})), "cart")


def test_a_schema_with_two_columns_of_one_name_is_refused() -> None:
    with pytest.raises(SchemaError, match='two columns are named "a"'):
        canonical_schema(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


def test_a_canonical_batch_is_itself() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]})
    assert canonical_batch(batch) is batch


def _read(array: pa.Array) -> list[object]:
    batch = canonical_batch(pa.RecordBatch.from_arrays([array], ["a"]))
    batch.validate(full=True)
    assert batch.schema == canonical_schema(batch.schema)
    return to_plain(batch.column("a"))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1_999, -1, -1_000, None], pa.timestamp("ns")), [1, -1, -1, None]),
        (pa.array([-1, None], pa.timestamp("s", "UTC")), [-1_000_000, None]),
        (pa.array([-1], pa.timestamp("ms")), [-1_000]),
        (pa.array([-1, 86_400_000, None], pa.int64()).view(pa.date64()), [-1, 1, None]),
        (pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
        (pa.array([255, None], pa.uint8()), [255, None]),
        (pa.array([1 << 31], pa.uint32()), [1 << 31]),
        (pa.array(["é", None], pa.large_string()), ["é", None]),
        (pa.array([np.float16(0.1)], pa.float16()), [0.0999755859375]),
        (pa.array([[-1, None], None, []], pa.list_(pa.timestamp("ns"))), [[-1, None], None, []]),
        (pa.array([[-1], None, [2_500]], pa.large_list(pa.timestamp("ns"))), [[-1], None, [2]]),
        (pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)), [[1, 2], None]),
        (
            pa.array([{"t": -1}, None, {"t": None}], pa.struct({"t": pa.timestamp("ns")})),
            [{"t": -1}, None, {"t": None}],
        ),
        (pa.array([b"ab", None], pa.binary(2)), [b"ab", None]),
    ],
)
@pytest.mark.parametrize("cut", [0, 1])
def test_values_are_kept_exactly_and_nanoseconds_floored(
    array: pa.Array, expected: list[object], cut: int
) -> None:
    assert _read(array.slice(cut)) == expected[cut:]


def test_seconds_beyond_the_range_of_microseconds_are_refused() -> None:
    with pytest.raises(SchemaError, match='column "a" holds a time too far away'):
        _read(pa.array([1 << 62], pa.timestamp("s")))


def test_run_ends_are_written_out() -> None:
    assert _read(pa.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"])) == ["x", "x", "y"]


def test_an_extension_is_read_as_its_storage() -> None:
    stored = pa.array([b"\x00" * 16], pa.binary(16))
    assert _read(pa.ExtensionArray.from_storage(pa.uuid(), stored)) == [b"\x00" * 16]


def test_a_zone_is_kept() -> None:
    make: Callable[[object], pa.Array] = lambda value: pa.array([value], pa.timestamp("ms", "Asia/Tokyo"))
    batch = canonical_batch(pa.RecordBatch.from_arrays([make(datetime(2024, 1, 1))], ["a"]))
    assert batch.schema.field("a").type == pa.timestamp("us", "Asia/Tokyo")
    assert to_plain(batch.column("a")) == [(date(2024, 1, 1) - date(1970, 1, 1)).days * 86_400_000_000]
