"""Whether two rows are a pair: all terms of a join's predicate must hold.

Equal columns and bands are looked at first, functions last, and only for pairs that the rest allows: so
a function is never blamed for a pair that could not join anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import nan
from typing import Any

import pyarrow as pa

from penstock.engines.reference.faults import Blame
from penstock.engines.reference.functions import Values
from penstock.engines.values import clean, same
from penstock.expr.failure import RowFailure
from penstock.expr.types import from_python
from penstock.operators.calling import own_copy
from penstock.operators.predicate import Band, Equal, PairFunction, Term
from penstock.operators.row import Row

Test = Callable[[Values, Values], bool]


class PairTest:
    """A join's predicate; `blame` names the function of it that failed last."""

    def __init__(self, terms: Iterable[Term], left: pa.Schema, right: pa.Schema) -> None:
        last = sorted(terms, key=lambda term: isinstance(term, PairFunction))
        self._tests = [(_blame(term), _test(term, left, right)) for term in last]
        self.blame = Blame("the join")

    def holds(self, left: Values, right: Values) -> bool:
        """Whether every term holds; raises what a function of the user's raises."""
        for blame, test in self._tests:
            self.blame = blame
            if not test(left, right):
                return False
        return True


def _blame(term: Term) -> Blame:
    if isinstance(term, PairFunction):
        return Blame(f"function {term.name}", term.where)
    return Blame(f"predicate {term}", catches=RowFailure)


def _test(term: Term, left: pa.Schema, right: pa.Schema) -> Test:
    if isinstance(term, Equal):
        return lambda x, y: _equal(x[term.left], y[term.right])
    if isinstance(term, Band):
        return lambda x, y: _close(x[term.left], y[term.right], term)
    call = own_copy(term.call)
    return lambda x, y: _said(call(Row(x, left), Row(y, right)))


def _equal(left: object, right: object) -> bool:
    """Null equals nothing; NaN equals NaN, -0.0 equals 0.0."""
    return left is not None and right is not None and same(clean(left)) == same(clean(right))


def _close(left: Any, right: Any, band: Band) -> bool:
    """|left - right| within the width; integers exactly; null and NaN are close to nothing."""
    apart = nan if left is None or right is None else abs(left - right)
    return bool(apart < band.width if band.strict else apart <= band.width)


def _said(given: object) -> bool:
    """What a function of a pair gave: True or False, and nothing else."""
    try:
        answer = from_python(given, pa.bool_())
    except RowFailure:
        answer = None
    if not isinstance(answer, bool):
        raise RowFailure(f"gave {given!r:.80}, not True or False")
    return answer
