"""Users' functions of whole batches: how they are called, and what they may give.

When one raises and the step does not fail on errors, it is called again row by row, so that only the rows
that fail by themselves are lost. What it gives must have the declared columns and, where it says so, as many
rows as came in; anything else stops the run, because then no row can be told to be at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FunctionError
from penstock.expr.failure import reason_of
from penstock.operators.calling import own_copy
from penstock.operators.function import BatchFunction
from penstock.operators.op import ERRORS, IN, OUT, Op
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch
from penstock.stages.row_errors import HINT, Blame, RowErrors
from penstock.stages.site import Site

Take = Callable[[Batch, Any], Batch]
"""What leaves, from the rows that went in and what the function gave for them; counts the rows."""


class BatchCalls:
    """One batch function of a step.

    call   this replica's own copy of it
    stops  whether the run ends when it raises
    """

    def __init__(self, function: BatchFunction, op: Op, up: Stream, site: Site) -> None:
        self._function, self._site = function, site
        self.call = own_copy(function.call)
        self._down = op.outputs({IN: up})[OUT].schema
        self._errors = RowErrors(site, op.on_error, up.schema)
        self.stops = self._errors.stops

    def failed(self, cause: Exception) -> FunctionError:
        """The error of a function that raised."""
        return self.wrong(f"function {self._function.name} failed on a batch", reason_of(cause))

    def given(self, batch: Batch, take: Take) -> Iterator[tuple[str, Batch]]:
        """The rows in one call; row by row if that fails and errors are let by."""
        try:
            given = self.call(batch.rows)
        except Exception as cause:
            if self._errors.stops:
                raise self.failed(cause) from cause
            yield from self._alone(batch, take)
            return
        yield OUT, take(batch, given)

    def _alone(self, batch: Batch, take: Take) -> Iterator[tuple[str, Batch]]:
        failed, blames = np.zeros(batch.num_rows, np.bool_), []
        for place in range(batch.num_rows):
            row = batch.take(np.array([place]))
            try:
                given = self.call(row.rows)
            except Exception as cause:
                failed[place] = True
                blames.append(self._blame(cause))
                continue
            yield OUT, take(row, given)
        letters = self._errors.take(batch, failed, blames) if blames else None
        if letters is not None:
            yield ERRORS, letters

    def checked(self, given: Any) -> pa.RecordBatch:
        """What the function gave, if it is a batch with the declared columns."""
        if not isinstance(given, pa.RecordBatch):
            raise self.wrong(
                f"{self._function} gave {type(given).__name__}, not a RecordBatch",
                hint="give a pyarrow.RecordBatch with the declared columns",
            )
        if given.schema.equals(self._down):
            return given
        if given.schema.names != self._down.names or given.schema.types != self._down.types:
            raise self.wrong(
                f"{self._function} gave other columns than it declared",
                f"it gave {_columns(given.schema)}; it declared {_columns(self._down)}",
                hint="select the declared columns, or declare these: ps.batch(fn, schema=...)",
            )
        return pa.RecordBatch.from_arrays(given.columns, schema=self._down)

    def truths(self, given: Any) -> pa.BooleanArray:
        """What the function gave, if it is an array of true, false and null."""
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if not isinstance(given, pa.Array) or not pa.types.is_boolean(given.type):
            what = given.type if isinstance(given, pa.Array) else type(given).__name__
            raise self.wrong(
                f"{self._function} gave {what}, not a boolean array",
                hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
            )
        return given

    def same_length(self, n_given: int, batch: Batch) -> None:
        """Raise unless there is one answer per row."""
        if n_given != batch.num_rows:
            raise self.wrong(
                f"{self._function} gave {n_given} rows for {batch.num_rows}",
                hint="use flat_map where the number of rows changes",
            )

    def wrong(self, fact: str, detail: str | None = None, hint: str | None = None) -> FunctionError:
        """The error of the function, which no row can be blamed for."""
        hint = hint or (HINT if detail else None)
        where = self._function.where or self._site.where
        return FunctionError(fact, step=self._site.step, where=where, detail=detail, hint=hint)

    def explain(self) -> list[str]:
        """As the user wrote it."""
        return [f"{self._function} gets whole batches"]

    def _blame(self, cause: Exception) -> Blame:
        return Blame(f"function {self._function.name}", self._function.where, cause, reason_of(cause))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
