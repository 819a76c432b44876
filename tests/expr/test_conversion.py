"""Casts, fields of structs, items of lists, and JSON."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import RowFailure, SchemaError
from penstock.expr import col, lower_python
from tests.support.evaluation import FAILED, run, same

A = col("a")
STRING, I64, F64 = pa.string(), pa.int64(), pa.float64()
DAY = 86_400_000_000


def test_numbers_fail_out_of_range() -> None:
    assert run(A.cast("int8"), [127, 128, -128, -129, None], I64) == [127, FAILED, -128, FAILED, None]


def test_floats_become_integers_towards_zero() -> None:
    assert run(A.cast("int8"), [127.9, -128.9, 128.0, -129.0, -0.5], F64) == [127, -128, FAILED, FAILED, 0]
    assert run(A.cast("int64"), [2.0**63, -(2.0**63), math.nan, math.inf], F64) == [
        FAILED,
        -(1 << 63),
        FAILED,
        FAILED,
    ]


def test_floats_become_the_nearest_float32() -> None:
    assert run(A.cast("float32"), [0.1, 1e300], F64) == [0.10000000149011612, math.inf]
    assert run(A.cast("float64"), [(1 << 53) + 1], I64) == [2.0**53]


def test_conditions_become_one_and_zero() -> None:
    assert run(A.cast("int8"), [True, False, None], pa.bool_()) == [1, 0, None]
    assert run(A.cast("float32"), [True], pa.bool_()) == [1.0]
    assert run(A.cast("string"), [True, False], pa.bool_()) == ["true", "false"]


def test_text_becomes_integers() -> None:
    texts = ["12", "-7", "+7", "007", " 7", "7 ", "", "-", "1.0", "0x10", "abc", "٣", "1\n", None]
    assert run(A.cast("int64"), texts, STRING) == [12, -7, 7, 7, *[FAILED] * 9, None]
    edges = [
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "0" * 9999,
    ]
    assert run(A.cast("int64"), edges, STRING) == [(1 << 63) - 1, FAILED, -(1 << 63), FAILED, 0]
    assert run(A.cast("int8"), ["127", "128", "9" * 9999], STRING) == [127, FAILED, FAILED]


def test_text_becomes_floats() -> None:
    texts = ["1.5", ".5", "5.", "-1e3", "1e400", "Infinity", "-Infinity"]
    assert run(A.cast("float64"), texts, STRING) == [1.5, 0.5, 5.0, -1000.0, math.inf, math.inf, -math.inf]
    assert same(run(A.cast("float64"), ["NaN"], STRING), [math.nan])
    wrong = ["nan", "inf", "1_0", "", ".", "e5", " 1", "1d", "0x1p3"]
    assert run(A.cast("float64"), wrong, STRING) == [FAILED] * len(wrong)


def test_text_becomes_conditions() -> None:
    assert run(A.cast("bool"), ["true", "FALSE", "t", "1", "falſe"], STRING) == [
        True,
        False,
        FAILED,
        FAILED,
        FAILED,
    ]


def test_text_becomes_dates() -> None:
    texts = [
        "1970-01-02",
        "2024-02-29",
        "2023-02-29",
        "0000-01-01",
        "2024-1-1",
        "2024-13-01",
        "2024-01-01T00:00",
    ]
    assert run(A.cast("date"), texts, STRING) == [1, 19782, *[FAILED] * 5]


def test_text_becomes_timestamps() -> None:
    good = ["1970-01-02", "1970-01-01T00:01", "1970-01-01 00:00:01.5", "1970-01-01T00:00:00.123456789Z"]
    good += ["1970-01-01T01:00+01:00", "1970-01-01T00:00:00-00:30"]
    assert run(A.cast("timestamp"), good, STRING) == [DAY, 60_000_000, 1_500_000, 123_456, 0, 1_800_000_000]
    wrong = [
        "1970-01-01T24:00",
        "1970-01-01T00:60",
        "1970-01-01T00:00:60",
        "1970-01-01Z",
        "1970-01-01T00",
        "now",
    ]
    assert run(A.cast("timestamp[us, UTC]"), wrong, STRING) == [FAILED] * len(wrong)


def test_times_become_text_in_one_form() -> None:
    assert run(A.cast("string"), [0, -1, None], pa.timestamp("us", "UTC")) == [
        "1970-01-01T00:00:00.000000",
        "1969-12-31T23:59:59.999999",
        None,
    ]
    assert run(A.cast("string"), [19782, -719_162, -719_163, 2_932_897], pa.date32()) == [
        "2024-02-29",
        "0001-01-01",
        FAILED,
        FAILED,
    ]


def test_dates_and_timestamps_become_each_other() -> None:
    assert run(A.cast("timestamp"), [1, 106_751_992], pa.date32()) == [DAY, FAILED]
    assert run(A.cast("date"), [DAY, -1], pa.timestamp("us")) == [1, -1]
    assert run(A.cast("timestamp"), [5], pa.timestamp("us", "Asia/Tokyo")) == [5]


def test_integers_become_text_and_text_becomes_bytes() -> None:
    assert run(A.cast("string"), [-(1 << 63), 0, None], I64) == ["-9223372036854775808", "0", None]
    assert run(A.cast("binary"), ["é", None], STRING) == ["é".encode(), None]


def test_decimals_become_the_nearest_float() -> None:
    values = [Decimal("0.1"), Decimal("1234567890123456.7"), None]
    assert run(A.cast("float64"), values, pa.decimal128(20, 1)) == [0.1, 1234567890123456.7, None]
    assert run(A.cast("decimal(10, 2)"), [Decimal("1.5")], pa.decimal128(5, 1)) == [Decimal("1.50")]


def test_an_unknown_type_name_is_refused() -> None:
    with pytest.raises(SchemaError, match='"int46" is not the name of a type'):
        A.cast("int46")


@pytest.mark.parametrize(
    ("type", "reason"), [("int64", "cannot be read as int64"), ("date", "cannot be read as date")]
)
def test_a_failed_cast_names_the_text(type: str, reason: str) -> None:
    with pytest.raises(RowFailure, match=f"'abc' {reason}"):
        lower_python(A.cast(type), pa.schema({"a": STRING}))({"a": "abc"})


STRING = pa.string()


@pytest.mark.parametrize(
    ("path", "type", "text", "expected"),
    [
        ("user.id", "int64", '{"user": {"id": 7}}', 7),
        ("items[0].price", "float64", '{"items": [{"price": 2.5}]}', 2.5),
        ("[1]", "string", '["a", "b"]', "b"),
        ("a", "bool", '{"a": true}', True),
        ("a", "float64", '{"a": 3}', 3.0),
        ("a", "int64", "{}", None),
        ("a", "int64", '{"a": null}', None),
        ("a.b", "int64", '{"a": 5}', None),
        ("a[3]", "int64", '{"a": [1]}', None),
        ("a", "int64", "[1]", None),
        ("a", "string", '{"a": "\\u00e9"}', "é"),
        ("a", "int64", '{"a": "7"}', FAILED),
        ("a", "string", '{"a": 7}', FAILED),
        ("a", "int64", '{"a": 1.0}', FAILED),
        ("a", "int64", '{"a": true}', FAILED),
        ("a", "string", '{"a": {}}', FAILED),
        ("a", "int8", '{"a": 128}', FAILED),
        ("a", "float64", '{"a": 1e999}', FAILED),
        ("a", "float64", '{"a": ' + "1" * 400 + "}", FAILED),
        ("a", "float64", '{"a": NaN}', FAILED),
        ("a", "int64", '{"a": 1, "a": 2}', FAILED),
        ("a", "string", '{"a": "\\ud800"}', FAILED),
        ("a", "int64", "{", FAILED),
        ("a", "int64", "", FAILED),
        ("a", "int64", "[" * 100_000, FAILED),
    ],
)
def test_a_scalar_out_of_json(path: str, type: str, text: str, expected: object) -> None:
    assert run(A.json(path, type), [text, None, text], STRING) == [expected, None, expected]


@pytest.mark.parametrize("path", ["", ".a", "a.", "a..b", "a[", "a[x]", "a]b", 5])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(SchemaError, match="is not a path into JSON") as caught:
        A.json(path, "int64")
    assert "user.id" in str(caught.value.hint)


def test_json_has_no_times() -> None:
    with pytest.raises(SchemaError, match="JSON has no timestamp") as caught:
        A.json("a", "timestamp")
    assert '.json("a", "string").cast("timestamp")' in str(caught.value.hint)


def test_malformed_json_is_named_in_the_reason() -> None:
    with pytest.raises(RowFailure, match="malformed JSON"):
        lower_python(A.json("a", "int64"), pa.schema({"a": STRING}))({"a": "{"})
