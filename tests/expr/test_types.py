"""The types of columns, and schemas as users write them down."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired, Optional, TypedDict

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SchemaError
from penstock.expr import canonical, canonical_batch, canonical_schema, to_plain
from penstock.expr.types import parse_schema, parse_type

US = pa.timestamp("us")


@pytest.mark.parametrize(
    ("type_in", "expected"),
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
def test_the_type_that_a_column_is_read_as(type_in: pa.DataType, expected: pa.DataType) -> None:
    assert canonical(type_in, "a") == expected


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


@dataclass
class Place:
    lat: float
    lon: float


@dataclass
class Trip:
    taxi: int
    where: Place
    left_at: datetime
    tags: list[str]
    tip: float | None


class Click(NamedTuple):
    ad: str
    day: date


class View(TypedDict):
    ad: str
    price: NotRequired[Annotated[Decimal, "decimal(10, 2)"]]


@dataclass
class Node:
    child: Node | None


@dataclass
class Unknown:
    x: Missing  # type: ignore[name-defined]  # noqa: F821  # the point: a name that is nowhere


@dataclass
class Nothing:
    pass


Untyped = namedtuple("Untyped", ["a"])  # the point: no types


def test_a_dataclass_declares_its_fields_in_order_and_nested_ones_as_structs() -> None:
    assert parse_schema(Trip) == pa.schema(
        [
            ("taxi", pa.int64()),
            ("where", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
            ("left_at", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
            ("tip", pa.float64()),
        ]
    )


def test_a_named_tuple_declares_its_fields() -> None:
    assert parse_schema(Click) == pa.schema([("ad", pa.string()), ("day", pa.date32())])


def test_a_typed_dict_declares_its_keys_and_an_annotation_gives_the_exact_type() -> None:
    assert parse_schema(View) == pa.schema([("ad", pa.string()), ("price", pa.decimal128(10, 2))])


def test_a_dict_may_mix_arrow_types_names_and_python_types() -> None:
    declared = {"a": pa.int32(), "b": "string", "c": bool, "d": {"e": bytes}}
    assert parse_schema(declared) == pa.schema(
        [("a", pa.int32()), ("b", pa.string()), ("c", pa.bool_()), ("d", pa.struct([("e", pa.binary())]))]
    )


def test_an_arrow_schema_comes_out_canonical() -> None:
    schema = pa.schema(
        [("a", pa.uint8()), ("b", pa.dictionary(pa.int8(), pa.string())), ("c", pa.timestamp("ns"))]
    )
    assert parse_schema(schema) == pa.schema(
        [("a", pa.int16()), ("b", pa.string()), ("c", pa.timestamp("us"))]
    )


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (int, pa.int64()),
        (bool, pa.bool_()),
        (Optional[str], pa.string()),  # noqa: UP045  # the old spelling must work
        (int | None, pa.int64()),
        (tuple[float, ...], pa.list_(pa.float64())),
        (list[list[int]], pa.list_(pa.list_(pa.int64()))),
        (list[Place], pa.list_(pa.struct([("lat", pa.float64()), ("lon", pa.float64())]))),
        (Annotated[int, pa.int16()], pa.int16()),
        (Annotated[int, 7], pa.int64()),
        (np.float32, pa.float32()),
        (np.uint16, pa.int32()),
        ("int8", pa.int8()),
        ("decimal(38,0)", pa.decimal128(38, 0)),
        ("list<list<string>>", pa.list_(pa.list_(pa.string()))),
        ("timestamp[us, Europe/Rome]", pa.timestamp("us", "Europe/Rome")),
        (pa.large_string(), pa.string()),
    ],
)
def test_a_declared_type_becomes_its_arrow_type(declared: object, expected: pa.DataType) -> None:
    assert parse_type(declared) == expected


@pytest.mark.parametrize(
    ("declared", "fact", "hint"),
    [
        ({"a": "flaot64"}, '"flaot64" is not the name of a type (column "a")', "one of float64"),
        ({"a": "decimal(39, 2)"}, '"decimal(39, 2)" is not a decimal type (column "a")', "at most 38 digits"),
        ({"a": timedelta}, 'timedelta is not a column type (column "a")', "microseconds"),
        ({"a": time}, 'time is not a column type (column "a")', "microseconds of the day"),
        ({"a": Decimal}, 'Decimal is not a column type (column "a")', "decimal(10, 2)"),
        ({"a": list}, 'list is not a column type (column "a")', "list[int]"),
        ({"a": tuple}, 'tuple is not a column type (column "a")', "list[int]"),
        ({"a": dict}, 'dict is not a column type (column "a")', "dataclass"),
        ({"a": int | str}, 'int | str is not a column type (column "a")', "pyarrow type"),
        ({"a": {"b": complex}}, 'complex is not a column type (column "a.b")', "pyarrow type"),
        ({"a": np.complex64}, 'complex64 is not a column type (column "a")', "pyarrow type"),
        ({"a": np.datetime64}, 'datetime64 is not a column type (column "a")', "pyarrow type"),
        ({1: int}, "1 cannot name a column", "strings"),
        ({}, "{} declares no columns", "{"),
        (Nothing, "Nothing declares no columns", "{"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), 'two columns are named "a"', "rename"),
        (Node, 'Node contains itself (column "child")', "finite"),
        (Unknown, "the annotations of Unknown cannot be read", "top of a module"),
        (Untyped, '"a" of Untyped has no type', "typing.NamedTuple"),
        (int, "int is not a schema", "dataclass"),
        (["a"], "['a'] is not a schema", "dataclass"),
    ],
)
def test_what_is_no_schema_is_refused_by_name_with_a_hint(declared: Any, fact: str, hint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(declared)
    assert caught.value.fact.startswith(fact)
    assert hint in str(caught.value.hint)


def test_uint64_is_refused_wherever_it_is_declared() -> None:
    with pytest.raises(SchemaError, match="uint64"):
        parse_schema({"a": pa.uint64()})


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("utc", "UTC"),
        ("America/New York", "America/New_York"),
        ("+0100", "+01:00"),  # Arrow computes with it, but makes no datetime of it
        ("-0530", "-05:30"),
        ("+1:00", "+01:00"),
        ("+01", "+01:00"),
    ],
)
def test_a_time_zone_that_does_not_exist_is_refused_with_the_nearest(zone: str, meant: str) -> None:
    for declared in (f"timestamp[us, {zone}]", pa.timestamp("us", zone), pa.timestamp("ns", zone)):
        with pytest.raises(SchemaError, match=re.escape(f'"{zone}" is not a time zone')) as caught:
            parse_schema({"at": declared})
        assert f'"timestamp[us, {meant}]"' in str(caught.value.hint)
        assert 'column "at"' in str(caught.value)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "+05:45", "-03:00", "Etc/GMT+3"])
def test_time_zones_and_offsets_are_known(zone: str) -> None:
    type_ = parse_schema({"at": f"timestamp[us, {zone}]"}).field("at").type
    assert type_ == pa.timestamp("us", zone)
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert pa.array([noon], type_).to_pylist() == [noon]
