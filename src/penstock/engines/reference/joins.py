"""Joins of streams and with tables, and process operators: the steps with several inputs.

A pair of rows joins when the predicate holds and it is within the bounds of time (DP-Join, Definition 4.1),
or in one window, once for each window that both are in. It is emitted in the round in which its second row
arrives, with the later of the two times. A row is buffered while a row that is not late could still pair with
it; after that it is dropped, and an outer join emits it with nulls, at its own time, if nothing was paired
with it. Semi and anti joins emit left rows only, at their own time: those with a partner as soon as one
comes, those without when they are dropped.

    within 5      left at 10, buffered while a right row at 15 can come: until W - lateness > 15

In a join with the last rows, a row is put in order when the watermark and the lateness have passed its time,
and then meets the last rows of the other side that are before it.

Every pair that can meet is tested, also in semi joins. Imports no stage and no kernel.
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
from penstock.engines.rows import (
    TimedRow,
    batch_to_rows,
    canonical_value,
    equality_key,
    key_of,
    row_sort_key,
    rows_to_batch,
    sort_rows,
)
from penstock.errors import FunctionError, RowFailure
from penstock.expr import lower_python
from penstock.frozen import dataclass
from penstock.operators.function import Row, own_copy
from penstock.operators.join_predicate import (
    LEFT,
    RIGHT,
    Band,
    Equal,
    JoinTerm,
    PairBatchFunction,
    PairExpression,
    pair_schema,
)
from penstock.operators.op import LATE, LATE_RIGHT, OUT
from penstock.operators.process import Process
from penstock.operators.stream_join import StreamJoin
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import END, START
from penstock.timing.windows import is_late_for

Test = Callable[[Values, Values], bool]


class PairPredicate:
    """A join's predicate; `error_context` names the function of it that failed last."""

    def __init__(self, terms: Iterable[JoinTerm], left: pa.Schema, right: pa.Schema) -> None:
        self._tests = [_test(term, left, right) for term in terms]
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
    if isinstance(term, PairExpression):
        compute = lower_python(term.expr, pair_schema(left, right))
        return context, lambda x, y: compute(_pair_values(x, y)) is True
    call = own_copy(term.call)
    context = ErrorContext(f"function {term.name}", term.where)
    if isinstance(term, PairBatchFunction):
        return context, lambda x, y: _first_answer(call(_one_row(x, left), _one_row(y, right)), term)
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


def _pair_values(left: Values, right: Values) -> dict[str, object]:
    """Return the columns of a pair, by their names in `pair_schema`."""
    sides = ((LEFT, left), (RIGHT, right))
    return {f"{side}.{name}": value for side, values in sides for name, value in values.items()}


def _one_row(values: Values, schema: pa.Schema) -> pa.RecordBatch:
    return rows_to_batch([TimedRow(values, None)], schema)


def _first_answer(result: Any, function: PairBatchFunction) -> bool:
    """Return what a function of batches gave for one pair; null is not true.

    Anything but one boolean for the pair stops the run: then no pair can be named that is at fault.
    """
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array) or not pa.types.is_boolean(result.type):
        kind = result.type if isinstance(result, pa.Array) else type(result).__name__
        raise FunctionError(
            f"batch function {function.name} gave {kind}, not a boolean array",
            where=function.where,
            hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
        )
    if len(result) != 1:
        raise FunctionError(
            f"batch function {function.name} gave {len(result)} answers for 1 pairs",
            where=function.where,
            hint="give one answer for each row of the two batches, which are pairs",
        )
    return result[0].as_py() is True


def _to_bool(value: object) -> bool:
    """Return what a function of a pair gave: True or False, and nothing else."""
    outcome = to_bool(value)
    if not isinstance(outcome, bool):
        raise RowFailure(f"gave {value!r:.80}, not True or False")
    return outcome


@dataclass(slots=True, eq=False)
class BufferedRow:
    """A row that may still find partners.

    row     the row
    open    the starts of its windows that have not closed; (None,) where there are no windows
    paired  those of them in which it has found a partner
    failed  whether a pair of it failed
    """

    row: TimedRow
    open: tuple[int | None, ...]
    paired: set[int | None]
    failed: bool = False


class JoinNode(Node):
    """What all joins of streams share: the test of a pair, and the rows that leave."""

    def __init__(self, site: Site, op: StreamJoin) -> None:
        super().__init__(site)
        streams = {port.port: port.stream for port in site.step.inputs}
        self._left, self._right = streams[LEFT], streams[RIGHT]
        self._how = op.how
        self._bound = op.resolve(self._left, self._right)
        self._right_names = [(name, field.name) for name, field in op.right_columns(self._left, self._right)]
        self._shared = [term.left for term in op.terms if isinstance(term, Equal) and term.left == term.right]
        self._predicate = PairPredicate(op.terms, self._left.schema, self._right.schema)

    def _is_pair(
        self, left: BufferedRow, right: BufferedRow, charged: BufferedRow, window: int | None
    ) -> bool:
        """Return whether the predicate holds; a pair that fails does not, and is charged to one of its rows.

        The row is counted once, however many of its pairs fail.
        """
        try:
            return self._predicate.holds(left.row.values, right.row.values)
        except FunctionError as error:  # a batch function without an answer for each pair
            error.at(self.site.step.name, self.site.step.where)
            raise
        except self._predicate.error_context.catches as cause:
            pair, schema = self._join_rows(left.row, right.row, window), self.site.step.outputs[OUT].schema
            counted = 0 if charged.failed else 1
            charged.failed = True
            self.failed_rows.add(pair, schema, self._predicate.error_context, cause, counted=counted)
            return False

    def _join_rows(self, left: TimedRow, right: TimedRow, window: int | None) -> TimedRow:
        """Return the columns of both, at the later time."""
        columns = {name: right.values[source] for source, name in self._right_names}
        values = {**left.values, **columns, **self._window_columns(window)}
        return TimedRow(values, max(left.at(), right.at()), (*left.order, *right.order))

    def _left_alone(self, row: TimedRow, window: int | None) -> TimedRow:
        """Return a left row, with nulls for the other side; of semi and anti joins there is none."""
        right = dict.fromkeys((name for _, name in self._right_names), None)
        return row.with_values({**row.values, **right, **self._window_columns(window)})

    def _right_alone(self, row: TimedRow, window: int | None) -> TimedRow:
        """Return a right row, with nulls for the other side, but a shared column is its own."""
        values: dict[str, object] = dict.fromkeys(self._left.columns)
        values |= {name: row.values[name] for name in self._shared}
        values |= {name: row.values[source] for source, name in self._right_names}
        return row.with_values({**values, **self._window_columns(window)})

    def _window_columns(self, start: int | None) -> dict[str, object]:
        if not self._bound.has_window_columns:
            return {}
        window, time = self._bound.window, self._left.time
        assert window is not None, "by has_window_columns"
        assert time is not None, "the operator requires it"
        assert start is not None, "every pair of such a join is in a window"
        return {START: time.value(start), END: time.value(start + window.size)}


class StreamJoinNode(JoinNode):
    """A join within bounds of time, or by windows: both sides, as lists."""

    def __init__(self, site: Site, op: StreamJoin) -> None:
        super().__init__(site, op)
        self._buffered: dict[str, list[BufferedRow]] = {LEFT: [], RIGHT: []}

    def forward(self, frontier: Frontier) -> Frontier:
        """Return an inner pair is at most the lateness behind; a row with its own time leaves a bound later.

        In a join by window a row is on time until all its windows have closed, so pairs too may be a window
        behind.
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
                windows = self._windows(row)
                still_open = tuple(key for key in windows if not self._is_late(row, key, inputs.before))
                if still_open:
                    new[port].append(BufferedRow(row, still_open, set()))
                elif windows:
                    late[port].append(row)
                else:
                    self.accounts.no_window += 1
        self.accounts.late += len(late[LEFT]) + len(late[RIGHT])
        rows = self._pairs(new[LEFT], new[RIGHT] + self._buffered[RIGHT], new[LEFT])
        rows += self._pairs(self._buffered[LEFT], new[RIGHT], new[RIGHT])
        for port in (LEFT, RIGHT):
            self.accounts.passed += sum(not buffered.failed for buffered in new[port])
            self._buffered[port] += new[port]
        rows += self._forget(LEFT, inputs.after) + self._forget(RIGHT, inputs.after)
        return {OUT: sort_rows(rows), LATE: late[LEFT], LATE_RIGHT: late[RIGHT]}

    def _windows(self, row: TimedRow) -> tuple[int | None, ...]:
        """Return the starts of the windows of a row: none in a gap; (None,) in a join without windows."""
        return (None,) if self._bound.window is None else tuple(self._bound.window.starts(row.at()))

    def _is_late(self, row: TimedRow, window: int | None, before: float) -> bool:
        """Return whether the row, or its window in a join by window, is behind the watermark and lateness."""
        if window is not None:
            return self._has_closed(window, before)
        return row.at() + self._bound.lateness < before

    def _has_closed(self, start: int, watermark: float) -> bool:
        assert self._bound.window is not None, "asked only in a join by window"
        return is_late_for(watermark, start + self._bound.window.size, self._bound.lateness)

    def _pairs(
        self, lefts: list[BufferedRow], rights: list[BufferedRow], second: list[BufferedRow]
    ) -> list[TimedRow]:
        """Return what the pairs of lefts and rights become; `second` are the rows that have just come."""
        rows = []
        for left in lefts:
            for right in rights:
                for window in self._shared_windows(left, right):
                    if not self._is_pair(left, right, left if left in second else right, window):
                        continue
                    if self._how not in ("semi", "anti"):
                        rows.append(self._join_rows(left.row, right.row, window))
                    elif self._how == "semi" and window not in left.paired:
                        rows.append(self._left_alone(left.row, window))
                    left.paired.add(window)
                    right.paired.add(window)
        return rows

    def _shared_windows(self, left: BufferedRow, right: BufferedRow) -> list[int | None]:
        """Return the open windows that both are in; [None] if they are close enough where there are none."""
        if self._bound.window is not None:
            return [start for start in left.open if start in right.open]
        apart = right.row.at() - left.row.at()
        return [None] if -self._bound.older_right <= apart <= self._bound.older_left else []

    def _forget(self, port: str, after: float) -> list[TimedRow]:
        """Drop the rows that nothing can pair with any more; return those that leave without a partner."""
        alone: list[TimedRow] = []
        reach = self._bound.older_left if port == LEFT else self._bound.older_right
        leaves_alone = self._how in (port, "full") or (port == LEFT and self._how == "anti")
        for buffered in self._buffered[port]:
            for window in buffered.open:
                # Over, if every row that could still pair with this one would be late.
                if window is not None:
                    is_over = self._has_closed(window, after)
                else:
                    is_over = buffered.row.at() + reach + self._bound.lateness < after
                if not is_over:
                    continue
                buffered.open = tuple(start for start in buffered.open if start != window)
                if leaves_alone and window not in buffered.paired:
                    pad = self._left_alone if port == LEFT else self._right_alone
                    alone.append(pad(buffered.row, window))
        self._buffered[port] = [buffered for buffered in self._buffered[port] if buffered.open]
        return alone


class LastRowsJoinNode(JoinNode):
    """A join with the last rows: all rows by (time, left before right, order), as in one list.

        last_rows (1, 2)    time    1   2   3   4
                            left        a       b       a meets p, b meets p and q
                            right   p       q           q meets a

    A row meets the last rows of the other side that are before it; it is the row that is charged when a pair
    fails. A row alone leaves at once, because no row after it may meet it: the operator allows no others.
    """

    def __init__(self, site: Site, op: StreamJoin) -> None:
        super().__init__(site, op)
        self._waiting: dict[str, list[TimedRow]] = {LEFT: [], RIGHT: []}
        self._last: dict[str, list[BufferedRow]] = {LEFT: [], RIGHT: []}

    def forward(self, frontier: Frontier) -> Frontier:
        """Return what leaves has the time of a row that has just been put in order."""
        return node.output_frontier(frontier, self._bound.lateness)

    def round(self, inputs: RoundInput) -> Outputs:
        """Judge the rows; put in order what the watermark has passed; let each meet the rows before it."""
        late: dict[str, list[TimedRow]] = {LEFT: [], RIGHT: []}
        ready: list[tuple[str, TimedRow]] = []
        for port in (LEFT, RIGHT):
            for row in inputs.rows[port]:
                (late if self._has_passed(row, inputs.before) else self._waiting)[port].append(row)
            ready += [(port, row) for row in self._waiting[port] if self._has_passed(row, inputs.after)]
            self._waiting[port] = [
                row for row in self._waiting[port] if not self._has_passed(row, inputs.after)
            ]
        self.accounts.late += len(late[LEFT]) + len(late[RIGHT])
        ready.sort(key=lambda item: (item[1].at(), item[0] == RIGHT, row_sort_key(item[1])))
        rows = [new for port, row in ready for new in self._meet(port, row)]
        return {OUT: sort_rows(rows), LATE: late[LEFT], LATE_RIGHT: late[RIGHT]}

    def _has_passed(self, row: TimedRow, watermark: float) -> bool:
        return row.at() + self._bound.lateness < watermark

    def _meet(self, port: str, row: TimedRow) -> list[TimedRow]:
        """Return what leaves when a row meets the last rows of the other side, and keep it among its own."""
        assert self._bound.last_rows is not None, "the node of such joins only"
        count = self._bound.last_rows[port == RIGHT]
        new = BufferedRow(row, (), set())
        partners = []
        for other in self._last[RIGHT if port == LEFT else LEFT]:
            left, right = (new, other) if port == LEFT else (other, new)
            if self._is_pair(left, right, new, None):
                partners.append(self._join_rows(left.row, right.row, None))
        self.accounts.passed += not new.failed
        self._last[port] = [*self._last[port], new][-count:] if count else []
        if self._how in ("semi", "anti"):
            leaves = port == LEFT and bool(partners) == (self._how == "semi")
            return [self._left_alone(row, None)] if leaves else []
        if partners or self._how != port:
            return partners
        return [self._left_alone(row, None) if port == LEFT else self._right_alone(row, None)]


def join_streams(op: StreamJoin, site: Site) -> JoinNode:
    """Return the node of a join of two streams."""
    return StreamJoinNode(site, op) if op.last_rows is None else LastRowsJoinNode(site, op)


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
        self.is_over = self._routine.is_over
        return self._routine.take_output()

    def forward(self, frontier: Frontier) -> Frontier:
        """Return the frontier up to the oldest queued row; no limit once the operator has ended."""
        if self._routine.is_over:
            return node.OVER
        return Frontier(self._routine.output_watermark(frontier.watermark), frontier.idle)

    def close(self) -> None:
        """Close the co-routine if it still waits."""
        self._routine.close()
