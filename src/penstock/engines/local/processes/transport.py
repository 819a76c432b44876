"""Transport to a worker process: short messages over a pipe, long bodies in shared memory.

A shared buffer is an anonymous file in memory, mapped by both processes. It is created before the fork and
has no name, so nothing is left behind, whoever dies. No pickle: messages are JSON, bodies are Arrow or bytes
of saved state.

Invariant: whoever has sent a message waits for the reply before it sends again, so a buffer is never written
while the other side reads it. Nothing else protects it.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection as PipeEnd
from typing import Any

from penstock.errors import EngineError

MIN_NBYTES = 1 << 16
"""Initial size of a buffer; it doubles until what is put in fits."""


class SharedBuffer:
    """Bytes for the other process."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("penstock")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        self._map = mmap.mmap(self._file, _allocate(self._file, MIN_NBYTES))

    @property
    def nbytes(self) -> int:
        """Return the size of the buffer, as far as this side knows."""
        return len(self._map)

    def put(self, bodies: Sequence[Any]) -> list[int]:
        """Copy bodies in, one after the other; return their sizes."""
        sizes = [memoryview(body).nbytes for body in bodies]
        if sum(sizes) > len(self._map):
            self._grow(sum(sizes))
        at = 0
        for body, size in zip(bodies, sizes, strict=True):
            self._map[at : at + size] = body
            at += size
        return sizes

    def take(self, sizes: Sequence[int]) -> list[bytes]:
        """Return copies of the bodies that the other side put in."""
        if sum(sizes) > len(self._map):
            self._remap(os.fstat(self._file).st_size)
        bodies, at = [], 0
        for size in sizes:
            bodies.append(self._map[at : at + size])
            at += size
        return bodies

    def close(self) -> None:
        """Free the buffer on this side."""
        if not self._map.closed:
            self._map.close()
            os.close(self._file)

    def _grow(self, wanted: int) -> None:
        size = len(self._map)
        while size < wanted:
            size *= 2
        try:
            self._remap(_allocate(self._file, size))
        except OSError as cause:
            raise EngineError(
                f"there is no memory for {wanted} bytes on their way between processes",
                detail=str(cause),
                hint='read smaller batches, or run with ps.LocalOptions(workers="thread")',
            ) from cause

    def _remap(self, size: int) -> None:
        before, self._map = self._map, mmap.mmap(self._file, size)
        before.close()


def _allocate(file: int, size: int) -> int:
    """Give a file its size, and return the size."""
    if hasattr(os, "posix_fallocate"):
        # Why: writing to a file without memory behind it would kill the process.
        os.posix_fallocate(file, 0, size)
    else:
        os.ftruncate(file, size)
    return size


Message = dict[str, Any]


class Connection:
    """One end of a connection; this side writes the buffer `write`, and the other side `read`."""

    def __init__(self, pipe: PipeEnd, *, write: SharedBuffer, read: SharedBuffer) -> None:
        self.pipe, self._write, self._read = pipe, write, read

    def send(self, message: Mapping[str, Any], bodies: Sequence[Any] = ()) -> None:
        """Send a message and its bodies."""
        sizes = self._write.put(bodies)
        self.pipe.send_bytes(json.dumps({**message, "sizes": sizes}).encode())

    def receive(self) -> tuple[Message, list[bytes]]:
        """Return what the other side sent; raise EOFError when it is gone."""
        message: Message = json.loads(self.pipe.recv_bytes())
        return message, self._read.take(message.pop("sizes"))

    def close(self) -> None:
        """Hang up."""
        self.pipe.close()
        self._write.close()
        self._read.close()
