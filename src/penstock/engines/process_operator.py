"""What a running operator sees: its ports, and the waits (the protocol is in `operators.process`).

A wait asks again every time the driver resumes it, and suspends for as long as the answer is not known.
`wait_for_all` gives False only if some port is closed and short of rows; `wait_for_any` only if all are
(C-Stream, 3.2: what can still come is waited for).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.caller import find_definition
from penstock.engines.rows import TimedRow, batch_to_rows
from penstock.errors import FunctionError, PenstockError, RowFailure, describe_cause
from penstock.operators.function import own_copy
from penstock.operators.process import InputPort, OutputPort, Process
from penstock.operators.row import Row, plain_row
from penstock.plan.plan import Step
from penstock.timing.watermark import BEFORE_ALL

ASKED_IN_VAIN = 100_000
"""How often in a row a loop may ask for rows that are there, and take none."""


class Port:
    """One input: the rows that wait, oldest first.

    `_least` has the times that would be the least if all rows before theirs were taken, so the front is the
    least of all and no row is looked at twice.
    """

    def __init__(self, name: str, schema: pa.Schema, taken: Callable[[TimedRow], None]) -> None:
        self._name, self._schema, self._taken = name, schema, taken
        self._waiting: deque[TimedRow] = deque()
        self._least: deque[int] = deque()
        self.closed = False

    @property
    def least_time(self) -> int | None:
        """Return the least time of the rows that wait, if one with a time does."""
        return self._least[0] if self._least else None

    def put(self, rows: Iterable[TimedRow]) -> None:
        """Rows that wait from now on."""
        for row in rows:
            self._waiting.append(row)
            if row.time is not None:
                while self._least and self._least[-1] > row.time:
                    self._least.pop()
                self._least.append(row.time)

    def clear(self) -> int:
        """Forget what waits; gives how many rows that were."""
        n = len(self._waiting)
        self._waiting.clear()
        self._least.clear()
        return n

    def __len__(self) -> int:
        return len(self._waiting)

    def pop(self) -> Row:
        """Take the oldest row; IndexError when none waits."""
        row = self._first()
        self._waiting.popleft()
        if self._least and self._least[0] == row.time:
            self._least.popleft()
        self._taken(row)
        return Row(row.values, self._schema)

    def peek(self) -> Row:
        """Look at the oldest row without taking it; IndexError when none waits."""
        return Row(self._first().values, self._schema)

    def _first(self) -> TimedRow:
        if not self._waiting:
            raise IndexError(f'no row waits on port "{self._name}": await ctx.wait_for_all(...) first')
        return self._waiting[0]


class Outlet:
    """One output: rows are checked against its schema as they are pushed.

    forgotten  called with the name of the port when a push was not awaited, and so did not happen
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        push: Callable[[Mapping[str, object]], None],
        room: Callable[[], bool],
        forgotten: Callable[[str], None],
    ) -> None:
        self._name, self._schema, self._push, self._room = name, schema, push, room
        self._forgotten = forgotten

    def push(self, row: object) -> _Push:
        """Send a row, or a RecordBatch of rows; waits for room first."""
        return _Push(self, row)

    def sent(self, row: object) -> Generator[None, Any, None]:
        """Yield the row on its way, as soon as there is room."""
        while not self._room():
            yield
        for values in self._checked(row):
            self._push(values)

    def forgotten(self) -> None:
        """A push was not awaited."""
        self._forgotten(self._name)

    def _checked(self, row: object) -> Iterable[Mapping[str, object]]:
        if isinstance(row, pa.RecordBatch):
            if row.schema.names != self._schema.names or row.schema.types != self._schema.types:
                raise FunctionError(
                    f'a batch pushed to port "{self._name}" has other columns than the port',
                    detail=f"it has {_columns(row.schema)}; the port has {_columns(self._schema)}",
                )
            return batch_to_rows(row)
        try:
            return [plain_row(row, self._schema)]
        except RowFailure as failure:
            raise FunctionError(
                f'what was pushed to port "{self._name}" is not a row of it',
                detail=failure.reason,
                hint=f"push a dict with the columns {', '.join(self._schema.names)}",
            ) from failure


class _Push:
    """A row to be sent when this is awaited. One that is thrown away instead says so, or a row were lost."""

    __slots__ = ("_outlet", "_row", "_was_awaited")

    def __init__(self, outlet: Outlet, row: object) -> None:
        self._outlet, self._row, self._was_awaited = outlet, row, False

    def __await__(self) -> Generator[None, Any, None]:
        self._was_awaited = True
        return self._outlet.sent(self._row)

    def __del__(self) -> None:
        if not self._was_awaited:
            self._outlet.forgotten()


class RunningContext:
    """The ports by name, and the waits.

    stopping  whether somebody has asked the run to stop; the operator may look at any time
    """

    def __init__(
        self,
        inputs: Mapping[str, InputPort],
        outputs: Mapping[str, OutputPort],
        stopping: Callable[[], bool],
    ) -> None:
        self.inputs, self.outputs, self._stopping = inputs, outputs, stopping
        self.closing = False
        self.wanted: Mapping[str, int] | None = None  # what is waited for; None when it is not rows
        self.hopeless = False  # whether that can never come
        self._said_over = False
        self._n_asked = 0

    @property
    def shutdown_requested(self) -> bool:
        """Return whether the run is being stopped, or the operator closed: finish soon."""
        return self.closing or self._stopping()

    def moved(self) -> None:
        """A row was taken or pushed: the operator is not just asking again."""
        self._said_over = False
        self._n_asked = 0

    async def wait_for_all(self, wanted: Mapping[str, int]) -> bool:
        """Wait until every port has so many rows, or one of them never will."""
        return await self._wait(wanted, has=all, lacks=any)

    async def wait_for_any(self, wanted: Mapping[str, int]) -> bool:
        """Wait until some port has so many rows, or none of them ever will."""
        return await self._wait(wanted, has=any, lacks=all)

    async def _wait(
        self,
        wanted: Mapping[str, int],
        *,
        has: Callable[[Iterable[bool]], bool],
        lacks: Callable[[Iterable[bool]], bool],
    ) -> bool:
        for port in wanted:
            if port not in self.inputs:
                raise FunctionError(
                    f"there is no input port {port!r} to wait for",
                    detail=f"the input ports are {', '.join(self.inputs)}",
                    hint=f'wait for rows of one of them: {{"{next(iter(self.inputs), "in")}": 1}}',
                )
        while True:
            if has([len(self.inputs[port]) >= n for port, n in wanted.items()]):
                self._count_asking(wanted)
                return True
            short = [self.inputs[port].closed and len(self.inputs[port]) < n for port, n in wanted.items()]
            # A loop that asks the same again after False would never end: the second time it suspends,
            # and the driver closes it.
            if lacks(short) and not self._said_over:
                self._said_over = True
                return False
            self.wanted, self.hopeless = wanted, lacks(short)
            await _Suspend()
            self.wanted, self.hopeless = None, False

    def _count_asking(self, wanted: Mapping[str, int]) -> None:
        """No row comes while the operator runs, so one that asks again and takes none would never end."""
        self._n_asked += 1
        if self._n_asked > ASKED_IN_VAIN:
            raise FunctionError(
                f"rows were waited for {self._n_asked} times, were there, and none was taken",
                detail=", ".join(f'port "{port}" has {len(self.inputs[port])}' for port in wanted),
                hint=f'take a row after a wait that is true: ctx.inputs["{next(iter(wanted), "in")}"].pop()',
            )


class _Suspend:
    """Give control back to the driver, once."""

    def __await__(self) -> Generator[None, Any, None]:
        yield


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


# An operator with a driver loop of its own at work (C-Stream, 3): its co-routine, its ports, what it pushed.
#
# Whoever drives it delivers rows, resumes it, and takes what it pushed; when to do which is the engine's
# affair. The co-routine runs until it waits for rows that are not there, or for room.
#
# A pushed row has the greatest time taken from a port so far, or the watermark already forwarded if that
# is later: so it is never late by itself. The forwarded watermark waits for the oldest row in a queue.

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
        """Return whether the operator has returned, failed or been closed."""
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
                where=find_definition(type(self._operator).process),
                hint="await only ctx.wait_for_all, ctx.wait_for_any and port.push",
            )

    def take_pushed(self) -> Pushed:
        """Return what was pushed since the last take, by output port."""
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
            where=find_definition(method),
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
        """Return the time of a row pushed now."""
        if self._step.outputs[port].time is None:
            return None
        known = [time for time in (self._greatest, self._forwarded) if time not in (None, BEFORE_ALL)]
        waiting = self._waiting_times()
        known = known or ([min(waiting)] if waiting else [])
        if not known:
            raise FunctionError(
                f'a row was pushed to port "{port}" before any row came in, so it has no time',
                where=find_definition(type(self._operator).process),
                hint="wait for a row first: await ctx.wait_for_any({...: 1})",
            )
        return int(max(time for time in known if time is not None))

    def _waiting_times(self) -> list[int]:
        least = (port.least_time for port in self.ports.values())
        return [time for time in least if time is not None]

    def _failed(self, method: str, cause: Exception) -> PenstockError:
        """Return an error in the operator: with its class and line, unless it is one of ours that says so."""
        where = find_definition(getattr(type(self._operator), method))
        if isinstance(cause, PenstockError):
            return cause.at(self._step.name, where)
        name = f"{type(self._operator).__name__}.{method}"
        return FunctionError(
            f"{name} failed", step=self._step.name, where=where, detail=describe_cause(cause)
        )
