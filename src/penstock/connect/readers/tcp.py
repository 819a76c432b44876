"""The reader of TCP connections: JSON lines, or csv lines without a header.

Rows that were received are lost when a run fails, so delivery is at most once. A batch is cut when it has
`batch` rows, or `wait` after its first one; where the cuts are depends on the sender's speed, and with them
which rows are late. Every second without rows there is a batch without any, so that a run that waits can
stop.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import ClassVar

import pyarrow as pa

from penstock.connect.address import Address, check_address, check_format, system_message
from penstock.connect.batching import batch_by_rows, check_size, to_source_batch
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.read_claims import DEFAULT_WAIT, check_wait
from penstock.connect.readers.chunks import Chunk, TextBasedFormat, number_rows
from penstock.connect.readers.csv import build_csv_format
from penstock.connect.readers.iterables import DEFAULT_BATCH
from penstock.connect.readers.text import JsonlFormat
from penstock.errors import ConnectorError
from penstock.expr.types import parse_schema
from penstock.frozen import Frozen
from penstock.timing.units import Duration

FORMATS = ("jsonl", "csv")
POLL_S = 1.0
TOKEN_S = 5.0
MAX_ROW_BYTES = 1 << 27
_BLOCK_BYTES = 1 << 18


class SocketLines:
    """The text of one connection, in chunks of whole rows.

    ended  true once the other side has sent all that it had
    place  the address, for errors
    """

    def __init__(
        self, connection: socket.socket, format: TextBasedFormat, place: str, first_text: bytes
    ) -> None:
        self._connection, self._format, self.place = connection, format, place
        self._pending = [first_text] if first_text else []
        self._line = 1
        self.ended = False

    def read(self, wait_s: float) -> Iterator[Chunk]:
        """Yield chunks until `wait_s` seconds after the first text, or a second without any text.

        Text may come with the token, and is there before anything is received.
        """
        deadline = None
        for chunk in self._take_whole_rows():
            deadline = time.monotonic() + wait_s
            yield chunk
        while (left := POLL_S if deadline is None else deadline - time.monotonic()) > 0:
            self._connection.settimeout(left)
            try:
                block = self._connection.recv(_BLOCK_BYTES)  # empty at the end
            except TimeoutError:
                return
            except OSError as problem:
                raise ConnectorError(
                    f"the connection to {self.place} broke after {self._line - 1} lines: "
                    f"{system_message(problem)}",
                    hint="see what became of the other side, and run again",
                ) from problem
            if deadline is None:
                deadline = time.monotonic() + wait_s
            self.ended = not block
            self._pending.append(block)
            if self.ended or b"\n" in block:
                yield from self._take_whole_rows()
            if self.ended:
                return
            if sum(map(len, self._pending)) > MAX_ROW_BYTES:  # refused before it fills the memory
                raise ConnectorError(
                    f"line {self._line} from {self.place} is longer than {MAX_ROW_BYTES:,} bytes",
                    hint="end every row with a line feed",
                )

    def _take_whole_rows(self) -> Iterator[Chunk]:
        text = b"".join(self._pending)
        end = len(text) if self.ended else self._format.end_of_rows(text)
        if end:
            yield Chunk(text[:end], self._line)
            self._line += text.count(b"\n", 0, end)
        self._pending = [text[end:]] if end < len(text) else []


def accept_sender(listener: socket.socket, address: Address) -> tuple[socket.socket, bytes] | None:
    """Return the next connection that sends the token, and the text after it; None if none does in time."""
    listener.settimeout(POLL_S)
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        return None
    text = b""  # up to the first line feed, and what came with it; not if that is too long or slow
    deadline = time.monotonic() + TOKEN_S
    while b"\n" not in text and len(text) < 4_096 and (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            block = connection.recv(4_096)
        except OSError:
            break
        if not block:
            break
        text += block
    token, _, first_text = text.partition(b"\n")
    assert address.token is not None, "a reader that listens has a token"
    if hmac.compare_digest(token.removesuffix(b"\r"), address.token.encode()):
        return connection, first_text
    connection.close()
    return None


class TcpReader(Frozen):
    """Rows from one outgoing connection, or from incoming ones, one after the other."""

    address: Address
    schema: pa.Schema
    format: TextBasedFormat
    batch: int
    wait_s: float
    senders: int | None
    listen: bool
    bounded: bool

    delivery: ClassVar[Delivery] = Delivery.AT_MOST_ONCE
    keeps_raw: ClassVar[bool] = True

    def batches(self) -> Iterator[SourceBatch]:
        """Yield rows as they arrive, until the last sender has closed its connection."""
        start, parse = 0, self.format.build_parser(str(self.address), self.schema, declared=True)
        for lines in self._connections():
            while lines is not None and not lines.ended:
                empty = True
                rows = number_rows(lines.read(self.wait_s), parse, start)
                for batch in batch_by_rows(rows, self.schema, self.batch):
                    empty = False
                    start += batch.rows.num_rows + len(batch.bad)
                    yield batch
                if empty and not lines.ended:
                    yield to_source_batch([], self.schema)
            if lines is None:
                yield to_source_batch([], self.schema)

    def describe(self) -> str:
        """Return such as `tcp 127.0.0.1:9000 (jsonl, listening)`."""
        return f"tcp {self.address} ({self.format.name}{', listening' if self.listen else ''})"

    def _connections(self) -> Iterator[SocketLines | None]:
        """Yield each connection, and None for each second without one."""
        if not self.listen:
            with closing(self.address.connect()) as connection:
                yield SocketLines(connection, self.format, str(self.address), b"")
            return
        n_ended = 0
        with closing(self.address.listen()) as listener:
            while self.senders is None or n_ended < self.senders:
                sender = accept_sender(listener, self.address)
                if sender is None:
                    yield None
                    continue
                connection, first_text = sender
                with closing(connection):
                    yield SocketLines(connection, self.format, str(self.address), first_text)
                n_ended += 1


def tcp(
    host: str,
    port: int,
    *,
    schema: object,
    format: str = "jsonl",
    listen: bool = False,
    token: str | None = None,
    senders: int | None = 1,
    delimiter: str = ",",
    nulls: Sequence[str] = ("",),
    batch: int | None = None,
    wait: Duration = DEFAULT_WAIT,
    bounded: bool = False,
) -> TcpReader:
    """Read lines from a TCP connection: JSON objects, or csv in the order of the schema's columns.

    It connects to `host` and `port` and reads until the other side closes. With `listen=True` it waits for
    others to connect, one after the other, and ends after that many `senders` (None: never); each must send
    the `token` as its first line, or is turned away. A batch has `batch` rows (default 1,000), or what has
    come `wait` after its first. `bounded=True` says that the other side will close.
    """
    check_format(format, FORMATS)
    address = check_address(host, port, token)
    if listen and token is None:
        raise ConnectorError(
            f"listening on {address} without a token would let anyone send rows",
            hint="token=secrets.token_urlsafe(), which senders send as their first line",
        )
    columns = parse_schema(schema)
    csv_format = build_csv_format(delimiter, False, nulls, columns) if format == "csv" else None
    return TcpReader(
        address,
        columns,
        csv_format or JsonlFormat(),
        batch=check_size("batch", batch) or DEFAULT_BATCH,
        wait_s=check_wait(wait) / 1e6,
        senders=check_size("senders", senders),
        listen=listen,
        bounded=bounded,
    )
