"""What is shipped to workers: the window step, and the road that its rows take there.

NATIVE  the JVM makes one row of numbers per (slice, key); windows are put together from these
PARTS   Python makes those numbers, near the rows, for folds and what the JVM cannot count
ROWS    rows travel to their bucket: sessions, count windows, and aggregates of whole windows
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.engines.spark.dataframes.frame import as_ours, has_valid_time, micros
from penstock.engines.spark.expressions import lower_spark
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.types import spark_type
from penstock.errors import Where
from penstock.expr import Expr, type_of
from penstock.expr.nodes.columns import Column as ColumnNode
from penstock.frozen import dataclass
from penstock.kernels.windows.accumulate import INT64_MIN, Cells, encode_floats
from penstock.operators.choices.accumulators import AccumulatorKind
from penstock.operators.choices.patterns import PANED, why_not_pattern
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import ResolvedWindows, Windows
from penstock.stages.patterns.partial_stores import PartialFormat
from penstock.stages.patterns.partials import FinalAggregateStage, PartialAggregateStage
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.arrays import Form
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Site
from penstock.stages.window.accumulators import AccumulatorLayout, WindowAccumulator, plan_accumulators
from penstock.stages.window.inputs import InputEvaluator
from penstock.stages.window.stage import WindowStage
from penstock.stages.window.store import NEVER
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

STEP = "window_aggregate"
IN_THE_JVM = frozenset(
    {
        AccumulatorKind.ROWS,
        AccumulatorKind.COUNT,
        AccumulatorKind.INT_SUM,
        AccumulatorKind.FLOAT_SUM,
        AccumulatorKind.MAX,
        AccumulatorKind.MIN,
        AccumulatorKind.MOMENTS,
        AccumulatorKind.MAX_TIME,
    }
)
"""Registers that Spark's own aggregates make."""


class ExecutionPath(StrEnum):
    """How rows become windows."""

    NATIVE = "native"
    PARTS = "parts"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WindowTask:
    """A window step over the columns of a frame."""

    op: Windows
    up: Stream
    time: str
    where: Where | None
    road: ExecutionPath

    @classmethod
    def of(cls, op: Windows, up: Stream, time: str, where: Where | None, *, utc: bool) -> WindowTask:
        """The recipe with the best road that can take the step; `utc` is the zone of the session."""
        if why_not_pattern(PANED, op, up, totally_ordered=False) is not None:
            return cls(op, up, time, where, ExecutionPath.ROWS)
        made = cls(op, up, time, where, ExecutionPath.NATIVE)
        return made if made._is_native(utc) else cls(op, up, time, where, ExecutionPath.PARTS)

    def _is_native(self, utc: bool) -> bool:
        sheet = self.sheet()
        if len(self.slicings) > 1 or any(each.kind not in IN_THE_JVM for each in sheet.accumulators):
            return False
        # Expressions read the clock and the calendar of the session, which must be those of every engine.
        return utc or all(isinstance(expr, ColumnNode) for expr, _ in sheet.values)

    @property
    def resolved(self) -> ResolvedWindows:
        """The windows in microseconds."""
        return self.op.resolve(self.up)

    @property
    def slicings(self) -> Mapping[int, Slicing]:
        """The slices of time windows, each by the number that its parts have in the column "window"."""
        windows = [window for _, window in self.resolved.windows if isinstance(window, TimeWindow)]
        return {windows.index(slicing.windows[0]): slicing for slicing in Slicing.groups(windows)}

    @property
    def results(self) -> pa.Schema:
        """The columns that come out."""
        return self.op.outputs({IN: self.up})[OUT].schema

    def sheet(self) -> AccumulatorLayout:
        """The registers of the step, as its stages have them."""
        aggregates = self.op.aggregates or {}
        windows = [window for _, window in self.resolved.windows]
        foldings = InputEvaluator(aggregates, self.up).accumulator_folds
        sheet = AccumulatorLayout(self.up, totally_ordered=False, windows=windows, folds=foldings)
        for aggregate in aggregates.values():
            plan_accumulators(aggregate, sheet)
        return sheet

    def stage(self) -> WindowStage:
        """The stage that windows leave from: it takes rows, or on the other roads parts of slices."""
        if self.road is ExecutionPath.ROWS:
            return WindowStage(self.op, self.up, self._site())
        return FinalAggregateStage(self.op, self.up, self._site())

    def part_stage(self) -> PartialAggregateStage:
        """The stage that makes parts of rows."""
        return PartialAggregateStage(self.op, self.up, self._site())

    def _site(self) -> Site:
        return Site(STEP, self.where, Accounts(), WallClock())


# Partial aggregates in the JVM: one row per (key, slice) with the numbers of every register.
#
# Sums of integers come in two halves, so that they are exact and cannot overflow; least values as
# complements; extremes of floats as floats, whose bits Spark has no word for: the worker turns them into
# the integers that registers compare (`NativeParts`). A row on which an expression fails stops the query,
# as in a graph.

MICROS = "us"
START = "start"


def long(value: int) -> Column:
    """A literal BIGINT."""
    return F.lit(value).cast("long")


def project_inputs(df: DataFrame, recipe: WindowTask, *more: Column) -> DataFrame:
    """Key columns k0, …, the time "us", the values v0, … of aggregates; rows in no window are gone."""
    sheet, (slicing,) = recipe.sheet(), recipe.slicings.values()
    keys = [column(name).alias(f"k{place}") for place, name in enumerate(recipe.up.key)]
    values = [_value(what, how, recipe).alias(f"v{i}") for i, (what, how) in enumerate(sheet.values)]
    inside = has_valid_time(recipe.time) & _in_some_window(micros(recipe.time), slicing)
    return df.where(inside).select(*keys, micros(recipe.time).alias(MICROS), *values, *more)


def _in_some_window(us: Column, slicing: Slicing) -> Column:
    if not slicing.has_gaps:
        return F.lit(True)
    inside = F.lit(False)
    for window in slicing.windows:
        inside = inside | (F.pmod(us, long(window.every)) < long(window.size))
    return inside


def _value(expr: object, form: Form | None, recipe: WindowTask) -> Column:
    """What a register reads: a BIGINT or a DOUBLE, or anything where only nulls count."""
    assert isinstance(expr, Expr), "folds are not for the JVM"
    lowered, found = lower_spark(expr, recipe.up.schema), type_of(expr, recipe.up.schema)
    value = lowered.value
    if lowered.failed is not None:
        told = f"{expr!s:.200} failed on a row"
        value = F.when(lowered.failed, F.raise_error(F.lit(told)).cast(spark_type(found))).otherwise(value)
    if form is Form.PRESENT:
        return value
    if form in (Form.FLOAT, Form.ORDERED):
        return value.cast("double")
    if kind.is_timestamp(found):
        return F.unix_micros(value)
    return (F.unix_date(value) if kind.is_date32(found) else value).cast("long")


def accumulator_columns(recipe: WindowTask) -> list[Column]:
    """The numbers of every register, to be computed per group, in the order in which parts have them."""
    sheet = recipe.sheet()
    made = [each for register in sheet.accumulators for each in _numbers(register, sheet)]
    return [each.alias(f"p{place}") for place, each in enumerate(made)]


def _numbers(register: WindowAccumulator, sheet: AccumulatorLayout) -> Iterator[Column]:
    value = F.col(MICROS if register.column is None else f"v{register.column}")
    match register.kind:
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
        case AccumulatorKind.MAX if is_float(register, sheet):
            yield F.max(value)
        case AccumulatorKind.MIN if is_float(register, sheet):
            yield F.min(value)
        case AccumulatorKind.MIN:
            yield F.coalesce(F.max(F.bitwise_not(value)), long(INT64_MIN))
        case _:
            assert register.kind in (AccumulatorKind.MAX, AccumulatorKind.MAX_TIME), (
                f"{register.kind} is not for the JVM"
            )
            yield F.coalesce(F.max(value), long(INT64_MIN))


def is_float(register: WindowAccumulator, sheet: AccumulatorLayout) -> bool:
    """Whether a register compares floats."""
    return register.column is not None and sheet.values[register.column][1] is Form.ORDERED


class JvmPartials:
    """What the JVM made, as parts that a stage takes: on the worker."""

    def __init__(self, recipe: WindowTask) -> None:
        self._sheet = recipe.sheet()
        self.format = PartialFormat(recipe.up, self._sheet.accumulators)
        self._n_keys, self._run = len(recipe.up.key), JitPolicy()
        (self._kind,) = recipe.slicings
        keys = [self.format.schema.field(name) for name in self.format.key]
        numbers = [
            pa.field(f"p{place}", pa.float64() if floats else pa.int64())
            for place, floats in enumerate(self._floats())
        ]
        self.schema = pa.schema([*keys, pa.field(START, pa.int64()), *numbers])

    def _floats(self) -> list[bool]:
        return [
            each.rule.floats or is_float(each, self._sheet)
            for each in self._sheet.accumulators
            for _ in range(each.rule.width)
        ]

    def batch(self, came: pa.RecordBatch) -> Batch:
        """Keys, start and numbers as the parts they are; none has to wait for a watermark."""
        came = as_ours(came, self.schema)
        keys, (start, *numbers) = came.columns[: self._n_keys], came.columns[self._n_keys :]
        starts = start.to_numpy(zero_copy_only=False)
        fixed = [pa.array(np.full(len(starts), each, np.int64)) for each in (self._kind, NEVER)]
        given = iter(numbers)
        cells = [
            self._cell(next(given), register)
            for register in self._sheet.accumulators
            for _ in range(register.rule.width)
        ]
        columns = [*keys, fixed[0], start, fixed[1], *cells]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.format.schema), starts)

    def _cell(self, number: pa.Array, register: WindowAccumulator) -> pa.Array:
        if not is_float(register, self._sheet):
            return number
        floats: Cells = number.to_numpy(zero_copy_only=False)
        ordered = np.empty(len(floats), np.int64)
        if len(floats):
            self._run(encode_floats, np.ascontiguousarray(floats, np.float64).view(np.int64), ordered)
        ordered = ~ordered if register.flip else ordered
        return pa.array(np.where(number.is_null().to_numpy(zero_copy_only=False), INT64_MIN, ordered))
