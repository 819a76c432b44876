"""Calls of users' functions of rows and of batches, and what they may return.

A function of one row is called once per row: a row on which it fails is remembered with its reason, because
a second call might not fail again. What it returns is checked against its schema at once, because it may hand
out one object again and again.

A function of a batch that raises stops the run or, if the step lets errors pass, is called again row by row,
so that only the rows that fail by themselves are lost. It must return the declared columns and, where the
operator says so, as many rows as it got; anything else stops the run, because no single row is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr.values import from_python
from penstock.frozen import dataclass
from penstock.operators.function import BatchFunction, RowFunction, own_copy
from penstock.operators.op import ERRORS, IN, OUT, Op
from penstock.operators.row import Row
from penstock.operators.stream import Stream
from penstock.stages import policy
from penstock.stages.functions.errors import HINT, ErrorContext, RowErrors
from penstock.stages.functions.rows import RowValidator, plain_rows_of
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import Outputs, PlainRow, RowStep, StageContext

Result = TypeVar("Result")
ONE = np.ones(1, np.bool_)


@dataclass(frozen=True, slots=True)
class RowResults(Generic[Result]):
    """What a function returned for the rows on which it did not fail.

    rows          those rows
    values        one for each of them
    indices       int64[n]  where they stand in the batch; None for all of it
    dead_letters  the failed rows as they go to `.errors`; None if there are none, or if they do not go there
    """

    rows: Batch
    values: list[Result]
    indices: Ints | None = None
    dead_letters: Batch | None = None


def call_rows(
    batch: Batch, call: Callable[[PlainRow], Result], function: RowFunction, errors: RowErrors
) -> RowResults[Result]:
    """Calls `call` with every row in order; with on_error="fail" the first failure ends it."""
    values, contexts, failed_at = [], [], []
    rows = plain_rows_of(batch.rows) if batch.plain is None else batch.plain
    for index, row in enumerate(rows):
        try:
            values.append(call(row))
        except Exception as cause:
            failed_at.append(index)
            contexts.append(function_error(function, cause))
            if errors.stops:
                break
    if not contexts:
        return RowResults(batch, values)
    failed = np.zeros(batch.num_rows, np.bool_)
    failed[failed_at] = True
    dead_letters = errors.handle(batch, failed, contexts)
    indices = np.flatnonzero(~failed)
    return RowResults(batch.take(indices), values, indices, dead_letters)


def keeps_plain_rows(batch: Batch) -> bool:
    """Returns whether rows are plain and so few that Python is done before columns could be made."""
    return batch.plain is not None and batch.num_rows <= policy.SIZES.compiled_calls


def function_error(function: RowFunction | BatchFunction, cause: Exception) -> ErrorContext:
    """Returns the context of a user's function that raised."""
    return ErrorContext(f"function {function.name}", function.where, cause, describe_cause(cause))


def function_step(
    process: Callable[[PlainRow], PlainRow | None], function: RowFunction, errors: RowErrors
) -> RowStep:
    """Returns the row step of a stage that calls a user's function."""
    return RowStep(process, lambda row, cause: errors.handle(row, ONE, [function_error(function, cause)]))


def check_truth(returned: object) -> bool:
    """Returns a predicate's answer as a bool; None is not true, and anything else fails the row."""
    if returned is True or returned is False:
        return returned
    try:
        return from_python(returned, pa.bool_()) is True
    except RowFailure:
        raise RowFailure(f"gave {returned!r:.80}, not True or False") from None


def check_rows(returned: object, validator: RowValidator) -> list[PlainRow]:
    """Returns an iterable of rows as plain values; raises RowFailure where it is none, or a row is wrong."""
    if is_one_row(returned) or isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise RowFailure(f"gave {type(returned).__name__} {returned!r:.80}, not an iterable of rows")
    return [validator.plain(row) for row in returned]


def is_one_row(returned: object) -> bool:
    """Returns whether a function returned one row rather than an iterable of rows."""
    return (
        isinstance(returned, Row | Mapping)
        or hasattr(returned, "_asdict")
        or hasattr(returned, "__dataclass_fields__")
    )


class BatchCaller:
    """One batch function of a step.

    call   this replica's own copy of it
    """

    def __init__(self, function: BatchFunction, op: Op, up: Stream, site: StageContext) -> None:
        self._function, self._site = function, site
        self._call = own_copy(function.call)
        self._down = op.outputs({IN: up})[OUT].schema
        self._errors = RowErrors(site, op.on_error, up.schema)

    def call(self, batch: Batch, collect: Callable[[Batch, Any], Batch]) -> Outputs:
        """Calls the function once, or row by row if that fails and errors may pass.

        collect  returns the rows that leave, from the rows that went in and what the function returned for
                 them, and counts them
        """
        try:
            returned = self._call(batch.rows)
        except Exception as cause:
            if self._errors.stops:
                fact = f"function {self._function.name} failed on a batch"
                raise self._error(fact, describe_cause(cause)) from cause
            return self._call_row_by_row(batch, collect)
        return iter(((OUT, collect(batch, returned)),))

    def _call_row_by_row(self, batch: Batch, collect: Callable[[Batch, Any], Batch]) -> Outputs:
        failed, contexts = np.zeros(batch.num_rows, np.bool_), []
        for index in range(batch.num_rows):
            row = batch.take(np.array([index]))
            try:
                returned = self._call(row.rows)
            except Exception as cause:
                failed[index] = True
                contexts.append(function_error(self._function, cause))
                continue
            yield OUT, collect(row, returned)
        dead_letters = self._errors.handle(batch, failed, contexts) if contexts else None
        if dead_letters is not None:
            yield ERRORS, dead_letters

    def check_columns(self, returned: Any) -> pa.RecordBatch:
        """Returns what the function returned, if it is a batch with the declared columns."""
        if not isinstance(returned, pa.RecordBatch):
            raise self._error(
                f"{self._function} gave {type(returned).__name__}, not a RecordBatch",
                hint="give a pyarrow.RecordBatch with the declared columns",
            )
        if returned.schema.equals(self._down):
            return returned
        if returned.schema.names != self._down.names or returned.schema.types != self._down.types:
            raise self._error(
                f"{self._function} gave other columns than it declared",
                f"it gave {_describe_columns(returned.schema)}; it declared {_describe_columns(self._down)}",
                hint="select the declared columns, or declare these: ps.batch(fn, schema=...)",
            )
        return pa.RecordBatch.from_arrays(returned.columns, schema=self._down)

    def check_truths(self, returned: Any) -> pa.BooleanArray:
        """Returns what the function returned, if it is an array of true, false and null."""
        if isinstance(returned, pa.ChunkedArray):
            returned = returned.combine_chunks()
        if not isinstance(returned, pa.Array) or not pa.types.is_boolean(returned.type):
            kind = returned.type if isinstance(returned, pa.Array) else type(returned).__name__
            raise self._error(
                f"{self._function} gave {kind}, not a boolean array",
                hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
            )
        return returned

    def check_length(self, n_returned: int, batch: Batch) -> None:
        """Raises unless there is one answer per row."""
        if n_returned != batch.num_rows:
            raise self._error(
                f"{self._function} gave {n_returned} rows for {batch.num_rows}",
                hint="use flat_map where the number of rows changes",
            )

    def _error(self, fact: str, detail: str | None = None, hint: str | None = None) -> FunctionError:
        """Returns the error of the function, for which no single row is at fault."""
        hint = hint or (HINT if detail else None)
        where = self._function.where or self._site.where
        return FunctionError(fact, step=self._site.step, where=where, detail=detail, hint=hint)

    def explain(self) -> list[str]:
        """Returns a line for `explain()`."""
        return [f"{self._function} gets whole batches"]


def _describe_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
