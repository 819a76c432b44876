"""What a window step takes from its rows as they come in: the values of aggregated expressions.

Each different expression is computed once per batch, natively on the columns. A row on which one fails, or
on which a fold's `lift` raises, is a row error and is in no window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.caller import find_definition, name_of
from penstock.errors import RowFailure, Where, describe_cause
from penstock.expr import Expr, lower_python, type_of
from penstock.expr.arrow.lower import lower_arrow
from penstock.expr.nodes.columns import Column
from penstock.expr.values import to_numpy
from penstock.frozen import dataclass
from penstock.kernels.compile.loops import Loop
from penstock.kernels.windows import accumulate as rows_into
from penstock.kernels.windows.accumulate import Cells, Rule
from penstock.kernels.windows.folds import build_add_loop, build_cells_loop
from penstock.kernels.windows.slice_loop import write_run_cells
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices.folds import why_python
from penstock.operators.stream import Stream
from penstock.stages.functions.errors import ErrorContext
from penstock.stages.functions.rows import plain_rows_of
from penstock.stages.functions.windows import FoldCaller
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.folds import AccumulatorFold, CombineFailure, FoldColumns, catch_combine
from penstock.stages.window.store import NOT_LIFTED, Objects, Values


@dataclass(frozen=True, slots=True)
class AggregateInputs:
    """The values of each different expression, by place, and the parts of folds by registers, in their order.

    kept    what lift gave for each row, of folds that keep rows: it is called once per row
    failed  which rows failed; None if none did
    """

    arrays: tuple[pa.Array, ...]
    parts: tuple[Values, ...]
    failed: Mask | None
    kept: tuple[Objects, ...] = ()

    def at(self, places: Ints) -> AggregateInputs:
        """What was taken from some rows, none of which failed."""
        arrays = tuple(array.take(pa.array(places)) for array in self.arrays)
        parts = tuple(each.at(places) for each in self.parts)
        return AggregateInputs(arrays, parts, None, tuple(each[places] for each in self.kept))


class InputEvaluator:
    """The expressions and folds of a step's aggregates."""

    def __init__(self, aggregates: Mapping[str, Aggregate], up: Stream) -> None:
        self._schema = up.schema
        self.expressions: list[Expr] = []
        for aggregate in aggregates.values():
            if aggregate.value is not None and self._find(aggregate.value) is None:
                self.expressions.append(aggregate.value)
        self._added = {
            place: _free_name(f"#{place}", up.schema)
            for place, expr in enumerate(self.expressions)
            if not isinstance(expr, Column)
        }
        self._computed = [lower_arrow(expr, up.schema) for expr in self.expressions]
        self.folds = {n: FoldCaller(each, up) for n, each in aggregates.items() if isinstance(each, Fold)}
        self.foldings = [
            AccumulatorFold(each, up, self.folds[name])
            for name, each in aggregates.items()
            if isinstance(each, Fold) and why_python(each, up) is None
        ]
        by_registers = [id(folding.fold) for folding in self.foldings]
        self.in_python = [name for name in self.folds if id(aggregates[name]) not in by_registers]
        self._blames = [self._blame_of(name, each) for name, each in aggregates.items()]

    def place(self, value: Expr) -> int:
        """Which of the arrays has an expression's values."""
        found = self._find(value)
        assert found is not None, "every aggregated expression is listed"
        return found

    def column_name(self, value: Expr) -> str:
        """The column of kept rows that has an expression's values: its own, or one that is added."""
        return value.name if isinstance(value, Column) else self._added[self.place(value)]

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of kept rows: the input's, then computed expressions."""
        schema = self._schema
        for place, name in self._added.items():
            schema = schema.append(pa.field(name, type_of(self.expressions[place], self._schema)))
        return schema

    def kept(self, rows: pa.RecordBatch, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows with the values of computed expressions as further columns."""
        columns = [*rows.columns, *(arrays[place] for place in self._added)]
        return pa.RecordBatch.from_arrays(columns, schema=self.kept_schema)

    def lift(self, batch: Batch) -> AggregateInputs:
        """Compute all expressions on a batch, and try all folds on its rows."""
        evaluated = [compute(batch) for compute in self._computed]
        flags = [to_numpy(each.failed) for each in evaluated if each.failed is not None]
        kept, unliftable = self._kept(batch.rows) if self.in_python else ((), None)
        flags += [] if unliftable is None else [unliftable]
        parts = [folding.parts(batch.rows) for folding in self.foldings]
        flags += [each.failed for each in parts if each.failed is not None]
        failed = np.logical_or.reduce(flags) if flags else None
        arrays = tuple(each.values for each in evaluated)
        return AggregateInputs(arrays, tuple(each.values for each in parts), failed, kept)

    def error_context(self, values: dict[str, object]) -> ErrorContext:
        """The first aggregate that fails on a row, and why."""
        for error_context in self._blames:
            found = error_context(values)
            if found is not None:
                return found
        raise AssertionError("a row failed on its columns, and passes by itself")

    def _lift_of(self, name: str, fold: Fold) -> Callable[[dict[str, object]], object]:
        """How a row is lifted: by registers what lift gives must be a part as well."""
        found = [each.lift for each in self.foldings if each.fold is fold]
        return found[0] if found else self.folds[name].lift

    def _find(self, value: Expr) -> int | None:
        return next((i for i, known in enumerate(self.expressions) if known.same_as(value)), None)

    def _kept(self, rows: pa.RecordBatch) -> tuple[tuple[Objects, ...], Mask]:
        """What the folds in Python lift from each row, and the rows on which one raises."""
        calls = [self.folds[name].lift for name in self.in_python]
        kept = tuple(np.full(rows.num_rows, NOT_LIFTED) for _ in calls)
        failed = np.zeros(rows.num_rows, np.bool_)
        for place, values in enumerate(plain_rows_of(rows)):
            try:
                for parts, call in zip(kept, calls, strict=True):
                    parts[place] = call(values)
            except Exception:
                failed[place] = True
        return kept, failed

    def _blame_of(
        self, name: str, aggregate: Aggregate
    ) -> Callable[[dict[str, object]], ErrorContext | None]:
        if isinstance(aggregate, Fold):
            who, where = f"function {name_of(aggregate.lift)}", find_definition(aggregate.lift)
            lift = self._lift_of(name, aggregate)
            return lambda values: _try_row(lift, values, who, where, Exception)
        if aggregate.value is None:
            return lambda values: None
        compute, who = lower_python(aggregate.value, self._schema), f"expression {aggregate.value}"
        return lambda values: _try_row(compute, values, who, None, RowFailure)


def _free_name(name: str, schema: pa.Schema) -> str:
    return _free_name(f"#{name}", schema) if name in schema.names else name


def _try_row(
    call: Callable[[dict[str, object]], object],
    values: dict[str, object],
    who: str,
    where: Where | None,
    catches: type[Exception],
) -> ErrorContext | None:
    try:
        call(values)
    except catches as cause:
        return ErrorContext(who, where, cause, describe_cause(cause))
    return None


# Rows into registers: each register's pass over the rows of a batch, once their cells are known.
#
# COUNT is kept as the number of nulls, so that columns without any cost nothing; `counts_of` turns it round
# when windows leave.

Run = Callable[..., Any]
"""run(loop, *arguments): run a loop at the speed that fits the amount of data."""

Places = tuple[Ints, Ints]
"""(runs, cells) of rows, as `kernels.registers` reads them."""


class AccumulatorUpdate:
    """The rows of a batch with the cells they go to; what registers share of one column is made once.

    cells  int64[n]     of the rows, each of which has one; need not be written where a run has its own
    runs   int64[k, 3]  over all rows; None: each row goes by its cell
    """

    def __init__(
        self,
        run: Run,
        cells: Ints,
        times: Ints,
        order: Ints,
        values: Sequence[Values],
        runs: Ints | None = None,
    ) -> None:
        self._run, self._times, self._order, self._values = run, times, order, values
        self._places = _single_row_runs(cells) if runs is None else (runs, cells)
        self._written = runs is None
        self._valid_cells: dict[int, Ints] = {}
        self._ordered: dict[int, Ints] = {}

    def fill(self, register: WindowAccumulator, state: Cells) -> None:
        """Add the rows to a register's cells."""
        if register.kind is AccumulatorKind.ROWS:
            self._run(rows_into.count_rows, *self._places, state)
        elif register.kind is AccumulatorKind.MAX_TIME:
            self._run(rows_into.keep_max, *self._places, self._times, 0, state)
        else:
            assert register.column is not None, f"a register of kind {register.kind} is of a column"
            self._fill_column(register, register.column, state)

    def _fill_column(self, register: WindowAccumulator, column: int, state: Cells) -> None:
        if register.kind is AccumulatorKind.COUNT:
            valid = self._values[column].valid
            if valid is not None:
                self._run(rows_into.count_rows, *_single_row_runs(self._cells[~valid]), state)
            return
        if register.kind is AccumulatorKind.FOLD:
            self._fold(register.rule, column, state)
            return
        places, flip = self._placed(column), register.flip
        data = self._valid(column, self._values[column].data)
        if register.kind is AccumulatorKind.MOMENTS:
            self._run(rows_into.add_moments, *places, data, register.rule.neutral_cells(1), state)
        elif register.kind in _SUMS:
            self._run(_SUMS[register.kind], *places, data, state)
        elif register.kind in (AccumulatorKind.LAST, AccumulatorKind.FIRST):
            times, order = self._valid(column, self._times), self._valid(column, self._order)
            self._run(rows_into.keep_latest, *places, times, order, data, flip, state)
        else:
            self._run(_EXTREMES[register.kind], *places, self._in_order(column, data), flip, state)

    def _in_order(self, column: int, data: npt.NDArray[Any]) -> Ints:
        """Values to be compared: floats as integers of the same order."""
        if data.dtype == np.int64:
            return data
        if column not in self._ordered:
            self._ordered[column] = np.empty(len(data), np.int64)
            self._run(rows_into.encode_floats, data.view(np.int64), self._ordered[column])
        return self._ordered[column]

    def _fold(self, rule: Rule, column: int, state: Cells) -> None:
        """Combine parts into their cells, lifting them in the same loop where that can be compiled."""
        values, at = self._values[column], np.zeros(1, np.int64)
        cells, loop, given = self._of_valid(column), build_add_loop(rule), None
        if isinstance(values, FoldColumns) and build_cells_loop(values.of).compiles:
            loop, given = build_cells_loop(values.of), values.columns
        given = (values.data.reshape(-1, rule.width),) if given is None else given
        try:
            with catch_combine(rule, at):
                self._run(loop, cells, *(self._valid(column, each) for each in given), state, at)
        except CombineFailure as failed:
            if values.valid is not None and failed.place is not None:
                failed.place = int(np.flatnonzero(values.valid)[failed.place])
            raise

    @property
    def _cells(self) -> Ints:
        """The cell of every row."""
        if not self._written:
            self._run(write_run_cells, *self._places)
            self._written = True
        return self._places[1]

    def _placed(self, column: int) -> Places:
        """The places of the rows whose value is not null."""
        return (
            self._places if self._values[column].valid is None else _single_row_runs(self._of_valid(column))
        )

    def _of_valid(self, column: int) -> Ints:
        if column not in self._valid_cells:
            self._valid_cells[column] = self._valid(column, self._cells)
        return self._valid_cells[column]

    def _valid(self, column: int, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        valid = self._values[column].valid
        return array if valid is None else array[valid]


def _single_row_runs(cells: Ints) -> Places:
    """Rows that go each by its cell."""
    return rows_into.single_run(len(cells)), cells


def to_counts(register: WindowAccumulator, state: Cells, n_rows: Cells) -> Cells:
    """The register's cells as others read them: of COUNT the rows less the nulls."""
    return np.asarray(n_rows - state) if register.kind is AccumulatorKind.COUNT else state


_SUMS: dict[AccumulatorKind, Loop] = {
    AccumulatorKind.INT_SUM: rows_into.sum_ints,
    AccumulatorKind.FLOAT_SUM: rows_into.sum_floats,
}
_EXTREMES: dict[AccumulatorKind, Loop] = {
    AccumulatorKind.MAX: rows_into.keep_max,
    AccumulatorKind.MIN: rows_into.keep_max,
    AccumulatorKind.MAX_COUNT: rows_into.count_max,
    AccumulatorKind.MIN_COUNT: rows_into.count_max,
}
