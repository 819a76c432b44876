"""Users' functions of one row, called row by row, each row once.

A row on which a function fails is remembered with its reason, because calling again might not fail again.
What a function gives is checked against its schema at once: it may hand out one object again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr.types import from_python
from penstock.frozen import dataclass
from penstock.operators.function import BatchFunction, RowFunction, own_copy
from penstock.operators.op import ERRORS, IN, OUT, Op
from penstock.operators.row import Row
from penstock.operators.stream import Stream
from penstock.stages.functions.errors import HINT, ErrorContext, RowErrors
from penstock.stages.functions.rows import PlainRow, RowValidator, plain_rows_of
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import Site

Result = TypeVar("Result")

FEW = 1024
"""Plain rows that are handled in Python although a compiled function is there."""


@dataclass(frozen=True, slots=True)
class RowResults(Generic[Result]):
    """What a function gave for the rows on which it did not fail.

    rows     those rows
    made     one for each of them
    places   int64[n]  where they stand in the batch; None for all of it
    dead_letters  the failed rows as they go to `.errors`; None if there are none, or if they do not go there
    """

    rows: Batch
    made: list[Result]
    places: Ints | None = None
    dead_letters: Batch | None = None


def call_rows(
    batch: Batch, each: Callable[[int, PlainRow], Result], function: RowFunction, errors: RowErrors
) -> RowResults[Result]:
    """Call `each(place, values)` for every row in turn; with on_error="fail" the first failure stops it."""
    made, contexts, lost = [], [], []
    for place, values in enumerate(plain_rows_of_batch(batch)):
        try:
            made.append(each(place, values))
        except Exception as cause:
            lost.append(place)
            contexts.append(function_error(function, cause))
            if errors.stops:
                break
    if not contexts:
        return RowResults(batch, made)
    failed = np.zeros(batch.num_rows, np.bool_)
    failed[lost] = True
    dead_letters = errors.take(batch, failed, contexts)
    places = np.flatnonzero(~failed)
    return RowResults(batch.take(places), made, places, dead_letters)


def call_plain_rows(
    batch: Batch, each: Callable[[PlainRow], Result], function: RowFunction, errors: RowErrors
) -> list[Result]:
    """The same where the first failure stops the run, of rows that are plain."""
    assert batch.plain is not None, "only plain rows are called at once"
    made: list[Result] = []
    try:
        made.extend(map(each, batch.plain))  # what came before a failure is there then
    except Exception as cause:
        failed = np.arange(batch.num_rows) == len(made)
        errors.take(batch, failed, [function_error(function, cause)])
    return made


def is_few(batch: Batch) -> bool:
    """Whether rows are so few, and plain, that Python is done with them before columns could be made."""
    return batch.plain is not None and batch.num_rows <= FEW


def plain_rows_of_batch(batch: Batch) -> Sequence[PlainRow]:
    """The rows as plain values."""
    return plain_rows_of(batch.rows) if batch.plain is None else batch.plain


def function_error(function: RowFunction, cause: Exception) -> ErrorContext:
    """The function, and why it failed."""
    return ErrorContext(f"function {function.name}", function.where, cause, describe_cause(cause))


def check_truth(given: object) -> bool:
    """What a predicate gave: True, False or None, which is not true; anything else fails the row."""
    if given is True or given is False:
        return given
    try:
        return from_python(given, pa.bool_()) is True
    except RowFailure:
        raise RowFailure(f"gave {given!r:.80}, not True or False") from None


def check_rows(given: object, shape: RowValidator) -> list[PlainRow]:
    """An iterable of rows as plain values; RowFailure when it is none, or when one of them does not fit."""
    if _is_one_row(given) or isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise RowFailure(f"gave {type(given).__name__} {given!r:.80}, not an iterable of rows")
    return [shape.plain(each) for each in given]


def _is_one_row(given: object) -> bool:
    return (
        isinstance(given, Row | Mapping)
        or hasattr(given, "_asdict")
        or hasattr(given, "__dataclass_fields__")
    )


# Users' functions of whole batches: how they are called, and what they may give.
#
# When one raises and the step does not fail on errors, it is called again row by row, so that only the
# rows that fail by themselves are lost. What it gives must have the declared columns and, where it says
# so, as many rows as came in; anything else stops the run, because then no row can be told to be at fault.

Collect = Callable[[Batch, Any], Batch]
"""What leaves, from the rows that went in and what the function gave for them; counts the rows."""


class BatchCaller:
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
        return self.wrong(f"function {self._function.name} failed on a batch", describe_cause(cause))

    def given(self, batch: Batch, take: Collect) -> Iterator[tuple[str, Batch]]:
        """The rows in one call; row by row if that fails and errors are let by."""
        try:
            given = self.call(batch.rows)
        except Exception as cause:
            if self._errors.stops:
                raise self.failed(cause) from cause
            yield from self._alone(batch, take)
            return
        yield OUT, take(batch, given)

    def _alone(self, batch: Batch, take: Collect) -> Iterator[tuple[str, Batch]]:
        failed, contexts = np.zeros(batch.num_rows, np.bool_), []
        for place in range(batch.num_rows):
            row = batch.take(np.array([place]))
            try:
                given = self.call(row.rows)
            except Exception as cause:
                failed[place] = True
                contexts.append(self._error_context(cause))
                continue
            yield OUT, take(row, given)
        dead_letters = self._errors.take(batch, failed, contexts) if contexts else None
        if dead_letters is not None:
            yield ERRORS, dead_letters

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
                f"it gave {_describe_columns(given.schema)}; it declared {_describe_columns(self._down)}",
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

    def _error_context(self, cause: Exception) -> ErrorContext:
        return ErrorContext(
            f"function {self._function.name}", self._function.where, cause, describe_cause(cause)
        )


def _describe_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
