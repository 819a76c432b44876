"""Rows that failed in a stage, and what the step's `on_error` makes of them: stop, count, or `.errors`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.errors import FunctionError, PenstockError, Where
from penstock.expr.types import to_plain
from penstock.frozen import dataclass
from penstock.operators.op import OnError, error_schema
from penstock.operators.row import Row
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import Site

HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Who failed on a row, where that was written, and why; `error` is what the user gets to see."""

    who: str
    where: Where | None
    cause: Exception
    reason: str
    error: type[PenstockError] = FunctionError


class RowErrors:
    """The failed rows of one step.

    `error_context` looks at one row again and says who failed and why; a step whose functions must not be
    called twice on a row hands over the contexts with the rows instead.

    stops  whether the first row that fails stops the run
    """

    def __init__(
        self,
        site: Site,
        on_error: str,
        schema: pa.Schema,
        error_context: Callable[[dict[str, object]], ErrorContext] | None = None,
    ):
        self._site, self._on_error, self._schema, self._error_context = site, on_error, schema, error_context
        self.stops = on_error == OnError.FAIL
        self._dead_letter_schema = error_schema(schema) if on_error == OnError.DEAD_LETTER else None

    def take(
        self, batch: Batch, failed: Mask, contexts: Sequence[ErrorContext] | None = None
    ) -> Batch | None:
        """Handle the failed rows of a batch; gives the rows for `.errors`, if they are wanted."""
        lost = batch.where(failed)
        if self.stops:
            raise self._stop(lost, contexts)
        self._site.accounts.errors += lost.num_rows
        if self._site.reasons == [] and lost.num_rows:
            self._site.reasons.append(self._context_of(lost, 0, contexts).reason)
        return (
            None if self._dead_letter_schema is None else self._dead(lost, self._dead_letter_schema, contexts)
        )

    def _stop(self, lost: Batch, contexts: Sequence[ErrorContext] | None) -> PenstockError:
        values = self._row(lost, 0)
        error_context = self._context_of(lost, 0, contexts)
        error = error_context.error(
            f"{error_context.who} failed on a row",
            step=self._site.step,
            where=error_context.where or self._site.where,
            detail=f"{error_context.reason}; the row is {_show_row(values, self._schema)}",
            hint=HINT,
        )
        error.__cause__ = error_context.cause
        return error

    def _dead(self, lost: Batch, schema: pa.Schema, contexts: Sequence[ErrorContext] | None) -> Batch:
        """The rows as they came, the reason and the step: row by row, because failures are few."""
        reasons = [self._context_of(lost, place, contexts).reason for place in range(lost.num_rows)]
        told = [pa.array(reasons, pa.string()), pa.array([self._site.step] * len(reasons), pa.string())]
        return Batch(
            pa.RecordBatch.from_arrays([*lost.rows.columns, *told], schema=schema), lost.times, lost.order
        )

    def _context_of(self, lost: Batch, place: int, contexts: Sequence[ErrorContext] | None) -> ErrorContext:
        if contexts is not None:
            return contexts[place]
        assert self._error_context is not None, "contexts are told, or there is a way to find them"
        return self._error_context(self._row(lost, place))

    def _row(self, batch: Batch, place: int) -> dict[str, object]:
        one = batch.rows.slice(place, 1)
        return {name: to_plain(one.column(name))[0] for name in self._schema.names}


def _show_row(values: dict[str, object], schema: pa.Schema) -> str:
    try:
        return f"{Row(values, schema)!r:.400}"
    except Exception:  # a row that cannot be shown must not hide why it failed
        return f"{values!r:.400}"
