"""Room that two processes share: an anonymous file in memory, mapped by both.

It is made before the fork and has no name, so nothing is left behind, whoever dies. One side puts bytes in,
then the other takes a copy out: only their turns, which `line.py` keeps, stand between the two.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import EngineError

LEAST = 1 << 16
"""Bytes of a room at first; it doubles until what is put in fits."""


class SharedBuffer:
    """Bytes for the other side."""

    def __init__(self) -> None:
        self._file = _anonymous()
        self._map = self._mapped(LEAST)

    @property
    def nbytes(self) -> int:
        """How much fits in now, as far as this side knows."""
        return len(self._map)

    def put(self, bodies: Sequence[Any]) -> list[int]:
        """Copy these buffers in, one after the other; gives their sizes."""
        sizes = [memoryview(body).nbytes for body in bodies]
        if sum(sizes) > len(self._map):
            self._grow(sum(sizes))
        at = 0
        for body, size in zip(bodies, sizes, strict=True):
            self._map[at : at + size] = body
            at += size
        return sizes

    def take(self, sizes: Sequence[int]) -> list[bytes]:
        """Copies of what the other side put in."""
        if sum(sizes) > len(self._map):
            self._remap(os.fstat(self._file).st_size)
        found, at = [], 0
        for size in sizes:
            found.append(self._map[at : at + size])
            at += size
        return found

    def close(self) -> None:
        """This side needs it no more."""
        if not self._map.closed:
            self._map.close()
            os.close(self._file)

    def _grow(self, wanted: int) -> None:
        size = len(self._map)
        while size < wanted:
            size *= 2
        try:
            self._remap(size, new=True)
        except OSError as cause:
            raise EngineError(
                f"there is no memory for {wanted} bytes on their way between processes",
                detail=str(cause),
                hint='read smaller batches, or run with ps.LocalOptions(workers="thread")',
            ) from cause

    def _remap(self, size: int, *, new: bool = False) -> None:
        before, self._map = self._map, self._mapped(size) if new else mmap.mmap(self._file, size)
        before.close()

    def _mapped(self, size: int) -> mmap.mmap:
        if hasattr(os, "posix_fallocate"):  # a file that has no memory behind it would kill who writes it
            os.posix_fallocate(self._file, 0, size)
        else:
            os.ftruncate(self._file, size)
        return mmap.mmap(self._file, size)


def _anonymous() -> int:
    """A file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("penstock")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


# One end of the talk between two processes: short messages over a socket, what is long through rooms.
#
# Who has sent something waits for the answer before it sends again, so a room is never written while it is
# read. No pickle: messages are JSON, bodies are Arrow or bytes of saved state.

_LENGTH = struct.Struct("!I")

Message = dict[str, Any]


class Connection:
    """One end: `write` is for the other side, `read` is what the other side writes."""

    def __init__(self, control: socket.socket, *, write: SharedBuffer, read: SharedBuffer) -> None:
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
