"""Expressions over whole batches, natively on the columns, and the rows on which one of them fails.

Few rows are computed one by one in plain Python: a kernel takes longer to call than that, and calling it lets
other threads have Python's lock, which then has to be waited for. The two lowerings agree. Why a row failed
is also found so: failures are few.
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
from penstock.stages.functions.errors import ErrorContext, RowErrors
from penstock.stages.rows.batch import Batch, Mask

FEW = 128
"""So many nodes of expressions, each once per row, are computed one by one."""


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
    """Where conditions hold, in order, among the rows on which none of them failed; dead_letters as above."""

    rows: Batch
    masks: list[Mask]
    dead_letters: Batch | None = None


class ExpressionEvaluator:
    """Some expressions of one step, all of the rows as they came."""

    def __init__(self, expressions: Sequence[Expr], schema: pa.Schema, who: str) -> None:
        self._expressions, self._schema, self._who = expressions, schema, who
        self._lowered = [lower_arrow(expr, schema) for expr in expressions]
        self._types = [type_of(expr, schema) for expr in expressions]
        self._names = sorted({name for expr in expressions for name in expr.columns()})
        self._few = FEW // sum(1 for expr in expressions for _ in post_order(expr))

    def values(self, rows: Columns) -> tuple[list[pa.Array], Mask | None]:
        """The value of every expression for every row, and which rows failed; None if none did."""
        if rows.num_rows <= self._few:
            lists, failed_rows = self._one_by_one(rows)
            return [*map(from_checked, lists, self._types)], failed_rows
        found = [lowered(rows) for lowered in self._lowered]
        failed = any_failed(*(each.failed for each in found))
        values = [each.values for each in found]
        if failed is None or failed.true_count == 0:
            return values, None
        return values, to_numpy(failed)

    def of(self, batch: Batch, errors: RowErrors) -> EvaluatedRows:
        """The values, and what becomes of the rows that failed."""
        values, failed = self.values(batch)
        return drop_failed_rows(batch, values, failed, errors)

    def truths(self, batch: Batch, errors: RowErrors) -> PredicateMasks:
        """Where the expressions, which are conditions, are true, and what becomes of rows that failed."""
        if batch.num_rows > self._few:
            computed = self.of(batch, errors)
            return PredicateMasks(computed.rows, [*map(true_mask, computed.values)], computed.dead_letters)
        lists, failed = self._one_by_one(batch)
        masks = [np.array([value is True for value in each], np.bool_) for each in lists]
        if failed is None:
            return PredicateMasks(batch, masks)
        dead_letters, good = errors.take(batch, failed), np.flatnonzero(~failed)
        return PredicateMasks(batch.take(good), [mask[good] for mask in masks], dead_letters)

    def _one_by_one(self, rows: Columns) -> tuple[list[list[object]], Mask | None]:
        """The values of every expression, and which rows failed, by plain Python."""
        plain = getattr(rows, "plain", None)
        if plain is None:
            columns = [to_plain(rows.column(name)) for name in self._names]
            names = self._names
            plain = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            plain = plain if names else [{}] * rows.num_rows
        found: list[list[object]] = []
        failed: Mask | None = None
        for lowered in self._plain:
            try:
                values = [lowered(row) for row in plain]
            except RowFailure:
                values = [_evaluate_or_failed(lowered, row) for row in plain]
                wrong = np.array([value is _FAILED for value in values], np.bool_)
                failed = wrong if failed is None else failed | wrong
                values = [None if value is _FAILED else value for value in values]
            found.append(values)
        return found, failed

    def failure(self, row: Mapping[str, object]) -> RowFailure | None:
        """Why the expressions fail on a row of plain values; None if they do not."""
        try:
            self.plain(row)
        except RowFailure as failure:
            return failure
        return None

    def plain(self, row: Mapping[str, object]) -> list[object]:
        """The values for one row of plain values, by plain Python; RowFailure where one fails."""
        return [lowered(row) for lowered in self._plain]

    def error_context(self, row: Mapping[str, object]) -> ErrorContext:
        """Who failed on a row that failed."""
        failure = self.failure(row)
        assert failure is not None, f"{self._who} fails on columns and not in plain Python"
        return ErrorContext(self._who, None, failure, failure.reason)

    @cached_property
    def _plain(self) -> list[Callable[[Mapping[str, object]], Any]]:
        return [lower_python(expr, self._schema) for expr in self._expressions]


_FAILED = object()


def _evaluate_or_failed(
    lowered: Callable[[Mapping[str, object]], object], row: Mapping[str, object]
) -> object:
    try:
        return lowered(row)
    except RowFailure:
        return _FAILED


def true_mask(truths: pa.BooleanArray) -> Mask:
    """Where it is true; null is not."""
    if truths.null_count:
        truths = pc.fill_null(truths, False)
    bits = np.frombuffer(truths.buffers()[1], np.uint8)
    first, end = truths.offset, truths.offset + len(truths)
    # Unpacked here, because Arrow takes ten times as long.
    return np.unpackbits(bits, count=end, bitorder="little")[first:].view(np.bool_)


def drop_failed_rows(
    batch: Batch, values: list[pa.Array], failed: Mask | None, errors: RowErrors
) -> EvaluatedRows:
    """The rows that did not fail with their values; the others go the way of the step's `on_error`."""
    if failed is None or not failed.any():
        return EvaluatedRows(batch, values)
    dead_letters = errors.take(batch, failed)
    good = np.flatnonzero(~failed)
    return EvaluatedRows(batch.take(good), [each.take(pa.array(good)) for each in values], dead_letters)
