"""Time columns: their values as microseconds and back."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TimeError
from penstock.timing.units import TimeType, time_type

DAY = 86_400_000_000
fixed = settings(deadline=None, derandomize=True)


def of_int(unit: str) -> TimeType:
    return time_type(pa.int64(), unit, "t")


def test_timestamps_are_microseconds_already() -> None:
    for type_ in (pa.timestamp("us"), pa.timestamp("us", "Europe/Rome")):
        time = time_type(type_, None, "at")
        assert (time.unit, time.step, time.micros(-7), time.value(-7)) == ("us", 1, -7, -7)


def test_dates_are_days() -> None:
    time = time_type(pa.date32(), None, "day")
    assert time.micros((date(1969, 12, 31) - date(1970, 1, 1)).days) == -DAY
    assert (time.value(DAY - 1), time.value(-1), time.value(0)) == (0, -1, 0)


@pytest.mark.parametrize(("unit", "us"), [("s", 3_000_000), ("ms", 3_000), ("us", 3)])
def test_an_int_counts_its_unit(unit: str, us: int) -> None:
    assert (of_int(unit).micros(3), of_int(unit).micros(-3)) == (us, -us)
    assert (of_int(unit).value(us), of_int(unit).value(-us)) == (3, -3)


@pytest.mark.parametrize(("ns", "us"), [(999, 0), (1_000, 1), (-1, -1), (-1_000, -1), (-1_001, -2), (0, 0)])
def test_nanoseconds_are_floored_before_1970_too(ns: int, us: int) -> None:
    assert of_int("ns").micros(ns) == us


@pytest.mark.parametrize("us", [2**63 // 1_000 + 1, -(2**63 // 1_000) - 1, 2**61])
def test_a_time_that_nanoseconds_cannot_hold_is_refused(us: int) -> None:
    with pytest.raises(TimeError, match=f"the time {us} us does not fit into nanoseconds of 64 bits"):
        of_int("ns").value(us)


@fixed
@given(st.sampled_from(["s", "ms", "us"]), st.integers(-(10**12), 10**12))
def test_values_come_back_as_they_were(unit: str, value: int) -> None:
    assert of_int(unit).value(of_int(unit).micros(value)) == value


@fixed
@given(st.sampled_from(["s", "ms", "us", "ns"]), st.integers(-(10**15), 10**15))
def test_a_time_is_floored_to_its_unit_and_never_moves_further(unit: str, us: int) -> None:
    time = of_int(unit)
    back = time.micros(time.value(us))
    assert back <= us < back + time.step


@pytest.mark.parametrize(("unit", "us"), [("s", 5_000_000), ("ms", 5_000), ("us", 5)])
def test_a_bare_length_counts_the_columns_unit(unit: str, us: int) -> None:
    assert of_int(unit).length(5, "delay") == us
    assert of_int(unit).length("5 s", "delay") == of_int(unit).length(timedelta(seconds=5), "delay")


def test_a_bare_length_of_nanoseconds_is_a_whole_number_of_microseconds_or_refused() -> None:
    assert of_int("ns").length(5_000, "delay") == 5
    assert of_int("ns").length("5 us", "delay") == 5
    with pytest.raises(TimeError, match="delay 5001 ns is not a whole number of microseconds"):
        of_int("ns").length(5_001, "delay")


def test_a_bare_length_means_nothing_on_a_timestamp_or_a_date() -> None:
    for type_ in (pa.timestamp("us"), pa.date32()):
        with pytest.raises(TimeError, match="has no unit"):
            time_type(type_, None, "at").length(5, "delay")


@pytest.mark.parametrize("unit", [None, "s"])
@pytest.mark.parametrize("type_", [pa.string(), pa.int32(), pa.bool_()])
def test_other_types_cannot_be_time_with_a_unit_or_without(type_: pa.DataType, unit: str | None) -> None:
    with pytest.raises(TimeError, match="cannot be time"):
        time_type(type_, unit, "x")


@pytest.mark.parametrize("unit", [None, "s"])
@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_floats_are_refused_with_whole_numbers_instead(type_: pa.DataType, unit: str | None) -> None:
    with pytest.raises(TimeError, match="is counted in whole microseconds") as caught:
        time_type(type_, unit, "x")
    assert 'int(time.time() * 1_000_000), with time_unit="us"' in str(caught.value.hint)


def test_a_time_type_says_what_it_is() -> None:
    assert str(of_int("ms")) == "int64 in ms"
    assert str(time_type(pa.date32(), None, "day")) == "date32[day]"
