"""One end of the talk between two processes: short messages over a socket, what is long through rooms.

Who has sent something waits for the answer before it sends again, so a room is never written while it is
read. No pickle: messages are JSON, bodies are Arrow or bytes of saved state.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engines.local.processes.room import Room

_LENGTH = struct.Struct("!I")

Message = dict[str, Any]


class Line:
    """One end: `write` is for the other side, `read` is what the other side writes."""

    def __init__(self, control: socket.socket, *, write: Room, read: Room) -> None:
        self._control, self._write, self._read = control, write, read

    def fileno(self) -> int:
        """The socket, to wait on."""
        return self._control.fileno()

    def send(self, message: Mapping[str, Any], bodies: Sequence[Any] = ()) -> None:
        """A message and its bodies."""
        sizes = self._write.put(bodies)
        send_framed(self._control, json.dumps({**message, "sizes": sizes}).encode())

    def receive(self) -> tuple[Message, list[bytes]]:
        """What the other side sent; EOFError when it has gone."""
        message: Message = json.loads(receive_framed(self._control))
        return message, self._read.take(message.pop("sizes"))

    def close(self) -> None:
        """Hang up."""
        self._control.close()
        self._write.close()
        self._read.close()


def send_framed(control: socket.socket, text: bytes) -> None:
    """A text and how long it is."""
    control.sendall(_LENGTH.pack(len(text)) + text)


def receive_framed(control: socket.socket) -> bytes:
    """One text; EOFError when the other side has gone."""
    (length,) = _LENGTH.unpack(_exactly(control, _LENGTH.size))
    return _exactly(control, length)


def _exactly(control: socket.socket, n: int) -> bytes:
    found = bytearray()
    while len(found) < n:
        some = control.recv(n - len(found))
        if not some:
            raise EOFError("the other side has gone")
        found += some
    return bytes(found)
