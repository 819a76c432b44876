"""Split: each row to one branch, to several, or to none; it keeps its time and place on each.

A row that reaches no branch that somebody reads is unrouted. A predicate that fails fails the row: then it
reaches no branch at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

import numpy as np

from penstock.errors import RowFailure
from penstock.expr import Expr
from penstock.expr.values import numbers_of, valid_in
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.op import ERRORS, OUT, Stream
from penstock.operators.rows import Split
from penstock.stages.expressions import ExpressionEvaluator, drop_failed_rows
from penstock.stages.functions.calls import call_rows, row_type
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import ErrorContext, Outputs, PlainRow, RowErrors, StageContext, StatelessStage


class PredicateSplit(StatelessStage):
    """Named branches, each with an expression that says which rows belong to it."""

    def __init__(self, op: Split, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert op.predicates is not None, "a split by index has a stage of its own"
        self._names = op.names
        self._evaluator = ExpressionEvaluator(list(op.predicates.values()), up.schema, "a split predicate")
        self._errors = RowErrors(site, op.on_error, up.schema, self._evaluator.error_context)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows of each branch."""
        masks = self._evaluator.masks(batch, self._errors)
        yield from route_to_branches(masks.rows, dict(zip(self._names, masks.masks, strict=True)), self.site)
        if masks.dead_letters is not None:
            yield ERRORS, masks.dead_letters

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["predicates run as Arrow kernels"]


class IndexSplit(StatelessStage):
    """Numbered branches by an expression that computes the number; null means no branch."""

    def __init__(self, op: Split, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have a stage of their own"
        self._names, self._who = op.names, f"expression {op.how}"
        self._evaluator = ExpressionEvaluator([op.how], up.schema, self._who)
        self._errors = RowErrors(site, op.on_error, up.schema, self._error_context)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows of each branch."""
        values, failed = self._evaluator.values(batch)
        index = numbers_of(values[0])  # zero, which is a branch, in place of null
        out_of_range = np.asarray((index < 0) | (index >= len(self._names)), np.bool_)
        failed = out_of_range if failed is None else failed | out_of_range
        evaluated = drop_failed_rows(batch, values, failed, self._errors)
        index, valid = numbers_of(evaluated.values[0]), valid_in(evaluated.values[0])
        members = {name: valid & (index == branch) for branch, name in enumerate(self._names)}
        yield from route_to_branches(evaluated.rows, members, self.site)
        if evaluated.dead_letters is not None:
            yield ERRORS, evaluated.dead_letters

    def _error_context(self, row: PlainRow) -> ErrorContext:
        failure = self._evaluator.failure(row)
        if failure is None:
            failure = _branch_failure(self._evaluator.plain(row)[0], len(self._names))
        return ErrorContext(self._who, None, failure, failure.reason)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["the index runs as Arrow kernels"]


class RowSplit(StatelessStage):
    """Numbered branches by a function of a row: a number, several, or None for no branch."""

    def __init__(self, op: Split, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "expressions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._names, self._new_row = op.names, row_type(up.schema).row
        self._errors = RowErrors(site, op.on_error, up.schema)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows of each branch."""
        results = call_rows(batch, self._call_row, self._function, self._errors)
        members = np.zeros((len(self._names), results.rows.num_rows), np.bool_)
        for index, branches in enumerate(results.values):
            members[branches, index] = True
        yield from route_to_branches(results.rows, dict(zip(self._names, members, strict=True)), self.site)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def _call_row(self, values: PlainRow) -> list[int]:
        return parse_branches(self._call(self._new_row(values)), len(self._names))

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return [f"{self._function} runs in Python, row by row"]


class RelayStage(StatelessStage):
    """Passes every batch on: where streams meet and part again with nothing between."""

    def process(self, batch: Batch) -> Outputs:
        """Passes the batch on."""
        self.site.accounts.passed += batch.num_rows
        yield OUT, batch

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["batches are passed on as they are"]


def route_to_branches(batch: Batch, members: Mapping[str, Mask], site: StageContext) -> Outputs:
    """Emits the rows of each branch, in the branches' order; counts which of them somebody reads."""
    read = [member for name, member in members.items() if site.is_read(name)]
    n_read = int(np.count_nonzero(reduce(np.logical_or, read))) if read else 0
    site.accounts.passed += n_read
    site.accounts.unrouted += batch.num_rows - n_read
    for name, member in members.items():
        yield name, batch.where(member)


def parse_branches(returned: object, n_branches: int) -> list[int]:
    """Returns the branches that a function named: one, several, or none."""
    if returned is None:
        return []
    if isinstance(returned, Iterable) and not isinstance(returned, str | bytes):
        return [_parse_branch(branch, n_branches) for branch in returned]
    return [_parse_branch(returned, n_branches)]


def _parse_branch(branch: object, n_branches: int) -> int:
    if isinstance(branch, bool) or not isinstance(branch, int | np.integer):
        raise RowFailure(f"gave {branch!r:.80}, not the number of a branch")
    if not 0 <= branch < n_branches:
        raise _branch_failure(branch, n_branches)
    return int(branch)


def _branch_failure(branch: object, n_branches: int) -> RowFailure:
    return RowFailure(f"gave branch {branch}, and the branches are 0 to {n_branches - 1}")
