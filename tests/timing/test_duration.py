"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TimeError
from penstock.timing.units import MICROS, micros, spell


@pytest.mark.parametrize(
    ("value", "us"),
    [
        ("10 s", 10_000_000),
        ("100 ms", 100_000),
        ("5 min", 300_000_000),
        ("1.5 h", 5_400_000_000),
        ("2 d", 172_800_000_000),
        ("7 us", 7),
        ("7 µs", 7),
        ("3seconds", 3_000_000),
        (" 1  minute ", 60_000_000),
        ("0.000001 s", 1),
        ("0 s", 0),
        (timedelta(minutes=1, microseconds=1), 60_000_001),
        (timedelta(seconds=-1), -1_000_000),
    ],
)
def test_a_duration_is_read_exactly(value: Any, us: int) -> None:
    assert micros(value) == us


def test_a_bare_number_counts_units_where_there_is_one() -> None:
    assert micros(5, unit=1_000) == 5_000
    with pytest.raises(TimeError, match="window size 5 has no unit") as caught:
        micros(5, subject="window size")
    assert caught.value.hint == 'write "5 s", "5 ms" or a timedelta'


@settings(deadline=None, derandomize=True)
@given(st.integers(-(10**15), 10**15))
def test_a_spelt_duration_reads_back(us: int) -> None:
    number, unit = spell(us).split()
    assert int(number) * MICROS[unit] == us
    if us >= 0:
        assert micros(spell(us)) == us


@settings(deadline=None, derandomize=True)
@given(st.timedeltas(min_value=timedelta(-(10**6)), max_value=timedelta(10**6)))
def test_a_timedelta_loses_nothing(length: timedelta) -> None:
    assert timedelta(microseconds=micros(length)) == length
