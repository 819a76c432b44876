"""Users' functions of one row, called row by row, each row once.

A row on which a function fails is remembered with its reason, because calling again might not fail again.
What a function gives is checked against its schema at once: it may hand out one object again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from penstock.expr.failure import RowFailure, reason_of
from penstock.expr.types import from_python
from penstock.frozen import dataclass
from penstock.operators.function import RowFunction
from penstock.operators.row import Row
from penstock.stages.batch import Batch, Ints
from penstock.stages.row_errors import Blame, RowErrors
from penstock.stages.row_shape import RowShape
from penstock.stages.user_calls import Plain, plain_rows_of

Made = TypeVar("Made")

FEW = 1024
"""Plain rows that are handled in Python although a compiled function is there."""


@dataclass(frozen=True, slots=True)
class Worked(Generic[Made]):
    """What a function gave for the rows on which it did not fail.

    rows     those rows
    made     one for each of them
    places   int64[n]  where they stand in the batch; None for all of it
    letters  the failed rows as they go to `.errors`; None if there are none, or if they do not go there
    """

    rows: Batch
    made: list[Made]
    places: Ints | None = None
    letters: Batch | None = None


def one_by_one(
    batch: Batch, each: Callable[[int, Plain], Made], function: RowFunction, errors: RowErrors
) -> Worked[Made]:
    """Call `each(place, values)` for every row in turn; with on_error="fail" the first failure stops it."""
    made, blames, lost = [], [], []
    for place, values in enumerate(plain_of(batch)):
        try:
            made.append(each(place, values))
        except Exception as cause:
            lost.append(place)
            blames.append(blame(function, cause))
            if errors.stops:
                break
    if not blames:
        return Worked(batch, made)
    failed = np.zeros(batch.num_rows, np.bool_)
    failed[lost] = True
    letters = errors.take(batch, failed, blames)
    places = np.flatnonzero(~failed)
    return Worked(batch.take(places), made, places, letters)


def all_called(
    batch: Batch, each: Callable[[Plain], Made], function: RowFunction, errors: RowErrors
) -> list[Made]:
    """The same where the first failure stops the run, of rows that are plain."""
    assert batch.plain is not None, "only plain rows are called at once"
    made: list[Made] = []
    try:
        made.extend(map(each, batch.plain))  # what came before a failure is there then
    except Exception as cause:
        failed = np.arange(batch.num_rows) == len(made)
        errors.take(batch, failed, [blame(function, cause)])
    return made


def is_few(batch: Batch) -> bool:
    """Whether rows are so few, and plain, that Python is done with them before columns could be made."""
    return batch.plain is not None and batch.num_rows <= FEW


def plain_of(batch: Batch) -> Sequence[Plain]:
    """The rows as plain values."""
    return plain_rows_of(batch.rows) if batch.plain is None else batch.plain


def blame(function: RowFunction, cause: Exception) -> Blame:
    """The function, and why it failed."""
    return Blame(f"function {function.name}", function.where, cause, reason_of(cause))


def truth(given: object) -> bool:
    """What a predicate gave: True, False or None, which is not true; anything else fails the row."""
    if given is True or given is False:
        return given
    try:
        return from_python(given, pa.bool_()) is True
    except RowFailure:
        raise RowFailure(f"gave {given!r:.80}, not True or False") from None


def plain_rows(given: object, shape: RowShape) -> list[Plain]:
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
