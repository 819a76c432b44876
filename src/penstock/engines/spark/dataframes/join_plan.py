"""The plan of `window_join`: two DataFrames, joined on any predicate inside a bound of time.

    left  ─ cell ───────────┐
    right ─ cells nearby ───┴ join on the cell, with the bound of time and the predicate ─ columns

Spark joins streams by an equality only, and bands by comparing everything. So a band gets one: values are cut
into cells, a left row is in one cell, and a right row is copied into every cell that its band reaches; a pair
then meets in the left row's cell, once. Equal columns need no cells. Where there is neither, time is cut into
cells, because every join is bounded by it. The predicate itself is tested on top, exactly, so cells decide
how much is compared and never what joins. Everything runs in the JVM, lazily, as public DataFrame operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engines.spark.dataframes.window_plan import (
    AT,
    Frame,
    StreamResults,
    add_watermark,
    has_valid_time,
)
from penstock.engines.spark.expressions import SharedColumns, lower_spark
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.jvm_partials import long
from penstock.errors import NotSupported, SchemaError, TimeError, nearest_first
from penstock.expr.node import post_order
from penstock.frozen import Frozen
from penstock.operators.join_predicate import (
    LEFT,
    RIGHT,
    Band,
    Equal,
    JoinTerm,
    PairColumn,
    PairExpression,
    pair_schema,
)
from penstock.operators.op import Stream
from penstock.operators.stream_join import StreamJoin
from penstock.timing.units import Duration, time_type

GRAPH_HINT = "write it as a graph: left.join(right, ...) on pipes of graph.source(ps.read.spark(df), ...)"
JOINS = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "semi": "left_semi",
    "anti": "left_anti",
}
CELL = "cell"
N_SALTS = 8
"""Parts of the left rows where only time is cut into cells: the rows of one moment would be one task."""
_MAX_CELL = 2**60


class FrameJoin:
    """One call: both frames with columns "left.x" and "right.x", of which no two have the same name."""

    def __init__(
        self,
        op: StreamJoin,
        left: DataFrame,
        right: DataFrame,
        times: tuple[str, str],
        delays: tuple[Duration | None, Duration | None],
    ) -> None:
        self._op, self._frames = op, (Frame(left), Frame(right))
        self._streams = (left.isStreaming, right.isStreaming)
        self._times, self._delays = times, delays
        names = _predicate_columns(op.terms)
        self._up = tuple(
            _stream_of(frame, side, of_side, time)
            for frame, side, of_side, time in zip(self._frames, (LEFT, RIGHT), names, times, strict=True)
        )
        op.outputs({LEFT: self._up[0], RIGHT: self._up[1]})  # everything about names and types
        self._bound, self._terms = op.resolve(*self._up), op.match_terms(*self._up)
        self._refuse_what_spark_cannot()

    def plan(self) -> DataFrame:
        """Return the joined frame."""
        left, right, at = self._sides()
        how = self._op.how
        if how == "full" and not self._has_equality:
            # Why: a row that is copied into several cells would be without a partner in most of them.
            pairs = self._select(self._join(left, right, "left", at))
            alone = self._join(right, left, "anti", at, mirrored=True)
            joined = pairs.unionByName(self._select(alone, only=RIGHT))
        else:
            joined = self._select(self._join(left, right, how, at))
        return StreamResults(joined, "window_join") if any(self._streams) else joined

    def _sides(self) -> tuple[DataFrame, DataFrame, tuple[str, str]]:
        """Return both frames with their columns renamed, and the names of the times that are compared."""
        sides, at = [], []
        shifts = set()
        for side, frame, time, delay in zip(
            (LEFT, RIGHT), self._frames, self._times, self._delays, strict=True
        ):
            compared = f"{side}.{time}"
            columns = [column(name).alias(f"{side}.{name}") for name in frame.names]
            if all(self._streams):
                df, _, shift = add_watermark(frame, time, delay)
                shifts.add(shift)
                if shift:
                    compared = f"{side} {AT}"
                    columns.append(column(AT).alias(compared))
            else:
                df = frame.df.where(has_valid_time(time))
            sides.append(df.select(*columns))
            at.append(compared)
        if len(shifts) > 1:
            raise TimeError(
                "one side has a watermark of its own and the other has not",
                detail="Spark takes the least of both, and delay= sets one on times that are moved",
                hint="use withWatermark on both frames, or on none and give delay=",
            )
        return sides[0], sides[1], (at[0], at[1])

    @property
    def _has_equality(self) -> bool:
        return self._bound.window is not None or any(isinstance(term, Equal) for term in self._terms)

    def _join(
        self, first: DataFrame, second: DataFrame, how: str, at: tuple[str, str], *, mirrored: bool = False
    ) -> DataFrame:
        """Join by the equalities there are, else by cells: the side whose rows may leave alone has one each.

        mirrored  the first frame is the right side
        """
        condition = self._condition(at)
        if self._has_equality:
            return first.join(second, condition, JOINS[how])
        sides = (RIGHT, LEFT) if mirrored else (LEFT, RIGHT)
        single, copied = (RIGHT, LEFT) if mirrored or how == "right" else (LEFT, RIGHT)
        frames = dict(zip(sides, (first, second), strict=True))
        for place, cell in enumerate(self._cells(at)):
            names = {side: f"{side} {CELL} {place}" for side in sides}
            frames[single] = frames[single].withColumn(names[single], cell.one(single))
            frames[copied] = frames[copied].withColumn(names[copied], F.explode(cell.nearby(copied)))
            condition = (column(names[LEFT]) == column(names[RIGHT])) & condition
        return frames[sides[0]].join(frames[sides[1]], condition, JOINS[how])

    def _condition(self, at: tuple[str, str]) -> Column:
        """Return the bound of time and the predicate, exactly."""
        left, right = column(at[0]), column(at[1])
        # Why as timestamps: in this form Spark sees how long a row of a stream has to be kept.
        parts = [
            right <= left + F.lit(timedelta(microseconds=self._bound.older_left)),
            right >= left - F.lit(timedelta(microseconds=self._bound.older_right)),
        ]
        if self._bound.window is not None:
            size = self._bound.window.size
            left_time, right_time = self._times
            parts.append(_window_of(f"{LEFT}.{left_time}", size) == _window_of(f"{RIGHT}.{right_time}", size))
        terms = self._terms
        parts += [self._test(term) for term in terms if isinstance(term, Equal | Band)]
        for term in terms:
            if isinstance(term, PairExpression):
                # Why: it may fail, and must not fail on a pair that could not join anyway.
                parts = [F.when(reduce(and_, parts), self._expression(term)).otherwise(F.lit(False)), *parts]
        return reduce(and_, parts[::-1])

    def _test(self, term: Equal | Band) -> Column:
        left, right = column(f"{LEFT}.{term.left}"), column(f"{RIGHT}.{term.right}")
        if isinstance(term, Equal):
            # Why not the equality alone: in a full join of streams Spark lets null equal null.
            return (left == right) & left.isNotNull()
        width = self._integer_width(term)
        if width is None:
            apart = F.abs(left.cast("double") - right.cast("double"))
            return apart < F.lit(float(term.width)) if term.strict else apart <= F.lit(float(term.width))
        if width < 0:
            return F.lit(False)
        return right.cast("long").between(*_reach(left.cast("long"), width))

    def _integer_width(self, band: Band) -> int | None:
        """Return by how much integers may differ, inclusively; None if one of the columns is a float."""
        left, right = (
            up.schema.field(name).type for up, name in zip(self._up, (band.left, band.right), strict=True)
        )
        if not (pa.types.is_integer(left) and pa.types.is_integer(right)):
            return None
        return math.ceil(band.width) - 1 if band.strict else math.floor(band.width)

    def _expression(self, term: PairExpression) -> Column:
        shared = SharedColumns(_NoRows())
        schema = pair_schema(self._up[0].schema, self._up[1].schema)
        lowered = lower_spark(term.expr, schema, shared=shared)
        value = F.coalesce(lowered.value, F.lit(False))
        if lowered.failed is None:
            return value
        failure = F.raise_error(F.lit(f"{term!s:.200} failed on a pair of rows")).cast("boolean")
        return F.when(lowered.failed, failure).otherwise(value)

    def _cells(self, at: tuple[str, str]) -> Sequence[Cell | Salt]:
        """Return what a join without an equality is cut by: up to two bands, else time."""
        cells: list[Cell] = []
        for band in (term for term in self._terms if isinstance(term, Band)):
            width = self._integer_width(band)
            if width is not None and 4 * width >= _MAX_CELL:
                continue  # it leaves out next to nothing
            cells.append(
                Cell(
                    f"{LEFT}.{band.left}", f"{RIGHT}.{band.right}", band.width, band.width, width is not None
                )
            )
        if cells:
            return cells[:2]
        bound = self._bound
        return [
            Cell(at[0], at[1], bound.older_right, bound.older_left, integers=True, times=True),
            Salt(self._up),
        ]

    def _select(self, joined: DataFrame, only: str | None = None) -> DataFrame:
        """Return the columns of the result; with `only`, those of that side, and nulls."""
        left, right = self._up
        shared = {term.left for term in self._op.terms if isinstance(term, Equal) and term.left == term.right}
        columns = []
        for name in self._frames[0].names:
            own, other = column(f"{LEFT}.{name}"), column(f"{RIGHT}.{name}")
            if only == RIGHT:
                type_ = self._frames[0].df.schema[self._frames[0].names.index(name)].dataType
                own = F.lit(None).cast(type_)
            elif name in shared and self._op.how in ("right", "full"):
                own = F.coalesce(own, other)
            columns.append(own.alias(name))
        for name, field in self._op.right_columns(left, right):
            columns.append(column(f"{RIGHT}.{name}").alias(field.name))
        return joined.select(*columns)

    def _refuse_what_spark_cannot(self) -> None:
        op, (left_streams, right_streams) = self._op, self._streams
        for term in op.terms:
            if not isinstance(term, Equal | Band | PairExpression):
                raise NotSupported(
                    f"{term} is a function of Python, which Spark cannot call inside a join",
                    hint=f'say it as an expression, ps.left("a") > ps.right("b"), or {GRAPH_HINT}',
                )
        if self._bound.has_window_columns:
            raise NotSupported(
                "window_join joins by tumbling windows only",
                detail="rows of a sliding window would have to be copied once per window",
                hint=f'use window=ps.tumbling("10 s") or within="10 s", or {GRAPH_HINT}',
            )
        both = left_streams and right_streams
        unsupported = None
        if both and op.how == "anti":
            unsupported = "an anti join of two streams"
        elif both and op.how == "full" and not self._has_equality:
            unsupported = "a full join of two streams without an equality"
        elif left_streams and not right_streams and op.how in ("right", "full"):
            unsupported = f"a {op.how} join of a stream with a batch frame on the right"
        elif right_streams and not left_streams and op.how in ("left", "full", "semi", "anti"):
            unsupported = f"a {op.how} join of a batch frame with a stream on the right"
        if unsupported is not None:
            raise NotSupported(f"Spark has no plan for {unsupported}", hint=GRAPH_HINT)


class Cell(Frozen):
    """One attribute that both sides are cut by.

    below, above  how far below and above a value of the copied side those of the other side may be, for a
                  copied right side; the other way round for a left one
    integers      whether values are cut exactly; else in floats, with a margin for their rounding
    times         whether they are times, in microseconds
    """

    left: str
    right: str
    older_right: float
    older_left: float
    integers: bool
    times: bool = False

    @property
    def size(self) -> float:
        """Return the size of a cell: twice what a band spans, so that a row is copied 1.5 times."""
        span = self.older_left + self.older_right
        return max(2 * math.ceil(span), 1) if self.integers else (2 * span or 1.0)

    def one(self, side: str) -> Column:
        """Return the cell of each row."""
        return self._place(self._value(side))

    def nearby(self, side: str) -> Column:
        """Return all cells in which a row of the other side may be close to each row."""
        value = self._value(side)
        if self.integers:
            # A left row at t meets right rows in [t - older_right, t + older_left].
            below, above = (
                (self.older_right, self.older_left) if side == LEFT else (self.older_left, self.older_right)
            )
            low, _ = _reach(value, math.ceil(below))
            _, high = _reach(value, math.ceil(above))
        else:
            margin = F.abs(value) * F.lit(2.0**-50) + F.lit(self.older_left * (1 + 2.0**-50))
            low, high = value - margin, value + margin
        return F.when(value.isNotNull(), F.sequence(self._place(low), self._place(high)))

    def _value(self, side: str) -> Column:
        value = column(self.left if side == LEFT else self.right)
        if self.times:
            return F.unix_micros(value)
        if self.integers:
            return value.cast("long")
        # NaN, which is greatest to Spark, and infinities are close to nothing.
        return F.when(F.abs(value.cast("double")) < F.lit(math.inf), value.cast("double"))

    def _place(self, value: Column) -> Column:
        """Return the number of the cell of a value, rounded down also below zero."""
        if not self.integers:
            # Why: Spark fails on a cell number beyond int64; a margin of floats there is wider than a cell.
            return F.floor(F.greatest(F.least(value / F.lit(self.size), F.lit(2.0**62)), F.lit(-(2.0**62))))
        size = long(int(self.size))
        # Why not floor(value / size): that is computed in floats.
        below_zero = (value < 0) & (value % size != 0)
        return F.call_function("div", value, size) - F.when(below_zero, 1).otherwise(0)


class Salt(Frozen):
    """Spreads left rows over parts, of which every right row has a copy: the layout (m, 1) of DP-Join."""

    up: tuple[Stream, ...]

    def one(self, side: str) -> Column:
        """Return the part of each row, by its values."""
        up = self.up[0] if side == LEFT else self.up[1]
        values = [column(f"{side}.{name}") for name in up.schema.names]
        return F.pmod(F.xxhash64(*values), long(N_SALTS))

    def nearby(self, side: str) -> Column:
        """Return all parts."""
        return F.sequence(long(0), long(N_SALTS - 1))


class _NoRows:
    """Stands for rows that an expression would keep a large part in: a join's condition has none."""

    def withColumns(self, columns: Mapping[str, Any]) -> Any:
        raise NotSupported(
            "the expression of the join is too large for one condition",
            hint="compute parts of it as columns of the frames before the join",
        )


def _window_of(time: str, size: int) -> Column:
    us = F.unix_micros(column(time))
    return us - F.pmod(us, long(size))


def _reach(value: Column, width: int) -> tuple[Column, Column]:
    """Return value - width and value + width, or the limits of integers where these are beyond them."""
    by = long(min(width, 2**63 - 1))
    low, high = long(-(2**63)), long(2**63 - 1)
    there = value.isNotNull()
    return (
        F.when(there, F.coalesce(F.try_subtract(value, by), low)),
        F.when(there, F.coalesce(F.try_add(value, by), high)),
    )


def _predicate_columns(terms: Sequence[JoinTerm]) -> tuple[set[str], set[str]]:
    """Return the columns that a predicate reads, of each side."""
    left, right = set[str](), set[str]()
    for term in terms:
        if isinstance(term, Equal | Band):
            left.add(term.left)
            right.add(term.right)
        elif isinstance(term, PairExpression):
            for node in post_order(term.expr):
                if isinstance(node, PairColumn):
                    (left if node.side == LEFT else right).add(node.own_name)
    return left, right


def _stream_of(frame: Frame, side: str, names: set[str], time: str) -> Stream:
    """Return a frame as a stream; columns that the predicate does not read may have any type."""
    if isinstance(time, str) and time not in frame.names:
        known = nearest_first(time, frame.names)
        raise SchemaError(
            f'there is no column "{time}" on the {side} of the join',
            detail=f"the columns are {', '.join(known)}",
            hint=f'did you mean time="{known[0]}"? Two names are for left and right: time=("a", "b")'
            if known
            else "the frame has no columns",
        )
    frame.require([*sorted(name for name in names if name in frame.names), time])
    type_ = frame.require_time(time)
    fields = [
        (name, type_ if name == time else frame.type_of(name) if name in names else pa.null())
        for name in frame.names
    ]
    return Stream(pa.schema(fields), time_type(type_, None, time))
