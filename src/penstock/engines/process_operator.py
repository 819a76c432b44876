"""An operator with a driver loop of its own (C-Stream, 3): its co-routine, its ports, and its waits.

The user's protocol is in `operators.process`. The engine delivers rows, resumes the co-routine, and takes
what it pushed; when to do which is the engine's decision. The co-routine runs until it waits for rows that
are not there, or for room. A wait is evaluated again whenever the co-routine is resumed: `wait_for_all`
returns False only if some port is closed and short of rows, `wait_for_any` only if all are (C-Stream, 3.2).

A pushed row has the greatest time taken from a port so far, or the forwarded watermark if that is later, so
it is never late on its own account. The forwarded watermark waits for the oldest row in a queue.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from types import coroutine
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.caller import find_definition
from penstock.engines.rows import TimedRow, batch_to_rows
from penstock.errors import FunctionError, PenstockError, RowFailure, describe_cause
from penstock.operators.function import Row, own_copy, plain_row
from penstock.operators.process import InputPort, OutputPort, Process
from penstock.plan.plan import Step
from penstock.timing.windows import BEFORE_ALL

if TYPE_CHECKING:
    from penstock.engines.asyncio_routine import AsyncioRoutine

Quantifier = Callable[[Iterable[bool]], bool]
"""`all` or `any`."""
MAX_IDLE_WAITS = 100_000
"""How often in a row a loop may wait for rows that are there, and take none."""


class InputQueue:
    """One input port: its queue of rows, oldest first.

    Invariant: `minima` holds, in rising order, the times that would be the least once all rows before theirs
    are taken. So its front is the least time of all, and no row is looked at twice.
    """

    def __init__(self, name: str, schema: pa.Schema, on_take: Callable[[TimedRow], None]) -> None:
        self._name, self._schema, self._on_take = name, schema, on_take
        self._queue: deque[TimedRow] = deque()
        self.minima: deque[int] = deque()
        self.closed = False

    def put(self, rows: Iterable[TimedRow]) -> None:
        """Append rows to the queue."""
        for row in rows:
            self._queue.append(row)
            if row.time is not None:
                while self.minima and self.minima[-1] > row.time:
                    self.minima.pop()
                self.minima.append(row.time)

    def clear(self) -> int:
        """Empty the queue and return the number of rows that were in it."""
        n = len(self._queue)
        self._queue.clear()
        self.minima.clear()
        return n

    def __len__(self) -> int:
        return len(self._queue)

    def pop(self) -> Row:
        """Take the oldest row; IndexError when none waits."""
        row = self._oldest()
        self._queue.popleft()
        if self.minima and self.minima[0] == row.time:
            self.minima.popleft()
        self._on_take(row)
        return Row(row.values, self._schema)

    def peek(self) -> Row:
        """Look at the oldest row without taking it; IndexError when none waits."""
        return Row(self._oldest().values, self._schema)

    def _oldest(self) -> TimedRow:
        if not self._queue:
            raise IndexError(f'no row waits on port "{self._name}": await ctx.wait_for_all(...) first')
        return self._queue[0]


class OutputQueue:
    """One output port: rows are checked against its schema as they are pushed."""

    def __init__(self, name: str, schema: pa.Schema, routine: ProcessRoutine) -> None:
        self.name, self._schema, self.routine = name, schema, routine

    def push(self, row: object) -> _Push:
        """Return an awaitable that sends a row, or a RecordBatch of rows, once there is room."""
        return _Push(self, row)

    def to_rows(self, row: object) -> Iterable[Mapping[str, object]]:
        """Return the plain values of a row, or of the rows of a batch; raise if they are none of the port."""
        if isinstance(row, pa.RecordBatch):
            if row.schema.names != self._schema.names or row.schema.types != self._schema.types:
                theirs, ours = (
                    ", ".join(f"{field.name} {field.type}" for field in schema)
                    for schema in (row.schema, self._schema)
                )
                raise FunctionError(
                    f'a batch pushed to port "{self.name}" has other columns than the port',
                    detail=f"it has {theirs}; the port has {ours}",
                )
            return batch_to_rows(row)
        try:
            return [plain_row(row, self._schema)]
        except RowFailure as failure:
            raise FunctionError(
                f'what was pushed to port "{self.name}" is not a row of it',
                detail=failure.reason,
                hint=f"push a dict with the columns {', '.join(self._schema.names)}",
            ) from failure


class _Push:
    """A row to be sent when this is awaited; if it is discarded instead, the lost row is reported."""

    __slots__ = ("_output", "_row", "_was_awaited")

    def __init__(self, output: OutputQueue, row: object) -> None:
        self._output, self._row, self._was_awaited = output, row, False

    def __await__(self) -> Generator[None, Any, None]:
        self._was_awaited = True
        output = self._output
        while not output.routine.has_room():
            output.routine.context.park()
            yield
        for values in output.to_rows(self._row):
            output.routine.push(output.name, values)

    def __del__(self) -> None:
        if not self._was_awaited:
            port = self._output.name
            self._output.routine.not_awaited = FunctionError(
                f'a row was pushed to port "{port}", and nobody awaited it, so it was not sent',
                hint=f'write: await ctx.outputs["{port}"].push(row)',
            )


class OperatorContext:
    """What a running operator sees: its ports by name, and the waits.

    stopping  returns whether the run has been asked to stop
    """

    def __init__(
        self,
        inputs: Mapping[str, InputPort],
        outputs: Mapping[str, OutputPort],
        stopping: Callable[[], bool],
    ) -> None:
        self.inputs, self.outputs, self._stopping = inputs, outputs, stopping
        self.closing = False
        self.park: Callable[[], None] = _do_nothing  # called before it suspends itself
        # Rows per port that are waited for, None when it does not wait; and whether they can never come.
        self.wanted: Mapping[str, int] | None = None
        self.hopeless = False
        self._over_reported = False
        self._n_idle_waits = 0

    @property
    def shutdown_requested(self) -> bool:
        """Return whether the run is being stopped, or the operator closed: finish soon."""
        return self.closing or self._stopping()

    def reset_waits(self) -> None:
        """Record that a row was taken or pushed: the operator makes progress."""
        self._over_reported = False
        self._n_idle_waits = 0

    async def wait_for_all(self, wanted: Mapping[str, int]) -> bool:
        """Wait until every port has this number of rows, or one of them never will."""
        return await self._wait(wanted, all, any)

    async def wait_for_any(self, wanted: Mapping[str, int]) -> bool:
        """Wait until some port has this number of rows, or none of them ever will."""
        return await self._wait(wanted, any, all)

    async def _wait(self, wanted: Mapping[str, int], has: Quantifier, lacks: Quantifier) -> bool:
        for port in wanted:
            if port not in self.inputs:
                raise FunctionError(
                    f"there is no input port {port!r} to wait for",
                    detail=f"the input ports are {', '.join(self.inputs)}",
                    hint=f'wait for rows of one of them: {{"{next(iter(self.inputs), "in")}": 1}}',
                )
        while True:
            if has([len(self.inputs[port]) >= n for port, n in wanted.items()]):
                self._n_idle_waits += 1
                if self._n_idle_waits > MAX_IDLE_WAITS:  # no row arrives while it runs: it would never end
                    raise FunctionError(
                        f"rows were waited for {self._n_idle_waits} times, were there, and none was taken",
                        detail=", ".join(f'port "{port}" has {len(self.inputs[port])}' for port in wanted),
                        hint="take a row after a wait that is true: "
                        f'ctx.inputs["{next(iter(wanted), "in")}"].pop()',
                    )
                return True
            short = [self.inputs[port].closed and len(self.inputs[port]) < n for port, n in wanted.items()]
            # Why: a loop that waits for the same again after False would never end; the second time it
            # suspends, and the engine closes it.
            if lacks(short) and not self._over_reported:
                self._over_reported = True
                return False
            self.wanted, self.hopeless = wanted, lacks(short)
            self.park()
            await _suspend()
            self.wanted, self.hopeless = None, False


def _do_nothing() -> None:
    """Do nothing: a plain co-routine suspends without ado."""


@coroutine
def _suspend() -> Generator[None, Any, None]:
    """Return control to the engine, once."""
    yield


def _bad_yield(cause: Exception) -> str | None:
    """Return what was awaited, if asyncio complains that nothing can wait for it."""
    text = str(cause) if isinstance(cause, RuntimeError) else ""
    return text.partition(": ")[2] if text.startswith("Task got bad yield: ") else None


PortRows = dict[str, list[TimedRow]]


class ProcessRoutine:
    """One operator and its co-routine.

    has_room     whether rows can be pushed now; the co-routine waits while they cannot
    stopping     whether the run has been asked to stop
    not_awaited  the error for a push that was not awaited, and so did not happen
    """

    def __init__(
        self,
        step: Step,
        op: Process,
        accounts: Accounts,
        *,
        has_room: Callable[[], bool] = lambda: True,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._step, self.accounts, self.has_room = step, accounts, has_room
        self._operator = own_copy(op.operator)
        self._schemas = {port_input.port: port_input.stream.schema for port_input in step.inputs}
        self.ports = {
            port_input.port: InputQueue(port_input.port, port_input.stream.schema, self._record_take)
            for port_input in step.inputs
            if not port_input.control
        }
        outputs = {port: OutputQueue(port, stream.schema, self) for port, stream in step.outputs.items()}
        self.context = OperatorContext(self.ports, outputs, stopping)
        self.not_awaited: FunctionError | None = None
        started: object = self._operator.process(self.context)
        if not isinstance(started, Coroutine):
            raise FunctionError(
                f"{type(self._operator).__name__}.process is not a co-routine",
                where=find_definition(type(self._operator).process),
                hint="write async def process(self, ctx)",
            )
        self._running: Coroutine[Any, Any, None] | AsyncioRoutine | None = started
        if "asyncio" in sys.modules:  # else there is nothing of it that the operator could await
            from penstock.engines.asyncio_routine import AsyncioRoutine

            self._running = AsyncioRoutine(started)
            self.context.park = self._running.park
        self._pushed: PortRows = {}
        self._n_pushed = 0
        self._latest_taken: float = BEFORE_ALL
        self._output_watermark: float = BEFORE_ALL

    @property
    def is_over(self) -> bool:
        """Return whether the operator has returned, failed or been closed."""
        return self._running is None

    def control(self, port: str, rows: Iterable[TimedRow]) -> None:
        """Pass rows of a control port to `on_control`; once the operator has ended they are unrouted."""
        for row in rows:
            if self._running is None:
                self.accounts.unrouted += 1
                continue
            try:
                self._operator.on_control(port, Row(row.values, self._schemas[port]))
            except Exception as cause:
                raise self._error("on_control", cause) from cause
            self.accounts.passed += 1

    def deliver(self, name: str, rows: list[TimedRow]) -> None:
        """Append rows to a port's queue; once the operator has ended they are unrouted."""
        if self._running is None:
            self.accounts.unrouted += len(rows)
        else:
            self.ports[name].put(rows)

    def resume(self) -> None:
        """Run the co-routine until it waits or ends."""
        if self._running is None:
            return
        try:
            returned = self._running.send(None)
            awaited = None if returned is None else repr(returned)
        except StopIteration:
            self._mark_ended()
            awaited = None
        except Exception as cause:
            self._mark_ended()
            awaited = _bad_yield(cause)
            if awaited is None:
                raise self._error("process", cause) from cause
        if self.not_awaited is not None:
            raise self._error("process", self.not_awaited)
        if self.context.hopeless:  # it was told that this is over, and waits for it again
            self.close()
        if awaited is not None:
            raise FunctionError(
                f"{type(self._operator).__name__}.process waits for {awaited!s:.80}, which no row can bring",
                where=find_definition(type(self._operator).process),
                hint="await ctx.wait_for_all, ctx.wait_for_any, port.push, or what asyncio can wait for",
            )

    def take_output(self) -> PortRows:
        """Return the rows pushed since the last call, by output port."""
        pushed, self._pushed = self._pushed, {}
        return pushed

    def output_watermark(self, watermark: float) -> float:
        """Return the watermark for readers of the output: that of the input, or the oldest queued row."""
        self._output_watermark = max(self._output_watermark, min([watermark, *self._queued_times()]))
        return self._output_watermark

    def close(self) -> None:
        """Close the co-routine if it still waits; rows that it never took become unrouted."""
        running = self._running
        if running is not None:
            self.context.closing = True
            try:
                running.close()
            except Exception as cause:
                raise self._error("process", cause) from cause
            finally:
                self._mark_ended()

    def _mark_ended(self) -> None:
        self._running = None
        for port in self.ports.values():
            self.accounts.unrouted += port.clear()

    def _record_take(self, row: TimedRow) -> None:
        self.accounts.passed += 1
        self.context.reset_waits()
        if row.time is not None:
            self._latest_taken = max(self._latest_taken, row.time)

    def push(self, port: str, values: Mapping[str, object]) -> None:
        """Take a row that the operator has pushed to a port."""
        self.context.reset_waits()
        self._pushed.setdefault(port, []).append(TimedRow(values, self._time(port), (self._n_pushed,)))
        self._n_pushed += 1

    def _time(self, port: str) -> int | None:
        """Return the time of a row pushed now."""
        if self._step.outputs[port].time is None:
            return None
        time = max(self._latest_taken, self._output_watermark)
        if time == BEFORE_ALL:
            time = min(self._queued_times(), default=BEFORE_ALL)
        if time == BEFORE_ALL:
            raise FunctionError(
                f'a row was pushed to port "{port}" before any row came in, so it has no time',
                where=find_definition(type(self._operator).process),
                hint="wait for a row first: await ctx.wait_for_any({...: 1})",
            )
        return int(time)

    def _queued_times(self) -> list[int]:
        return [port.minima[0] for port in self.ports.values() if port.minima]

    def _error(self, method: str, cause: Exception) -> PenstockError:
        """Return the error for an exception in the operator, with its class and line."""
        kind = type(self._operator)
        failure = cause
        if not isinstance(failure, PenstockError):
            failure = FunctionError(f"{kind.__name__}.{method} failed", detail=describe_cause(cause))
        return failure.at(self._step.name, find_definition(getattr(kind, method)))
