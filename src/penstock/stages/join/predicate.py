"""A join's predicate: conditions that are compared as codes, and tests of the candidates that are left.

Conditions are asked first, in one loop over arrays. What only a function of the user's can say is asked of
the pairs for which all conditions hold, test after test, so a function is never called, and never fails, for
a pair that could not join anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure, describe_cause
from penstock.expr.values import from_python, to_plain
from penstock.operators.function import own_copy
from penstock.operators.op import Stream
from penstock.operators.stream_join import Band, Equal, JoinTerm, PairFunction
from penstock.stages.functions.calls import plain_rows_of, row_type
from penstock.stages.join.conditions import Condition, FloatBand, IntBand, KeyEquality
from penstock.stages.join.segments import Boxes, JoinRows
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.stage import ErrorContext


class Candidates:
    """Pairs that may join: rows of both sides, row by row.

    left, right  the stored or new rows; `at` says which of them, for each pair
    """

    def __init__(self, left: JoinRows, left_at: Ints, right: JoinRows, right_at: Ints) -> None:
        self.left, self.left_at, self.right, self.right_at = left, left_at, right, right_at

    def __len__(self) -> int:
        return len(self.left_at)

    def where(self, mask: Mask) -> Candidates:
        """Return the pairs for which the mask is true."""
        if mask.all():
            return self
        return Candidates(self.left, self.left_at[mask], self.right, self.right_at[mask])

    @cached_property
    def left_batch(self) -> pa.RecordBatch:
        """Return the left rows, one for each pair."""
        return self.left.rows.take(pa.array(self.left_at))

    @cached_property
    def right_batch(self) -> pa.RecordBatch:
        """Return the right rows, one for each pair."""
        return self.right.rows.take(pa.array(self.right_at))


Failures = list[tuple[int, ErrorContext]]
"""Candidates on which a test failed, by their place, and why."""


class PairTest(ABC):
    """A test of candidates."""

    @abstractmethod
    def evaluate(self, pairs: Candidates, *, stops: bool) -> tuple[Mask, Failures]:
        """Return for which pairs it holds, and on which it failed; if a failure stops the run, the first."""


class FunctionTest(PairTest):
    """A function of the user's, of a left row and a right row."""

    def __init__(self, function: PairFunction, left: pa.Schema, right: pa.Schema) -> None:
        self._function, self._call = function, own_copy(function.call)
        self._new_left, self._new_right = row_type(left).constructor(), row_type(right).constructor()

    def evaluate(self, pairs: Candidates, *, stops: bool) -> tuple[Mask, Failures]:
        """Implement `PairTest.evaluate`: one call for each pair; a row is made of columns once."""
        lefts = _rows_by_place(pairs.left.rows, pairs.left_at)
        rights = _rows_by_place(pairs.right.rows, pairs.right_at)
        call, new_left, new_right = self._call, self._new_left, self._new_right
        holds, failures = np.zeros(len(pairs), np.bool_), Failures()
        places = zip(pairs.left_at.tolist(), pairs.right_at.tolist(), strict=True)
        for pair, (left, right) in enumerate(places):
            try:
                answer = call(new_left(dict(lefts[left])), new_right(dict(rights[right])))
                holds[pair] = answer if answer is True or answer is False else _to_bool(answer)
            except Exception as cause:
                function = self._function
                reason = describe_cause(cause)
                failures.append(
                    (pair, ErrorContext(f"function {function.name}", function.where, cause, reason))
                )
                if stops:
                    break
        return holds, failures


class NestedEquality(PairTest):
    """Equal lists or structs, which have no slots: compared pair by pair."""

    def __init__(self, left: str, right: str) -> None:
        self._left, self._right = left, right

    def evaluate(self, pairs: Candidates, *, stops: bool) -> tuple[Mask, Failures]:
        """Implement `PairTest.evaluate`; it never fails."""
        lefts = to_plain(pairs.left_batch.column(self._left))
        rights = to_plain(pairs.right_batch.column(self._right))
        both = zip(lefts, rights, strict=True)
        holds = [x is not None and y is not None and _key_of(x) == _key_of(y) for x, y in both]
        return np.array(holds, np.bool_), []


def _rows_by_place(rows: pa.RecordBatch, places: Ints) -> dict[int, dict[str, object]]:
    """Return the plain rows at some places, each once."""
    once = np.unique(places)
    return dict(zip(once.tolist(), plain_rows_of(rows.take(pa.array(once))), strict=True))


def _to_bool(answer: object) -> bool:
    """Return what a function gave as a bool; anything else fails the pair, None too."""
    truth: object = None
    try:
        truth = from_python(answer, pa.bool_())
    except RowFailure:
        pass
    if not isinstance(truth, bool):
        raise RowFailure(f"gave {answer!r:.80}, not True or False")
    return truth


def _key_of(value: Any) -> object:
    """Return a form that is equal for equal values: NaN equals NaN, null equals null inside of others."""
    match value:
        case float() if value != value:
            return ("NaN",)
        case list():
            return tuple(map(_key_of, value))
        case dict():
            return tuple(map(_key_of, value.values()))
    return value


class JoinPredicate:
    """All terms of a join.

    conditions  compared as codes; the first is that of all keys, if there is one
    tests       asked of the candidates, in the order of the terms
    keys        the first condition, if rows are equal in some columns
    """

    def __init__(self, terms: Sequence[JoinTerm], left: Stream, right: Stream) -> None:
        equal = [term for term in terms if isinstance(term, Equal)]
        nested = [term for term in equal if kind.is_nested(left.schema.field(term.left).type)]
        plain = [term for term in equal if term not in nested]
        self.keys: KeyEquality | None = None
        if plain:
            types = [left.schema.field(term.left).type for term in plain]
            self.keys = KeyEquality([term.left for term in plain], [term.right for term in plain], types)
        bands = [_band(term, left, right) for term in terms if isinstance(term, Band)]
        self.conditions: list[Condition] = [*([self.keys] if self.keys else []), *bands]
        self.tests: list[PairTest] = [NestedEquality(term.left, term.right) for term in nested]
        for term in terms:
            if isinstance(term, PairFunction):
                self.tests.append(FunctionTest(term, left.schema, right.schema))

    def valid(self, side: int, rows: pa.RecordBatch) -> Mask:
        """Return which rows can have a partner at all."""
        masks = [condition.valid(side, rows) for condition in self.conditions]
        return np.logical_and.reduce(masks) if masks else np.ones(rows.num_rows, np.bool_)

    def codes(self, side: int, rows: pa.RecordBatch, clock: Ints) -> Ints:
        """Return the codes of rows that can have a partner, their clock first."""
        return np.array([clock, *(condition.codes(side, rows) for condition in self.conditions)], np.int64)

    def boxes(self, codes: Ints, clocks: tuple[Ints, Ints]) -> tuple[Boxes, Ints]:
        """Return what rows look for, by their codes and the clocks that they meet; and which of them do."""
        ranges = [clocks, *(one.ranges(codes[place]) for place, one in enumerate(self.conditions, 1))]
        lows, highs = (np.array(ends, np.int64) for ends in zip(*ranges, strict=True))
        some = np.flatnonzero((lows <= highs).all(axis=0))
        if len(some) < lows.shape[1]:
            lows, highs = np.ascontiguousarray(lows[:, some]), np.ascontiguousarray(highs[:, some])
        return Boxes(lows, highs), some

    def holds(self, codes: Ints, at: Ints, others: Ints, others_at: Ints) -> Mask | None:
        """Return which candidates fulfil the conditions that ranges do not decide; None if there are none."""
        mask: Mask | None = None
        for place, condition in enumerate(self.conditions, 1):
            if not condition.is_exact:
                held = condition.holds(codes[place, at], others[place, others_at])
                mask = held if mask is None else mask & held
        return mask


def _band(term: Band, left: Stream, right: Stream) -> Condition:
    types = (left.schema.field(term.left).type, right.schema.field(term.right).type)
    band = FloatBand if any(map(kind.is_floating, types)) else IntBand
    return band(term.left, term.right, term.width, strict=term.strict)
