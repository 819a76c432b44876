"""Filter: the rows for which something is true; null is not true. The others are counted as filtered.

Functions of one row are in `row_filter.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr import Expr
from penstock.operators.filter import Filter
from penstock.operators.function import BatchFunction
from penstock.operators.op import ERRORS, OUT
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch, Mask
from penstock.stages.computed import Computing, true_where
from penstock.stages.row_errors import RowErrors
from penstock.stages.site import Accounts, Site
from penstock.stages.stateless import Out, Stateless

if TYPE_CHECKING:
    from penstock.stages.by_row import ByRow


class ExpressionFilter(Stateless):
    """A predicate that is an expression."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have stages of their own"
        self._computing = Computing([op.how], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.blame)

    def made(self, batch: Batch) -> Out:
        """The rows for which it is true."""
        held = self._computing.truths(batch, self._errors)
        yield OUT, kept(held.rows, held.masks[0], self.site.accounts)
        if held.letters is not None:
            yield ERRORS, held.letters

    def by_row(self) -> ByRow:
        """The row, if it is true, by plain Python: for a single row Arrow takes many times as long."""
        from penstock.stages.by_row import computed_by_row

        plain = self._computing.plain
        return computed_by_row(lambda row: row if plain(row)[0] is True else None, self._errors)

    def explain(self) -> list[str]:
        """Natively."""
        return ["the predicate runs as Arrow kernels"]


class BatchFilter(Stateless):
    """A function that gives true, false or null for each row of a batch."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        from penstock.stages.batch_calls import BatchCalls

        assert isinstance(op.how, BatchFunction), "other predicates have stages of their own"
        self._calls = BatchCalls(op.how, op, up, site)

    def made(self, batch: Batch) -> Out:
        """The rows for which it is true."""
        return self._calls.given(batch, self._taken)

    def _taken(self, batch: Batch, given: object) -> Batch:
        truths = self._calls.truths(given)
        self._calls.same_length(len(truths), batch)
        return kept(batch, true_where(truths), self.site.accounts)

    def explain(self) -> list[str]:
        """As the user wrote it."""
        return self._calls.explain()


def kept(batch: Batch, holds: Mask, accounts: Accounts) -> Batch:
    """The rows that stay; counts both kinds."""
    rows = batch.where(holds)
    accounts.passed += rows.num_rows
    accounts.filtered += batch.num_rows - rows.num_rows
    return rows
