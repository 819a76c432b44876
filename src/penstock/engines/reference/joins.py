"""Joins of streams and with tables, and process operators: the steps with several inputs.

A pair of rows joins when it is within the bounds of time (DP-Join, Definition 4.1) or in one tumbling window.
It is emitted in the round in which its second row arrives, once, with the later of the two times. A row is
buffered while a row that is not late could still pair with it; after that it is dropped, and an outer join
emits it with nulls, at its own time, if nothing was paired with it.

    within 5      left at 10, buffered while a right row at 15 can come: until W - lateness > 15

Equal columns and bands are tested first, functions last, and only for pairs that the rest allows: so a
function is never reported for a pair that could not join anyway. Imports no stage and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import nan
from typing import Any

import pyarrow as pa

from penstock.engines.process_operator import ProcessRoutine
from penstock.engines.reference import node
from penstock.engines.reference.node import ErrorContext, Frontier, Node, Outputs, RoundInput, Site, Values
from penstock.engines.reference.steps import RowProcess, to_bool
from penstock.engines.rows import TimedRow, batch_to_rows, canonical_value, equality_key, key_of, sort_rows
from penstock.errors import RowFailure
from penstock.frozen import dataclass
from penstock.operators.function import Row, own_copy
from penstock.operators.op import LATE, LATE_RIGHT, OUT
from penstock.operators.process import Process
from penstock.operators.stream_join import LEFT, RIGHT, Band, Equal, JoinTerm, PairFunction, StreamJoin
from penstock.operators.table_join import TableJoin
from penstock.timing.windows import is_late_for

Test = Callable[[Values, Values], bool]


class PairPredicate:
    """A join's predicate; `error_context` names the function of it that failed last."""

    def __init__(self, terms: Iterable[JoinTerm], left: pa.Schema, right: pa.Schema) -> None:
        last = sorted(terms, key=lambda term: isinstance(term, PairFunction))
        self._tests = [_test(term, left, right) for term in last]
        self.error_context = ErrorContext("the join")

    def holds(self, left: Values, right: Values) -> bool:
        """Return whether every term holds; raise what a function of the user's raises."""
        for error_context, test in self._tests:
            self.error_context = error_context
            if not test(left, right):
                return False
        return True


def _test(term: JoinTerm, left: pa.Schema, right: pa.Schema) -> tuple[ErrorContext, Test]:
    """Return whom to name when a term fails, and its test."""
    context = ErrorContext(f"predicate {term}", catches=RowFailure)
    if isinstance(term, Equal):
        return context, lambda x, y: _is_equal(x[term.left], y[term.right])
    if isinstance(term, Band):
        return context, lambda x, y: _is_close(x[term.left], y[term.right], term)
    call = own_copy(term.call)
    context = ErrorContext(f"function {term.name}", term.where)
    return context, lambda x, y: _to_bool(call(Row(x, left), Row(y, right)))


def _is_equal(left: object, right: object) -> bool:
    """Return whether they are equal: null equals nothing, NaN equals NaN, -0.0 equals 0.0."""
    if left is None or right is None:
        return False
    return equality_key(canonical_value(left)) == equality_key(canonical_value(right))


def _is_close(left: Any, right: Any, band: Band) -> bool:
    """Return whether |left - right| is within the width; integers exactly; null and NaN are never close."""
    apart = nan if left is None or right is None else abs(left - right)
    return bool(apart < band.width if band.strict else apart <= band.width)


def _to_bool(value: object) -> bool:
    """Return what a function of a pair gave: True or False, and nothing else."""
    outcome = to_bool(value)
    if not isinstance(outcome, bool):
        raise RowFailure(f"gave {value!r:.80}, not True or False")
    return outcome


@dataclass(slots=True, eq=False)
class BufferedRow:
    """A row that may still find partners; whether it has one, and whether a pair of it failed."""

    row: TimedRow
    paired: bool = False
    failed: bool = False


class StreamJoinNode(Node):
    """Both sides, as lists."""

    def __init__(self, site: Site, op: StreamJoin) -> None:
        super().__init__(site)
        streams = {port.port: port.stream for port in site.step.inputs}
        left, right = streams[LEFT], streams[RIGHT]
        self._how = op.how
        self._bound = op.resolve(left, right)
        self._left_names = left.columns
        self._right_names = [(name, field.name) for name, field in op.right_columns(left, right)]
        self._shared = [term.left for term in op.terms if isinstance(term, Equal) and term.left == term.right]
        self._test = PairPredicate(op.terms, left.schema, right.schema)
        self._buffered: dict[str, list[BufferedRow]] = {LEFT: [], RIGHT: []}

    def forward(self, frontier: Frontier) -> Frontier:
        """Return an inner pair is at most the lateness behind; a row without a partner leaves a bound later.

        In a join by window a row is on time until its whole window has closed, so pairs too may be a
        window behind.
        """
        longest = max(self._bound.older_left, self._bound.older_right)
        inner = self._how == "inner" and self._bound.window is None
        return node.output_frontier(frontier, self._bound.lateness + (0 if inner else longest))

    def round(self, inputs: RoundInput) -> Outputs:
        """Judge the rows, pair the new ones with all that is kept, then forget."""
        late: dict[str, list[TimedRow]] = {LEFT: [], RIGHT: []}
        new: dict[str, list[BufferedRow]] = {LEFT: [], RIGHT: []}
        for port in (LEFT, RIGHT):
            for row in inputs.rows[port]:
                if self._is_late(row, inputs.before):
                    late[port].append(row)
                else:
                    new[port].append(BufferedRow(row))
        self.accounts.late += len(late[LEFT]) + len(late[RIGHT])
        pairs = self._pairs(new[LEFT], new[RIGHT] + self._buffered[RIGHT], new[LEFT])
        pairs += self._pairs(self._buffered[LEFT], new[RIGHT], new[RIGHT])
        for port in (LEFT, RIGHT):
            self.accounts.passed += sum(not buffered.failed for buffered in new[port])
            self._buffered[port] += new[port]
        alone = self._forget(LEFT, inputs.after) + self._forget(RIGHT, inputs.after)
        return {OUT: sort_rows(pairs + alone), LATE: late[LEFT], LATE_RIGHT: late[RIGHT]}

    def _is_late(self, row: TimedRow, before: float) -> bool:
        """Return whether the row, or its window in a join by window, is behind the watermark and lateness."""
        if self._bound.window is not None:
            return is_late_for(before, self._window_end(row), self._bound.lateness)
        return row.at() + self._bound.lateness < before

    def _pairs(
        self, lefts: list[BufferedRow], rights: list[BufferedRow], second: list[BufferedRow]
    ) -> list[TimedRow]:
        """Return the pairs of lefts and rights; a pair that fails is charged to its row in `second`."""
        pairs = []
        for left in lefts:
            for right in rights:
                if not self._is_close(left.row, right.row):
                    continue
                try:
                    joins = self._test.holds(left.row.values, right.row.values)
                except self._test.error_context.catches as cause:
                    # Its row that came second is counted, once however many of its pairs fail.
                    charged = left if left in second else right
                    pair, schema = self._join_rows(left.row, right.row), self.site.step.outputs[OUT].schema
                    counted = 0 if charged.failed else 1
                    charged.failed = True
                    self.failed_rows.add(pair, schema, self._test.error_context, cause, counted=counted)
                    continue
                if joins:
                    left.paired = right.paired = True
                    pairs.append(self._join_rows(left.row, right.row))
        return pairs

    def _is_close(self, left: TimedRow, right: TimedRow) -> bool:
        """Return whether the two are close enough in time."""
        if self._bound.window is not None:
            return self._window_end(left) == self._window_end(right)
        apart = right.at() - left.at()
        return -self._bound.older_right <= apart <= self._bound.older_left

    def _window_end(self, row: TimedRow) -> int:
        assert self._bound.window is not None, "asked only in a join by window"
        (start,) = self._bound.window.starts(row.at())
        return start + self._bound.window.size

    def _join_rows(self, left: TimedRow, right: TimedRow) -> TimedRow:
        """Return the columns of both, at the later time."""
        values = {**left.values, **{name: right.values[source] for source, name in self._right_names}}
        return TimedRow(values, max(left.at(), right.at()), (*left.order, *right.order))

    def _forget(self, port: str, after: float) -> list[TimedRow]:
        """Drop the rows that nothing can pair with any more; give those an outer join lets out."""
        over: list[BufferedRow] = []
        stay: list[BufferedRow] = []
        bound = self._bound
        reach = bound.older_left if port == LEFT else bound.older_right
        for buffered in self._buffered[port]:
            # Over, if every row that could still pair with this one would be late.
            if bound.window is not None:
                is_over = is_late_for(after, self._window_end(buffered.row), bound.lateness)
            else:
                is_over = buffered.row.at() + reach + bound.lateness < after
            (over if is_over else stay).append(buffered)
        self._buffered[port] = stay
        outer = self._how in (port, "full")
        alone = [buffered.row for buffered in over if outer and not buffered.paired]
        return [self._pad_with_nulls(row, port) for row in alone]

    def _pad_with_nulls(self, row: TimedRow, port: str) -> TimedRow:
        """Return a row without a partner: nulls for the other side, but a shared column is its own."""
        right = dict.fromkeys((name for _, name in self._right_names), None)
        if port == LEFT:
            return row.with_values({**row.values, **right})
        values: dict[str, object] = dict.fromkeys(self._left_names)
        values |= {name: row.values[name] for name in self._shared}
        return row.with_values({**values, **{name: row.values[source] for source, name in self._right_names}})


def join_table(site: Site, op: TableJoin) -> RowProcess:
    """Return the process of a table join: the row with the columns of the table's row with the same key.

    Null keys match nothing, NaN matches NaN, -0.0 matches 0.0. Without a match a left join adds nulls, and an
    inner join drops the row.
    """
    new_columns = [field.name for field in op.new_fields]
    table: dict[tuple[Hashable, ...], dict[str, object]] = {}
    for batch in op.load().to_batches():
        table |= {key_of(values, op.columns): values for values in batch_to_rows(batch)}

    def process(row: TimedRow) -> list[tuple[str, TimedRow]]:
        key = key_of(row.values, op.columns)
        match = None if None in key else table.get(key)
        if match is None and op.how == "inner":
            site.accounts.unmatched += 1
            return []
        site.accounts.passed += 1
        added = {name: None if match is None else match[name] for name in new_columns}
        return [(OUT, row.with_values({**row.values, **added}))]

    return process


class ProcessNode(Node):
    """An operator with a driver loop of its own (`engines/process_operator.py`), round by round.

    In every round the rows go to the port queues, in order; rows on control ports go to `on_control` first;
    then the co-routine runs until it waits for rows that are not there. When the inputs are over it runs to
    its end; one that still waits then is closed. One replica runs, whatever the degree.
    """

    def __init__(self, site: Site, op: Process) -> None:
        super().__init__(site)
        self._control = [port.port for port in site.step.inputs if port.control]
        self._routine = ProcessRoutine(site.step, op, site.accounts)

    def round(self, inputs: RoundInput) -> Outputs:
        """Deliver the rows, run the operator, and give what it pushed."""
        for name in self._control:
            self._routine.control(name, sort_rows(inputs.rows[name]))
        for name, port in self._routine.ports.items():
            self._routine.deliver(name, sort_rows(inputs.rows[name]))
            port.closed = name in inputs.over
        self._routine.resume()
        if all(port.closed for port in self._routine.ports.values()):
            self._routine.close()
        return self._routine.take_output()

    def forward(self, frontier: Frontier) -> Frontier:
        """Return the frontier up to the oldest queued row; no limit once the operator has ended."""
        if self._routine.is_over:
            return node.OVER
        return Frontier(self._routine.output_watermark(frontier.watermark), frontier.idle)

    def close(self) -> None:
        """Close the co-routine if it still waits."""
        self._routine.close()
