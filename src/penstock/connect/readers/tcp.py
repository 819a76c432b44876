"""The reader of TCP connections: JSON lines, or csv lines without a header.

Rows that were received are lost when a run fails, so delivery is at most once. A batch is cut when it has
`batch` rows, or `wait` after its first one; where the cuts are depends on the sender's speed, and with them
which rows are late. Every second without rows there is a batch without any, so that a run that waits can
stop.
"""

from __future__ import annotations

import hmac
import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import ClassVar, cast

import pyarrow as pa

from penstock.connect.address import Address, check_address, check_format, system_message
from penstock.connect.batching import batch_by_rows, check_size, to_source_batch
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.read_claims import DEFAULT_WAIT, check_wait
from penstock.connect.readers.chunks import Chunk, TextBasedFormat, number_rows
from penstock.connect.readers.csv import build_csv_format
from penstock.connect.readers.iterables import DEFAULT_BATCH
from penstock.connect.readers.text import JsonlFormat, holds_object
from penstock.errors import ConnectorError
from penstock.expr.types import parse_schema
from penstock.frozen import Frozen
from penstock.timing.units import Duration

LOGGER = logging.getLogger("penstock.tcp")
FORMATS = ("jsonl", "csv")
POLL_S = 1.0
TOKEN_S = 5.0
MAX_ROW_BYTES = 1 << 27
_BLOCK_BYTES = 1 << 18
_HELLO_BYTES = 4_096


class SocketLines:
    """The text of one connection, in chunks of whole rows.

    ended      true once the other side has sent all that it had
    place      the address, for errors
    may_break  a broken connection ends like one that was closed, but for a line that is not whole; so does
               one that is closed within a line, as when the other side's process is killed
    broken     how it broke, in that case
    """

    def __init__(
        self, connection: socket.socket, format: TextBasedFormat, place: str, first_text: bytes
    ) -> None:
        self._connection, self._format, self.place = connection, format, place
        self._pending = [first_text] if first_text else []
        self._line = 1
        self.ended = self.may_break = False
        self.broken: str | None = None

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
                n_lines = self._line - 1
                fact = (
                    f"the connection to {self.place} broke after {n_lines} lines: {system_message(problem)}"
                )
                if self.may_break:
                    self.broken, self.ended = fact, True
                    return
                raise ConnectorError(
                    fact, hint="see what became of the other side, and run again"
                ) from problem
            if deadline is None:
                deadline = time.monotonic() + wait_s
            self.ended = not block
            self._pending.append(block)
            if self.ended and self.may_break:
                self._drop_piece()
            if self.ended or b"\n" in block:
                yield from self._take_whole_rows()
            if self.ended:
                return
            if sum(map(len, self._pending)) > MAX_ROW_BYTES:  # refused before it fills the memory
                raise ConnectorError(
                    f"line {self._line} from {self.place} is longer than {MAX_ROW_BYTES:,} bytes",
                    hint="end every row with a line feed",
                )

    def _drop_piece(self) -> None:
        """Drop the piece of a row behind the last one that is whole, and say so in `broken`.

        An object of JSON shows that it is whole. A csv row needs its end: a piece of one may look like a row.
        """
        text = b"".join(self._pending)
        end = self._format.end_of_rows(text)
        if isinstance(self._format, JsonlFormat):
            is_whole = not text[end:].strip() or holds_object(text[end:])
        else:  # a carriage return may end a row by itself, or be half of an end
            is_whole = text.endswith(b"\r") and self._format.end_of_rows(text + b"\n") > len(text)
        if end < len(text) and not is_whole:
            n_lines = self._line - 1 + text.count(b"\n", 0, end)
            self.broken = (
                f"the connection to {self.place} broke after {n_lines} lines: it was closed within the next, "
                f"of which {len(text) - end:,} bytes are lost"
            )
            self._pending = [text[:end]]

    def _take_whole_rows(self) -> Iterator[Chunk]:
        text = b"".join(self._pending)
        end = len(text) if self.ended else self._format.end_of_rows(text)
        if end:
            yield Chunk(text[:end], self._line)
            self._line += text.count(b"\n", 0, end)
        self._pending = [text[end:]] if end < len(text) else []


class Listener:
    """A listening socket, and the connections that have not sent their token yet.

    They are waited for side by side, so one that says nothing holds up nobody; it is closed after a while.
    """

    def __init__(self, address: Address) -> None:
        assert address.token is not None, "a reader that listens has a token"
        self._token = address.token.encode()
        self._socket = address.listen()
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._hellos: dict[socket.socket, tuple[bytes, float]] = {}  # text so far, and when it must be there
        self._senders: deque[tuple[socket.socket, bytes]] = deque()

    def next_sender(self, wait_s: float) -> tuple[socket.socket, bytes] | None:
        """Return the next connection that has sent the token, and the text after it; None if none comes."""
        deadline = time.monotonic() + wait_s
        while not self._senders and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.fileobj is self._socket:
                    self._accept()
                else:
                    self._read_hello(cast("socket.socket", key.fileobj))
            now = time.monotonic()
            for connection in [of for of, (_, until) in self._hellos.items() if until < now]:
                self._forget(connection).close()
        return self._senders.popleft() if self._senders else None

    def close(self) -> None:
        """Close everything that has not become a sender."""
        for connection, _ in self._senders:
            connection.close()
        for connection in list(self._hellos):
            self._forget(connection).close()
        self._selector.close()
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # who has gone away again is not missed
            connection, _ = self._socket.accept()
            connection.setblocking(False)
            self._hellos[connection] = b"", time.monotonic() + TOKEN_S
            self._selector.register(connection, selectors.EVENT_READ)

    def _read_hello(self, connection: socket.socket) -> None:
        """Read what a connection says first: the token and a line feed, or something to turn away."""
        text, until = self._hellos[connection]
        try:
            block = connection.recv(_HELLO_BYTES)
        except OSError:
            block = b""
        text += block
        self._hellos[connection] = text, until
        if block and b"\n" not in text and len(text) < _HELLO_BYTES:
            return
        self._forget(connection)
        token, _, first_text = text.partition(b"\n")
        if hmac.compare_digest(token.removesuffix(b"\r"), self._token):
            self._senders.append((connection, first_text))
        else:
            connection.close()

    def _forget(self, connection: socket.socket) -> socket.socket:
        self._selector.unregister(connection)
        del self._hellos[connection]
        return connection


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
        n_ended = n_broken = 0
        with closing(Listener(self.address)) as listener:
            while self.senders is None or n_ended < self.senders:
                sender = listener.next_sender(POLL_S)
                if sender is None:
                    yield None
                    continue
                connection, first_text = sender
                lines = SocketLines(connection, self.format, str(self.address), first_text)
                lines.may_break = self.senders is None
                with closing(connection):
                    yield lines
                n_ended += 1
                if lines.broken is not None:
                    n_broken += 1
                    LOGGER.warning("%s (%d broken connections so far)", lines.broken, n_broken)


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
    the `token` as its first line, or is turned away. A connection that breaks stops the run; with
    `senders=None` it is counted and logged, and the next one is read. So is then one that is closed within a
    line, as by a process that is killed: the piece is lost, unless it is a whole JSON object; a last csv line
    without its end is such a piece. A batch has `batch` rows (default 1,000), or what has come `wait` after
    its first. `bounded=True` says that the other side will close.
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
