"""Rows that failed in a stage, and what the step's `on_error` does with them: stop, count, or `.errors`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.errors import FunctionError, PenstockError, Where
from penstock.expr.values import to_plain
from penstock.frozen import dataclass
from penstock.operators.op import OnError, error_schema
from penstock.operators.row import Row
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import StageContext

HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """What failed on a row, where that was written, and why; `error` is the exception that users see."""

    who: str
    where: Where | None
    cause: Exception
    reason: str
    error: type[PenstockError] = FunctionError


class RowErrors:
    """The failed rows of one step.

    `find_context` evaluates one row again to say what failed and why; a step whose functions must not be
    called twice on a row passes the contexts to `handle` instead.

    stops  whether the first row that fails stops the run
    """

    def __init__(
        self,
        site: StageContext,
        on_error: str,
        schema: pa.Schema,
        find_context: Callable[[dict[str, object]], ErrorContext] | None = None,
    ):
        self._site, self._on_error, self._schema, self._find_context = site, on_error, schema, find_context
        self.stops = on_error == OnError.FAIL
        self._dead_letter_schema = error_schema(schema) if on_error == OnError.DEAD_LETTER else None

    def handle(
        self, batch: Batch, failed: Mask, contexts: Sequence[ErrorContext] | None = None
    ) -> Batch | None:
        """Applies `on_error` to the failed rows of a batch; returns the rows for `.errors`, if any.

        contexts  one for each failed row, in order
        """
        failed_rows = batch.where(failed)
        if self.stops:
            raise self._stop(failed_rows, contexts)
        self._site.accounts.errors += failed_rows.num_rows
        if self._site.reasons == [] and failed_rows.num_rows:
            self._site.reasons.append(self._context(failed_rows, 0, contexts).reason)
        if self._dead_letter_schema is None:
            return None
        return self._dead_letters(failed_rows, self._dead_letter_schema, contexts)

    def _stop(self, failed_rows: Batch, contexts: Sequence[ErrorContext] | None) -> PenstockError:
        values = self._row(failed_rows, 0)
        context = self._context(failed_rows, 0, contexts)
        error = context.error(
            f"{context.who} failed on a row",
            step=self._site.step,
            where=context.where or self._site.where,
            detail=f"{context.reason}; the row is {_show_row(values, self._schema)}",
            hint=HINT,
        )
        error.__cause__ = context.cause
        return error

    def _dead_letters(
        self, failed_rows: Batch, schema: pa.Schema, contexts: Sequence[ErrorContext] | None
    ) -> Batch:
        """Returns the rows as they came, with the reason and the step: row by row, as failures are few."""
        reasons = [self._context(failed_rows, at, contexts).reason for at in range(failed_rows.num_rows)]
        columns = [
            *failed_rows.rows.columns,
            pa.array(reasons, pa.string()),
            pa.array([self._site.step] * len(reasons), pa.string()),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        return Batch(rows, failed_rows.times, failed_rows.order)

    def _context(
        self, failed_rows: Batch, index: int, contexts: Sequence[ErrorContext] | None
    ) -> ErrorContext:
        if contexts is not None:
            return contexts[index]
        assert self._find_context is not None, "contexts are passed in, or there is a way to find them"
        return self._find_context(self._row(failed_rows, index))

    def _row(self, batch: Batch, index: int) -> dict[str, object]:
        one = batch.rows.slice(index, 1)
        return {name: to_plain(one.column(name))[0] for name in self._schema.names}


def _show_row(values: dict[str, object], schema: pa.Schema) -> str:
    try:
        return f"{Row(values, schema)!r:.400}"
    except Exception:  # a row that cannot be shown must not hide why it failed
        return f"{values!r:.400}"
