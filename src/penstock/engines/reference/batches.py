"""Steps with a function of whole batches: it gets the rows of a round as one RecordBatch, if there are any.

When such a function raises and the step does not fail on errors, it is called again row by row, so
that only the rows that fail by themselves are lost. What it gives must have the declared columns and,
in map and filter, as many rows as came in; anything else stops the run, whatever `on_error` says,
because then no row can be told to be at fault.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.engines.reference.faults import HINT
from penstock.engines.reference.functions import blame
from penstock.engines.reference.node import Arrived, Node, Outputs, Site
from penstock.engines.timed import TimedRow, batch_of, place, values_of
from penstock.errors import FunctionError
from penstock.expr.failure import reason_of
from penstock.expr.types import to_plain
from penstock.operators.calling import own_copy
from penstock.operators.function import BatchFunction
from penstock.operators.op import OUT, OnError


class BatchNode(Node):
    """A step that calls a batch function; the three kinds differ in what they make of its answer."""

    def __init__(self, site: Site, function: BatchFunction) -> None:
        super().__init__(site)
        self._function = function
        self._call = own_copy(function.call)
        self._up = site.step.up.schema

    def round(self, arrived: Arrived) -> Outputs:
        """The rows of the round in one call; row by row if that fails and errors are let by."""
        rows = arrived.only
        if not rows:
            return {}
        try:
            given = self._call(batch_of(rows, self._up))
        except Exception as cause:
            if self.faults.policy == OnError.FAIL:
                raise self._wrong(
                    f"function {self._function.name} failed on a batch", reason_of(cause)
                ) from cause
            return {OUT: [new for row in rows for new in self._alone(row)]}
        return {OUT: self.made(rows, given)}

    def _alone(self, row: TimedRow) -> list[TimedRow]:
        try:
            given = self._call(batch_of([row], self._up))
        except Exception as cause:
            self.faults.row(row, self._up, blame(self._function), cause)
            return []
        return self.made([row], given)

    def made(self, rows: list[TimedRow], given: Any) -> list[TimedRow]:
        """The rows that leave, from what the function gave for these rows."""
        raise NotImplementedError

    def checked(self, given: Any) -> pa.RecordBatch:
        """What the function gave, if it is a batch with the declared columns."""
        schema = self.site.step.outputs[OUT].schema
        if not isinstance(given, pa.RecordBatch):
            raise self._wrong(
                f"{self._function} gave {type(given).__name__}, not a RecordBatch",
                hint="give a pyarrow.RecordBatch with the declared columns",
            )
        if given.schema.names != schema.names or given.schema.types != schema.types:
            raise self._wrong(
                f"{self._function} gave other columns than it declared",
                f"it gave {_columns(given.schema)}; it declared {_columns(schema)}",
                hint="select the declared columns, or declare these: ps.batch(fn, schema=...)",
            )
        return given

    def same_length(self, given: Any, rows: list[TimedRow]) -> None:
        """Raise unless there is one answer per row."""
        if len(given) != len(rows):
            raise self._wrong(
                f"{self._function} gave {len(given)} rows for {len(rows)}",
                hint="use flat_map where the number of rows changes",
            )

    def _wrong(self, fact: str, detail: str | None = None, hint: str | None = None) -> FunctionError:
        hint = hint or (HINT if detail else None)
        return FunctionError(
            fact, step=self.site.step.name, where=self._function.where, detail=detail, hint=hint
        )


class BatchMapNode(BatchNode):
    """Row i out is made of row i in."""

    def made(self, rows: list[TimedRow], given: Any) -> list[TimedRow]:
        """The new columns, at the same times."""
        batch = self.checked(given)
        self.same_length(batch, rows)
        self.accounts.passed += len(rows)
        return [row.with_values(values) for row, values in zip(rows, values_of(batch), strict=True)]


class BatchFilterNode(BatchNode):
    """The function gives true, false or null for each row."""

    def made(self, rows: list[TimedRow], given: Any) -> list[TimedRow]:
        """The rows for which it is true."""
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if not isinstance(given, pa.Array) or not pa.types.is_boolean(given.type):
            what = given.type if isinstance(given, pa.Array) else type(given).__name__
            raise self._wrong(
                f"{self._function} gave {what}, not a boolean array",
                hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
            )
        self.same_length(given, rows)
        kept = [row for row, keep in zip(rows, to_plain(given), strict=True) if keep is True]
        self.accounts.passed += len(kept)
        self.accounts.filtered += len(rows) - len(kept)
        return kept


class BatchFlatMapNode(BatchNode):
    """Any number of rows out.

    As many as came in: each has the time of its counterpart. Otherwise nobody can say which row a new
    one came from, and all have the time and place of the last row of the batch.
    """

    def made(self, rows: list[TimedRow], given: Any) -> list[TimedRow]:
        """The new rows."""
        made = values_of(self.checked(given))
        self.accounts.passed += len(rows)
        if len(made) == len(rows):
            return [row.child(values, 0) for row, values in zip(rows, made, strict=True)]
        last = max(rows, key=place)
        return [last.child(values, index) for index, values in enumerate(made)]


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
