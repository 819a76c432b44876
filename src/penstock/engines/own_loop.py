"""An operator with a driver loop of its own at work (C-Stream, 3): its co-routine, its ports, what it pushed.

Whoever drives it delivers rows, resumes it, and takes what it pushed; when to do which is the engine's
affair. The co-routine runs until it waits for rows that are not there, or for room.

A pushed row has the greatest time taken from a port so far, or the watermark already forwarded if that
is later: so it is never late by itself. The forwarded watermark waits for the oldest row in a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from penstock.caller import defined_at
from penstock.engines.loop_context import Outlet, Port, RunningContext
from penstock.engines.timed import TimedRow
from penstock.errors import FunctionError, PenstockError
from penstock.expr.failure import reason_of
from penstock.operators.calling import own_copy
from penstock.operators.process import Process
from penstock.operators.row import Row
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.timing.watermark import BEFORE_ALL

Pushed = dict[str, list[TimedRow]]


class OwnLoop:
    """One operator, one co-routine.

    room      whether rows can be pushed now; the co-routine waits while they cannot
    stopping  whether somebody has asked the run to stop
    """

    def __init__(
        self,
        step: Step,
        op: Process,
        accounts: Accounts,
        *,
        room: Callable[[], bool] = lambda: True,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._step, self.accounts, self._room = step, accounts, room
        self._operator = own_copy(op.operator)
        self._schemas = {given.port: given.stream.schema for given in step.inputs}
        self.ports = {
            given.port: Port(given.port, given.stream.schema, self._took)
            for given in step.inputs
            if not given.control
        }
        outlets = {port: self._outlet(port) for port in step.outputs}
        self.context = RunningContext(self.ports, outlets, stopping)
        self._forgotten: FunctionError | None = None
        self._running: Coroutine[Any, Any, None] | None = self._begin()
        self._pushed: Pushed = {}
        self._n_pushed = 0
        self._greatest: int | None = None
        self._forwarded: float = BEFORE_ALL

    @property
    def ended(self) -> bool:
        """Whether the operator has returned, failed or been closed."""
        return self._running is None

    def steer(self, port: str, rows: Iterable[TimedRow]) -> None:
        """Rows on a control port."""
        for row in rows:
            try:
                self._operator.on_control(port, Row(row.values, self._schemas[port]))
            except Exception as cause:
                raise self._failed("on_control", cause) from cause
            self.accounts.passed += 1

    def deliver(self, name: str, rows: list[TimedRow]) -> None:
        """Rows into a port's queue; an operator that has ended takes none, and they are unrouted."""
        if self._running is None:
            self.accounts.unrouted += len(rows)
        else:
            self.ports[name].put(rows)

    def resume(self) -> None:
        """Run the co-routine until it waits or ends."""
        if self._running is None:
            return
        try:
            asked = self._running.send(None)
        except StopIteration:
            self._end()
            asked = None
        except Exception as cause:
            self._end()
            raise self._failed("process", cause) from cause
        if self._forgotten is not None:
            raise self._failed("process", self._forgotten)
        if asked is not None:
            raise FunctionError(
                f"{type(self._operator).__name__}.process waits for {asked!r:.80}, which no row can bring",
                where=defined_at(type(self._operator).process),
                hint="await only ctx.wait_for_all, ctx.wait_for_any and port.push",
            )

    def take_pushed(self) -> Pushed:
        """What was pushed since the last take, by output port."""
        pushed, self._pushed = self._pushed, {}
        return pushed

    def forwarded(self, watermark: float) -> float:
        """What can be promised downstream when this is upstream: as far as the oldest row that waits."""
        self._forwarded = max(self._forwarded, min([watermark, *self._waiting_times()]))
        return self._forwarded

    def close(self) -> None:
        """Close the co-routine if it still waits; rows that it never took are unrouted."""
        running = self._running
        if running is not None:
            self.context.closing = True
            running.close()
        self._end()

    def _end(self) -> None:
        self._running = None
        for port in self.ports.values():
            self.accounts.unrouted += port.clear()

    def _begin(self) -> Coroutine[Any, Any, None]:
        started: object = self._operator.process(self.context)
        if isinstance(started, Coroutine):
            return started
        method = type(self._operator).process
        raise FunctionError(
            f"{type(self._operator).__name__}.process is not a co-routine",
            where=defined_at(method),
            hint="write async def process(self, ctx)",
        )

    def _took(self, row: TimedRow) -> None:
        self.accounts.passed += 1
        self.context.moved()
        if row.time is not None:
            self._greatest = row.time if self._greatest is None else max(self._greatest, row.time)

    def _outlet(self, name: str) -> Outlet:
        def push(values: Mapping[str, object]) -> None:
            self.context.moved()
            row = TimedRow(values, self._time(name), (self._n_pushed,))
            self._n_pushed += 1
            self._pushed.setdefault(name, []).append(row)

        return Outlet(name, self._step.outputs[name].schema, push, self._room, self._forgot)

    def _forgot(self, port: str) -> None:
        self._forgotten = FunctionError(
            f'a row was pushed to port "{port}", and nobody awaited it, so it was not sent',
            hint=f'write: await ctx.outputs["{port}"].push(row)',
        )

    def _time(self, port: str) -> int | None:
        """The time of a row pushed now."""
        if self._step.outputs[port].time is None:
            return None
        known = [time for time in (self._greatest, self._forwarded) if time not in (None, BEFORE_ALL)]
        waiting = self._waiting_times()
        known = known or ([min(waiting)] if waiting else [])
        if not known:
            raise FunctionError(
                f'a row was pushed to port "{port}" before any row came in, so it has no time',
                where=defined_at(type(self._operator).process),
                hint="wait for a row first: await ctx.wait_for_any({...: 1})",
            )
        return int(max(time for time in known if time is not None))

    def _waiting_times(self) -> list[int]:
        least = (port.least_time for port in self.ports.values())
        return [time for time in least if time is not None]

    def _failed(self, method: str, cause: Exception) -> PenstockError:
        """An error in the operator: with its class and line, unless it is one of ours that says so."""
        where = defined_at(getattr(type(self._operator), method))
        if isinstance(cause, PenstockError):
            return cause.at(self._step.name, where)
        name = f"{type(self._operator).__name__}.{method}"
        return FunctionError(f"{name} failed", step=self._step.name, where=where, detail=reason_of(cause))
