"""Expressions over whole batches, natively on the columns, and the rows on which one of them fails.

Few rows are evaluated one by one in plain Python (`policy.SIZES.row_expressions`): a kernel takes longer to
call than that, and calling it lets other threads have Python's lock, which then has to be waited for. The two
lowerings agree. Why a row failed is also found in plain Python: failures are few.
"""

from __future__ import annotations

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
from penstock.expr.values import from_checked, to_numpy
from penstock.frozen import dataclass
from penstock.stages import policy
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import ErrorContext, PlainRow, RowErrors, RowStep

_FAILED = object()


@dataclass(frozen=True, slots=True)
class EvaluatedRows:
    """The values of expressions, in order, for the rows on which none of them failed.

    dead_letters  the failed rows as they go to `.errors`; None if there are none, or if they do not go there
    """

    rows: Batch
    values: list[pa.Array]
    dead_letters: Batch | None = None


@dataclass(frozen=True, slots=True)
class PredicateMasks:
    """Where conditions hold, in order, among the rows on which none failed; dead letters as above."""

    rows: Batch
    masks: list[Mask]
    dead_letters: Batch | None = None


class ExpressionEvaluator:
    """The expressions of one step, each evaluated on the rows as they came."""

    def __init__(self, expressions: Sequence[Expr], schema: pa.Schema, who: str) -> None:
        self._expressions, self._schema, self._who = expressions, schema, who
        self._lowered = [lower_arrow(expr, schema) for expr in expressions]
        self._types = [type_of(expr, schema) for expr in expressions]
        self._names = sorted({name for expr in expressions for name in expr.columns()})
        self._n_nodes = sum(1 for expr in expressions for _ in post_order(expr))

    def values(self, rows: Columns) -> tuple[list[pa.Array], Mask | None]:
        """Returns the value of every expression for every row, and which rows failed; None if none did."""
        if self._interprets(rows):
            lists, failed_rows = self._interpret(rows)
            return [*map(from_checked, lists, self._types)], failed_rows
        evaluated = [lowered(rows) for lowered in self._lowered]
        failed = any_failed(*(column.failed for column in evaluated))
        values = [column.values for column in evaluated]
        if failed is None or failed.true_count == 0:
            return values, None
        return values, to_numpy(failed)

    def evaluate(self, batch: Batch, errors: RowErrors) -> EvaluatedRows:
        """Returns the values for the rows that did not fail, and handles the others."""
        values, failed = self.values(batch)
        return drop_failed_rows(batch, values, failed, errors)

    def masks(self, batch: Batch, errors: RowErrors) -> PredicateMasks:
        """Returns where the expressions, which are conditions, are true, and handles rows that failed."""
        if not self._interprets(batch):
            evaluated = self.evaluate(batch, errors)
            masks = [*map(true_mask, evaluated.values)]
            return PredicateMasks(evaluated.rows, masks, evaluated.dead_letters)
        lists, failed = self._interpret(batch)
        masks = [np.array([value is True for value in values], np.bool_) for values in lists]
        if failed is None:
            return PredicateMasks(batch, masks)
        dead_letters, good = errors.handle(batch, failed), np.flatnonzero(~failed)
        return PredicateMasks(batch.take(good), [mask[good] for mask in masks], dead_letters)

    def _interprets(self, rows: Columns) -> bool:
        return rows.num_rows * self._n_nodes <= policy.SIZES.row_expressions

    def _interpret(self, rows: Columns) -> tuple[list[list[object]], Mask | None]:
        """Returns the values of every expression, and which rows failed, by plain Python."""
        plain = getattr(rows, "plain", None)
        if plain is None:
            columns = [to_plain(rows.column(name)) for name in self._names]
            names = self._names
            plain = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            plain = plain if names else [{}] * rows.num_rows
        lists: list[list[object]] = []
        failed: Mask | None = None
        for lowered in self._plain:
            try:
                values = [lowered(row) for row in plain]
            except RowFailure:
                values = [_evaluate_or_failed(lowered, row) for row in plain]
                wrong = np.array([value is _FAILED for value in values], np.bool_)
                failed = wrong if failed is None else failed | wrong
                values = [None if value is _FAILED else value for value in values]
            lists.append(values)
        return lists, failed

    def failure(self, row: PlainRow) -> RowFailure | None:
        """Returns why the expressions fail on a row of plain values; None if they do not."""
        try:
            self.plain(row)
        except RowFailure as failure:
            return failure
        return None

    def plain(self, row: PlainRow) -> list[object]:
        """Returns the values for one row of plain values; raises RowFailure where one fails."""
        return [lowered(row) for lowered in self._plain]

    def error_context(self, row: PlainRow) -> ErrorContext:
        """Returns what failed on a row that failed."""
        failure = self.failure(row)
        assert failure is not None, f"{self._who} fails on columns and not in plain Python"
        return ErrorContext(self._who, None, failure, failure.reason)

    @cached_property
    def _plain(self) -> list[Callable[[Mapping[str, object]], Any]]:
        return [lower_python(expr, self._schema) for expr in self._expressions]


def _evaluate_or_failed(lowered: Callable[[PlainRow], object], row: PlainRow) -> object:
    try:
        return lowered(row)
    except RowFailure:
        return _FAILED


def expression_step(process: Callable[[PlainRow], PlainRow | None], errors: RowErrors) -> RowStep:
    """Returns the row step of a stage that evaluates expressions: a second look tells what failed."""
    return RowStep(process, lambda row, cause: errors.handle(row, np.ones(1, np.bool_)))


def true_mask(truths: pa.BooleanArray) -> Mask:
    """Returns where an array is true; null is not."""
    if truths.null_count:
        truths = pc.fill_null(truths, False)
    bits = np.frombuffer(truths.buffers()[1], np.uint8)
    first, end = truths.offset, truths.offset + len(truths)
    # Why: unpacked here, because Arrow takes ten times as long.
    return np.unpackbits(bits, count=end, bitorder="little")[first:].view(np.bool_)


def drop_failed_rows(
    batch: Batch, values: list[pa.Array], failed: Mask | None, errors: RowErrors
) -> EvaluatedRows:
    """Returns the rows that did not fail with their values; `on_error` decides about the others."""
    if failed is None or not failed.any():
        return EvaluatedRows(batch, values)
    dead_letters = errors.handle(batch, failed)
    good = np.flatnonzero(~failed)
    return EvaluatedRows(batch.take(good), [column.take(pa.array(good)) for column in values], dead_letters)
