"""Read rows from a TCP connection: JSON lines, or csv lines without a header.

Rows that came are gone when a run fails, so delivery is at most once. A batch is cut when it has `batch`
rows, or a moment after its first one; where the cuts are depends on the sender's pace, and with them which
rows are late. A round without rows comes every second, so that a run that waits can stop.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Protocol

import pyarrow as pa

from penstock.connect.address import Address, checked_address, checked_wait
from penstock.connect.cuts import Piece, by_rows, checked_size, together
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers import csv, jsonl
from penstock.connect.readers.arriving import Arriving, accepted
from penstock.connect.readers.csv_parse import Layout
from penstock.connect.readers.csv_rows import last_row_end
from penstock.connect.readers.iterable import DEFAULT_BATCH
from penstock.connect.readers.textfile import Chunk, last_newline
from penstock.errors import ConnectorError, nearest_first
from penstock.expr.declared import declared_schema
from penstock.frozen import dataclass

FORMATS = ("jsonl", "csv")
_WAIT = timedelta(milliseconds=100)


class _Lines(Protocol):
    """A format of lines."""

    def row_end(self, text: bytes) -> int:
        """Where the last whole row of some text ends."""

    def piece(self, chunk: Chunk, place: str, start: int) -> Piece:
        """The rows of a chunk."""


@dataclass(frozen=True, slots=True)
class _JsonLines:
    schema: pa.Schema

    def row_end(self, text: bytes) -> int:
        return last_newline(text)

    def piece(self, chunk: Chunk, place: str, start: int) -> Piece:
        return jsonl.piece_of_chunk(chunk, place, start, self.schema, declared=True)


@dataclass(frozen=True, slots=True)
class _CsvLines:
    schema: pa.Schema
    delimiter: str
    nulls: tuple[str, ...]

    def row_end(self, text: bytes) -> int:
        return last_row_end(text, self.delimiter)

    def piece(self, chunk: Chunk, place: str, start: int) -> Piece:
        layout = Layout(tuple(self.schema.names), self.delimiter, self.nulls)
        return csv.piece_of_chunk(chunk, place, start, layout, self.schema)


class TcpReader:
    """Rows from one connection out, or from those that come in one after the other."""

    def __init__(
        self,
        address: Address,
        schema: pa.Schema,
        lines: _Lines,
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
                for batch in by_rows(self._pieces(arriving, start), self._schema, self._batch):
                    empty = False
                    start += batch.rows.num_rows + len(batch.bad)
                    yield batch
                if empty and not arriving.over:
                    yield together([], self._schema)
            if arriving is None:
                yield together([], self._schema)

    def describe(self) -> str:
        """Such as `tcp 127.0.0.1:9000 (jsonl, listening)`."""
        return f"tcp {self._address} ({self._form}{', listening' if self._listen else ''})"

    def _pieces(self, arriving: Arriving, start: int) -> Iterator[Piece]:
        for chunk in arriving.spell(self._wait_s):
            piece = self._lines.piece(chunk, arriving.place, start)
            yield piece
            start = piece.end

    def _connections(self) -> Iterator[Arriving | None]:
        """One connection after the other; None while there is none."""
        if not self._listen:
            with closing(self._address.connect()) as connection:
                yield Arriving(connection, self._lines.row_end, str(self._address))
            return
        n_done = 0
        with closing(self._address.listen()) as listener:
            while self._senders is None or n_done < self._senders:
                found = accepted(listener, self._address)
                if found is None:
                    yield None
                    continue
                yield from self._one(*found)
                n_done += 1

    def _one(self, connection: socket.socket, begun: bytes) -> Iterator[Arriving]:
        with closing(connection):
            yield Arriving(connection, self._lines.row_end, str(self._address), begun)


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
    address = checked_address(host, port, token)
    if listen and token is None:
        raise ConnectorError(
            f"listening on {address} without a token would let anyone send rows",
            hint="token=secrets.token_urlsafe(), which senders send as their first line",
        )
    columns = declared_schema(schema)
    lines: _Lines = _JsonLines(columns)
    if format == "csv":
        csv.checked_columns(dict(zip(columns.names, columns.types, strict=True)))
        lines = _CsvLines(columns, csv.checked_delimiter(delimiter), csv.checked_nulls(nulls))
    return TcpReader(
        address,
        columns,
        lines,
        form=format,
        batch=checked_size("batch", batch) or DEFAULT_BATCH,
        wait_s=checked_wait("wait", wait),
        senders=checked_size("senders", senders),
        listen=listen,
        bounded=bounded,
    )
