"""The slice of a row's time as JVM arithmetic, equal to `timing/slices.py`, also before 1970.

Assumes times within the limit of `timing/column.py`, where none of this overflows: other rows are row errors
and never reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.timing.slices import Slicing


def slice_start(micros: Column, slicing: Slicing) -> Column:
    """The first microsecond of the slice that holds each time."""
    within = _within(micros, slicing)
    if len(slicing.offsets) == 1:
        return micros - within
    return micros - within + _chosen(within, slicing.offsets, slicing.offsets)


def slice_end(micros: Column, slicing: Slicing) -> Column:
    """The first microsecond after the slice that holds each time."""
    within = _within(micros, slicing)
    if len(slicing.offsets) == 1:
        return micros - within + _long(slicing.period)
    return micros - within + _chosen(within, slicing.offsets, [*slicing.offsets[1:], slicing.period])


def slice_id(micros: Column, slicing: Slicing) -> Column:
    """The number of the slice that holds each time; neighbours have neighbouring numbers."""
    within = _within(micros, slicing)
    rounds = F.call_function("div", micros - within, _long(slicing.period))
    count = len(slicing.offsets)
    if count == 1:
        return rounds
    return rounds * _long(count) + _chosen(within, slicing.offsets, range(count))


def _within(micros: Column, slicing: Slicing) -> Column:
    """How far into its period: pmod rounds down also for negative times, where `%` and `div` do not."""
    return F.pmod(micros, _long(slicing.period))


def _chosen(within: Column, offsets: Sequence[int], values: Sequence[int]) -> Column:
    """The value beside the last offset that is not greater, by halving: six questions for 64 offsets."""
    if len(offsets) == 1:
        return _long(values[0])
    half = len(offsets) // 2
    before = _chosen(within, offsets[:half], values[:half])
    return F.when(within < _long(offsets[half]), before).otherwise(
        _chosen(within, offsets[half:], values[half:])
    )


def _long(value: int) -> Any:
    return F.lit(value).cast("long")
