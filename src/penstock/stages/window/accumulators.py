"""Accumulators: the running numbers that a window keeps of its rows, and aggregates as accumulators.

Aggregates are planned as accumulators and share them: sum, mean and count of one column need two accumulators
between them, not four. An accumulator says which values it is of; its *cell* is one number or a few, and how
two cells become one is its rule's affair (`kernels/windows/accumulate.py`). An aggregate that accumulators
cannot hold (text, decimals, whole rows) has no plan, and its windows keep rows.

    sum(x), mean(x), count(x)  ->  ROWS, INT_SUM of x, COUNT of x  ->  columns of results
                plan_accumulators                        AggregatePlan.results
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
from penstock.kernels.windows.accumulate import Cells, Rule
from penstock.operators import aggregates as spec
from penstock.operators.choices import (
    AccumulatorKind,
    is_numeric,
    is_whole,
    uses_sketch,
    why_rows,
)
from penstock.operators.op import Stream
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.input import Form, build_column, build_time_column, decode_numbers
from penstock.stages.window.folds import AccumulatorFold
from penstock.stages.window.store import ClosedWindows
from penstock.timing.windows import Window

if TYPE_CHECKING:
    from penstock.stages.window.sketches import Sketch, SketchKind

__all__ = ["AccumulatorKind", "WindowAccumulator"]

Finish = Callable[..., pa.Array]
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
    """One accumulator: `column` is the place of its values in `InputRows.values`, None if it is of rows.

    FLOAT_SUM, MOMENTS and FOLD read float64 values, the others int64. A FOLD has a rule of its own.
    """

    kind: AccumulatorKind
    column: int | None = None
    own: Rule | None = None

    @property
    def rule(self) -> Rule:
        """Return how two cells are combined, and the cell of no rows."""
        return _RULES[self.kind] if self.own is None else self.own

    @property
    def flip(self) -> int:
        """-1 where values or times are kept as complements, so that the greatest is the least; else 0."""
        flipped = (AccumulatorKind.MIN, AccumulatorKind.MIN_COUNT, AccumulatorKind.FIRST)
        return -1 if self.kind in flipped else 0


class StoredAccumulators:
    """Which accumulators a store keeps for those that were requested of it.

    Rows are always counted, first, because only windows with rows exist. COUNT is kept as the number of
    nulls, so that a column without nulls costs nothing; `results` turns it around.
    """

    def __init__(self, requested: Sequence[WindowAccumulator]) -> None:
        self.requested = tuple(requested)
        rows = WindowAccumulator(AccumulatorKind.ROWS)
        self.stored = tuple(dict.fromkeys([rows, *requested]))
        self._places = [self.stored.index(accumulator) for accumulator in requested]

    @property
    def rules(self) -> list[Rule]:
        """Return the rule of each stored accumulator."""
        return [accumulator.rule for accumulator in self.stored]

    def results(self, cells: Sequence[Cells]) -> tuple[Cells, ...]:
        """Return the cells of the requested accumulators, from those of the stored ones."""
        return tuple(to_counts(self.stored[place], cells[place], cells[0]) for place in self._places)


def to_counts(accumulator: WindowAccumulator, cells: Cells, n_rows: Cells) -> Cells:
    """Return cells as their readers know them, or back: of COUNT the rows less the nulls."""
    return np.asarray(n_rows - cells) if accumulator.kind is AccumulatorKind.COUNT else cells


def cells_to_columns(cells: Sequence[Cells], places: Any) -> dict[str, pa.Array]:
    """Return some cells of each accumulator as Arrow columns: accumulator i, number j is named "i.j"."""
    return {
        f"{number}.{part}": pa.array(of_one[places, part], from_pandas=False)
        for number, of_one in enumerate(cells)
        for part in range(of_one.shape[1])
    }


def load_cells(saved: pa.RecordBatch, cells: Sequence[Cells], places: Ints) -> None:
    """Write cells that `cells_to_columns` saved to other places."""
    for number, of_one in enumerate(cells):
        for part in range(of_one.shape[1]):
            of_one[places, part] = saved.column(f"{number}.{part}").to_numpy()


class AccumulatorLayout:
    """The values that a step aggregates and the accumulators and sketches kept of them, each once.

    Accumulator 0 counts rows: every window has it, because a window without rows does not exist. With
    `totally_ordered`, batches have one order column, by which first and last can be decided.
    """

    def __init__(
        self,
        up: Stream,
        *,
        totally_ordered: bool,
        windows: Sequence[Window],
        folds: Sequence[AccumulatorFold] = (),
    ) -> None:
        self.up, self.totally_ordered, self.folds = up, totally_ordered, tuple(folds)
        self.windows = tuple(windows)
        self.sketches: list[Sketch] = []
        self.values: list[tuple[Expr, Form] | tuple[AccumulatorFold, None]] = []
        self.accumulators: list[WindowAccumulator] = [WindowAccumulator(AccumulatorKind.ROWS)]

    def type(self, value: Expr) -> pa.DataType:
        """Return the type of an expression's values."""
        return type_of(value, self.up.schema)

    def add(self, kind: AccumulatorKind, value: Expr | None = None, form: Form | None = None) -> int:
        """Return the place of an accumulator, which is added if it is new."""
        column = None if value is None else self._column(value, form or self._form(value))
        accumulator = WindowAccumulator(kind, column)
        if accumulator not in self.accumulators:
            self.accumulators.append(accumulator)
        return self.accumulators.index(accumulator)

    def add_fold(self, fold: AccumulatorFold) -> int:
        """Add the accumulator of a fold, and return its place."""
        self.accumulators.append(WindowAccumulator(AccumulatorKind.FOLD, len(self.values), fold.rule))
        self.values.append((fold, None))
        return len(self.accumulators) - 1

    def add_sketch(self, kind: SketchKind, value: Expr, form: Form) -> int:
        """Return the place of a sketch among the sketches, which is added if it is new."""
        from penstock.stages.window.sketches import Sketch

        sketch = Sketch(kind, self._column(value, form))
        if sketch not in self.sketches:
            self.sketches.append(sketch)
        return self.sketches.index(sketch)

    def _form(self, value: Expr) -> Form:
        """Return the form that most accumulators of the value read, for those that only look for nulls."""
        type_ = self.type(value)
        return Form.WHOLE if is_whole(type_) else Form.FLOAT if is_numeric(type_) else Form.PRESENT

    def _column(self, value: Expr, form: Form) -> int:
        for place, (known, same) in enumerate(self.values):
            if same is form and isinstance(known, Expr) and known.same_as(value):
                return place
        self.values.append((value, form))
        return len(self.values) - 1


class SumOverflow(Exception):
    """The exact sum of one window, by its place in the call, leaves the type of the result."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


@dataclass(frozen=True, slots=True)
class AggregatePlan:
    """An aggregate as accumulators, by their places in the layout, and the way back to a column."""

    places: tuple[int, ...]
    finish: Finish

    def results(self, closed: ClosedWindows) -> pa.Array:
        """Return the results of all windows, from the cells of all accumulators."""
        return self.finish(*(closed.cells[place] for place in self.places))


@dataclass(frozen=True, slots=True)
class SketchPlan:
    """An aggregate as a sketch, by its place in the layout, and what is read from each window's."""

    place: int
    type: pa.DataType
    read: Callable[[Any], object]

    def results(self, closed: ClosedWindows) -> pa.Array:
        """Return the results of all windows, from their sketches."""
        return pa.array([self.read(summary) for summary in closed.sketches[self.place]], self.type)


def plan_accumulators(
    aggregate: spec.Aggregate, layout: AccumulatorLayout
) -> AggregatePlan | SketchPlan | None:
    """Plan an aggregate as accumulators or as a sketch; None when rows must be kept for it."""
    if uses_sketch(aggregate, layout.windows):
        return _plan_sketch(aggregate, layout)
    if why_rows(aggregate, layout.up, totally_ordered=layout.totally_ordered) is not None:
        return None
    return _PLANNERS[type(aggregate).__name__](aggregate, layout)


def _plan_sketch(aggregate: spec.Aggregate, layout: AccumulatorLayout) -> SketchPlan:
    from penstock.stages.sketches import HllSketch, KllSketch

    value, type_ = aggregate.value, aggregate.type(layout.up)
    assert value is not None, "sketches are of values"
    if isinstance(aggregate, spec.Quantile):
        q, place = aggregate.q, layout.add_sketch(KllSketch, value, Form.FLOAT)
        return SketchPlan(place, type_, lambda summary: summary.quantile(q))
    return SketchPlan(layout.add_sketch(HllSketch, value, Form.COUPON), type_, HllSketch.estimate)


def _plan_count(aggregate: spec.Count, layout: AccumulatorLayout) -> AggregatePlan:
    value = aggregate.value
    place = layout.add(AccumulatorKind.ROWS) if value is None else layout.add(AccumulatorKind.COUNT, value)
    return AggregatePlan((place,), lambda counts: from_numpy(counts[:, 0]))


def _plan_sum(aggregate: spec.Sum, layout: AccumulatorLayout) -> AggregatePlan:
    return _plan_total(aggregate.value, layout, _float_sum, _exact_sum)


def _plan_mean(aggregate: spec.Mean, layout: AccumulatorLayout) -> AggregatePlan:
    return _plan_total(aggregate.value, layout, _float_mean, _exact_mean)


def _plan_total(
    value: Expr | None, layout: AccumulatorLayout, of_floats: Finish, of_integers: Finish
) -> AggregatePlan:
    assert value is not None, "sums are of values"
    # Why the sum before the count: slices add a sum that comes right after the rows in one pass.
    if kind.is_floating(layout.type(value)):
        total, finish = layout.add(AccumulatorKind.FLOAT_SUM, value), of_floats
    else:
        total, finish = layout.add(AccumulatorKind.INT_SUM, value), of_integers
    return AggregatePlan((layout.add(AccumulatorKind.COUNT, value), total), finish)


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
    """Return exact sums as upper * 2^32 + lower with the carry propagated: 0 <= lower < 2^32."""
    return sums[:, 0] + (sums[:, 1] >> 32), sums[:, 1] & 0xFFFFFFFF


def _float_mean(counts: Cells, sums: Cells) -> pa.Array:
    return _divide(sums[:, 0], counts[:, 0])


def _exact_mean(counts: Cells, sums: Cells) -> pa.Array:
    upper, lower = _halves(sums)
    return _divide(upper.astype(np.float64) * 2.0**32 + lower.astype(np.float64), counts[:, 0])


def _divide(totals: Cells, counts: Cells) -> pa.Array:
    return build_column(totals / np.maximum(counts, 1), pa.float64(), counts == 0)


def _plan_variance(aggregate: spec.Var | spec.Std, layout: AccumulatorLayout) -> AggregatePlan:
    is_root, fewer = isinstance(aggregate, spec.Std), 0 if aggregate.population else 1

    def column(moments: Cells) -> pa.Array:
        n = moments[:, 0] - fewer
        # Why abs: squares beyond the floats are an infinity, which an infinite mean makes negative.
        variance = np.abs(moments[:, 2]) / np.maximum(n, 1)
        return build_column(np.sqrt(variance) if is_root else variance, pa.float64(), n < 1)

    return AggregatePlan((layout.add(AccumulatorKind.MOMENTS, aggregate.value, Form.FLOAT),), column)


_EXTREMES = {
    "Min": AccumulatorKind.MIN,
    "Max": AccumulatorKind.MAX,
    "MinCount": AccumulatorKind.MIN_COUNT,
    "MaxCount": AccumulatorKind.MAX_COUNT,
}


def _plan_extreme(aggregate: spec.Aggregate, layout: AccumulatorLayout) -> AggregatePlan:
    value, extreme = aggregate.value, _EXTREMES[type(aggregate).__name__]
    assert value is not None, "extremes are of values"
    is_min = extreme in (AccumulatorKind.MIN, AccumulatorKind.MIN_COUNT)
    has_count = extreme in (AccumulatorKind.MIN_COUNT, AccumulatorKind.MAX_COUNT)
    type_ = layout.type(value)
    form = Form.WHOLE if is_whole(type_) else Form.ORDERED

    def column(counts: Cells, cells: Cells) -> pa.Array:
        missing = counts[:, 0] == 0
        numbers = ~cells[:, 0] if is_min else cells[:, 0]
        values = build_column(decode_numbers(np.ascontiguousarray(numbers), form), type_, missing)
        return build_value_counts(values, cells[:, 1], missing) if has_count else values

    return AggregatePlan((layout.add(AccumulatorKind.COUNT, value), layout.add(extreme, value, form)), column)


def build_value_counts(values: pa.Array, n_equal: Cells, missing: npt.NDArray[np.bool_]) -> pa.Array:
    """Build a column struct<value, count>, null where there were no values."""
    return pa.StructArray.from_arrays(
        [values, pa.array(n_equal, pa.int64())],
        fields=[pa.field("value", values.type), pa.field("count", pa.int64())],
        mask=pa.array(missing, pa.bool_()),
    )


def _plan_first_last(aggregate: spec.First | spec.Last, layout: AccumulatorLayout) -> AggregatePlan:
    end = AccumulatorKind.FIRST if isinstance(aggregate, spec.First) else AccumulatorKind.LAST
    value = aggregate.value
    assert value is not None, "first and last are of values"
    type_ = layout.type(value)
    form = Form.WHOLE if is_whole(type_) else Form.BITS

    def column(counts: Cells, cells: Cells) -> pa.Array:
        return build_column(decode_numbers(np.ascontiguousarray(cells[:, 2]), form), type_, counts[:, 0] == 0)

    return AggregatePlan((layout.add(AccumulatorKind.COUNT, value), layout.add(end, value, form)), column)


def _plan_time_max(aggregate: spec.EventTimeMax, layout: AccumulatorLayout) -> AggregatePlan:
    time = layout.up.require_time("event_time_max")
    place = layout.add(AccumulatorKind.MAX_TIME)
    return AggregatePlan((place,), lambda latest: build_time_column(latest[:, 0], time))


def _plan_fold(aggregate: spec.Fold, layout: AccumulatorLayout) -> AggregatePlan:
    fold = next(fold for fold in layout.folds if fold.fold is aggregate)
    return AggregatePlan((layout.add_fold(fold),), fold.column)


_PLANNERS: dict[str, Callable[[Any, AccumulatorLayout], AggregatePlan]] = {
    "Count": _plan_count,
    "Sum": _plan_sum,
    "Mean": _plan_mean,
    "Var": _plan_variance,
    "Std": _plan_variance,
    "Min": _plan_extreme,
    "Max": _plan_extreme,
    "MinCount": _plan_extreme,
    "MaxCount": _plan_extreme,
    "First": _plan_first_last,
    "Last": _plan_first_last,
    "EventTimeMax": _plan_time_max,
    "Fold": _plan_fold,
}
"""By the name of the aggregate, so that a program loads only those that it uses."""
