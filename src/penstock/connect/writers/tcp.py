"""Send rows over a TCP connection as JSON lines, or as csv lines without a header.

A batch is sent when it is committed. What the other side's machine has taken counts as delivered; a crash
after sending and before the commit sends again. A receiver that is slow slows the run down; one that takes
nothing at all for a minute stops it, and for a few seconds when the run is to end anyway.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from penstock.connect.address import Address, check_address, system_message
from penstock.connect.protocol import Delivery
from penstock.connect.writers import csv, jsonl
from penstock.connect.writers.folder import StagedOutput
from penstock.errors import ConnectorError, nearest_first
from penstock.frozen import dataclass

STALL_S = 60.0
SHUTDOWN_S = 5.0
_POLL_S = 0.2
_ENCODERS: dict[str, Callable[[pa.RecordBatch], bytes]] = {"jsonl": jsonl.encode, "csv": csv.encode}


@dataclass(frozen=True, slots=True)
class TcpWriter:
    """A writer that connects out and sends lines."""

    address: Address
    form: str

    @property
    def delivery(self) -> Delivery:
        """A crash after sending and before the commit sends again."""
        return Delivery.AT_LEAST_ONCE

    @property
    def accepts_updates(self) -> bool:
        """Every row is sent, with `final` saying which."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> TcpOutput:
        """Connect, and show the token."""
        if self.form == "csv":
            csv.CsvFormat().check(schema)
        return TcpOutput(self.address, self.address.connect(), _ENCODERS[self.form])

    def describe(self) -> str:
        """Such as `tcp 127.0.0.1:9000 (jsonl)`."""
        return f"tcp {self.address} ({self.form})"


class TcpOutput(StagedOutput):
    """One connection."""

    def __init__(
        self, address: Address, connection: socket.socket, encode: Callable[[pa.RecordBatch], bytes]
    ) -> None:
        super().__init__(
            lambda batch, rows: self._send(batch, encode(rows)), lambda: _close_connection(connection)
        )
        self.address, self._connection = address, connection
        self._hurried: float | None = None
        connection.settimeout(_POLL_S)

    def hurry(self) -> None:
        """The run is to end: do not wait long for a receiver that takes nothing. Any thread may say so."""
        self._hurried = time.monotonic()

    def _send(self, batch: int, text: bytes) -> None:
        left, moved = memoryview(text), time.monotonic()
        try:
            while left:
                try:
                    left = left[self._connection.send(left) :]
                    moved = time.monotonic()  # slow is not stuck
                except TimeoutError:
                    if self._is_stuck(moved):
                        raise
        except OSError as problem:
            raise ConnectorError(
                f"{self.address} took {len(text) - len(left)} of the {len(text)} bytes of batch {batch}: "
                f"{system_message(problem)}",
                hint="see what became of the other side; the batch is not committed and will be sent again",
            ) from problem

    def _is_stuck(self, moved: float) -> bool:
        now, hurried = time.monotonic(), self._hurried
        return now - moved >= STALL_S or (hurried is not None and now - max(moved, hurried) >= SHUTDOWN_S)


def tcp(host: str, port: int, *, format: str = "jsonl", token: str | None = None) -> TcpWriter:
    """Connect to `host` and `port` and send each batch of rows as lines; a `token` is sent first."""
    if format not in _ENCODERS:
        near = nearest_first(str(format), _ENCODERS)
        raise ConnectorError(
            f"tcp has no format {format!r}",
            detail=f"available: {', '.join(near)}",
            hint=f'format="{near[0]}"',
        )
    return TcpWriter(check_address(host, port, token), format)


def _close_connection(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may have gone already
        connection.shutdown(socket.SHUT_WR)
    connection.close()
