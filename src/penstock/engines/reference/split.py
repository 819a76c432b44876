"""Split: each row to one branch, to several, or to none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from penstock.engines.reference.faults import Blame
from penstock.engines.reference.functions import Values, blame, predicate
from penstock.engines.reference.node import Site
from penstock.engines.reference.stateless import PerRow
from penstock.engines.timed import TimedRow
from penstock.expr import Expr, lower_python
from penstock.expr.failure import RowFailure
from penstock.operators.calling import own_copy
from penstock.operators.row import Row
from penstock.operators.split import Split
from penstock.plan.step import Ref


class SplitNode(PerRow):
    """Rows keep their time and place on every branch.

    A row that reaches no branch that somebody reads is unrouted. A predicate that fails fails the row:
    then it reaches no branch at all.
    """

    def __init__(self, site: Site, op: Split) -> None:
        super().__init__(site)
        self._branches = _by_name(op, site) if op.predicates is not None else _by_index(op, site)
        self.blame = Blame("a split predicate", catches=RowFailure) if op.how is None else blame(op.how)

    def each(self, row: TimedRow) -> list[tuple[str, TimedRow]]:
        """The row, once per branch."""
        branches = self._branches(row.values)
        step, plan = self.site.step, self.site.plan
        if any(plan.is_read(Ref(step.name, branch)) for branch in branches):
            self.accounts.passed += 1
        else:
            self.accounts.unrouted += 1
        return [(branch, row) for branch in branches]


def _by_name(op: Split, site: Site) -> Callable[[Values], list[str]]:
    """Every branch whose predicate is true."""
    tests = [(name, predicate(expr, site.step.up.schema)) for name, expr in (op.predicates or {}).items()]
    return lambda values: [name for name, holds in tests if holds(values)]


def _by_index(op: Split, site: Site) -> Callable[[Values], list[str]]:
    """The branches that one function names by number."""
    schema, how = site.step.up.schema, op.how
    assert how is not None, "a split without predicates has a function"
    if isinstance(how, Expr):
        lowered = lower_python(how, schema)
        return lambda values: indexes(lowered(values), len(op.names))
    call = own_copy(how.call)
    return lambda values: indexes(call(Row(values, schema)), len(op.names))


def indexes(given: object, n_branches: int) -> list[str]:
    """The branches that were named: a number, several (each once), or None for no branch."""
    if given is None:
        return []
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return sorted({index(each, n_branches) for each in given}, key=int)
    return [index(given, n_branches)]


def index(given: object, n_branches: int) -> str:
    """One branch by its number; RowFailure when there is no such branch."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise RowFailure(f"gave {given!r:.80}, not the number of a branch")
    if not 0 <= given < n_branches:
        raise RowFailure(f"gave branch {given}, and the branches are 0 to {n_branches - 1}")
    return str(given)
