"""A register: one running number, or a few, kept per slice and combined into windows.

Aggregates are put together from registers (`lowering.py`) and share them: sum, mean and count of one column
need two registers between them, not four. A register says which values it is of and how rows get in; how
two partial results become one is its rule's affair (`kernels/windows/accumulate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr import Expr, type_of
from penstock.expr.values import from_numpy
from penstock.frozen import dataclass
from penstock.kernels.windows import accumulate as rules
from penstock.kernels.windows.accumulate import Rule
from penstock.operators import aggregates as spec
from penstock.operators.choices.accumulators import (
    AccumulatorKind,
    is_numeric,
    is_whole,
    uses_sketch,
    why_rows,
)
from penstock.operators.stream import Stream
from penstock.stages.rows.arrays import Form, build_column, build_time_column, decode_numbers
from penstock.stages.window.folds import AccumulatorFold
from penstock.stages.window.store import ClosedWindows
from penstock.timing.windows import Window

if TYPE_CHECKING:
    from penstock.stages.sketches.store import Sketch, SketchKind

__all__ = ["AccumulatorKind", "WindowAccumulator"]


_RULES = {
    AccumulatorKind.ROWS: rules.COUNT,
    AccumulatorKind.COUNT: rules.COUNT,
    AccumulatorKind.INT_SUM: rules.WIDE_SUM,
    AccumulatorKind.FLOAT_SUM: rules.FLOAT_SUM,
    AccumulatorKind.MAX: rules.MAX,
    AccumulatorKind.MIN: rules.MAX,
    AccumulatorKind.MAX_COUNT: rules.MAX_COUNT,
    AccumulatorKind.MIN_COUNT: rules.MAX_COUNT,
    AccumulatorKind.LAST: rules.LATEST,
    AccumulatorKind.FIRST: rules.LATEST,
    AccumulatorKind.MOMENTS: rules.MOMENTS,
    AccumulatorKind.MAX_TIME: rules.MAX,
}


@dataclass(frozen=True, slots=True)
class WindowAccumulator:
    """One register: `column` is the place of its values in `Arriving.values`; None where it is of rows.

    FLOAT_SUM, MOMENTS and FOLD read float64 values, the others int64. A FOLD has a rule of its own.
    """

    kind: AccumulatorKind
    column: int | None = None
    own: Rule | None = None

    @property
    def rule(self) -> Rule:
        """How partial results are combined, and the cell of no rows."""
        return _RULES[self.kind] if self.own is None else self.own

    @property
    def flip(self) -> int:
        """-1 where values or times are kept as complements, so that the greatest is the least; else 0."""
        return (
            -1 if self.kind in (AccumulatorKind.MIN, AccumulatorKind.MIN_COUNT, AccumulatorKind.FIRST) else 0
        )


# What a window step keeps of its rows: the values that are aggregated, registers and sketches of them.


class AccumulatorLayout:
    """The values that are aggregated and the registers that are kept of them, each once.

    Register 0 counts rows: every window has it, because a window without rows does not exist. With
    `totally_ordered`, batches have one order column, by which first and last can be decided.
    """

    def __init__(
        self,
        up: Stream,
        *,
        totally_ordered: bool,
        windows: Sequence[Window],
        foldings: Sequence[AccumulatorFold] = (),
    ) -> None:
        self.up, self.totally_ordered, self.foldings = up, totally_ordered, tuple(foldings)
        self.windows = tuple(windows)
        self.sketches: list[Sketch] = []
        self.values: list[tuple[Expr, Form] | tuple[AccumulatorFold, None]] = []
        self.registers: list[WindowAccumulator] = [WindowAccumulator(AccumulatorKind.ROWS)]

    def type(self, value: Expr) -> pa.DataType:
        """The type of an expression's values."""
        return type_of(value, self.up.schema)

    def keep(self, what: AccumulatorKind, value: Expr | None = None, form: Form | None = None) -> int:
        """The place of a register, which is added if it is new."""
        column = None if value is None else self._column(value, form or self._form(value))
        register = WindowAccumulator(what, column)
        if register not in self.registers:
            self.registers.append(register)
        return self.registers.index(register)

    def keep_parts(self, folding: AccumulatorFold) -> int:
        """The place of a fold's register."""
        self.registers.append(WindowAccumulator(AccumulatorKind.FOLD, len(self.values), folding.rule))
        self.values.append((folding, None))
        return len(self.registers) - 1

    def keep_sketch(self, what: SketchKind, value: Expr, form: Form) -> int:
        """The place of a sketch among the sketches, which is added if it is new."""
        from penstock.stages.sketches.store import Sketch

        sketch = Sketch(what, self._column(value, form))
        if sketch not in self.sketches:
            self.sketches.append(sketch)
        return self.sketches.index(sketch)

    def _form(self, value: Expr) -> Form:
        """The form that most registers of the value read, for those that read only which are null."""
        type_ = self.type(value)
        return Form.WHOLE if is_whole(type_) else Form.FLOAT if is_numeric(type_) else Form.PRESENT

    def _column(self, value: Expr, form: Form) -> int:
        for place, (known, same) in enumerate(self.values):
            if same is form and isinstance(known, Expr) and known.same_as(value):
                return place
        self.values.append((value, form))
        return len(self.values) - 1


# Aggregates into registers, and registers back into the columns of results.
#
# A rule per aggregate says which registers it is made of and how its column comes out of theirs. Rules ask
# for registers on a `Sheet`, which hands out each only once, so aggregates of one expression share. An
# aggregate that registers cannot hold (text, decimals, whole rows) has no rule, and its windows keep rows.

Cells = npt.NDArray[Any]
Finish = Callable[..., pa.Array]


class SumOverflow(Exception):
    """The exact sum of one window, by its place in the call, leaves the type of the result."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """An aggregate as registers, by their places on the sheet, and the way back to a column."""

    places: tuple[int, ...]
    finish: Finish

    def of(self, left: ClosedWindows) -> pa.Array:
        """The results of all windows, from the cells of all registers."""
        return self.finish(*(left.cells[place] for place in self.places))


@dataclass(frozen=True, slots=True)
class SketchPlan:
    """An aggregate as a sketch, by its place on the sheet, and what is read from each window's."""

    place: int
    type: pa.DataType
    read: Callable[[Any], object]

    def of(self, left: ClosedWindows) -> pa.Array:
        """The results of all windows, from their sketches."""
        return pa.array([self.read(summary) for summary in left.sketches[self.place]], self.type)


def plan_accumulators(
    aggregate: spec.Aggregate, sheet: AccumulatorLayout
) -> AggregatePlan | SketchPlan | None:
    """The aggregate as registers or as a sketch; None when it can be neither, and rows must be kept."""
    if uses_sketch(aggregate, sheet.windows):
        return _plan_sketch(aggregate, sheet)
    kept = why_rows(aggregate, sheet.up, totally_ordered=sheet.totally_ordered) is not None
    return None if kept else _PLANNERS[type(aggregate).__name__](aggregate, sheet)


def _plan_sketch(aggregate: spec.Aggregate, sheet: AccumulatorLayout) -> SketchPlan:
    from penstock.stages.sketches.hll import HllSketch
    from penstock.stages.sketches.kll import KllSketch

    value, type_ = aggregate.value, aggregate.type(sheet.up)
    assert value is not None, "sketches are of values"
    if isinstance(aggregate, spec.Quantile):
        q, ranks = aggregate.q, sheet.keep_sketch(KllSketch, value, Form.FLOAT)
        return SketchPlan(ranks, type_, lambda summary: summary.quantile(q))
    return SketchPlan(sheet.keep_sketch(HllSketch, value, Form.COUPON), type_, HllSketch.estimate)


def _plan_count(aggregate: spec.Count, sheet: AccumulatorLayout) -> AggregatePlan:
    value = aggregate.value
    place = sheet.keep(AccumulatorKind.ROWS) if value is None else sheet.keep(AccumulatorKind.COUNT, value)
    return AggregatePlan((place,), lambda counts: from_numpy(counts[:, 0]))


def _plan_sum(aggregate: spec.Sum, sheet: AccumulatorLayout) -> AggregatePlan:
    return _plan_total(aggregate.value, sheet, _float_sum, _exact_sum)


def _plan_mean(aggregate: spec.Mean, sheet: AccumulatorLayout) -> AggregatePlan:
    return _plan_total(aggregate.value, sheet, _float_mean, _exact_mean)


def _plan_total(
    value: Expr | None, sheet: AccumulatorLayout, floats: Finish, integers: Finish
) -> AggregatePlan:
    assert value is not None, "sums are of values"
    type_ = sheet.type(value)
    # The sum is asked for first: slices add up a sum that comes right after the rows in the same pass.
    if kind.is_floating(type_):
        total, finish = sheet.keep(AccumulatorKind.FLOAT_SUM, value), floats
    else:
        total, finish = sheet.keep(AccumulatorKind.INT_SUM, value), integers
    return AggregatePlan((sheet.keep(AccumulatorKind.COUNT, value), total), finish)


def _float_sum(counts: Cells, sums: Cells) -> pa.Array:
    return build_column(sums[:, 0], pa.float64(), counts[:, 0] == 0)


def _exact_sum(counts: Cells, sums: Cells) -> pa.Array:
    upper, lower = _halves(sums)
    beyond = (upper < -(2**31)) | (upper >= 2**31)
    if beyond.any():
        place = int(np.argmax(beyond))
        exact = (int(upper[place]) << 32) + int(lower[place])
        raise SumOverflow(place, f"the exact sum is {exact}, outside int64")
    return build_column((upper << 32) | lower, pa.int64(), counts[:, 0] == 0)


def _halves(sums: Cells) -> tuple[Cells, Cells]:
    """Exact sums as upper * 2^32 + lower with the carry brought up: 0 <= lower < 2^32."""
    return sums[:, 0] + (sums[:, 1] >> 32), sums[:, 1] & 0xFFFFFFFF


def _float_mean(counts: Cells, sums: Cells) -> pa.Array:
    return _divide(sums[:, 0], counts[:, 0])


def _exact_mean(counts: Cells, sums: Cells) -> pa.Array:
    upper, lower = _halves(sums)
    return _divide(upper.astype(np.float64) * 2.0**32 + lower.astype(np.float64), counts[:, 0])


def _divide(totals: Cells, counts: Cells) -> pa.Array:
    return build_column(totals / np.maximum(counts, 1), pa.float64(), counts == 0)


def _plan_variance(aggregate: spec.Var | spec.Std, sheet: AccumulatorLayout) -> AggregatePlan:
    rooted, fewer = isinstance(aggregate, spec.Std), 0 if aggregate.population else 1

    def column(moments: Cells) -> pa.Array:
        n = moments[:, 0] - fewer
        # Squares beyond the floats come out as an infinity, which a mean that left them too makes negative.
        variance = np.abs(moments[:, 2]) / np.maximum(n, 1)
        return build_column(np.sqrt(variance) if rooted else variance, pa.float64(), n < 1)

    return AggregatePlan((sheet.keep(AccumulatorKind.MOMENTS, aggregate.value, Form.FLOAT),), column)


def _plan_extreme(aggregate: spec.Min | spec.Max, sheet: AccumulatorLayout) -> AggregatePlan:
    least = isinstance(aggregate, spec.Min)
    places, type_, form = _extreme_accumulators(
        aggregate.value, sheet, AccumulatorKind.MIN if least else AccumulatorKind.MAX
    )
    return AggregatePlan(
        places,
        lambda counts, cells: build_column(
            _decode_extremes(cells[:, 0], form, least=least), type_, counts[:, 0] == 0
        ),
    )


def _plan_extreme_count(aggregate: spec.MinCount | spec.MaxCount, sheet: AccumulatorLayout) -> AggregatePlan:
    least = isinstance(aggregate, spec.MinCount)
    places, type_, form = _extreme_accumulators(
        aggregate.value, sheet, AccumulatorKind.MIN_COUNT if least else AccumulatorKind.MAX_COUNT
    )

    def column(counts: Cells, cells: Cells) -> pa.Array:
        none = counts[:, 0] == 0
        return value_counts(
            build_column(_decode_extremes(cells[:, 0], form, least=least), type_, none), cells[:, 1], none
        )

    return AggregatePlan(places, column)


def _extreme_accumulators(
    value: Expr | None, sheet: AccumulatorLayout, what: AccumulatorKind
) -> tuple[tuple[int, int], pa.DataType, Form]:
    """The registers of an extreme: how many values, and the extreme; with the value's type and form."""
    assert value is not None, "extremes are of values"
    type_ = sheet.type(value)
    form = Form.WHOLE if is_whole(type_) else Form.ORDERED
    return (sheet.keep(AccumulatorKind.COUNT, value), sheet.keep(what, value, form)), type_, form


def _decode_extremes(cells: Cells, form: Form, *, least: bool) -> Cells:
    """The extremes back from cells; least values were kept as complements."""
    return decode_numbers(np.ascontiguousarray(~cells if least else cells), form)


def value_counts(values: pa.Array, n_equal: Cells, none: npt.NDArray[np.bool_]) -> pa.Array:
    """struct<value, count>, null where there were no values."""
    return pa.StructArray.from_arrays(
        [values, pa.array(n_equal, pa.int64())],
        fields=[pa.field("value", values.type), pa.field("count", pa.int64())],
        mask=pa.array(none, pa.bool_()),
    )


def _plan_first_last(aggregate: spec.First | spec.Last, sheet: AccumulatorLayout) -> AggregatePlan:
    what = AccumulatorKind.FIRST if isinstance(aggregate, spec.First) else AccumulatorKind.LAST
    value = aggregate.value
    assert value is not None, "first and last are of values"
    type_ = sheet.type(value)
    form = Form.WHOLE if is_whole(type_) else Form.BITS
    places = sheet.keep(AccumulatorKind.COUNT, value), sheet.keep(what, value, form)

    def column(counts: Cells, cells: Cells) -> pa.Array:
        return build_column(decode_numbers(np.ascontiguousarray(cells[:, 2]), form), type_, counts[:, 0] == 0)

    return AggregatePlan(places, column)


def _plan_time_max(aggregate: spec.EventTimeMax, sheet: AccumulatorLayout) -> AggregatePlan:
    time = sheet.up.require_time("event_time_max")
    return AggregatePlan(
        (sheet.keep(AccumulatorKind.MAX_TIME),), lambda latest: build_time_column(latest[:, 0], time)
    )


def _plan_fold(aggregate: spec.Fold, sheet: AccumulatorLayout) -> AggregatePlan:
    folding = next(each for each in sheet.foldings if each.fold is aggregate)
    return AggregatePlan((sheet.keep_parts(folding),), folding.column)


_PLANNERS: dict[str, Callable[[Any, AccumulatorLayout], AggregatePlan]] = {
    "Count": _plan_count,
    "Sum": _plan_sum,
    "Mean": _plan_mean,
    "Var": _plan_variance,
    "Std": _plan_variance,
    "Min": _plan_extreme,
    "Max": _plan_extreme,
    "MinCount": _plan_extreme_count,
    "MaxCount": _plan_extreme_count,
    "First": _plan_first_last,
    "Last": _plan_first_last,
    "EventTimeMax": _plan_time_max,
    "Fold": _plan_fold,
}
"""By the name of the aggregate, so that a program loads only those that it uses."""
