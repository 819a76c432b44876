"""Random columns full of nasty values, and random well-typed expressions over them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from penstock.expr import Expr, coalesce, col, concat, from_epoch, hash, lit, when

STRUCT = pa.struct({"x": pa.int32(), "y": pa.string()})
LIST = pa.list_(pa.string())
DECIMAL = pa.decimal128(10, 2)
TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "text": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "time": pa.timestamp("us"),
    "utc": pa.timestamp("us", "UTC"),
    "dec": DECIMAL,
    "list": LIST,
    "struct": STRUCT,
}
SCHEMA = pa.schema(TYPES.items())

_WORDS = [
    " ",
    "a",
    "A b,c",
    ",",
    ",,",
    "ß",
    "İ",
    "é",
    "é",
    "😀",
    "👩\u200d👩\u200d👧",
    "\x00",
    "\u2028",
    " \t x \n",
    "1\n",
    "٣",
    "true",
    "FALSE",
    "True ",
    "t",
]
_NUMERALS = [
    "0",
    "-0",
    "+7",
    "007",
    "127",
    "-128",
    "128",
    "32768",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1111111111111111111",
    "-9223372036854775808",
    "-9223372036854775809",
    "0000000000000000000000000005",
    "9999999999999999999999999",
    "0x10",
    "1.5",
    ".5",
    "5.",
    "1e3",
    "1E-400",
    "1e400",
    "-1e39",
    "NaN",
    "Infinity",
    "-Infinity",
    "+Infinity",
    "inf",
    "nan",
    "1_0",
    "+",
    "-",
    ".",
    "e5",
]
_MOMENTS = [
    "2024-02-29",
    "2023-02-29",
    "0001-01-01",
    "0000-01-01",
    "9999-12-31",
    "2024-13-01",
    "2024-00-10",
    "2024-2-9",
    "2024-02-29Z",
    "2024-02-29T23:59",
    "2024-02-29 23:59:60",
    "2024-02-29T23:59:59.123456789Z",
    "1969-12-31T23:59:59.999999+23:59",
    "2024-02-29T24:00",
    "2024-02-29T12:00:00-05:30",
    "0001-01-01T00:00+10:00",
    "9999-12-31T23:59:59.9-10:00",
]
_JSON = [
    '{"a": 1}',
    '{"a": {"b": [1, "x", 2.5]}}',
    '{"a": null}',
    '{"a": "1"}',
    "[1, 2]",
    "{",
    '{"a": NaN}',
    "null",
    '{"a": 1, "a": 2}',
    '{"a": 300}',
    '{"a": true}',
    '{"a": 1e999}',
    '{"a": "\\ud800"}',
    '{"a": 1.0}',
]
_TEXTS = ["", *_WORDS, *_NUMERALS, *_MOMENTS, *_JSON]


def _integers(bits: int) -> SearchStrategy[int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    edges = [low, low + 1, high, high - 1, 0, 1, -1, 2, -2, 3, 7, 10]
    return st.sampled_from(edges) | st.integers(low, high) | st.integers(max(low, -50), min(high, 50))


def _floats(width: int) -> SearchStrategy[float]:
    edges = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, math.nan, math.inf, -math.inf]
    edges += [2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 127.5, -128.5, 127.0, 128.0]
    if width == 64:
        edges += [
            2.675,
            0.1,
            1e300,
            5e-324,
            2.0**53 + 2,
            -1e-300,
            2147483647.5,
            -2147483648.5,
            2.0**63 - 1024,
        ]
    return st.sampled_from(edges) | st.floats(width=64 if width == 64 else 32)


def _days() -> SearchStrategy[int]:
    leap = [
        -1,
        0,
        1,
        11016,
        11017,
        19782,
        19783,
        -719162,
        -719163,
        2932896,
        2932897,
        -719528,
        -2147483648,
        2147483647,
    ]
    return st.sampled_from(leap) | st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-1_000_000, 1_000_000)


def _moments() -> SearchStrategy[int]:
    day = 86_400_000_000
    edges = [0, -1, 1, day - 1, -day, 11016 * day, 19782 * day + 1, -62135596800000000, -62135596800000001]
    edges += [253402300799999999, 253402300800000000, -(1 << 63), (1 << 63) - 1, -(1 << 61), 1 << 61]
    return st.sampled_from(edges) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(10**15), 10**15)


_VALUES: dict[str, SearchStrategy[object]] = {
    "bool": st.booleans(),
    "i8": _integers(8),
    "i16": _integers(16),
    "i32": _integers(32),
    "i64": _integers(64),
    "f32": _floats(32),
    "f64": _floats(64),
    "text": st.sampled_from(_TEXTS) | st.text(max_size=6) | st.integers().map(str),
    "raw": st.binary(max_size=4) | st.sampled_from([b"", b"\x00", b"\xff", b"ab" * 20]),
    "day": _days(),
    "time": _moments(),
    "utc": _moments(),
    "dec": st.decimals(min_value=Decimal("-99999999.99"), max_value=Decimal("99999999.99"), places=2),
    "list": st.lists(st.none() | st.sampled_from(["", "x", "é"]), max_size=3),
    "struct": st.fixed_dictionaries(
        {"x": st.none() | _integers(32), "y": st.none() | st.sampled_from(["", "q"])}
    ),
}


@st.composite
def columns(
    draw: st.DrawFn, names: tuple[str, ...], max_rows: int = 8
) -> dict[str, tuple[list[object], pa.DataType]]:
    """Values, nulls among them, for some columns of TYPES."""
    n_rows = draw(st.integers(0, max_rows))
    one = {name: st.none() | _VALUES[name] for name in names}
    return {
        name: (draw(st.lists(one[name], min_size=n_rows, max_size=n_rows)), TYPES[name]) for name in names
    }


INTEGERS = ("i8", "i16", "i32", "i64")
NUMBERS = (*INTEGERS, "f32", "f64")
ORDERED = (*NUMBERS, "bool", "text", "raw", "day", "time", "utc", "dec")
PATTERNS = ("", "a", ",", "é", "😀", "\u0301", "\x00")
Build = Callable[[SearchStrategy[Expr]], SearchStrategy[Expr]]


@functools.cache
def of_type(name: str, depth: int) -> SearchStrategy[Expr]:
    """A random expression of one of the types in TYPES, at most so deep."""
    leaf = st.just(col(name)) | st.none().map(lambda _: lit(None, TYPES[name])) | _literal(name)
    if depth == 0 or name in ("raw", "dec", "struct", "list", "utc", "i8", "i16", "i32", "f32"):
        return leaf if depth == 0 else leaf | _choices(name, depth - 1)
    return leaf | _choices(name, depth - 1) | _derive_numbers(name, depth - 1)


def _literal(name: str) -> SearchStrategy[Expr]:
    if name in ("time", "utc", "day", "list", "struct"):
        return st.just(col(name))
    return _VALUES[name].map(lambda value: lit(value, TYPES[name]))


def _choices(name: str, depth: int) -> SearchStrategy[Expr]:
    same, condition = of_type(name, depth), of_type("bool", depth)
    return (
        st.builds(
            lambda c, x, d, y, z: when(c).then(x).when(d).then(y).otherwise(z),
            condition,
            same,
            condition,
            same,
            same,
        )
        | st.builds(coalesce, same, same, same)
        | st.builds(lambda x, y: x.fill_null(y), same, same)
    )


def _derive_numbers(name: str, depth: int) -> SearchStrategy[Expr]:
    if name == "bool":
        return _conditions(depth)
    if name == "text":
        return _texts(depth)
    if name in ("day", "time"):
        return _times(name, depth)
    return _integers_made(depth) if name == "i64" else _floats_made(depth)


def _conditions(depth: int) -> SearchStrategy[Expr]:
    condition = of_type("bool", depth)
    number, text = of_type("f64", depth), of_type("text", depth)
    any_type = st.sampled_from(ORDERED).flatmap(
        lambda name: st.tuples(of_type(name, depth), of_type(name, depth))
    )
    return (
        st.builds(lambda a, b: a & b, condition, condition)
        | st.builds(lambda a, b: a | b, condition, condition)
        | condition.map(lambda a: ~a)
        | any_type.map(lambda pair: pair[0] < pair[1])
        | any_type.map(lambda pair: pair[0] == pair[1])
        | any_type.map(lambda pair: pair[0].is_null())
        | number.map(lambda a: a.is_nan())
        | st.builds(lambda a, p: a.str.contains(p), text, st.sampled_from(PATTERNS))
        | text.map(lambda a: a.cast("bool"))
    )


def _texts(depth: int) -> SearchStrategy[Expr]:
    text, whole, moment = of_type("text", depth), of_type("i64", depth), of_type("time", depth)
    return (
        st.builds(concat, text, text)
        | st.builds(
            lambda a, i, n: a.str.slice(i, n), text, st.integers(-4, 4), st.none() | st.integers(0, 4)
        )
        | text.map(lambda a: a.str.strip().str.upper())
        | st.builds(lambda a, p: a.str.replace(p, "xy"), text, st.sampled_from(PATTERNS[1:]))
        | st.builds(
            lambda a, p, i: a.str.split(p).list.item(i),
            text,
            st.sampled_from(PATTERNS[1:]),
            st.integers(-3, 3),
        )
        | whole.map(lambda a: a.cast("string"))
        | moment.map(lambda a: a.cast("string"))
        | text.map(lambda a: a.json("a", "string"))
    )


def _times(name: str, depth: int) -> SearchStrategy[Expr]:
    if name == "day":
        return of_type("time", depth).map(lambda t: t.cast("date")) | of_type("text", depth).map(
            lambda t: t.cast("date")
        )
    moment, shift = of_type("time", depth), st.timedeltas(timedelta(-100_000_000), timedelta(100_000_000))
    return (
        st.builds(lambda t, d: t + d, moment, shift)
        | st.builds(
            lambda t, d: t.dt.truncate(d), moment, st.sampled_from(["1 us", "10 s", "7 d", "100000000 d"])
        )
        | st.builds(from_epoch, of_type("i64", depth), st.sampled_from(["d", "s", "ms", "us"]))
        | of_type("text", depth).map(lambda t: t.cast("timestamp"))
        | of_type("day", depth).map(lambda t: t.cast("timestamp"))
    )


def _integers_made(depth: int) -> SearchStrategy[Expr]:
    whole = of_type("i64", depth) | st.sampled_from([col(name) for name in INTEGERS])
    wide, number, text = of_type("i64", depth), of_type("f64", depth), of_type("text", depth)
    moment = of_type("time", depth)
    return (
        st.builds(lambda a, b: a + b, wide, whole)
        | st.builds(lambda a, b: a - b, wide, whole)
        | st.builds(lambda a, b: a * b, wide, whole)
        | st.builds(lambda a, b: a // b, wide, whole)
        | st.builds(lambda a, b: a % b, wide, whole)
        | wide.map(lambda a: -a)
        | wide.map(abs)
        | number.map(lambda a: a.cast("int64"))
        | text.map(lambda a: a.cast("int64"))
        | text.map(lambda a: a.str.length())
        | moment.map(lambda a: a.dt.year())
        | st.builds(lambda a, b: a - b, moment, moment)
        | st.builds(hash, wide, text, number)
        | text.map(lambda a: a.json("a", "int64"))
    )


def _floats_made(depth: int) -> SearchStrategy[Expr]:
    number = of_type("f64", depth) | st.sampled_from([col(name) for name in NUMBERS])
    wide = of_type("f64", depth)
    return (
        st.builds(lambda a, b: a + b, wide, number)
        | st.builds(lambda a, b: a * b, wide, number)
        | st.builds(lambda a, b: a / b, number, number)
        | st.builds(lambda a, b: a // b, wide, number)
        | st.builds(lambda a, b: a % b, wide, number)
        | st.builds(lambda a, b: a**b, wide, number)
        | st.builds(lambda a, n: a.round(n), wide, st.integers(0, 15))
        | wide.map(lambda a: a.floor())
        | number.map(lambda a: a.sqrt())
        | of_type("text", depth).map(lambda a: a.cast("float64"))
        | of_type("i64", depth).map(lambda a: a.cast("float64"))
    )
