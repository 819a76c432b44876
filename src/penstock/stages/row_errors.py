"""Rows that failed in a stage, and what the step's `on_error` makes of them: stop, count, or `.errors`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import FunctionError, Where
from penstock.expr.types import to_plain
from penstock.operators.op import OnError, error_schema
from penstock.operators.row import Row
from penstock.stages.batch import Batch, Mask
from penstock.stages.site import Site

HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


@dataclass(frozen=True, slots=True)
class Blame:
    """Who failed on a row, where that was written, and why."""

    who: str
    where: Where | None
    cause: Exception
    reason: str


class RowErrors:
    """The failed rows of one step; `blame` looks at one row again and says who failed and why."""

    def __init__(
        self, site: Site, on_error: str, schema: pa.Schema, blame: Callable[[dict[str, object]], Blame]
    ):
        self._site, self._on_error, self._schema, self._blame = site, on_error, schema, blame
        self._letters = error_schema(schema) if on_error == OnError.DEAD_LETTER else None

    def take(self, batch: Batch, failed: Mask) -> Batch | None:
        """Handle the failed rows of a batch; gives the rows for `.errors`, if they are wanted."""
        lost = batch.where(failed)
        if self._on_error == OnError.FAIL:
            raise self._stop(lost)
        self._site.accounts.errors += lost.num_rows
        return None if self._letters is None else self._dead(lost, self._letters)

    def _stop(self, lost: Batch) -> FunctionError:
        values = self._row(lost, 0)
        blame = self._blame(values)
        error = FunctionError(
            f"{blame.who} failed on a row",
            step=self._site.step,
            where=blame.where or self._site.where,
            detail=f"{blame.reason}; the row is {_shown(values, self._schema)}",
            hint=HINT,
        )
        error.__cause__ = blame.cause
        return error

    def _dead(self, lost: Batch, schema: pa.Schema) -> Batch:
        """The rows as they came, the reason and the step: row by row, because failures are few."""
        reasons = [self._blame(self._row(lost, place)).reason for place in range(lost.num_rows)]
        told = [pa.array(reasons, pa.string()), pa.array([self._site.step] * len(reasons), pa.string())]
        return Batch(
            pa.RecordBatch.from_arrays([*lost.rows.columns, *told], schema=schema), lost.times, lost.order
        )

    def _row(self, batch: Batch, place: int) -> dict[str, object]:
        one = batch.rows.slice(place, 1)
        return {name: to_plain(one.column(name))[0] for name in self._schema.names}


def _shown(values: dict[str, object], schema: pa.Schema) -> str:
    try:
        return f"{Row(values, schema)!r:.400}"
    except Exception:  # a row that cannot be shown must not hide why it failed
        return f"{values!r:.400}"
