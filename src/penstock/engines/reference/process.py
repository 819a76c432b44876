"""Operators with a driver loop of their own, run by a small cooperative driver (C-Stream, 3 and 4).

In every round the rows go to the port queues, in order; rows on control ports go to `on_control` first;
then the co-routine runs until it waits for rows that are not there. When the inputs are over it is run
to its end; one that waits on after everything is over is closed. One replica runs, whatever the degree.

A pushed row has the greatest time taken from a port so far, or the watermark already forwarded if that
is later: so it is never late by itself. The forwarded watermark waits for the oldest row in a queue.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from penstock.caller import defined_at
from penstock.engines.reference.context import Outlet, Port, RunningContext
from penstock.engines.reference.node import OVER, Arrived, Mark, Node, Outputs, Site
from penstock.engines.reference.timed import TimedRow, in_order
from penstock.errors import FunctionError, PenstockError
from penstock.expr.failure import reason_of
from penstock.operators.calling import own_copy
from penstock.operators.process import Process
from penstock.operators.row import Row
from penstock.timing.watermark import BEFORE_ALL


class ProcessNode(Node):
    """One operator, one co-routine."""

    def __init__(self, site: Site, op: Process) -> None:
        super().__init__(site)
        self._operator = own_copy(op.operator)
        self._schemas = {given.port: given.stream.schema for given in site.step.inputs}
        self._control = [given.port for given in site.step.inputs if given.control]
        self._ports = {
            given.port: Port(given.stream.schema, self._took)
            for given in site.step.inputs
            if not given.control
        }
        outlets = {port: self._outlet(port) for port in site.step.outputs}
        self._context = RunningContext(self._ports, outlets)
        self._running: Coroutine[Any, Any, None] | None = self._begin()
        self._pushed: Outputs = {}
        self._n_pushed = 0
        self._greatest: int | None = None
        self._forwarded: float = BEFORE_ALL

    def round(self, arrived: Arrived) -> Outputs:
        """Deliver the rows, run the operator, and give what it pushed."""
        self._pushed = {}
        for control in self._control:
            self._steer(control, arrived.rows[control])
        for name, port in self._ports.items():
            self._deliver(port, in_order(arrived.rows[name]))
            port.closed = name in arrived.over
        self._resume()
        if all(port.closed for port in self._ports.values()):
            self.close()
        if self._running is None:
            self._drop_waiting()
        return self._pushed

    def forward(self, mark: Mark) -> Mark:
        """As far as the oldest row that waits; no limit once the operator has ended."""
        if self._running is None:
            return OVER
        oldest = [row.time for port in self._ports.values() for row in port.waiting if row.time is not None]
        self._forwarded = max(self._forwarded, min([mark.watermark, *oldest]))
        return Mark(self._forwarded, mark.idle)

    def close(self) -> None:
        """Close the co-routine if it still waits."""
        running, self._running = self._running, None
        if running is not None:
            self._context.shutdown_requested = True
            running.close()

    def _begin(self) -> Coroutine[Any, Any, None]:
        started: object = self._operator.process(self._context)
        if isinstance(started, Coroutine):
            return started
        method = type(self._operator).process
        raise FunctionError(
            f"{type(self._operator).__name__}.process is not a co-routine",
            where=defined_at(method),
            hint="write async def process(self, ctx)",
        )

    def _steer(self, port: str, rows: list[TimedRow]) -> None:
        for row in in_order(rows):
            try:
                self._operator.on_control(port, Row(row.values, self._schemas[port]))
            except Exception as cause:
                raise self._failed("on_control", cause) from cause
            self.accounts.passed += 1

    def _deliver(self, port: Port, rows: list[TimedRow]) -> None:
        """Rows into the queue; an operator that has ended takes none, and they are unrouted."""
        if self._running is None:
            self.accounts.unrouted += len(rows)
        else:
            port.waiting.extend(rows)

    def _resume(self) -> None:
        """Run the co-routine until it waits or ends."""
        if self._running is None:
            return
        try:
            asked = self._running.send(None)
        except StopIteration:
            self._running = None
            return
        except Exception as cause:
            self._running = None
            raise self._failed("process", cause) from cause
        if asked is not None:
            raise FunctionError(
                f"{type(self._operator).__name__}.process waits for {asked!r:.80}, which no row can bring",
                where=defined_at(type(self._operator).process),
                hint="await only ctx.wait_for_all, ctx.wait_for_any and port.push",
            )

    def _drop_waiting(self) -> None:
        for port in self._ports.values():
            self.accounts.unrouted += len(port)
            port.waiting.clear()

    def _took(self, row: TimedRow) -> None:
        self.accounts.passed += 1
        self._context.moved()
        if row.time is not None:
            self._greatest = row.time if self._greatest is None else max(self._greatest, row.time)

    def _outlet(self, name: str) -> Outlet:
        def push(values: Mapping[str, object]) -> None:
            self._context.moved()
            row = TimedRow(values, self._time(name), (self._n_pushed,))
            self._n_pushed += 1
            self._pushed.setdefault(name, []).append(row)

        return Outlet(name, self.site.step.outputs[name].schema, push)

    def _time(self, port: str) -> int | None:
        """The time of a row pushed now."""
        if self.site.step.outputs[port].time is None:
            return None
        waiting = [row.time for each in self._ports.values() for row in each.waiting if row.time is not None]
        known = [time for time in (self._greatest, self._forwarded) if time not in (None, BEFORE_ALL)]
        known = known or [min(waiting)] if waiting or known else []
        if not known:
            raise FunctionError(
                f'a row was pushed to port "{port}" before any row came in, so it has no time',
                where=defined_at(type(self._operator).process),
                hint="wait for a row first: await ctx.wait_for_any({...: 1})",
            )
        return int(max(time for time in known if time is not None))

    def _failed(self, method: str, cause: Exception) -> PenstockError:
        """An error in the operator: with its class and line, unless it is one of ours that says so."""
        where = defined_at(getattr(type(self._operator), method))
        if isinstance(cause, PenstockError):
            return cause.at(self.site.step.name, where)
        name = f"{type(self._operator).__name__}.{method}"
        return FunctionError(f"{name} failed", step=self.site.step.name, where=where, detail=reason_of(cause))
