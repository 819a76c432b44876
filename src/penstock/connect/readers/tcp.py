"""Text as it arrives on a connection, in chunks of whole rows and in spells that do not wait long.

A spell begins with the first text after a pause and lasts as long as the reader is willing to wait for a
batch to fill up. When nothing comes for a second the spell is empty, so that whoever reads gets a chance to
do something else, to stop for example.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Protocol

import pyarrow as pa

from penstock.connect.address import Address, check_address, check_wait, system_message
from penstock.connect.batches import RowRange, batch_by_rows, check_size, to_source_batch
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers import csv, jsonl
from penstock.connect.readers.csv_parse import Layout, end_of_last_row
from penstock.connect.readers.iterable import DEFAULT_BATCH
from penstock.connect.readers.text import Chunk, RowEnd, end_of_last_line
from penstock.errors import ConnectorError, nearest_first
from penstock.expr.schema import parse_schema
from penstock.frozen import dataclass

POLL_S = 1.0
TOKEN_S = 5.0
LONGEST_ROW = 1 << 27
_BLOCK = 1 << 18


class SocketLines:
    """The text of one connection.

    over   whether the other side has said all that it had to say
    place  where it comes from, for errors
    """

    def __init__(self, connection: socket.socket, row_end: RowEnd, place: str, begun: bytes = b"") -> None:
        self._connection, self._row_end, self.place = connection, row_end, place
        self._held = [begun] if begun else []
        self._line = 1
        self.over = False

    def spell(self, wait_s: float) -> Iterator[Chunk]:
        """Chunks of whole rows, until `wait_s` seconds after the first text, or a second without any."""
        until = None
        for chunk in self._whole():  # what came with a token
            until = time.monotonic() + wait_s
            yield chunk
        while (left := POLL_S if until is None else until - time.monotonic()) > 0:
            block = self._received(left)
            if block is None:
                return
            if until is None:
                until = time.monotonic() + wait_s
            self.over = not block
            self._held.append(block)
            if self.over or b"\n" in block:
                yield from self._whole()
            if self.over:
                return
            self._require_end()

    def _received(self, wait_s: float) -> bytes | None:
        """The next text, empty at the end; None if there was none in time."""
        self._connection.settimeout(wait_s)
        try:
            return self._connection.recv(_BLOCK)
        except TimeoutError:
            return None
        except OSError as problem:
            raise ConnectorError(
                f"the connection to {self.place} broke after {self._line - 1} lines: "
                f"{system_message(problem)}",
                hint="see what became of the other side, and run again",
            ) from problem

    def _whole(self) -> Iterator[Chunk]:
        text = b"".join(self._held)
        end = len(text) if self.over else self._row_end(text)
        if end:
            yield Chunk(text[:end], self._line)
            self._line += text.count(b"\n", 0, end)
        self._held = [text[end:]] if end < len(text) else []

    def _require_end(self) -> None:
        """Refuse a row that never ends before it has filled the memory."""
        if sum(map(len, self._held)) > LONGEST_ROW:
            raise ConnectorError(
                f"line {self._line} from {self.place} is longer than {LONGEST_ROW:,} bytes",
                hint="end every row with a line feed",
            )


def accept_sender(listener: socket.socket, address: Address) -> tuple[socket.socket, bytes] | None:
    """The next connection that shows the token, and the text after it; None if none came for a second."""
    listener.settimeout(POLL_S)
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        return None
    shown, _, begun = _read_token_line(connection).partition(b"\n")
    assert address.token is not None, "whoever listens has a token"
    if hmac.compare_digest(shown.removesuffix(b"\r"), address.token.encode()):
        return connection, begun
    connection.close()
    return None


def _read_token_line(connection: socket.socket) -> bytes:
    """Text up to the first line feed, and whatever came with it; what is too long or too slow is cut off."""
    text = b""
    until = time.monotonic() + TOKEN_S
    while b"\n" not in text and len(text) < 4_096 and (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            block = connection.recv(4_096)
        except OSError:
            break
        if not block:
            break
        text += block
    return text


# Read rows from a TCP connection: JSON lines, or csv lines without a header.
#
# Rows that came are gone when a run fails, so delivery is at most once. A batch is cut when it has `batch`
# rows, or a moment after its first one; where the cuts are depends on the sender's pace, and with them which
# rows are late. A round without rows comes every second, so that a run that waits can stop.

FORMATS = ("jsonl", "csv")
_WAIT = timedelta(milliseconds=100)


class _LineFormat(Protocol):
    """A format of lines."""

    def row_end(self, text: bytes) -> int:
        """Where the last whole row of some text ends."""

    def piece(self, chunk: Chunk, place: str, start: int) -> RowRange:
        """The rows of a chunk."""


@dataclass(frozen=True, slots=True)
class _JsonLines:
    schema: pa.Schema

    def row_end(self, text: bytes) -> int:
        return end_of_last_line(text)

    def piece(self, chunk: Chunk, place: str, start: int) -> RowRange:
        return jsonl.parse_rows(chunk, place, start, self.schema, declared=True)


@dataclass(frozen=True, slots=True)
class _CsvLines:
    schema: pa.Schema
    delimiter: str
    nulls: tuple[str, ...]

    def row_end(self, text: bytes) -> int:
        return end_of_last_row(text, self.delimiter)

    def piece(self, chunk: Chunk, place: str, start: int) -> RowRange:
        layout = Layout(tuple(self.schema.names), self.delimiter, self.nulls)
        return csv.parse_rows(chunk, place, start, layout, self.schema)


class TcpReader:
    """Rows from one connection out, or from those that come in one after the other."""

    def __init__(
        self,
        address: Address,
        schema: pa.Schema,
        lines: _LineFormat,
        *,
        form: str,
        batch: int,
        wait_s: float,
        senders: int | None,
        listen: bool,
        bounded: bool,
    ) -> None:
        self._address, self._schema, self._lines, self._form = address, schema, lines, form
        self._batch, self._wait_s, self._senders, self._listen = batch, wait_s, senders, listen
        self._bounded = bounded

    @property
    def schema(self) -> pa.Schema:
        """As declared."""
        return self._schema

    @property
    def bounded(self) -> bool:
        """As declared: only the other side knows."""
        return self._bounded

    @property
    def delivery(self) -> Delivery:
        """Rows that came cannot be asked for again."""
        return Delivery.AT_MOST_ONCE

    @property
    def keeps_raw(self) -> bool:
        """A line that is no row is kept as text."""
        return True

    def batches(self) -> Iterator[SourceBatch]:
        """Rows as they come, until the other side, or the last of them, is done."""
        start = 0
        for arriving in self._connections():
            while arriving is not None and not arriving.over:
                empty = True
                for batch in batch_by_rows(self._pieces(arriving, start), self._schema, self._batch):
                    empty = False
                    start += batch.rows.num_rows + len(batch.bad)
                    yield batch
                if empty and not arriving.over:
                    yield to_source_batch([], self._schema)
            if arriving is None:
                yield to_source_batch([], self._schema)

    def describe(self) -> str:
        """Such as `tcp 127.0.0.1:9000 (jsonl, listening)`."""
        return f"tcp {self._address} ({self._form}{', listening' if self._listen else ''})"

    def _pieces(self, arriving: SocketLines, start: int) -> Iterator[RowRange]:
        for chunk in arriving.spell(self._wait_s):
            piece = self._lines.piece(chunk, arriving.place, start)
            yield piece
            start = piece.end

    def _connections(self) -> Iterator[SocketLines | None]:
        """One connection after the other; None while there is none."""
        if not self._listen:
            with closing(self._address.connect()) as connection:
                yield SocketLines(connection, self._lines.row_end, str(self._address))
            return
        n_done = 0
        with closing(self._address.listen()) as listener:
            while self._senders is None or n_done < self._senders:
                found = accept_sender(listener, self._address)
                if found is None:
                    yield None
                    continue
                yield from self._one(*found)
                n_done += 1

    def _one(self, connection: socket.socket, begun: bytes) -> Iterator[SocketLines]:
        with closing(connection):
            yield SocketLines(connection, self._lines.row_end, str(self._address), begun)


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
    wait: timedelta = _WAIT,
    bounded: bool = False,
) -> TcpReader:
    """Read lines from a TCP connection: JSON objects, or csv in the order of the schema's columns.

    It connects to `host` and `port` and reads until the other side closes. With `listen=True` it waits for
    others to connect, one after the other, and ends after so many `senders` (None: never); each must send
    the `token` as its first line, or is turned away. A batch has `batch` rows (default 1,000), or what has
    come `wait` after its first. `bounded=True` says that the other side will close.
    """
    if format not in FORMATS:
        near = nearest_first(str(format), FORMATS)
        raise ConnectorError(
            f"tcp has no format {format!r}",
            detail=f"available: {', '.join(near)}",
            hint=f'format="{near[0]}"',
        )
    address = check_address(host, port, token)
    if listen and token is None:
        raise ConnectorError(
            f"listening on {address} without a token would let anyone send rows",
            hint="token=secrets.token_urlsafe(), which senders send as their first line",
        )
    columns = parse_schema(schema)
    lines: _LineFormat = _JsonLines(columns)
    if format == "csv":
        csv.check_column_types(dict(zip(columns.names, columns.types, strict=True)))
        lines = _CsvLines(columns, csv.check_delimiter(delimiter), csv.check_nulls(nulls))
    return TcpReader(
        address,
        columns,
        lines,
        form=format,
        batch=check_size("batch", batch) or DEFAULT_BATCH,
        wait_s=check_wait("wait", wait),
        senders=check_size("senders", senders),
        listen=listen,
        bounded=bounded,
    )
