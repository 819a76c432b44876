"""Split: each row to one branch, to several, or to none; it keeps its time and place on each.

A row that reaches no branch that somebody reads is unrouted. A predicate that fails fails the row: then it
reaches no branch at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure
from penstock.expr import Expr
from penstock.expr.arrow.columnar_value import numbers_of
from penstock.expr.values import valid_in
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.op import ERRORS, OUT
from penstock.operators.split import Split
from penstock.operators.stream import Stream
from penstock.stages.expressions import ExpressionEvaluator, drop_failed_rows
from penstock.stages.functions.calls import call_rows
from penstock.stages.functions.errors import ErrorContext, RowErrors
from penstock.stages.functions.rows import PlainRow, row_factory
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import Site
from penstock.stages.stateless import Outputs, StatelessStage

FEW_ROWS = 256
"""Of so many rows it is worth a look which branches they go to."""


class PredicateSplit(StatelessStage):
    """Named branches, each with an expression that says which rows are of it."""

    def __init__(self, op: Split, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert op.predicates is not None, "a split by index has a stage of its own"
        self._names = op.names
        self._computing = ExpressionEvaluator(list(op.predicates.values()), up.schema, "a split predicate")
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.error_context)

    def made(self, batch: Batch) -> Outputs:
        """The rows of each branch."""
        held = self._computing.truths(batch, self._errors)
        yield from route_to_branches(held.rows, dict(zip(self._names, held.masks, strict=True)), self.site)
        if held.dead_letters is not None:
            yield ERRORS, held.dead_letters

    def explain(self) -> list[str]:
        """Natively."""
        return ["predicates run as Arrow kernels"]


class IndexSplit(StatelessStage):
    """Numbered branches by an expression that gives the number; null means none."""

    def __init__(self, op: Split, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have a stage of their own"
        self._names, self._who = op.names, f"expression {op.how}"
        self._computing = ExpressionEvaluator([op.how], up.schema, self._who)
        self._errors = RowErrors(site, op.on_error, up.schema, self._error_context)

    def made(self, batch: Batch) -> Outputs:
        """The rows of each branch."""
        values, failed = self._computing.values(batch)
        wrong = self._out_of_range(values[0])
        failed = wrong if failed is None else failed | wrong
        computed = drop_failed_rows(batch, values, failed, self._errors)
        (index,) = computed.values
        found, valid = numbers_of(index), valid_in(index)
        present = set(found.tolist()) if len(found) <= FEW_ROWS else range(len(self._names))
        members = {
            name: valid & (found == place) for place, name in enumerate(self._names) if place in present
        }
        yield from route_to_branches(computed.rows, members, self.site)
        if computed.dead_letters is not None:
            yield ERRORS, computed.dead_letters

    def _out_of_range(self, index: pa.Array) -> Mask:
        found = numbers_of(index)  # zero, which is a branch, in place of null
        return np.asarray((found < 0) | (found >= len(self._names)), np.bool_)

    def _error_context(self, row: Mapping[str, object]) -> ErrorContext:
        failure = self._computing.failure(row)
        if failure is None:
            failure = _branch_failure(self._computing.plain(row)[0], len(self._names))
        return ErrorContext(self._who, None, failure, failure.reason)

    def explain(self) -> list[str]:
        """Natively."""
        return ["the index runs as Arrow kernels"]


class RowSplit(StatelessStage):
    """Numbered branches by a function of a row: a number, several, or None for no branch."""

    def __init__(self, op: Split, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "expressions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._names, self._new_row = op.names, row_factory(up.schema)
        self._errors = RowErrors(site, op.on_error, up.schema)

    def made(self, batch: Batch) -> Outputs:
        """The rows of each branch."""
        results = call_rows(batch, self._branches, self._function, self._errors)
        rows = results.rows
        member = np.zeros((len(self._names), rows.num_rows), np.bool_)
        for place, branches in enumerate(results.made):
            member[branches, place] = True
        yield from route_to_branches(rows, dict(zip(self._names, member, strict=True)), self.site)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def _branches(self, place: int, values: PlainRow) -> list[int]:
        return parse_branches(self._call(self._new_row(values)), len(self._names))

    def explain(self) -> list[str]:
        """Row by row."""
        return [f"{self._function} runs in Python, row by row"]


def route_to_branches(batch: Batch, members: Mapping[str, Mask], site: Site) -> Outputs:
    """The rows of each branch, in the branches' order; counts which of them somebody reads."""
    read = [member for name, member in members.items() if site.is_read(name)]
    n_read = int(np.count_nonzero(reduce(np.logical_or, read))) if read else 0
    site.accounts.passed += n_read
    site.accounts.unrouted += batch.num_rows - n_read
    for name, member in members.items():
        yield name, batch.where(member)


def parse_branches(given: object, n_branches: int) -> list[int]:
    """The branches that a function named: one, several, or none."""
    if given is None:
        return []
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return [_parse_branch(each, n_branches) for each in given]
    return [_parse_branch(given, n_branches)]


def _parse_branch(given: object, n_branches: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise RowFailure(f"gave {given!r:.80}, not the number of a branch")
    if not 0 <= given < n_branches:
        raise _branch_failure(given, n_branches)
    return int(given)


def _branch_failure(given: object, n_branches: int) -> RowFailure:
    return RowFailure(f"gave branch {given}, and the branches are 0 to {n_branches - 1}")


# Relay: rows as they come, where streams meet and part again with nothing between.


class RelayStage(StatelessStage):
    """Passes every batch on."""

    def at_once(self, batch: Batch) -> Batch:
        """The batch itself."""
        return batch

    def made(self, batch: Batch) -> Outputs:
        """The batch itself."""
        self.site.accounts.passed += batch.num_rows
        yield OUT, batch

    def explain(self) -> list[str]:
        """Nothing to do."""
        return ["batches are passed on as they are"]
