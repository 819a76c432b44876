"""Steps with a state per key: map, filter and flat_map with `state=`, and accumulate; and process operators.

Rows reach the state in order (time, order): a row waits until the watermark has passed its time, so that no
earlier row can still come. A row that comes behind the watermark is late. On a stream without time every row
is in order as it comes. Imports no stage and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pyarrow as pa

from penstock.engines.process_operator import ProcessRoutine
from penstock.engines.reference.node import OVER, ErrorContext, Frontier, Node, Outputs, RoundInput, Site
from penstock.engines.reference.stateless import RowProcess, error_context
from penstock.engines.rows import TimedRow, key_columns, key_of, sort_rows
from penstock.errors import RowFailure
from penstock.expr.values import from_python
from penstock.operators.function import Row, own_copy, plain_row
from penstock.operators.op import LATE, OUT
from penstock.operators.process import Process
from penstock.operators.rows import Accumulate


class StateNode(Node):
    """Orders rows and hands them, one by one, to the step's process with the state of their key."""

    def __init__(
        self, site: Site, context: ErrorContext, process: RowProcess, new_state: Callable[[], Any]
    ) -> None:
        super().__init__(site)
        self._context, self._process = context, process
        self._new_state = own_copy(new_state)
        self._states: dict[tuple[Hashable, ...], Any] = {}
        self._waiting: list[TimedRow] = []

    def round(self, inputs: RoundInput) -> Outputs:
        """Add what is not late; process, in order, what the watermark has passed."""
        timed = self.site.step.up.time is not None
        late = [row for row in inputs.only if timed and row.at() < inputs.before]
        self._waiting += [row for row in inputs.only if not (timed and row.at() < inputs.before)]
        ready = [row for row in self._waiting if not timed or row.at() < inputs.after]
        self._waiting = [row for row in self._waiting if timed and row.at() >= inputs.after]
        self.accounts.late += len(late)
        outputs: Outputs = {OUT: [new for row in sort_rows(ready) for new in self._process_row(row)]}
        return outputs | ({LATE: late} if timed else {})

    def _process_row(self, row: TimedRow) -> list[TimedRow]:
        up = self.site.step.up
        key = key_of(row.values, up.key)
        try:
            if key not in self._states:
                self._states[key] = self._new_state()
            return [new for _, new in self._process(row, self._states[key])]
        except self._context.catches as cause:
            self.failed_rows.add(row, up.schema, self._context, cause)
            return []


class AccumulateNode(StateNode):
    """`state = fn(row, state)`; emits the key and the new state. A row that fails keeps the old state."""

    def __init__(self, site: Site, op: Accumulate) -> None:
        super().__init__(site, error_context(op.how), self._accumulate, op.new_state)
        self._call, self._state_schema = own_copy(op.how.call), op.state_schema

    def _accumulate(self, row: TimedRow, state: Any) -> list[tuple[str, TimedRow]]:
        up = self.site.step.up
        new_state = self._call(Row(row.values, up.schema), state)
        columns = _state_columns(new_state, self._state_schema)
        self._states[key_of(row.values, up.key)] = new_state
        self.accounts.passed += 1
        return [(OUT, row.with_values({**key_columns(row.values, up.key), **columns}))]


def _state_columns(state: object, schema: pa.Schema) -> dict[str, object]:
    """Return a state as columns: a row, or a plain value where the schema has one column."""
    try:
        return plain_row(state, schema)
    except RowFailure as not_a_row:
        if len(schema) != 1:
            raise
        try:
            return {schema.names[0]: from_python(state, schema.field(0).type)}
        except RowFailure:
            raise not_a_row from None


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
            return OVER
        return Frontier(self._routine.output_watermark(frontier.watermark), frontier.idle)

    def close(self) -> None:
        """Close the co-routine if it still waits."""
        self._routine.close()
