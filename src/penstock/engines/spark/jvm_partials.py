"""Partial aggregates by Spark's own grouping: one row per key and slice, with the cells of every accumulator.

The one lowering of accumulators to Spark, for DataFrames that are the source of a graph and for
`penstock.spark.window_aggregate`. Sums of integers come in two halves, so that they are exact and cannot
overflow; least values as complements; extremes of floats as floats, because Spark has no word for their bits:
the worker turns them into the integers that accumulators compare (`to_batch`). A row on which an expression
fails stops the query.

Assumes times within the limit of `timing/units.py`, where none of this arithmetic overflows: other rows are
row errors and never reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engines.spark.expressions import SharedColumns, lower_spark
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.types import from_spark, spark_type
from penstock.expr import Expr, type_of
from penstock.kernels.windows.accumulate import INT64_MIN, Cells, encode_floats
from penstock.operators.choices import AccumulatorKind
from penstock.operators.op import Stream
from penstock.operators.windows import Windows
from penstock.stages.patterns.partials import PartialFormat
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.input import NEVER, Form
from penstock.stages.window.accumulators import AccumulatorLayout, WindowAccumulator, plan_accumulators
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

MICROS = "us"
START = "start"


class JvmPartials:
    """The partials of one window step: Columns to group by and to aggregate, and groups as partials."""

    def __init__(self, op: Windows, up: Stream) -> None:
        windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
        (self.slicing,) = Slicing.groups(windows)
        self._window = windows.index(self.slicing.windows[0])
        self._up, self._run = up, JitPolicy()
        self._layout = AccumulatorLayout(up, totally_ordered=False, windows=windows)
        for aggregate in (op.aggregates or {}).values():
            plan_accumulators(aggregate, self._layout)
        self.format = PartialFormat(up, self._layout.accumulators)

    @property
    def keys(self) -> list[str]:
        """Return the names of the key columns among the inputs and in groups."""
        return [f"k{place}" for place in range(len(self._up.key))]

    def group(self, rows: DataFrame, time: Column) -> DataFrame:
        """Return one row per key and slice: the keys, where the slice starts, and the cells."""
        inputs = self.select_inputs(rows, time, slice_start(time, self.slicing).alias(START))
        return inputs.groupBy(*self.keys, START).agg(*self.cells())

    def select_inputs(self, rows: DataFrame, time: Column, *more: Column) -> DataFrame:
        """Return the columns that are grouped: keys k0, …, the time "us", the values v0, … of aggregates."""
        keys = [column(name).alias(key) for name, key in zip(self._up.key, self.keys, strict=True)]
        shared = SharedColumns(rows)
        values = [
            self._value(expr, form, shared).alias(f"v{i}")
            for i, (expr, form) in enumerate(self._layout.values)
        ]
        return shared.rows.select(*keys, time.alias(MICROS), *values, *more)

    def cells(self) -> list[Column]:
        """Return the aggregates p0, …: the cells of every accumulator, in the order of partials."""
        cells = [cell for accumulator in self._layout.accumulators for cell in self._cells(accumulator)]
        return [cell.alias(f"p{place}") for place, cell in enumerate(cells)]

    def to_batch(self, groups: pa.RecordBatch) -> Batch:
        """Return groups (keys, start, cells, by place) as partials; none has to wait for a watermark."""
        n_keys, format_ = len(self._up.key), self.format.schema
        keys = from_spark(groups.select(list(range(n_keys))), pa.schema(list(format_)[:n_keys])).columns
        start, *cells = groups.columns[n_keys:]
        starts = start.to_numpy(zero_copy_only=False)
        window, watermark = (
            pa.array(np.full(len(starts), constant, np.int64)) for constant in (self._window, NEVER)
        )
        accumulators = [a for a in self._layout.accumulators for _ in range(a.rule.width)]
        cells = [
            self._order_floats(cell, accumulator) if self._is_float(accumulator) else cell
            for cell, accumulator in zip(cells, accumulators, strict=True)
        ]
        columns = [*keys, window, start, watermark, *cells]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=format_), starts)

    def _value(self, expr: object, form: Form | None, shared: SharedColumns) -> Column:
        """Return what an accumulator reads: a BIGINT or a DOUBLE, or anything where only nulls count."""
        assert isinstance(expr, Expr), "folds are not for the JVM"
        lowered, type_ = lower_spark(expr, self._up.schema, shared=shared), type_of(expr, self._up.schema)
        value = lowered.value
        if lowered.failed is not None:
            failure = F.raise_error(F.lit(f"{expr!s:.200} failed on a row")).cast(spark_type(type_))
            value = F.when(lowered.failed, failure).otherwise(value)
        if form is Form.PRESENT:
            return value
        if form in (Form.FLOAT, Form.ORDERED):
            return value.cast("double")
        return to_long(value, type_)

    def _cells(self, accumulator: WindowAccumulator) -> Iterator[Column]:
        """Yield the cells of an accumulator as aggregates; without values they are as its rule has them."""
        value = F.col(MICROS if accumulator.column is None else f"v{accumulator.column}")
        match accumulator.kind:
            case AccumulatorKind.ROWS:
                yield F.count(F.lit(1))
            case AccumulatorKind.COUNT:
                yield F.count(value)
            case AccumulatorKind.INT_SUM:
                yield F.coalesce(F.sum(F.shiftright(value, 32)), long(0))
                yield F.coalesce(F.sum(value.bitwiseAND(long(0xFFFFFFFF))), long(0))
            case AccumulatorKind.FLOAT_SUM:
                yield F.coalesce(F.sum(value), F.lit(0.0))
            case AccumulatorKind.MOMENTS:
                n = F.count(value).cast("double")
                yield n
                yield F.coalesce(F.avg(value), F.lit(0.0))
                yield F.coalesce(F.var_pop(value) * n, F.lit(0.0))
            case AccumulatorKind.MAX if self._is_float(accumulator):
                yield F.max(value)
            case AccumulatorKind.MIN if self._is_float(accumulator):
                yield F.min(value)
            case AccumulatorKind.MIN:
                yield F.coalesce(F.max(F.bitwise_not(value)), long(INT64_MIN))
            case _:
                assert accumulator.kind in (AccumulatorKind.MAX, AccumulatorKind.MAX_TIME), (
                    f"{accumulator.kind} is not for the JVM"
                )
                yield F.coalesce(F.max(value), long(INT64_MIN))

    def _is_float(self, accumulator: WindowAccumulator) -> bool:
        """Return whether an accumulator compares floats."""
        place = accumulator.column
        return place is not None and self._layout.values[place][1] is Form.ORDERED

    def _order_floats(self, extremes: pa.Array, accumulator: WindowAccumulator) -> pa.Array:
        """Return floats as the integers that accumulators compare; null is the least of all."""
        floats: Cells = extremes.to_numpy(zero_copy_only=False)
        ordered = np.empty(len(floats), np.int64)
        if len(floats):
            self._run(encode_floats, np.ascontiguousarray(floats, np.float64).view(np.int64), ordered)
        ordered = ~ordered if accumulator.flip else ordered
        return pa.array(np.where(extremes.is_null().to_numpy(zero_copy_only=False), INT64_MIN, ordered))


def slice_start(micros: Column, slicing: Slicing) -> Column:
    """Return the first microsecond of the slice that holds each time, also before 1970."""
    return _slice_bound(micros, slicing, slicing.offsets)


def slice_end(micros: Column, slicing: Slicing) -> Column:
    """Return the first microsecond after the slice that holds each time."""
    return _slice_bound(micros, slicing, [*slicing.offsets[1:], slicing.period])


def _slice_bound(micros: Column, slicing: Slicing, bounds: Sequence[int]) -> Column:
    """Return a bound of the slice that holds each time; `bounds` are those of the slices in a period."""
    # Why: pmod rounds down also for negative times, where `%` and `div` do not.
    within = F.pmod(micros, long(slicing.period))
    return micros - within + _look_up(within, slicing.offsets, bounds)


def in_some_window(micros: Column, slicing: Slicing) -> Column:
    """Return whether a time is in a window at all; windows may leave gaps."""
    if not slicing.has_gaps:
        return F.lit(True)
    inside = F.lit(False)
    for window in slicing.windows:
        inside = inside | (F.pmod(micros, long(window.every)) < long(window.size))
    return inside


def long(value: int) -> Any:
    """Return a literal BIGINT."""
    return F.lit(value).cast("long")


def to_long(value: Column, type_: pa.DataType) -> Column:
    """Return integers, bools, dates and timestamps as the BIGINT below them."""
    if kind.is_timestamp(type_):
        return F.unix_micros(value)
    if kind.is_date32(type_):
        return F.unix_date(value).cast("long")
    if kind.is_boolean(type_):
        return value.cast("int").cast("long")
    return value if kind.is_int64(type_) else value.cast("long")


def _look_up(within: Column, offsets: Sequence[int], values: Sequence[int]) -> Column:
    """Return the value beside the last offset that is not greater, by halving: six tests for 64 offsets."""
    if len(offsets) == 1:
        return long(values[0])
    half = len(offsets) // 2
    before = _look_up(within, offsets[:half], values[:half])
    after = _look_up(within, offsets[half:], values[half:])
    return F.when(within < long(offsets[half]), before).otherwise(after)
