"""The writer to a TCP connection: JSON lines, or csv lines without a header.

A batch is sent when it is committed. What the other side's machine has received counts as delivered; a crash
after sending and before the commit sends again. A slow receiver slows the run down; one that takes nothing at
all for a minute stops it, and already after a few seconds once the run is to end.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

import pyarrow as pa

from penstock.connect.address import Address, check_address, check_format, system_message
from penstock.connect.protocol import Delivery
from penstock.connect.writers.program import StagedOutput
from penstock.connect.writers.text_files import check_csv_columns, encode_csv, encode_jsonl
from penstock.errors import ConnectorError
from penstock.frozen import Frozen

STALL_S = 60.0
SHUTDOWN_S = 5.0
_POLL_S = 0.2
_ENCODERS: dict[str, Callable[[pa.RecordBatch], bytes]] = {"jsonl": encode_jsonl, "csv": encode_csv}


class TcpWriter(Frozen):
    """A writer that connects out and sends lines."""

    address: Address
    format: str

    delivery: ClassVar[Delivery] = Delivery.AT_LEAST_ONCE
    accepts_updates: ClassVar[bool] = True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> TcpOutput:
        """Connect, and send the token."""
        if self.format == "csv":
            check_csv_columns(schema)
        return TcpOutput(self.address, self.address.connect(), _ENCODERS[self.format])

    def describe(self) -> str:
        """Return such as `tcp 127.0.0.1:9000 (jsonl)`."""
        return f"tcp {self.address} ({self.format})"


class TcpOutput(StagedOutput):
    """One connection."""

    def __init__(
        self, address: Address, connection: socket.socket, encode: Callable[[pa.RecordBatch], bytes]
    ) -> None:
        super().__init__(lambda batch, rows: self._send(batch, encode(rows)), self._disconnect)
        self.address, self._connection = address, connection
        self._shutdown_at: float | None = None
        connection.settimeout(_POLL_S)

    def begin_shutdown(self) -> None:
        """Wait no longer than `SHUTDOWN_S` for a receiver that takes nothing; any thread may call it."""
        self._shutdown_at = time.monotonic()

    def _send(self, batch: int, text: bytes) -> None:
        left, progress_at = memoryview(text), time.monotonic()
        try:
            while left:
                try:
                    left = left[self._connection.send(left) :]
                    progress_at = time.monotonic()  # slow is not stalled
                except TimeoutError:
                    now, shutdown_at = time.monotonic(), self._shutdown_at
                    if now - progress_at >= STALL_S:
                        raise
                    if shutdown_at is not None and now - max(progress_at, shutdown_at) >= SHUTDOWN_S:
                        raise
        except OSError as problem:
            raise ConnectorError(
                f"{self.address} took {len(text) - len(left)} of the {len(text)} bytes of batch {batch}: "
                f"{system_message(problem)}",
                hint="see what became of the other side; the batch is not committed and will be sent again",
            ) from problem

    def _disconnect(self) -> None:
        with suppress(OSError):  # the other side may have gone already
            self._connection.shutdown(socket.SHUT_WR)
        self._connection.close()


def tcp(host: str, port: int, *, format: str = "jsonl", token: str | None = None) -> TcpWriter:
    """Connect to `host` and `port` and send each batch of rows as lines; a `token` is sent first."""
    check_format(format, _ENCODERS)
    return TcpWriter(check_address(host, port, token), format)
