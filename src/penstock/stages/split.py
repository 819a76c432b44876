"""Split: each row to one branch, to several, or to none; it keeps its time and place on each.

A row that reaches no branch that somebody reads is unrouted. A predicate that fails fails the row: then it
reaches no branch at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from penstock.errors import RowFailure
from penstock.expr import Expr
from penstock.expr.values import numbers_of, valid_in
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.op import OUT, Stream
from penstock.operators.rows import Split
from penstock.stages.expressions import ExpressionStage
from penstock.stages.functions.calls import RowFunctionStage
from penstock.stages.functions.loops import build_loop
from penstock.stages.rows.batch import Batch, Mask
from penstock.stages.stage import Outputs, PlainRow, StageContext, StatelessStage


class PredicateSplit(ExpressionStage):
    """Named branches, each with an expression that says which rows belong to it."""

    as_masks = True
    subject = "predicates run"

    def __init__(self, op: Split, up: Stream, site: StageContext) -> None:
        assert op.predicates is not None, "a split by index has a stage of its own"
        super().__init__(op, up, site, list(op.predicates.values()), "a split predicate")
        self._names = op.names

    def emit(self, batch: Batch, values: list[Any]) -> Outputs:
        """Emit the rows of each branch."""
        return route_to_branches(batch, dict(zip(self._names, values, strict=True)), self.site)


class IndexSplit(ExpressionStage):
    """Numbered branches by an expression that computes the number; null means no branch."""

    subject = "the index runs"

    def __init__(self, op: Split, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, Expr), "functions have a stage of their own"
        super().__init__(op, up, site, [op.how], f"expression {op.how}")
        self._names = op.names

    def evaluate(self, batch: Batch) -> tuple[list[Any], Mask | None]:
        """Return the numbers of branches; a number that no branch has fails the row."""
        values, failed = super().evaluate(batch)
        index = numbers_of(values[0])  # zero, which is a branch, in place of null
        out_of_range = np.asarray((index < 0) | (index >= len(self._names)), np.bool_)
        return values, out_of_range if failed is None else failed | out_of_range

    def emit(self, batch: Batch, values: list[Any]) -> Outputs:
        """Emit the rows of each branch."""
        index, valid = numbers_of(values[0]), valid_in(values[0])
        members = {name: valid & (index == branch) for branch, name in enumerate(self._names)}
        return route_to_branches(batch, members, self.site)

    def find_failure(self, row: PlainRow) -> RowFailure:
        """Return why a row failed that did: in the expression, or by its branch."""
        failure = self._evaluator.failure(row)
        return failure or _branch_failure(self._evaluator.plain(row)[0], len(self._names))


class RowSplit(RowFunctionStage):
    """Numbered branches by a function of a row: a number, several, or None for no branch."""

    def __init__(self, op: Split, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, RowFunction), "expressions have stages of their own"
        super().__init__(op, up, site, op.how)
        self._names = names = op.names
        self._loop = build_loop(
            own_copy(op.how.call), up.schema, lambda returned: parse_branches(returned, len(names))
        )

    def emit(self, batch: Batch, results: list[list[Any]]) -> Outputs:
        """Emit the rows of each branch."""
        members = np.zeros((len(self._names), batch.num_rows), np.bool_)
        for index, branches in enumerate(results[0]):
            members[branches, index] = True
        return route_to_branches(batch, dict(zip(self._names, members, strict=True)), self.site)


class RelayStage(StatelessStage):
    """Passes every batch on: where streams meet and part again with nothing between."""

    def process(self, batch: Batch) -> Outputs:
        """Pass the batch on."""
        self.site.accounts.passed += batch.num_rows
        yield OUT, batch

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`."""
        return ["batches are passed on as they are"]


def route_to_branches(batch: Batch, members: Mapping[str, Mask], site: StageContext) -> Outputs:
    """Emit the rows of each branch, in the branches' order; counts which of them somebody reads."""
    read = [member for name, member in members.items() if site.is_read(name)]
    n_read = int(np.count_nonzero(reduce(np.logical_or, read))) if read else 0
    site.accounts.passed += n_read
    site.accounts.unrouted += batch.num_rows - n_read
    for name, member in members.items():
        yield name, batch.where(member)


def parse_branches(returned: object, n_branches: int) -> list[int]:
    """Return the branches that a function named: one, several, or none."""
    if returned is None:
        return []
    several = isinstance(returned, Iterable) and not isinstance(returned, str | bytes)
    branches = []
    for branch in returned if several else [returned]:  # type: ignore[attr-defined]  # several are iterable
        if isinstance(branch, bool) or not isinstance(branch, int | np.integer):
            raise RowFailure(f"gave {branch!r:.80}, not the number of a branch")
        if not 0 <= branch < n_branches:
            raise _branch_failure(branch, n_branches)
        branches.append(int(branch))
    return branches


def _branch_failure(branch: object, n_branches: int) -> RowFailure:
    return RowFailure(f"gave branch {branch}, and the branches are 0 to {n_branches - 1}")
