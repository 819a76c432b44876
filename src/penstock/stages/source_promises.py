"""What a source promises about its own watermark, by an expression or by a function of the batch.

Both can only move the watermark forward. A row on which a watermark expression fails is a row error.
"""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pyarrow as pa

from penstock.caller import defined_at, name_of
from penstock.errors import FunctionError
from penstock.expr import Expr
from penstock.expr import compute as pc
from penstock.expr.failure import RowFailure, reason_of
from penstock.expr.types import from_python, to_plain
from penstock.operators.calling import own_copy
from penstock.operators.source import SourceTime, Yielded
from penstock.stages.batch import Mask
from penstock.stages.computed import Computing


class RowPromises:
    """The watermark expression of a source, computed for all rows."""

    def __init__(self, time: SourceTime, schema: pa.Schema) -> None:
        self._time = time
        self._computing = (
            Computing([time.rule], schema, "the watermark") if isinstance(time.rule, Expr) else None
        )

    def of(self, rows: pa.RecordBatch) -> tuple[pa.Array | None, Mask | None]:
        """The promise of each row, and on which it fails; None where there is no expression."""
        if self._computing is None:
            return None, None
        (promised,), failed = self._computing.values(rows)
        return promised, failed

    def failure(self, row: dict[str, object]) -> RowFailure | None:
        """Why it fails on a row of plain values."""
        return None if self._computing is None else self._computing.failure(row)

    def greatest(self, promised: pa.Array) -> int | None:
        """The greatest promise of some rows, in microseconds."""
        (most,) = to_plain(pa.array([pc.max(promised)], promised.type))
        return self._time.type.micros(most) if isinstance(most, int) else None


class BatchPromise:
    """The user's watermark function of a batch."""

    def __init__(self, time: SourceTime) -> None:
        rule = time.rule
        self._time, self._rule = time, None if isinstance(rule, Expr | Yielded) else rule
        self._call = None if self._rule is None else own_copy(self._rule)

    @property
    def is_silent(self) -> bool:
        """Whether there is no such function."""
        return self._call is None

    def of(self, rows: pa.RecordBatch) -> int | None:
        """What it promises, in microseconds; it is not called for an empty batch."""
        if self._call is None or rows.num_rows == 0:
            return None
        try:
            return _micros(self._call(rows), self._time)
        except Exception as cause:
            raise FunctionError(
                f"watermark function {name_of(self._rule)} failed on a batch",
                where=defined_at(self._rule),
                detail=reason_of(cause),
                hint=f"give a value of type {self._time.type}, or None for no news",
            ) from cause


def _micros(given: object, time: SourceTime) -> int | None:
    """A watermark as the user gave it: a number in the column's unit, a datetime, a date, or None."""
    if isinstance(given, pa.Scalar):
        (given,) = to_plain(pa.array([given.as_py()], time.type.type))
    if isinstance(given, datetime | date):
        given = from_python(given, time.type.type)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise RowFailure(f"gave {given!r:.80}, not a time")
    return time.type.micros(int(given))
