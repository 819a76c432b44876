"""A join's predicate: conditions that are compared as codes, and tests of the candidates that are left.

Conditions are asked first, in one loop over arrays. What only an expression or a function of the user's can
say is asked of the pairs for which all conditions hold, test after test, so a function is never called, and
never fails, for a pair that could not join anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr.values import from_python, to_plain
from penstock.kernels.join.boxes import hold_floats
from penstock.operators.function import own_copy
from penstock.operators.join_predicate import (
    LEFT,
    RIGHT,
    Band,
    Equal,
    JoinTerm,
    PairBatchFunction,
    PairExpression,
    PairFunction,
    pair_schema,
)
from penstock.operators.op import Stream
from penstock.stages import policy
from penstock.stages.expressions import ExpressionEvaluator, true_mask
from penstock.stages.functions.calls import plain_rows_of, row_type
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.cell_places import NO_BUCKET
from penstock.stages.join.conditions import Condition, FloatBand, IntBand, KeyEquality, build_encoder
from penstock.stages.join.index import Boxes
from penstock.stages.join.join_rows import RowsOfSide
from penstock.stages.join.pairs import Pairs
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.stage import HINT, ErrorContext, StageContext

Failures = list[tuple[int, ErrorContext]]
"""Candidates on which a test failed, by their place, and why."""
FailedPairs = tuple[Pairs, list[ErrorContext]]
"""Pairs on which a test failed, and why each did."""


class PairTest(ABC):
    """A test of candidate pairs."""

    @abstractmethod
    def evaluate(self, pairs: Pairs, *, stops: bool) -> tuple[Mask, Failures]:
        """Return for which pairs it holds, and on which it failed; if a failure stops the run, the first."""


class ExpressionTest(PairTest):
    """An expression over the columns of both rows, computed column by column."""

    def __init__(self, term: PairExpression, left: pa.Schema, right: pa.Schema) -> None:
        self._term = term
        self._evaluator = ExpressionEvaluator([term.expr], pair_schema(left, right), as_masks=True)

    def evaluate(self, pairs: Pairs, *, stops: bool) -> tuple[Mask, Failures]:
        """Implement `PairTest.evaluate`."""
        columns = _PairColumns(pairs)
        (holds,), failed = self._evaluator.values(columns)
        failures = Failures()
        for place in [] if failed is None else np.flatnonzero(failed).tolist():
            cause = self._evaluator.failure(columns.row(place))
            assert cause is not None, "the two lowerings agree on which rows fail"
            context = ErrorContext(f"predicate {self._term}", None, cause, describe_cause(cause))
            failures.append((place, context))
        return holds if failed is None else holds & ~failed, failures


class _PairColumns:
    """The columns of pairs under the names of `pair_schema`; only those are taken that are asked for."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs, self.num_rows = pairs, len(pairs)

    def column(self, name: str) -> pa.Array:
        """Return one column."""
        side, _, own_name = name.partition(".")
        pairs = self._pairs
        rows, at = (pairs.left, pairs.left_at) if side == LEFT else (pairs.right, pairs.right_at)
        return rows.take_column(own_name, at)

    def row(self, place: int) -> dict[str, object]:
        """Return one pair as plain values."""
        values: dict[str, object] = {}
        for side, rows, at in (
            (LEFT, self._pairs.left, self._pairs.left_at),
            (RIGHT, self._pairs.right, self._pairs.right_at),
        ):
            one = rows.take_batch(at[place : place + 1])
            values |= {f"{side}.{name}": to_plain(one.column(name))[0] for name in one.schema.names}
        return values


class FunctionTest(PairTest):
    """A function of the user's, of a left row and a right row."""

    def __init__(self, function: PairFunction, left: pa.Schema, right: pa.Schema) -> None:
        self._function, self._call = function, own_copy(function.call)
        self._new_left, self._new_right = row_type(left).constructor(), row_type(right).constructor()

    def evaluate(self, pairs: Pairs, *, stops: bool) -> tuple[Mask, Failures]:
        """Implement `PairTest.evaluate`: one call for each pair; a row is made of columns once."""
        lefts = _rows_by_place(pairs.left, pairs.left_at)
        rights = _rows_by_place(pairs.right, pairs.right_at)
        call, new_left, new_right = self._call, self._new_left, self._new_right
        holds, failures = np.zeros(len(pairs), np.bool_), Failures()
        places = zip(pairs.left_at.tolist(), pairs.right_at.tolist(), strict=True)
        for pair, (left, right) in enumerate(places):
            try:
                # Why: copies, because a row's values become the object that the function is given.
                answer = call(new_left(dict(lefts[left])), new_right(dict(rights[right])))
                holds[pair] = answer if answer is True or answer is False else _to_bool(answer)
            except Exception as cause:
                failures.append((pair, _function_error(self._function, cause)))
                if stops:
                    break
        return holds, failures


class BatchFunctionTest(PairTest):
    """A function of the user's, of two batches: called once, or pair by pair if that fails."""

    def __init__(self, function: PairBatchFunction, site: StageContext) -> None:
        self._function, self._call, self._site = function, own_copy(function.call), site

    def evaluate(self, pairs: Pairs, *, stops: bool) -> tuple[Mask, Failures]:
        """Implement `PairTest.evaluate`."""
        left, right = pairs.left_batch, pairs.right_batch
        try:
            answers = self._call(left, right)
        except Exception as cause:
            return self._ask_pair_by_pair(left, right, cause, stops=stops)
        return self._check(answers, len(pairs)), []

    def _ask_pair_by_pair(
        self, left: pa.RecordBatch, right: pa.RecordBatch, first_cause: Exception, *, stops: bool
    ) -> tuple[Mask, Failures]:
        holds, failures = np.zeros(left.num_rows, np.bool_), Failures()
        for pair in range(left.num_rows):
            try:
                answers = self._call(left.slice(pair, 1), right.slice(pair, 1))
            except Exception as cause:
                failures.append((pair, _function_error(self._function, cause)))
                if stops:
                    break
                continue
            holds[pair] = self._check(answers, 1)[0]
        if stops and not failures:  # no pair fails by itself
            fact = f"function {self._function.name} failed on a batch of {left.num_rows} pairs"
            raise self._error(fact, describe_cause(first_cause), HINT) from first_cause
        return holds, failures

    def _check(self, answers: Any, n_pairs: int) -> Mask:
        """Return the answers as a mask; null is not true. Raise unless there is one for each pair."""
        if isinstance(answers, pa.ChunkedArray):
            answers = answers.combine_chunks()
        name = self._function.name
        if not isinstance(answers, pa.Array) or not kind.is_boolean(answers.type):
            type_ = answers.type if isinstance(answers, pa.Array) else type(answers).__name__
            raise self._error(
                f"batch function {name} gave {type_}, not a boolean array",
                hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
            )
        if len(answers) != n_pairs:
            raise self._error(
                f"batch function {name} gave {len(answers)} answers for {n_pairs} pairs",
                hint="give one answer for each row of the two batches, which are pairs",
            )
        return true_mask(answers)

    def _error(self, fact: str, detail: str | None = None, hint: str | None = None) -> FunctionError:
        where = self._function.where or self._site.where
        return FunctionError(fact, step=self._site.step, where=where, detail=detail, hint=hint)


def _rows_by_place(rows: RowsOfSide, places: Ints) -> dict[int, dict[str, object]]:
    """Return the plain rows at some places, each once."""
    distinct = np.unique(places)
    return dict(zip(distinct.tolist(), plain_rows_of(rows.take_batch(distinct)), strict=True))


def _function_error(function: PairFunction | PairBatchFunction, cause: Exception) -> ErrorContext:
    return ErrorContext(f"function {function.name}", function.where, cause, describe_cause(cause))


def _to_bool(answer: object) -> bool:
    """Return what a function gave as a bool; anything else fails the pair, None too."""
    try:
        truth = from_python(answer, pa.bool_())
    except RowFailure:
        truth = None
    if not isinstance(truth, bool):
        raise RowFailure(f"gave {answer!r:.80}, not True or False")
    return truth


class JoinPredicate:
    """All terms of a join.

    conditions  compared as codes; the first is that of all keys, if there is one
    tests       asked of the candidates, in the order of the terms
    keys        the first condition, if rows are equal in some columns
    encoder     what gives rows codes and ranges at once, if it can
    """

    def __init__(self, terms: Sequence[JoinTerm], left: Stream, right: Stream, site: StageContext) -> None:
        equal = [term for term in terms if isinstance(term, Equal)]
        self.keys: KeyEquality | None = None
        if equal:
            types = [left.schema.field(term.left).type for term in equal]
            self.keys = KeyEquality([term.left for term in equal], [term.right for term in equal], types)
        bands = [build_band(term, left, right) for term in terms if isinstance(term, Band)]
        self.conditions: list[Condition] = [*([self.keys] if self.keys else []), *bands]
        self.encoder = build_encoder(self.conditions, (left.schema, right.schema))
        self.tests: list[PairTest] = []
        for term in terms:
            if isinstance(term, PairExpression):
                self.tests.append(ExpressionTest(term, left.schema, right.schema))
            elif isinstance(term, PairFunction):
                self.tests.append(FunctionTest(term, left.schema, right.schema))
            elif isinstance(term, PairBatchFunction):
                self.tests.append(BatchFunctionTest(term, site))

    def valid(self, side: int, rows: pa.RecordBatch) -> Mask | None:
        """Return which rows can have a partner at all; None if all can."""
        valid: Mask | None = None
        for condition in self.conditions:
            of_condition = condition.valid(side, rows)
            if of_condition is not None:
                valid = of_condition if valid is None else valid & of_condition
        return valid

    def codes(self, side: int, rows: pa.RecordBatch, clock: Ints) -> Ints:
        """Return the codes of rows that can have a partner, their clock first."""
        return np.array([clock, *(condition.codes(side, rows) for condition in self.conditions)], np.int64)

    def boxes(self, codes: Ints, clocks: tuple[Ints, Ints]) -> tuple[Boxes, Ints]:
        """Return what rows look for, by their codes and the clocks that they meet; and which rows do."""
        with np.errstate(all="ignore"):  # floats overflow to infinity
            ranges = [clocks, *(one.ranges(codes[place]) for place, one in enumerate(self.conditions, 1))]
        lows, highs = (np.array(ends, np.int64) for ends in zip(*ranges, strict=True))
        boxes, is_full = Boxes(lows, highs), lows <= highs
        if is_full.all():
            return boxes, np.arange(len(boxes))
        places = np.flatnonzero(is_full.all(axis=0))
        return boxes.take(places), places

    def select(self, pairs: Pairs, run: policy.JitPolicy, *, stops: bool) -> tuple[Pairs, list[FailedPairs]]:
        """Return the candidates that fulfil what ranges do not decide, and those on which a test failed.

        stops  whether a failure stops the run: then the first is enough
        """
        held = self.holds(pairs, run)
        if held is not None:
            pairs = pairs.where(held)
        failed_pairs: list[FailedPairs] = []
        for test in self.tests:
            if not len(pairs):
                break
            holds, failures = test.evaluate(pairs, stops=stops)
            if failures:
                failed = np.zeros(len(pairs), np.bool_)
                failed[[place for place, _ in failures]] = True
                failed_pairs.append((pairs.where(failed), [context for _, context in failures]))
                if stops:
                    break
            pairs = pairs.where(holds)
        return pairs, failed_pairs

    def holds(self, pairs: Pairs, run: policy.JitPolicy) -> Mask | None:
        """Return which candidates fulfil the conditions that ranges do not decide; None if there are none."""
        mask: Mask | None = None
        for place, condition in enumerate(self.conditions, 1):
            if isinstance(condition, FloatBand):
                mask = np.ones(len(pairs), np.bool_) if mask is None else mask
                run(
                    hold_floats,
                    pairs.left.codes,
                    pairs.right.codes,
                    place,
                    condition.width,
                    int(condition.strict),
                    pairs.left_at,
                    pairs.right_at,
                    mask,
                )
        return mask


def select_at_home(side: int, lots: Sequence[FailedPairs]) -> Iterator[FailedPairs]:
    """Yield the pairs that failed whose new row, that of this side, is at home in this cell."""
    for pairs, contexts in lots:
        rows, at = (pairs.left, pairs.left_at) if side == LEFT_SIDE else (pairs.right, pairs.right_at)
        is_home = rows.buckets[at] != NO_BUCKET
        if is_home.any():
            own = pairs.where(is_home)
            yield own, [context for context, stays in zip(contexts, is_home, strict=True) if stays]


def build_band(term: Band, left: Stream, right: Stream) -> Condition:
    """Return the condition of a band, by the types of its columns."""
    types = (left.schema.field(term.left).type, right.schema.field(term.right).type)
    band = FloatBand if any(map(kind.is_floating, types)) else IntBand
    return band(term.left, term.right, term.width, strict=term.strict)
