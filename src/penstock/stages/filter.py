"""Filter: the rows for which something is true; null is not true. The others are counted as filtered.

Functions of one row are in `row_filter.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.expr import Expr
from penstock.operators.function import BatchFunction, RowFunction, own_copy
from penstock.operators.map import Filter
from penstock.operators.op import ERRORS, OUT
from penstock.operators.stream import Stream
from penstock.stages.expressions import ExpressionEvaluator, true_mask
from penstock.stages.functions.calls import call_plain_rows, call_rows, check_truth, is_few
from penstock.stages.functions.compile import CompiledFunction
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rewrite import PREDICATE
from penstock.stages.functions.rows import PlainRow, new_object, row_type
from penstock.stages.rows.batch import Batch, Mask, RowBatch
from penstock.stages.stage import Accounts, Site
from penstock.stages.stateless import Outputs, RowStep, StatelessStage, function_step


class ExpressionFilter(StatelessStage):
    """A predicate that is an expression."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have stages of their own"
        self._computing = ExpressionEvaluator([op.how], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.error_context)

    def made(self, batch: Batch) -> Outputs:
        """The rows for which it is true."""
        held = self._computing.truths(batch, self._errors)
        yield OUT, filter_rows(held.rows, held.masks[0], self.site.accounts)
        if held.dead_letters is not None:
            yield ERRORS, held.dead_letters

    def by_row(self) -> RowStep:
        """The row, if it is true, by plain Python: for a single row Arrow takes many times as long."""
        from penstock.stages.stateless import expression_step

        plain = self._computing.plain
        return expression_step(lambda row: row if plain(row)[0] is True else None, self._errors)

    def explain(self) -> list[str]:
        """Natively."""
        return ["the predicate runs as Arrow kernels"]


class BatchFilter(StatelessStage):
    """A function that gives true, false or null for each row of a batch."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        from penstock.stages.functions.calls import BatchCaller

        assert isinstance(op.how, BatchFunction), "other predicates have stages of their own"
        self._calls = BatchCaller(op.how, op, up, site)

    def made(self, batch: Batch) -> Outputs:
        """The rows for which it is true."""
        return self._calls.given(batch, self._taken)

    def _taken(self, batch: Batch, given: object) -> Batch:
        truths = self._calls.truths(given)
        self._calls.same_length(len(truths), batch)
        return filter_rows(batch, true_mask(truths), self.site.accounts)

    def explain(self) -> list[str]:
        """As the user wrote it."""
        return self._calls.explain()


def filter_rows(batch: Batch, holds: Mask, accounts: Accounts) -> Batch:
    """The rows that stay; counts both kinds."""
    rows = batch.where(holds)
    accounts.passed += rows.num_rows
    accounts.filtered += batch.num_rows - rows.num_rows
    return rows


# Filter by a function of one row: the rows for which it is true. The others are counted as filtered.


class RowFilter(StatelessStage):
    """A function that says of one row whether it stays."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other predicates have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._step = self._row_if_true()
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._compiled = CompiledFunction(op.how, up.schema, None, wraps=op.compile)

    def at_once(self, batch: Batch) -> Batch | None:
        """The rows for which it is true, of few rows that are plain."""
        if not self._errors.stops or not is_few(batch):
            return None
        found = call_plain_rows(batch, self._step, self._function, self._errors)
        n_lost = found.count(None)
        if n_lost == len(found):
            return RowBatch((), self.up.schema, ())
        return batch if not n_lost else batch.where(np.array([row is not None for row in found], np.bool_))

    def made(self, batch: Batch) -> Outputs:
        """The rows for which it is true."""
        fast = None if is_few(batch) else self._compiled.results(batch.rows)
        if fast is None:
            yield from self._in_python(batch)
            return
        done = batch if not len(fast.rest) else batch.take(fast.places)
        yield OUT, filter_rows(done, fast.columns[PREDICATE], self.site.accounts)
        if len(fast.rest):
            yield from self._in_python(batch.take(fast.rest))

    def _in_python(self, batch: Batch) -> Outputs:
        results = call_rows(batch, self._holds, self._function, self._errors)
        if all(results.made):
            self.site.accounts.passed += results.rows.num_rows
            yield OUT, results.rows
        elif not any(results.made):
            self.site.accounts.filtered += results.rows.num_rows
        else:
            yield OUT, filter_rows(results.rows, np.array(results.made, np.bool_), self.site.accounts)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def by_row(self) -> RowStep:
        """The row, if it is true."""
        return function_step(self._step, self._function, self._errors)

    def _row_if_true(self) -> Callable[[PlainRow], PlainRow | None]:
        call, (kind, put) = self._call, row_type(self.up.schema)

        def step(values: PlainRow) -> PlainRow | None:
            row = new_object(kind)
            put(row, values)
            holds = call(row)
            return values if holds is True or (holds is not False and check_truth(holds)) else None

        return step

    def _holds(self, place: int, values: PlainRow) -> bool:
        return self._step(values) is not None

    def explain(self) -> list[str]:
        """Compiled, or row by row and why."""
        return self._compiled.explain()
