"""Text as it arrives on a connection, in chunks of whole rows and in spells that do not wait long.

A spell begins with the first text after a pause and lasts as long as the reader is willing to wait for a
batch to fill up. When nothing comes for a second the spell is empty, so that whoever reads gets a chance to
do something else, to stop for example.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Iterator

from penstock.connect.address import Address, said
from penstock.connect.readers.textfile import Chunk, RowEnd
from penstock.errors import ConnectorError

QUIET_S = 1.0
TOKEN_S = 5.0
LONGEST_ROW = 1 << 27
_BLOCK = 1 << 18


class Arriving:
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
        while (left := QUIET_S if until is None else until - time.monotonic()) > 0:
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
                f"the connection to {self.place} broke after {self._line - 1} lines: {said(problem)}",
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


def accepted(listener: socket.socket, address: Address) -> tuple[socket.socket, bytes] | None:
    """The next connection that shows the token, and the text after it; None if none came for a second."""
    listener.settimeout(QUIET_S)
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        return None
    shown, _, begun = _first_line(connection).partition(b"\n")
    assert address.token is not None, "whoever listens has a token"
    if hmac.compare_digest(shown.removesuffix(b"\r"), address.token.encode()):
        return connection, begun
    connection.close()
    return None


def _first_line(connection: socket.socket) -> bytes:
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
