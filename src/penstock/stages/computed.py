"""Expressions over whole batches, natively on the columns, and the rows on which one of them fails.

Why a row failed is found by computing it once more in plain Python: failures are few, and the two lowerings
agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expr import Expr, lower_python
from penstock.expr.arrays import to_numpy
from penstock.expr.arrow.evaluated import either
from penstock.expr.arrow.lower import Columns, lower_arrow
from penstock.expr.failure import RowFailure
from penstock.frozen import dataclass
from penstock.stages.batch import Batch, Mask
from penstock.stages.row_errors import Blame, RowErrors


@dataclass(frozen=True, slots=True)
class Computed:
    """The values of expressions, in order, for the rows on which none of them failed.

    letters  the failed rows as they go to `.errors`; None if there are none, or if they do not go there
    """

    rows: Batch
    values: list[pa.Array]
    letters: Batch | None = None


class Computing:
    """Some expressions of one step, all of the rows as they came."""

    def __init__(self, expressions: Sequence[Expr], schema: pa.Schema, who: str) -> None:
        self._expressions, self._schema, self._who = expressions, schema, who
        self._lowered = [lower_arrow(expr, schema) for expr in expressions]

    def values(self, rows: Columns) -> tuple[list[pa.Array], Mask | None]:
        """The value of every expression for every row, and which rows failed; None if none did."""
        found = [lowered(rows) for lowered in self._lowered]
        failed = either(*(each.failed for each in found))
        values = [each.values for each in found]
        if failed is None or failed.true_count == 0:
            return values, None
        return values, to_numpy(failed)

    def of(self, batch: Batch, errors: RowErrors) -> Computed:
        """The values, and what becomes of the rows that failed."""
        values, failed = self.values(batch)
        return settled(batch, values, failed, errors)

    def failure(self, row: Mapping[str, object]) -> RowFailure | None:
        """Why the expressions fail on a row of plain values; None if they do not."""
        try:
            self.plain(row)
        except RowFailure as failure:
            return failure
        return None

    def plain(self, row: Mapping[str, object]) -> list[object]:
        """The values for one row of plain values, by plain Python; RowFailure where one fails."""
        return [lowered(row) for lowered in self._plain]

    def blame(self, row: Mapping[str, object]) -> Blame:
        """Who failed on a row that failed."""
        failure = self.failure(row)
        assert failure is not None, f"{self._who} fails on columns and not in plain Python"
        return Blame(self._who, None, failure, failure.reason)

    @cached_property
    def _plain(self) -> list[Callable[[Mapping[str, object]], Any]]:
        return [lower_python(expr, self._schema) for expr in self._expressions]


def settled(batch: Batch, values: list[pa.Array], failed: Mask | None, errors: RowErrors) -> Computed:
    """The rows that did not fail with their values; the others go the way of the step's `on_error`."""
    if failed is None or not failed.any():
        return Computed(batch, values)
    letters = errors.take(batch, failed)
    good = np.flatnonzero(~failed)
    return Computed(batch.take(good), [each.take(pa.array(good)) for each in values], letters)
