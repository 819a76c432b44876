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
class Blame:
    """Who failed on a row, where that was written, and why; `error` is what the user gets to see."""

    who: str
    where: Where | None
    cause: Exception
    reason: str
    error: type[PenstockError] = FunctionError


class RowErrors:
    """The failed rows of one step.

    `blame` looks at one row again and says who failed and why; a step whose functions must not be called
    twice on a row tells the blames with the rows instead.

    stops  whether the first row that fails stops the run
    """

    def __init__(
        self,
        site: Site,
        on_error: str,
        schema: pa.Schema,
        blame: Callable[[dict[str, object]], Blame] | None = None,
    ):
        self._site, self._on_error, self._schema, self._blame = site, on_error, schema, blame
        self.stops = on_error == OnError.FAIL
        self._letters = error_schema(schema) if on_error == OnError.DEAD_LETTER else None

    def take(self, batch: Batch, failed: Mask, blames: Sequence[Blame] | None = None) -> Batch | None:
        """Handle the failed rows of a batch; gives the rows for `.errors`, if they are wanted."""
        lost = batch.where(failed)
        if self.stops:
            raise self._stop(lost, blames)
        self._site.accounts.errors += lost.num_rows
        if self._site.reasons == [] and lost.num_rows:
            self._site.reasons.append(self._blamed(lost, 0, blames).reason)
        return None if self._letters is None else self._dead(lost, self._letters, blames)

    def _stop(self, lost: Batch, blames: Sequence[Blame] | None) -> PenstockError:
        values = self._row(lost, 0)
        blame = self._blamed(lost, 0, blames)
        error = blame.error(
            f"{blame.who} failed on a row",
            step=self._site.step,
            where=blame.where or self._site.where,
            detail=f"{blame.reason}; the row is {_shown(values, self._schema)}",
            hint=HINT,
        )
        error.__cause__ = blame.cause
        return error

    def _dead(self, lost: Batch, schema: pa.Schema, blames: Sequence[Blame] | None) -> Batch:
        """The rows as they came, the reason and the step: row by row, because failures are few."""
        reasons = [self._blamed(lost, place, blames).reason for place in range(lost.num_rows)]
        told = [pa.array(reasons, pa.string()), pa.array([self._site.step] * len(reasons), pa.string())]
        return Batch(
            pa.RecordBatch.from_arrays([*lost.rows.columns, *told], schema=schema), lost.times, lost.order
        )

    def _blamed(self, lost: Batch, place: int, blames: Sequence[Blame] | None) -> Blame:
        if blames is not None:
            return blames[place]
        assert self._blame is not None, "blames are told, or there is a way to find them"
        return self._blame(self._row(lost, place))

    def _row(self, batch: Batch, place: int) -> dict[str, object]:
        one = batch.rows.slice(place, 1)
        return {name: to_plain(one.column(name))[0] for name in self._schema.names}


def _shown(values: dict[str, object], schema: pa.Schema) -> str:
    try:
        return f"{Row(values, schema)!r:.400}"
    except Exception:  # a row that cannot be shown must not hide why it failed
        return f"{values!r:.400}"
