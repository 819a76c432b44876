"""Send rows over a TCP connection as JSON lines, or as csv lines without a header.

A batch is sent when it is committed. What the other side's machine has taken counts as delivered; a crash
after sending and before the commit sends again. A receiver that is slow slows the run down; one that takes
nothing at all for a minute stops it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from penstock.connect.address import Address, checked_address, said
from penstock.connect.protocol import Delivery
from penstock.connect.writers import csv, jsonl
from penstock.connect.writers.staged import StagedOutput
from penstock.errors import ConnectorError, nearest_first
from penstock.frozen import dataclass

STUCK_S = 60.0
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

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> StagedOutput:
        """Connect, and show the token."""
        if self.form == "csv":
            csv.CsvFiles().check(schema)
        connection = self.address.connect()
        connection.settimeout(STUCK_S)

        def send(batch: int, rows: pa.RecordBatch) -> None:
            self._send(connection, batch, _ENCODERS[self.form](rows))

        return StagedOutput(send, lambda: _end(connection))

    def describe(self) -> str:
        """Such as `tcp 127.0.0.1:9000 (jsonl)`."""
        return f"tcp {self.address} ({self.form})"

    def _send(self, connection: socket.socket, batch: int, text: bytes) -> None:
        left = memoryview(text)
        try:
            while left:
                left = left[connection.send(left) :]  # the timeout is for each piece: slow is not stuck
        except OSError as problem:
            raise ConnectorError(
                f"{self.address} took {len(text) - len(left)} of the {len(text)} bytes of batch {batch}: "
                f"{said(problem)}",
                hint="see what became of the other side; the batch is not committed and will be sent again",
            ) from problem


def tcp(host: str, port: int, *, format: str = "jsonl", token: str | None = None) -> TcpWriter:
    """Connect to `host` and `port` and send each batch of rows as lines; a `token` is sent first."""
    if format not in _ENCODERS:
        near = nearest_first(str(format), _ENCODERS)
        raise ConnectorError(
            f"tcp has no format {format!r}",
            detail=f"available: {', '.join(near)}",
            hint=f'format="{near[0]}"',
        )
    return TcpWriter(checked_address(host, port, token), format)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may have gone already
        connection.shutdown(socket.SHUT_WR)
    connection.close()
