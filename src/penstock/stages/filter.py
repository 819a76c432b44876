"""Filter: the rows for which a predicate is true; null is not true. The others are counted as filtered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.accounts import Accounts
from penstock.expr import Expr
from penstock.operators.function import BatchFunction, RowFunction, own_copy
from penstock.operators.map import Filter
from penstock.operators.op import ERRORS, OUT
from penstock.operators.stream import Stream
from penstock.stages.expressions import ExpressionEvaluator, expression_step, true_mask
from penstock.stages.functions.calls import (
    BatchCaller,
    call_rows,
    check_truth,
    function_step,
    keeps_plain_rows,
)
from penstock.stages.functions.compile import CompiledFunction
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rewrite import PREDICATE
from penstock.stages.functions.rows import new_object, row_type
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import Outputs, PlainRow, RowStage, RowStep, Site, StatelessStage


class ExpressionFilter(StatelessStage, RowStage):
    """A predicate that is an expression."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have stages of their own"
        self._evaluator = ExpressionEvaluator([op.how], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._evaluator.error_context)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows for which the expression is true."""
        masks = self._evaluator.masks(batch, self._errors)
        yield OUT, filter_rows(masks.rows, masks.masks[0], self.site.accounts)
        if masks.dead_letters is not None:
            yield ERRORS, masks.dead_letters

    def row_step(self) -> RowStep:
        """Passes the row if it is true, by plain Python: for a single row Arrow takes many times as long."""
        plain = self._evaluator.plain
        return expression_step(lambda row: row if plain(row)[0] is True else None, self._errors)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["the predicate runs as Arrow kernels"]


class BatchFilter(StatelessStage):
    """A function that returns true, false or null for each row of a batch."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other predicates have stages of their own"
        self._function = BatchCaller(op.how, op, up, site)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows for which the function returns true."""
        return self._function.call(batch, self._collect)

    def _collect(self, batch: Batch, returned: object) -> Batch:
        truths = self._function.check_truths(returned)
        self._function.check_length(len(truths), batch)
        return filter_rows(batch, true_mask(truths), self.site.accounts)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._function.explain()


class RowFilter(StatelessStage, RowStage):
    """A function that says of one row whether it stays."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other predicates have stages of their own"
        self._function = op.how
        self._row_if_true = self._build_row_filter(op.how)
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._compiled = CompiledFunction(op.how, up.schema, None, wraps=op.compile)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows for which it is true; what the compiled function leaves out is called in Python."""
        computed = None if keeps_plain_rows(batch) else self._compiled.results(batch.rows)
        if computed is None:
            yield from self._call_rows(batch)
            return
        done = batch if not len(computed.rest) else batch.take(computed.indices)
        yield OUT, filter_rows(done, computed.columns[PREDICATE], self.site.accounts)
        if len(computed.rest):
            yield from self._call_rows(batch.take(computed.rest))

    def _call_rows(self, batch: Batch) -> Outputs:
        results = call_rows(batch, self._row_if_true, self._function, self._errors)
        holds = np.array([row is not None for row in results.values], np.bool_)
        yield OUT, filter_rows(results.rows, holds, self.site.accounts)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def row_step(self) -> RowStep:
        """Passes the row if the function says so."""
        return function_step(self._row_if_true, self._function, self._errors)

    def _build_row_filter(self, function: RowFunction) -> Callable[[PlainRow], PlainRow | None]:
        call, (row_class, fill) = own_copy(function.call), row_type(self.up.schema)

        def row_if_true(values: PlainRow) -> PlainRow | None:
            row = new_object(row_class)
            fill(row, values)
            holds = call(row)
            return values if holds is True or (holds is not False and check_truth(holds)) else None

        return row_if_true

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._compiled.explain()


def filter_rows(batch: Batch, holds: Mask, accounts: Accounts) -> Batch:
    """Returns the rows that stay; counts both kinds."""
    rows = batch.where(holds)
    accounts.passed += rows.num_rows
    accounts.filtered += batch.num_rows - rows.num_rows
    return rows
