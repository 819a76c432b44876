"""Accumulators: the running numbers that a window keeps of its rows, and aggregates as accumulators.

Aggregates are planned as accumulators and share them: sum, mean and count of one column need two accumulators
between them, not four. An accumulator says which values it is of; its *cell* is one number or a few, and how
two cells become one is its rule's affair (`kernels/windows/accumulate.py`). An aggregate that accumulators
cannot hold (text, decimals, whole rows) has no plan, and its windows keep rows.

    sum(x), mean(x), count(x)  ->  ROWS, INT_SUM of x, COUNT of x  ->  columns of results
                plan_accumulators                        AggregatePlan
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
from penstock.frozen import Frozen
from penstock.kernels.windows import accumulate as rules
from penstock.kernels.windows.accumulate import Cells, Rule
from penstock.operators import aggregates as spec
from penstock.operators.choices import AccumulatorKind, is_numeric, is_whole, uses_sketch, why_rows
from penstock.operators.op import Stream
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.input import Form, build_column, build_time_column, decode_numbers
from penstock.stages.window.folds import AccumulatorFold
from penstock.stages.window.store import ClosedWindows
from penstock.timing.windows import Window

if TYPE_CHECKING:
    from penstock.stages.window.sketches import Sketch, SketchKind

__all__ = ["AccumulatorKind", "WindowAccumulator"]

AggregatePlan = Callable[[ClosedWindows], pa.Array]
"""Returns the results of all windows as a column, from their cells or sketches."""
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


class WindowAccumulator(Frozen):
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
        """Return -1 where values or times are kept as complements, whose greatest is the least; else 0."""
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
        column = None
        if value is not None:
            if form is None:  # only nulls are looked for: the form that most accumulators of the value read
                type_ = self.type(value)
                form = Form.WHOLE if is_whole(type_) else Form.FLOAT if is_numeric(type_) else Form.PRESENT
            column = self._column(value, form)
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


def plan_accumulators(aggregate: spec.Aggregate, layout: AccumulatorLayout) -> AggregatePlan | None:
    """Plan an aggregate as accumulators or as a sketch; None when rows must be kept for it."""
    if uses_sketch(aggregate, layout.windows):
        return _plan_sketch(aggregate, layout)
    if why_rows(aggregate, layout.up, totally_ordered=layout.totally_ordered) is not None:
        return None
    planner = _PLANNERS[type(aggregate).__name__]
    places, build = planner(aggregate, layout)
    return lambda closed: build(*(closed.cells[place] for place in places))


def _plan_sketch(aggregate: spec.Aggregate, layout: AccumulatorLayout) -> AggregatePlan:
    """Plan an aggregate as a sketch, and as what is read from each window's."""
    from penstock.stages.sketches import HllSketch, KllSketch

    value, type_ = aggregate.value, aggregate.type(layout.up)
    assert value is not None, "sketches are of values"
    if isinstance(aggregate, spec.Quantile):
        q, place = aggregate.q, layout.add_sketch(KllSketch, value, Form.FLOAT)
        return lambda closed: pa.array([sketch.quantile(q) for sketch in closed.sketches[place]], type_)
    place = layout.add_sketch(HllSketch, value, Form.COUPON)
    return lambda closed: pa.array([sketch.estimate() for sketch in closed.sketches[place]], type_)


Planned = tuple[tuple[int, ...], Callable[..., pa.Array]]
"""(places, build): the accumulators of an aggregate, by their places in the layout, and what builds the
column of results from their cells."""


def _plan_count(aggregate: spec.Count, layout: AccumulatorLayout) -> Planned:
    value = aggregate.value
    place = layout.add(AccumulatorKind.ROWS) if value is None else layout.add(AccumulatorKind.COUNT, value)
    return (place,), lambda counts: from_numpy(counts[:, 0])


def _plan_total(aggregate: spec.Sum | spec.Mean, layout: AccumulatorLayout) -> Planned:
    """Plan a sum or a mean; sums of integers are exact, kept as upper * 2^32 + lower."""
    value, is_mean = aggregate.value, isinstance(aggregate, spec.Mean)
    assert value is not None, "sums are of values"
    is_float = kind.is_floating(layout.type(value))

    def build(counts: Cells, sums: Cells) -> pa.Array:
        missing, totals, type_ = counts[:, 0] == 0, sums[:, 0], pa.float64()
        if not is_float:
            upper, lower = totals + (sums[:, 1] >> 32), sums[:, 1] & 0xFFFFFFFF  # the carry is propagated
            if is_mean:
                totals = upper.astype(np.float64) * 2.0**32 + lower.astype(np.float64)
            else:
                totals, type_ = _join_halves(upper, lower), pa.int64()
        return build_column(totals / np.maximum(counts[:, 0], 1) if is_mean else totals, type_, missing)

    # Why the sum before the count: slices add a sum that comes right after the rows in one pass.
    total = layout.add(AccumulatorKind.FLOAT_SUM if is_float else AccumulatorKind.INT_SUM, value)
    return (layout.add(AccumulatorKind.COUNT, value), total), build


def _join_halves(upper: Cells, lower: Cells) -> Cells:
    """Return exact sums as int64, which they must fit."""
    beyond = (upper < -(2**31)) | (upper >= 2**31)
    if beyond.any():
        place = int(np.argmax(beyond))
        exact = (int(upper[place]) << 32) + int(lower[place])
        raise SumOverflow(place, f"the exact sum is {exact}, outside int64")
    return np.asarray((upper << 32) | lower)


def _plan_variance(aggregate: spec.Var | spec.Std, layout: AccumulatorLayout) -> Planned:
    is_root, fewer = isinstance(aggregate, spec.Std), 0 if aggregate.population else 1

    def build(moments: Cells) -> pa.Array:
        n = moments[:, 0] - fewer
        # Why abs: squares beyond the floats are an infinity, which an infinite mean makes negative.
        variance = np.abs(moments[:, 2]) / np.maximum(n, 1)
        return build_column(np.sqrt(variance) if is_root else variance, pa.float64(), n < 1)

    return (layout.add(AccumulatorKind.MOMENTS, aggregate.value, Form.FLOAT),), build


def _plan_choice(aggregate: spec.Aggregate, layout: AccumulatorLayout) -> Planned:
    """Plan an aggregate that is one of the values: the least, the greatest, the first or the last."""
    value, choice = aggregate.value, _CHOICES[type(aggregate).__name__]
    assert value is not None, "one of the values is chosen"
    is_end = choice in (AccumulatorKind.FIRST, AccumulatorKind.LAST)
    is_min = choice in (AccumulatorKind.MIN, AccumulatorKind.MIN_COUNT)
    has_count = choice in (AccumulatorKind.MIN_COUNT, AccumulatorKind.MAX_COUNT)
    type_ = layout.type(value)
    form = Form.WHOLE if is_whole(type_) else Form.BITS if is_end else Form.ORDERED

    def build(counts: Cells, cells: Cells) -> pa.Array:
        missing, numbers = counts[:, 0] == 0, cells[:, 2 if is_end else 0]
        numbers = np.ascontiguousarray(~numbers if is_min else numbers)
        values = build_column(decode_numbers(numbers, form), type_, missing)
        return build_value_counts(values, cells[:, 1], missing) if has_count else values

    return (layout.add(AccumulatorKind.COUNT, value), layout.add(choice, value, form)), build


def build_value_counts(values: pa.Array, n_equal: Cells, missing: npt.NDArray[np.bool_]) -> pa.Array:
    """Build a column struct<value, count>, null where there were no values."""
    return pa.StructArray.from_arrays(
        [values, pa.array(n_equal, pa.int64())],
        fields=[pa.field("value", values.type), pa.field("count", pa.int64())],
        mask=pa.array(missing, pa.bool_()),
    )


def _plan_time_max(aggregate: spec.EventTimeMax, layout: AccumulatorLayout) -> Planned:
    time = layout.up.require_time("event_time_max")
    place = layout.add(AccumulatorKind.MAX_TIME)
    return (place,), lambda latest: build_time_column(latest[:, 0], time)


def _plan_fold(aggregate: spec.Fold, layout: AccumulatorLayout) -> Planned:
    fold = next(fold for fold in layout.folds if fold.fold is aggregate)
    return (layout.add_fold(fold),), fold.column


_CHOICES = {
    "Min": AccumulatorKind.MIN,
    "Max": AccumulatorKind.MAX,
    "MinCount": AccumulatorKind.MIN_COUNT,
    "MaxCount": AccumulatorKind.MAX_COUNT,
    "First": AccumulatorKind.FIRST,
    "Last": AccumulatorKind.LAST,
}
_PLANNERS: dict[str, Callable[[Any, AccumulatorLayout], Planned]] = {
    "Count": _plan_count,
    "Sum": _plan_total,
    "Mean": _plan_total,
    "Var": _plan_variance,
    "Std": _plan_variance,
    **dict.fromkeys(_CHOICES, _plan_choice),
    "EventTimeMax": _plan_time_max,
    "Fold": _plan_fold,
}
"""By the name of the aggregate, so that a program loads only those that it uses."""
