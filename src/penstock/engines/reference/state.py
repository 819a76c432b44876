"""Steps with a state per key: map, filter and flat_map with `state=`, and accumulate.

Rows reach the state in order (time, order): a row waits until the watermark has passed its time, so
that no earlier row can still come. A row that comes behind the watermark is late. On a stream without
time every row is in order as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pyarrow as pa

from penstock.engines.process_operator import OwnLoop
from penstock.engines.reference.functions import error_context, plain_rows, truth
from penstock.engines.reference.node import OVER, Frontier, Node, Outputs, RoundInput, Site
from penstock.engines.rows import TimedRow, key_columns, key_of, sort_rows
from penstock.errors import RowFailure
from penstock.expr.types import from_python
from penstock.operators.accumulate import Accumulate
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.op import LATE, OUT
from penstock.operators.process import Process
from penstock.operators.row import Row, plain_row


class StateNode(Node):
    """Puts rows in order and hands them, one by one, to the state of their key."""

    def __init__(self, site: Site, function: RowFunction, new_state: Callable[[], Any]) -> None:
        super().__init__(site)
        self._error_context = error_context(function)
        self.call = own_copy(function.call)
        self.up, self.key = site.step.up.schema, site.step.up.key
        self.down = site.step.outputs[OUT].schema
        self._new_state = own_copy(new_state)
        self._states: dict[tuple[Hashable, ...], Any] = {}
        self._waiting: list[TimedRow] = []

    def round(self, given_round: RoundInput) -> Outputs:
        """Take in what is not late; handle, in order, what the watermark has passed."""
        timed = self.site.step.up.time is not None
        late = [row for row in given_round.only if timed and row.at() < given_round.before]
        self._waiting += [row for row in given_round.only if not (timed and row.at() < given_round.before)]
        ready = [row for row in self._waiting if not timed or row.at() < given_round.after]
        self._waiting = [row for row in self._waiting if timed and row.at() >= given_round.after]
        self.accounts.late += len(late)
        outputs: Outputs = {OUT: [new for row in sort_rows(ready) for new in self._handled(row)]}
        return outputs | ({LATE: late} if timed else {})

    def _handled(self, row: TimedRow) -> list[TimedRow]:
        key = key_of(row.values, self.key)
        try:
            if key not in self._states:
                self._states[key] = self._new_state()
            emitted, self._states[key] = self.step(row, self._states[key])
        except self._error_context.catches as cause:
            self.failed_rows.row(row, self.up, self._error_context, cause)
            return []
        return emitted

    def step(self, row: TimedRow, state: Any) -> tuple[list[TimedRow], Any]:
        """Return what leaves for a row, and the state after it; counts the row unless it raises."""
        raise NotImplementedError


class StateMapNode(StateNode):
    """`fn(row, state)` gives the new row; it may change the state object it is given."""

    def step(self, row: TimedRow, state: Any) -> tuple[list[TimedRow], Any]:
        """Return one row."""
        emitted = row.with_values(plain_row(self.call(Row(row.values, self.up), state), self.down))
        self.accounts.passed += 1
        return [emitted], state


class StateFilterNode(StateNode):
    """`fn(row, state)` says whether the row stays."""

    def step(self, row: TimedRow, state: Any) -> tuple[list[TimedRow], Any]:
        """Return the row, or nothing."""
        if truth(self.call(Row(row.values, self.up), state)):
            self.accounts.passed += 1
            return [row], state
        self.accounts.filtered += 1
        return [], state


class StateFlatMapNode(StateNode):
    """`fn(row, state)` gives any number of rows."""

    def step(self, row: TimedRow, state: Any) -> tuple[list[TimedRow], Any]:
        """Return the rows, in the order they were given."""
        given = plain_rows(self.call(Row(row.values, self.up), state), self.down)
        self.accounts.passed += 1
        return [row.child(values, index) for index, values in enumerate(given)], state


class AccumulateNode(StateNode):
    """`state = fn(row, state)`; the key and the new state leave. A row that fails leaves the state alone."""

    def __init__(self, site: Site, op: Accumulate) -> None:
        super().__init__(site, op.how, op.new_state)
        self._state_schema = op.state_schema

    def step(self, row: TimedRow, state: Any) -> tuple[list[TimedRow], Any]:
        """Return the key columns and the state's columns."""
        moved = self.call(Row(row.values, self.up), state)
        columns = _state_columns(moved, self._state_schema)
        self.accounts.passed += 1
        return [row.with_values({**key_columns(row.values, self.key), **columns})], moved


def _state_columns(state: object, schema: pa.Schema) -> dict[str, object]:
    """Return a state as columns: a row, or a plain value where the schema has one column."""
    if len(schema) != 1:
        return plain_row(state, schema)
    try:
        return plain_row(state, schema)
    except RowFailure as not_a_row:
        try:
            return {schema.names[0]: from_python(state, schema.field(0).type)}
        except RowFailure:
            raise not_a_row from None


# Operators with a driver loop of their own, round by round (`engines/process_operator.py` has the loop
# itself).
#
# In every round the rows go to the port queues, in order; rows on control ports go to `on_control` first;
# then the co-routine runs until it waits for rows that are not there. When the inputs are over it is run
# to its end; one that waits on after everything is over is closed. One replica runs, whatever the degree.


class ProcessNode(Node):
    """One operator, one co-routine."""

    def __init__(self, site: Site, op: Process) -> None:
        super().__init__(site)
        self._control = [given.port for given in site.step.inputs if given.control]
        self._loop = OwnLoop(site.step, op, site.accounts)

    def round(self, given_round: RoundInput) -> Outputs:
        """Deliver the rows, run the operator, and give what it pushed."""
        for control in self._control:
            self._loop.steer(control, sort_rows(given_round.rows[control]))
        for name, port in self._loop.ports.items():
            self._loop.deliver(name, sort_rows(given_round.rows[name]))
            port.closed = name in given_round.over
        self._loop.resume()
        if all(port.closed for port in self._loop.ports.values()):
            self._loop.close()
        return self._loop.take_pushed()

    def forward(self, frontier: Frontier) -> Frontier:
        """As far as the oldest row that waits; no limit once the operator has ended."""
        if self._loop.ended:
            return OVER
        return Frontier(self._loop.forwarded(frontier.watermark), frontier.idle)

    def close(self) -> None:
        """Close the co-routine if it still waits."""
        self._loop.close()
