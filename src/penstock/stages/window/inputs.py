"""From rows to cells: what a window step computes of its rows, and how accumulators take it in.

`InputEvaluator` computes each different expression of the aggregates once per batch, on columns, and lifts
rows for folds. A row on which an expression fails, or on which a fold's `lift` raises, is a row error and is
in no window. `AccumulatorUpdate` then adds the values of a batch to the cells of its rows, one accumulator
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.errors import RowFailure, Where, describe_cause
from penstock.expr import Expr, lower_python, type_of
from penstock.expr.arrow.columnar_value import ColumnarValue
from penstock.expr.arrow.lower import lower_arrow
from penstock.expr.nodes.forms import Column
from penstock.expr.values import to_numpy, valid_in
from penstock.frozen import Frozen
from penstock.kernels.windows import accumulate
from penstock.kernels.windows.accumulate import Cells, Rule, build_rule_loop
from penstock.kernels.windows.slice_loop import write_run_cells
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices import why_python
from penstock.operators.op import Stream
from penstock.stages.functions.calls import FoldCaller, plain_rows_of
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.input import NOT_LIFTED, Form, InputRows, Objects, Values, encode_column
from penstock.stages.sketches import hash_coupons
from penstock.stages.stage import ErrorContext
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import AccumulatorFold, CombineFailure, catch_combine

RowCheck = tuple[Callable[[dict[str, object]], object], str, Where | None, type[Exception]]
"""(call, who, where, catches): what tries a row, who that is and where it is written, and what it raises."""


class AggregateInputs(Frozen):
    """What a batch contributes to the aggregates of a step.

    arrays  the values of each different expression, by place
    parts   the parts of folds that accumulators hold, in their order
    failed  which rows failed; None if none did
    lifted  what `lift` returned for each row, of folds that keep rows: it is called once per row
    """

    arrays: tuple[pa.Array, ...]
    parts: tuple[Values, ...]
    failed: Mask | None
    lifted: tuple[Objects, ...] = ()

    def at(self, places: Ints) -> AggregateInputs:
        """Return the inputs of some rows, none of which failed."""
        arrays = tuple(array.take(pa.array(places)) for array in self.arrays)
        parts = tuple(values.at(places) for values in self.parts)
        return AggregateInputs(arrays, parts, None, tuple(objects[places] for objects in self.lifted))


class InputEvaluator:
    """The expressions and folds of a step's aggregates.

    expressions       each different one once
    fold_callers      by the name of the aggregate
    accumulator_folds the folds that accumulators hold
    python_folds      the names of the others, which keep rows
    """

    def __init__(self, aggregates: Mapping[str, Aggregate], up: Stream) -> None:
        self._schema, self._aggregates = up.schema, aggregates
        self.expressions: list[Expr] = []
        for aggregate in aggregates.values():
            value = aggregate.value
            if value is not None and not any(known.same_as(value) for known in self.expressions):
                self.expressions.append(value)
        self._added = {
            place: _free_name(f"#{place}", up.schema)
            for place, expr in enumerate(self.expressions)
            if not isinstance(expr, Column)
        }
        self._lowered = [lower_arrow(expr, up.schema) for expr in self.expressions]
        folds = {name: fold for name, fold in aggregates.items() if isinstance(fold, Fold)}
        self.fold_callers = {name: FoldCaller(fold, up) for name, fold in folds.items()}
        self.python_folds = [name for name, fold in folds.items() if why_python(fold, up) is not None]
        self.accumulator_folds = [
            AccumulatorFold(fold, up, self.fold_callers[name])
            for name, fold in folds.items()
            if name not in self.python_folds
        ]

    def column_name(self, value: Expr) -> str:
        """Return the column of kept rows that has an expression's values: its own, or one that is added."""
        return value.name if isinstance(value, Column) else self._added[self._place(value)]

    @property
    def row_schema(self) -> pa.Schema:
        """Return the columns of kept rows: the input's, then computed expressions."""
        schema = self._schema
        for place, name in self._added.items():
            schema = schema.append(pa.field(name, type_of(self.expressions[place], self._schema)))
        return schema

    def rows_to_keep(self, rows: pa.RecordBatch, inputs: AggregateInputs) -> pa.RecordBatch:
        """Return the rows with the values of computed expressions as further columns."""
        return self.rows_with(rows, inputs.arrays)

    def rows_with(self, rows: pa.RecordBatch, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return rows to keep.

        arrays  the values of each expression, by place
        """
        columns = [*rows.columns, *(arrays[place] for place in self._added)]
        return pa.RecordBatch.from_arrays(columns, schema=self.row_schema)

    def compute(self, batch: Batch) -> list[ColumnarValue]:
        """Compute all expressions on a batch."""
        return [compute(batch) for compute in self._lowered]

    def evaluate(self, batch: Batch) -> AggregateInputs:
        """Compute all expressions on a batch, and lift its rows for all folds."""
        evaluated = [compute(batch) for compute in self._lowered]
        failures = [to_numpy(column.failed) for column in evaluated if column.failed is not None]
        lifted: tuple[Objects, ...] = ()
        if self.python_folds:
            lifted, failed = self._lift_in_python(batch.rows)
            failures.append(failed)
        parts = [fold.inputs(batch.rows) for fold in self.accumulator_folds]
        failures += [failed for _, failed in parts if failed is not None]
        return AggregateInputs(
            tuple(column.values for column in evaluated),
            tuple(values for values, _ in parts),
            np.logical_or.reduce(failures) if failures else None,
            lifted,
        )

    def values(self, inputs: AggregateInputs, source: Expr | AccumulatorFold, form: Form | None) -> Values:
        """Return a column to aggregate: an expression's values in a form, or a fold's parts."""
        if isinstance(source, AccumulatorFold):
            return inputs.parts[self.accumulator_folds.index(source)]
        assert isinstance(form, Form), "expressions come in a form"
        array = inputs.arrays[self._place(source)]
        if form is Form.COUPON:
            return Values(hash_coupons(array), valid_in(array) if array.null_count else None)
        return encode_column(array, form)

    def error_context(self, values: dict[str, object]) -> ErrorContext:
        """Find the first aggregate that fails on a row, and why."""
        for call, who, where, catches in self._checks:
            try:
                call(values)
            except catches as cause:
                return ErrorContext(who, where, cause, describe_cause(cause))
        raise AssertionError("a row failed on its columns, and passes by itself")

    @cached_property
    def _checks(self) -> list[RowCheck]:
        """Return what tries each aggregate on a row again."""
        checks: list[RowCheck] = []
        for name, aggregate in self._aggregates.items():
            if isinstance(aggregate, Fold):
                # A part that accumulators hold must also be of floats, so their own lift is tried.
                lifts = [fold.lift for fold in self.accumulator_folds if fold.fold is aggregate]
                lift = lifts[0] if lifts else self.fold_callers[name].lift
                who, where = f"function {name_of(aggregate.lift)}", find_definition(aggregate.lift)
                checks.append((lift, who, where, Exception))
            elif aggregate.value is not None:
                compute = lower_python(aggregate.value, self._schema)
                checks.append((compute, f"expression {aggregate.value}", None, RowFailure))
        return checks

    def _place(self, value: Expr) -> int:
        """Return the place of an expression, which is listed."""
        return next(place for place, known in enumerate(self.expressions) if known.same_as(value))

    def _lift_in_python(self, rows: pa.RecordBatch) -> tuple[tuple[Objects, ...], Mask]:
        """Lift each row for the folds in Python, and find the rows on which one raises."""
        calls = [self.fold_callers[name].lift for name in self.python_folds]
        lifted = tuple(np.full(rows.num_rows, NOT_LIFTED) for _ in calls)
        failed = np.zeros(rows.num_rows, np.bool_)
        for place, values in enumerate(plain_rows_of(rows)):
            try:
                for parts, call in zip(lifted, calls, strict=True):
                    parts[place] = call(values)
            except Exception:
                failed[place] = True
        return lifted, failed


def _free_name(name: str, schema: pa.Schema) -> str:
    return _free_name(f"#{name}", schema) if name in schema.names else name


RunLoop = Callable[..., Any]
"""run(loop, *arguments): run a loop at the speed that fits the amount of data (`JitPolicy`)."""
Runs = tuple[Ints, Ints]
"""(runs, cells) of rows, as `kernels/windows/accumulate.py` reads them."""


class AccumulatorUpdate:
    """The rows of a batch with the cells they go to; what accumulators share of one column is computed once.

    cells  int64[n]     of the rows, each of which has one; need not be written where a run has its own
    runs   int64[k, 3]  over all rows; None: each row goes by its cell
    """

    def __init__(self, run: RunLoop, cells: Ints, rows: InputRows, runs: Ints | None = None) -> None:
        self._run, self._rows = run, rows
        self._runs = accumulate.row_by_row(cells) if runs is None else (runs, cells)
        self._has_cells = runs is None
        self._valid_cells: dict[int, Ints] = {}
        self._encoded: dict[int, Ints] = {}

    def apply(self, accumulator: WindowAccumulator, state: Cells) -> None:
        """Add the rows to an accumulator's cells."""
        kind, column = accumulator.kind, accumulator.column
        if kind is AccumulatorKind.ROWS:
            self._run(accumulate.count_rows, *self._runs, state)
            return
        if kind is AccumulatorKind.MAX_TIME:
            self._run(accumulate.keep_max, *self._runs, self._rows.times, 0, state)
            return
        assert column is not None, f"an accumulator of kind {kind} is of a column"
        if kind is AccumulatorKind.FOLD:
            self._fold(accumulator.rule, column, state)
            return
        data, valid = self._rows.values[column].data, self._rows.values[column].valid
        if kind is AccumulatorKind.COUNT:
            if valid is not None:  # COUNT is kept as the number of nulls
                self._run(accumulate.count_rows, *accumulate.row_by_row(self._cells[~valid]), state)
            return
        runs = self._runs
        if valid is not None:
            runs, data = accumulate.row_by_row(self._cells_of_valid(column)), data[valid]
        match kind:
            case AccumulatorKind.INT_SUM:
                self._run(accumulate.sum_ints, *runs, data, state)
            case AccumulatorKind.FLOAT_SUM:
                self._run(accumulate.sum_floats, *runs, data, state)
            case AccumulatorKind.MOMENTS:
                self._run(accumulate.add_moments, *runs, data, accumulator.rule.neutral_cells(1), state)
            case AccumulatorKind.LAST | AccumulatorKind.FIRST:
                times = self._rows.times
                order = self._rows.order[0] if self._rows.order else np.zeros(len(times), np.int64)
                times, order = (times, order) if valid is None else (times[valid], order[valid])
                order = np.ascontiguousarray(order)
                self._run(accumulate.keep_latest, *runs, times, order, data, accumulator.flip, state)
            case AccumulatorKind.MAX | AccumulatorKind.MIN:
                self._run(accumulate.keep_max, *runs, self._encode(column, data), accumulator.flip, state)
            case _:
                self._run(accumulate.count_max, *runs, self._encode(column, data), accumulator.flip, state)

    def _encode(self, column: int, data: npt.NDArray[Any]) -> Ints:
        """Return values to be compared: floats as integers of the same order."""
        if data.dtype == np.int64:
            return data
        if column not in self._encoded:
            self._encoded[column] = np.empty(len(data), np.int64)
            self._run(accumulate.encode_floats, data.view(np.int64), self._encoded[column])
        return self._encoded[column]

    def _fold(self, rule: Rule, column: int, state: Cells) -> None:
        """Combine parts into their cells."""
        values, at = self._rows.values[column], np.zeros(1, np.int64)
        parts = values.data.reshape(-1, rule.width)
        parts = parts if values.valid is None else parts[values.valid]
        cells = self._cells_of_valid(column)
        try:
            with catch_combine(rule, at):
                self._run(build_rule_loop(accumulate.add_parts, rule), cells, parts, state, at)
        except CombineFailure as failure:
            if values.valid is not None and failure.place is not None:
                failure.place = int(np.flatnonzero(values.valid)[failure.place])
            raise

    @property
    def _cells(self) -> Ints:
        """Return the cell of every row."""
        if not self._has_cells:
            self._run(write_run_cells, *self._runs)
            self._has_cells = True
        return self._runs[1]

    def _cells_of_valid(self, column: int) -> Ints:
        """Return the cells of the rows whose value is not null."""
        valid = self._rows.values[column].valid
        if valid is None:
            return self._cells
        if column not in self._valid_cells:
            self._valid_cells[column] = self._cells[valid]
        return self._valid_cells[column]
