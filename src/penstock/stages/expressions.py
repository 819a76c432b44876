"""Expressions over whole batches, natively on the columns, and the rows on which one of them fails.

Few rows are evaluated one by one in plain Python (`policy.SIZES.row_expressions`): a kernel takes longer to
call than that, and calling it lets other threads have Python's lock, which then has to be waited for. The two
lowerings agree. Why a row failed is also found in plain Python: failures are few.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure
from penstock.expr import Expr, lower_python, to_plain, type_of
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import any_failed
from penstock.expr.arrow.lower import Columns, lower_arrow
from penstock.expr.node import post_order
from penstock.expr.nodes.forms import Column
from penstock.expr.values import from_checked, to_numpy
from penstock.operators.op import ERRORS, Op, Stream
from penstock.stages import policy, stage
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import Outputs, PlainRow, StageContext

_FAILED = object()


class ExpressionEvaluator:
    """The expressions of one step, each evaluated on the rows as they came.

    as_masks  the expressions are conditions, and their values are masks of where they are true; of few rows
              no column is built for that
    """

    def __init__(self, expressions: Sequence[Expr], schema: pa.Schema, *, as_masks: bool = False) -> None:
        self._expressions, self._schema, self._as_masks = expressions, schema, as_masks
        self._lowered = [lower_arrow(expr, schema) for expr in expressions]
        self._types = [type_of(expr, schema) for expr in expressions]
        self._names = sorted({name for expr in expressions for name in expr.columns()})
        self._n_nodes = sum(1 for expr in expressions for _ in post_order(expr))
        computed = [expr for expr in expressions if not isinstance(expr, Column)]
        self._n_computed = sum(1 for expr in computed for _ in post_order(expr))

    def plain_values(self, batch: Batch) -> list[list[Any]] | None:
        """Return the plain values of every expression for every row of plain rows.

        None where there is too much to compute row by row, or a row fails.
        """
        rows = batch.plain
        assert rows is not None, "only plain rows have plain values"
        if len(rows) > policy.SIZES.plain_rows or len(rows) * self._n_computed > policy.SIZES.row_expressions:
            return None
        lists: list[list[Any]] = []
        for expr, lowered in zip(self._expressions, self._plain, strict=True):
            if isinstance(expr, Column):  # as it is
                lists.append(batch.values(expr.name))
                continue
            try:
                lists.append([lowered(row) for row in rows])
            except RowFailure:
                return None
        return lists

    def values(self, rows: Columns) -> tuple[list[Any], Mask | None]:
        """Return the value of every expression for every row, and which rows failed; None if none did."""
        if rows.num_rows * self._n_nodes <= policy.SIZES.row_expressions:
            return self._interpret(rows)
        evaluated = [lowered(rows) for lowered in self._lowered]
        failed = any_failed(*(column.failed for column in evaluated))
        values = [true_mask(column.values) if self._as_masks else column.values for column in evaluated]
        if failed is None or failed.true_count == 0:
            return values, None
        return values, to_numpy(failed)

    def _interpret(self, rows: Columns) -> tuple[list[Any], Mask | None]:
        """Do what `values` does, by plain Python."""
        plain = rows.plain if isinstance(rows, Batch) else None
        if plain is None:
            lists, names = [to_plain(rows.column(name)) for name in self._names], self._names
            plain = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
            plain = plain if names else [{}] * rows.num_rows
        columns: list[Any] = []
        failed: Mask | None = None
        for lowered, type_ in zip(self._plain, self._types, strict=True):
            try:
                values = [lowered(row) for row in plain]
            except RowFailure:
                values = [_evaluate_or_failed(lowered, row) for row in plain]
                wrong = np.array([value is _FAILED for value in values], np.bool_)
                failed = wrong if failed is None else failed | wrong
                values = [None if value is _FAILED else value for value in values]
            is_true = np.array([value is True for value in values], np.bool_) if self._as_masks else None
            columns.append(from_checked(values, type_) if is_true is None else is_true)
        return columns, failed

    def failure(self, row: PlainRow) -> RowFailure | None:
        """Return why the expressions fail on a row of plain values; None if they do not."""
        try:
            self.plain(row)
        except RowFailure as failure:
            return failure
        return None

    def plain(self, row: PlainRow) -> list[object]:
        """Return the values for one row of plain values; raise RowFailure where one fails."""
        return [lowered(row) for lowered in self._plain]

    @cached_property
    def _plain(self) -> list[Callable[[Mapping[str, object]], Any]]:
        return [lower_python(expr, self._schema) for expr in self._expressions]


def _evaluate_or_failed(lowered: Callable[[PlainRow], object], row: PlainRow) -> object:
    try:
        return lowered(row)
    except RowFailure:
        return _FAILED


def true_mask(truths: pa.BooleanArray) -> Mask:
    """Return where an array is true; null is not."""
    if truths.null_count:
        truths = pc.fill_null(truths, False)
    bits = np.frombuffer(truths.buffers()[1], np.uint8)
    first, end = truths.offset, truths.offset + len(truths)
    # Why: unpacked here, because Arrow takes ten times as long.
    return np.unpackbits(bits, count=end, bitorder="little")[first:].view(np.bool_)


class ExpressionStage(stage.StatelessStage):
    """A step that evaluates expressions; `on_error` decides about the rows on which one of them fails.

    who       names the expressions in errors
    as_masks  as in ExpressionEvaluator
    subject   begins the line of `explain()`
    """

    as_masks = False
    subject = "expressions run"

    def __init__(self, op: Op, up: Stream, site: StageContext, expressions: Sequence[Expr], who: str) -> None:
        super().__init__(up, site)
        self._who = who
        self._evaluator = ExpressionEvaluator(expressions, up.schema, as_masks=self.as_masks)
        self._errors = stage.RowErrors(site, op.on_error, up.schema, self._error_context)

    def process(self, batch: Batch) -> Outputs:
        """Emit what the values of the rows that did not fail make of them, and the failed rows."""
        values, failed = self.evaluate(batch)
        dead_letters = None
        if failed is not None and failed.any():
            dead_letters = self._errors.handle(batch, failed)
            good = np.flatnonzero(~failed)
            batch, values = batch.take(good), [column.take(good) for column in values]
        yield from self.emit(batch, values)
        if dead_letters is not None:
            yield ERRORS, dead_letters

    def evaluate(self, batch: Batch) -> tuple[list[Any], Mask | None]:
        """Return the values of the expressions for every row, and which rows failed; None if none did."""
        return self._evaluator.values(batch)

    @abstractmethod
    def emit(self, batch: Batch, values: list[Any]) -> Outputs:
        """Emit what rows become, from the values of the expressions; counts them."""

    def row_step_of(self, process: Callable[[PlainRow], PlainRow | None]) -> stage.RowStep:
        """Return the row step that processes a row like this: a second look tells what failed."""
        return stage.RowStep(process, lambda row, cause: self._errors.handle(row, np.ones(1, np.bool_)))

    def find_failure(self, row: PlainRow) -> RowFailure:
        """Return why a row failed that did."""
        failure = self._evaluator.failure(row)
        assert failure is not None, f"{self._who} fails on columns and not in plain Python"
        return failure

    def _error_context(self, row: PlainRow) -> stage.ErrorContext:
        failure = self.find_failure(row)
        return stage.ErrorContext(self._who, None, failure, failure.reason)

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`."""
        return [f"{self.subject} as Arrow kernels"]
