"""What a running operator sees: its ports, and the waits (the protocol is in `operators.process`).

A wait asks again every time the driver resumes it, and suspends for as long as the answer is not known.
`wait_for_all` says OVER only if some port is closed and short of rows; `wait_for_any` only if all are
(C-Stream, 3.2: what can still come is waited for).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.engines.timed import TimedRow, values_of
from penstock.errors import FunctionError
from penstock.expr.failure import RowFailure
from penstock.operators.process import Availability, InputPort, OutputPort
from penstock.operators.row import Row, plain_row

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
        """The least time of the rows that wait, if one with a time does."""
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
        """The row on its way, as soon as there is room."""
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
            return values_of(row)
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
        """Whether the run is being stopped, or the operator closed: finish soon."""
        return self.closing or self._stopping()

    def moved(self) -> None:
        """A row was taken or pushed: the operator is not just asking again."""
        self._said_over = False
        self._n_asked = 0

    async def wait_for_all(self, wanted: Mapping[str, int]) -> Availability:
        """Wait until every port has so many rows, or one of them never will."""
        return await self._wait(wanted, has=all, lacks=any)

    async def wait_for_any(self, wanted: Mapping[str, int]) -> Availability:
        """Wait until some port has so many rows, or none of them ever will."""
        return await self._wait(wanted, has=any, lacks=all)

    async def _wait(
        self,
        wanted: Mapping[str, int],
        *,
        has: Callable[[Iterable[bool]], bool],
        lacks: Callable[[Iterable[bool]], bool],
    ) -> Availability:
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
                return Availability.DONE
            short = [self.inputs[port].closed and len(self.inputs[port]) < n for port, n in wanted.items()]
            # A loop that asks the same again after OVER would never end: the second time it suspends,
            # and the driver closes it.
            if lacks(short) and not self._said_over:
                self._said_over = True
                return Availability.OVER
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
                hint=f'take a row after a wait that is DONE: ctx.inputs["{next(iter(wanted), "in")}"].pop()',
            )


class _Suspend:
    """Give control back to the driver, once."""

    def __await__(self) -> Generator[None, Any, None]:
        yield


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
