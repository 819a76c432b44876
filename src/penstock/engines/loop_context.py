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


class Port:
    """One input: the rows that wait, oldest first."""

    def __init__(self, schema: pa.Schema, taken: Callable[[TimedRow], None]) -> None:
        self._schema, self._taken = schema, taken
        self.waiting: deque[TimedRow] = deque()
        self.closed = False

    def __len__(self) -> int:
        return len(self.waiting)

    def pop(self) -> Row:
        """Take the oldest row; IndexError when none waits."""
        row = self.waiting.popleft()
        self._taken(row)
        return Row(row.values, self._schema)

    def peek(self) -> Row:
        """Look at the oldest row without taking it; IndexError when none waits."""
        return Row(self.waiting[0].values, self._schema)


class Outlet:
    """One output: rows are checked against its schema as they are pushed."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        push: Callable[[Mapping[str, object]], None],
        room: Callable[[], bool],
    ) -> None:
        self._name, self._schema, self._push, self._room = name, schema, push, room

    async def push(self, row: object) -> None:
        """Send a row, or a RecordBatch of rows; waits for room first."""
        while not self._room():
            await _Suspend()
        for values in self._checked(row):
            self._push(values)

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


class RunningContext:
    """The ports by name, and the waits."""

    def __init__(self, inputs: Mapping[str, InputPort], outputs: Mapping[str, OutputPort]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.shutdown_requested = False
        self.wanted: Mapping[str, int] | None = None  # what is waited for; None when it is not rows
        self.hopeless = False  # whether that can never come
        self._said_over = False

    def moved(self) -> None:
        """A row was taken or pushed: the operator is not just asking again."""
        self._said_over = False

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


class _Suspend:
    """Give control back to the driver, once."""

    def __await__(self) -> Generator[None, Any, None]:
        yield


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
