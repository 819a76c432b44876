"""The slice of a row's time as JVM arithmetic, equal to `timing/slices.py`, also before 1970.

Assumes times within the limit of `timing/column.py`, where none of this overflows: other rows are row errors
and never reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions import SharedColumns, SparkValue, lower_spark
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.expressions.spark_value import any_failed
from penstock.engines.spark.jvm.frames import ALIVE, FAILED, FATE, LATE, NO_WINDOW, TIME, marked, whole
from penstock.expr import Expr, type_of
from penstock.frozen import dataclass
from penstock.operators.windows import Windows
from penstock.plan.plan import Step
from penstock.stages.patterns.partial_stores import PartialFormat
from penstock.stages.rows.arrays import Form
from penstock.stages.window.accumulators import (
    AccumulatorKind,
    AccumulatorLayout,
    WindowAccumulator,
    plan_accumulators,
)
from penstock.timing.bucket import BUCKETS, NO_COLUMNS
from penstock.timing.slices import Slicing, first_open
from penstock.timing.windows import TimeWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


# The parts of time windows by Spark's own grouping: late rows apart, then one group per key and slice.
#
# Every register of the step is one or two of Spark's aggregates (`_cell`). Rows with another fate than to be
# in a window are one group per fate. What integers cannot express here, floats in their order, is done to the
# few groups that come out (`native_groups.py`).

START = "start"
_NARROW = (pa.bool_(), pa.int8(), pa.int16(), pa.int32())


@dataclass(frozen=True, slots=True)
class Judged:
    """What can happen to the rows of a batch, known from its least time: nothing is asked that cannot be.

    late    whether a row can be late for some window
    missed  whether a row can have missed a window of its
    """

    late: bool
    missed: bool


class NativeParts:
    """The grouping of one window step."""

    def __init__(self, step: Step) -> None:
        op, up = step.op, step.up
        assert isinstance(op, Windows), "only windows come in parts"
        self._up, resolved = up, op.resolve(up)
        self.labels = [label or str(window) for label, window in resolved.windows]
        self._windows = [window for _, window in resolved.windows if isinstance(window, TimeWindow)]
        self._slicing = Slicing.of(self._windows)
        self._lateness = resolved.lateness
        self._sheet = AccumulatorLayout(up, totally_ordered=False, windows=self._windows)
        for aggregate in (op.aggregates or {}).values():
            plan_accumulators(aggregate, self._sheet)
        self.format = PartialFormat(up, self._sheet.accumulators)
        self.registers = tuple(self._sheet.accumulators)

    def grouped(self, frame: DataFrame, least: int, watermark: int) -> DataFrame:
        """The groups of a batch: fate, judged, keys, start, registers, and misses per kind of window.

        least      the least time of the batch, microseconds
        watermark  the one that judges it
        """
        judged = self._judged(least, watermark)
        frame, values = self._lowered(frame)
        frame = self._with_fates(frame, values, judged, watermark)
        fated = FATE in frame.columns
        fate = F.col(f"`{FATE}`") if fated else F.lit(ALIVE)
        groups = [fate.alias("fate")] if fated else list[Column]()
        for name, given in zip(self.format.key, self._up.key, strict=True):
            key = column(given)
            groups.append((F.when(fate == ALIVE, key) if fated else key).alias(name))
        start = slice_start(F.col(f"`{TIME}`"), self._slicing)
        groups.append((F.when(fate == ALIVE, start) if fated else start).alias(START))
        named = [
            each.alias(name)
            for place, register in enumerate(self.registers)
            for each, name in zip(self._cell(register, values), columns_of(place, register), strict=True)
        ]
        misses = [f"missed{place}" for place in range(len(self._windows))]
        if judged.missed:
            counts = (self._misses(window, watermark) for window in self._windows)
            named += [F.sum(each).alias(name) for each, name in zip(counts, misses, strict=True)]
        found = frame.groupBy(*groups).agg(*named)
        return found.select(
            "fate" if fated else F.lit(ALIVE).alias("fate"),
            _native_parts_long(watermark).alias("judged"),
            *self.format.key,
            START,
            *(name for name, _ in self.columns),
            *(name if judged.missed else _native_parts_long(0).alias(name) for name in misses),
        )

    def late(self, frame: DataFrame, least: int, watermark: int) -> DataFrame | None:
        """The late rows of a batch, as they came; None when there can be none."""
        judged = self._judged(least, watermark)
        if not judged.late:
            return None
        frame, values = self._lowered(frame)
        marks = self._with_fates(frame, values, judged, watermark)
        return marks.where(F.col(f"`{FATE}`") == LATE)

    @property
    def columns(self) -> tuple[tuple[str, int], ...]:
        """The columns of groups in the order of parts; 1 and -1 tell floats to be put in order."""
        found = []
        for place, register in enumerate(self.registers):
            floats = register.column is not None and self.values[register.column][1] is Form.ORDERED
            order = {AccumulatorKind.MAX: 1, AccumulatorKind.MIN: -1}.get(register.kind, 0) if floats else 0
            found += [(name, order) for name in columns_of(place, register)]
        return tuple(found)

    def _judged(self, least: int, watermark: int) -> Judged:
        opens = [first_open(window, watermark, self._lateness) for window in self._windows]
        return Judged(least < max(opens), least < watermark - self._lateness)

    def _lowered(self, frame: DataFrame) -> tuple[DataFrame, list[SparkValue]]:
        """The aggregated expressions, and the rows that they are to be selected from."""
        parts = SharedColumns(frame)
        values = [lower_spark(expr, self._up.schema, shared=parts) for expr, _ in self.values]
        return parts.rows, values

    def _with_fates(
        self, frame: DataFrame, values: list[SparkValue], judged: Judged, watermark: int
    ) -> DataFrame:
        failed = any_failed(*(each.failed for each in values))
        if failed is not None:
            frame = frame.withColumn(FATE, marked(frame, failed, FAILED))
        if not judged.late and not self._slicing.has_gaps:
            return frame
        time = F.col(f"`{TIME}`")
        taken, late = F.lit(False), F.lit(False)
        for window in self._windows:
            inside = F.pmod(time, _native_parts_long(window.every)) < _native_parts_long(window.size)
            is_open = time >= _native_parts_long(first_open(window, watermark, self._lateness))
            taken, late = taken | (inside & is_open), late | (inside & ~is_open)
        frame = frame.withColumn(FATE, marked(frame, ~taken & late, LATE))
        return frame.withColumn(FATE, marked(frame, ~taken & ~late, NO_WINDOW))

    def _misses(self, window: TimeWindow, watermark: int) -> Column:
        """As `timing.slices.closed_windows_of`, for the rows that are in a window or late."""
        time, every = F.col(f"`{TIME}`"), _native_parts_long(window.every)
        opens = first_open(window, watermark, self._lateness)
        last = F.least(time - F.pmod(time, every), _native_parts_long(opens - window.every))
        before = time - _native_parts_long(window.size)
        first = before - F.pmod(before, every) + every
        n = F.greatest(F.call_function("div", last - first, every) + F.lit(1), _native_parts_long(0))
        return F.when(last >= first, n).otherwise(_native_parts_long(0))

    @property
    def values(self) -> list[tuple[Expr, Form]]:
        """What is aggregated, and in which form registers keep it."""
        found = []
        for expr, form in self._sheet.values:
            assert isinstance(expr, Expr), "folds are not grouped by Spark"
            assert form is not None, "expressions come in a form"
            found.append((expr, form))
        return found

    def _cell(self, register: WindowAccumulator, values: list[SparkValue]) -> list[Column]:
        """A register's cell as aggregates; a cell without values is as its rule has it."""
        what = register.kind
        if what is AccumulatorKind.ROWS:
            return [F.count(F.lit(1))]
        if what is AccumulatorKind.MAX_TIME:
            return [F.max(F.col(f"`{TIME}`"))]
        assert register.column is not None, f"a register of kind {what} is of a column"
        value = values[register.column].value
        type_ = type_of(self.values[register.column][0], self._up.schema)
        if what is AccumulatorKind.COUNT:
            return [F.count(value)]
        if what is AccumulatorKind.INT_SUM:
            return _exact_sum(whole(value, type_), type_)
        if what is AccumulatorKind.FLOAT_SUM:
            return [F.coalesce(F.sum(value.cast("double")), F.lit(0.0))]
        if what is AccumulatorKind.MOMENTS:
            return _moments(_as_double(value, type_))
        most = what is AccumulatorKind.MAX
        if kind.is_floating(type_):
            return [F.max(value.cast("double")) if most else F.min(value.cast("double"))]
        given = whole(value, type_)
        found = F.max(given) if most else F.bitwise_not(F.min(given))
        return [F.coalesce(found, _native_parts_long(int(register.rule.neutral[0])))]


def columns_of(place: int, register: WindowAccumulator) -> list[str]:
    """The columns of a register among those of a group."""
    return [f"r{place}_{part}" for part in range(register.rule.width)]


def _exact_sum(value: Column, type_: pa.DataType) -> list[Column]:
    """Two halves that cannot overflow; small integers fit into the lower one, however many they are."""
    none = _native_parts_long(0)
    if type_ in _NARROW:
        return [none, F.coalesce(F.sum(value), none)]
    lower = value.bitwiseAND(_native_parts_long(0xFFFFFFFF))
    return [F.coalesce(F.sum(F.shiftright(value, 32)), none), F.coalesce(F.sum(lower), none)]


def _moments(value: Column) -> list[Column]:
    n = F.count(value).cast("double")
    return [n, F.coalesce(F.avg(value), F.lit(0.0)), F.coalesce(F.var_pop(value) * n, F.lit(0.0))]


def _as_double(value: Column, type_: pa.DataType) -> Column:
    return value.cast("double") if kind.is_floating(type_) else whole(value, type_).cast("double")


def _native_parts_long(value: int) -> Column:
    return F.lit(value).cast("long")


# The bucket of a row's key as JVM arithmetic, equal to `timing/bucket.py` over `stages/keys/slots.py`.
#
# State is saved and dealt out by bucket, so this must never change: a property test holds it to the hash that
# the stages compute. Null, NaN and the two zeros are hashed alike on both sides.


def bucket(names: Sequence[str]) -> Column:
    """The bucket, an INT from 0 to 255, of the key in these columns; without columns always the same."""
    if not names:
        return F.lit(NO_COLUMNS)
    hashed = F.xxhash64(*(column(name) for name in names))
    return F.pmod(hashed, F.lit(BUCKETS).cast("long")).cast("int")
