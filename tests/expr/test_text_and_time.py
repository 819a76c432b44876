"""Text, dates and timestamps."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pyarrow as pa
import pytest

from penstock.errors import SchemaError, TimeError
from penstock.expr import Expr, col, concat, from_epoch
from penstock.expr.python.rules import calendar
from tests.support.evaluation import FAILED, run

A = col("a")
STRING, LIST = pa.string(), pa.list_(pa.int64())


@pytest.mark.parametrize(
    ("expr", "text", "expected"),
    [
        (A.str.lower(), "ÀBc", "Àbc"),
        (A.str.upper(), "ßàb", "ßàB"),
        (A.str.length(), "e\u0301😀", 3),
        (A.str.length(), "", 0),
        (A.str.contains("b."), "ab.c", True),
        (A.str.contains("b."), "abxc", False),
        (A.str.contains(""), "", True),
        (A.str.starts_with("é"), "éa", True),
        (A.str.ends_with("a"), "éa", True),
        (A.str.ends_with("é"), "éa", False),
        (A.str.slice(1, 2), "a😀éb", "😀é"),
        (A.str.slice(-2), "a😀éb", "éb"),
        (A.str.slice(-9, 1), "ab", "a"),
        (A.str.slice(5), "ab", ""),
        (A.str.strip(), "\t a b\r\n", "a b"),
        (A.str.strip(), "\u00a0a", "\u00a0a"),
        (A.str.strip("xé"), "xéaéx", "a"),
        (A.str.replace("aa", "b"), "aaa", "ba"),
        (A.str.replace(".", ""), "a.b.", "ab"),
        (A.str.split(","), "a,,b", ["a", "", "b"]),
        (A.str.split(","), "", [""]),
        (A.str.split(",").list.length(), "a,b", 2),
        (A.str.split(",").list.item(1), "a,b", "b"),
        (A.str.split(",").list.item(-1), "a,b", "b"),
        (A.str.split(",").list.item(2), "a,b", None),
        (concat(A, "-", A), "é", "é-é"),
    ],
)
def test_functions_of_text(expr: Expr, text: str, expected: object) -> None:
    assert run(expr, [text, None], STRING) == [expected, None]


def test_items_of_a_list_column() -> None:
    lists = [[1, None], [], None, [5]]
    assert run(A.list.item(0), lists, LIST) == [1, None, None, 5]
    assert run(A.list.item(-1), lists, LIST) == [None, None, None, 5]
    assert run(A.list.length(), lists, LIST) == [2, 0, None, 1]


def test_a_field_of_a_null_struct_is_null() -> None:
    type = pa.struct({"x": pa.int64()})
    assert run(A.field("x"), [{"x": 1}, {"x": None}, None], type) == [1, None, None]


@pytest.mark.parametrize(
    ("function", "arguments", "fact"),
    [
        ("contains", (5,), "contains needs plain text, not 5"),
        ("starts_with", (A,), "starts_with needs plain text"),
        ("split", ("",), "split cannot look for empty text"),
        ("replace", ("", "x"), "replace cannot look for empty text"),
        ("replace", ("x", 1), "replace needs plain text, not 1"),
        ("strip", ("",), "strip needs characters"),
        ("slice", (1.5,), "slice needs plain whole numbers"),
        ("slice", (0, True), "slice needs plain whole numbers"),
        ("slice", (0, -1), "slice cannot take -1 characters"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    function: str, arguments: tuple[object, ...], fact: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        getattr(A.str, function)(*arguments)
    assert fact in caught.value.fact
    assert caught.value.hint


def test_an_item_that_is_no_number_is_refused() -> None:
    with pytest.raises(SchemaError, match="a list has no item 'x'"):
        A.list.item("x")  # type: ignore[arg-type]  # the mistake under test


def test_concat_of_nothing_is_refused() -> None:
    with pytest.raises(SchemaError, match="nothing to join"):
        concat()


A, B = col("a"), col("b")
TIME, UTC, DAY, I64 = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin"), pa.date32(), pa.int64()
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
SECOND, WHOLE_DAY = 1_000_000, 86_400_000_000


def us(*parts: int) -> int:
    return (datetime(*parts) - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # type: ignore[arg-type]  # ymd hms


def test_the_parts_of_a_timestamp() -> None:
    leap = us(2024, 2, 29, 23, 59, 58)
    before = -1  # one microsecond before 1970
    for name, expected in {
        "year": [2024, 1969, None],
        "month": [2, 12, None],
        "day": [29, 31, None],
        "weekday": [3, 2, None],
        "hour": [23, 23, None],
        "minute": [59, 59, None],
        "second": [58, 59, None],
    }.items():
        assert run(getattr(A.dt, name)(), [leap, before, None], TIME) == expected


def test_the_hour_is_the_hour_in_utc_whatever_the_zone() -> None:
    assert run(A.dt.hour(), [us(2024, 7, 1, 12)], UTC) == [12]


def test_the_parts_of_a_date_reach_beyond_pythons_years() -> None:
    days = [-719_528, -(1 << 31), (1 << 31) - 1]
    assert run(A.dt.year(), days, DAY) == [0, -5_877_641, 5_881_580]
    assert run(A.dt.month(), days, DAY) == [1, 6, 7]
    assert run(A.dt.day(), days, DAY) == [1, 23, 11]


def test_the_calendar_of_the_judge_is_pythons_own_where_python_has_one() -> None:
    first = date(1, 1, 1)
    for offset in [*range(0, 3_652_059, 997), 3_652_058]:
        day = first + timedelta(days=offset)
        assert calendar((day - date(1970, 1, 1)).days) == (day.year, day.month, day.day, day.weekday())


def test_epoch_rounds_towards_minus_infinity() -> None:
    assert run(A.dt.epoch("s"), [1_500_000, -1, None], TIME) == [1, -1, None]
    assert run(A.dt.epoch("ms"), [1_500_000, -1], TIME) == [1500, -1]
    assert run(A.dt.epoch("us"), [LEAST], TIME) == [LEAST]
    assert run(A.dt.epoch("d"), [WHOLE_DAY, -1], TIME) == [1, -1]
    assert run(A.dt.epoch("d"), [-(1 << 31), 5], DAY) == [-(1 << 31), 5]


def test_from_epoch_fails_beyond_the_range_of_a_timestamp() -> None:
    assert run(from_epoch(A, "ms"), [1500, None], I64) == [1_500_000, None]
    assert run(from_epoch(A, "d"), [1, 106_751_991, 106_751_992], I64) == [
        WHOLE_DAY,
        106_751_991 * WHOLE_DAY,
        FAILED,
    ]
    assert run(from_epoch(A, "s"), [-1], pa.int8()) == [-SECOND]


def test_truncate_rounds_down_to_multiples_since_1970() -> None:
    assert run(A.dt.truncate("10 s"), [19 * SECOND, -1, None], TIME) == [10 * SECOND, -10 * SECOND, None]
    assert run(A.dt.truncate(timedelta(days=1)), [LEAST], TIME) == [FAILED]


def test_a_time_shifts_by_a_duration() -> None:
    assert run(A + "10 s", [0, None, GREATEST], TIME) == [10 * SECOND, None, FAILED]
    assert run(timedelta(seconds=1) + A, [0], UTC) == [SECOND]
    assert run(A - "1 us", [0, LEAST], TIME) == [-1, FAILED]


def test_the_difference_of_two_times_is_microseconds() -> None:
    assert run(A - B, [5, GREATEST, None], TIME, b=([7, -1, 1], TIME)) == [-2, FAILED, None]
    assert run(A - datetime(1970, 1, 1, 0, 0, 1), [0], TIME) == [-SECOND]


def test_wrong_durations_and_units_are_refused() -> None:
    with pytest.raises(TimeError, match="'abc' is not a duration") as caught:
        A + "abc"
    assert "concat" in str(caught.value.hint)
    with pytest.raises(TimeError, match="not a positive duration"):
        A.dt.truncate("0 s")
    with pytest.raises(TimeError, match="longer than all of time"):
        A + timedelta.max
    with pytest.raises(TimeError, match="longer than all of time"):
        A.dt.truncate(timedelta.max)
    with pytest.raises(TimeError, match="'ns' is not a unit of time here"):
        A.dt.epoch("ns")
    with pytest.raises(TimeError, match="'min' is not a unit of time here"):
        from_epoch(A, "min")
