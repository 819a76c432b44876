"""What tells an input file from any other: size, times, inode, and a hash of its first and last bytes.

A file that grows keeps its identity: what has been read of it is its beginning, and the identity is that of
the beginning alone. So whether a file grew, was replaced, was renamed or was copied is told by its bytes.
Inode and times spare the look where nothing can have happened, and files that were copied to another machine,
where both differ, are still known.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import IO, NamedTuple

import xxhash

HASHED_BYTES = 1 << 16
"""Hashed of the head, and of the tail."""

Stamp = tuple[int, int, int, int]
"""Size, time of modification, time of change, inode: equal only if nobody has touched the file."""


class FileRange(NamedTuple):
    """Bytes of a file that are read together, and the identity of the file up to their end.

    first, last  of formats that are read whole, 0 and the size of the file
    head, tail   hashes of the first and of the last bytes before `last`; empty where nobody looked
    """

    path: str
    first: int
    last: int
    modified_ns: int = 0
    changed_ns: int = 0
    inode: int = 0
    head: str = ""
    tail: str = ""

    @property
    def stamp(self) -> Stamp:
        """Return what the file system says of a file that ends with this range."""
        return self.last, self.modified_ns, self.changed_ns, self.inode

    def names_again(self, known: FileRange) -> bool:
        """Return whether this is the same file up to the same byte, under a name that it got later."""
        return bool(self.last) and self == known._replace(path=self.path, first=self.first) != known

    @property
    def is_hashed_whole(self) -> bool:
        """Return whether the hashes cover every byte."""
        return bool(self.head) and self.last <= 2 * HASHED_BYTES


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def identify(path: str, first: int, last: int, status: os.stat_result) -> FileRange:
    """Return a range of a file with the identity of the file up to its end."""
    with Path(path).open("rb") as stream:
        head, tail = _hash_ends(stream, last)
    return FileRange(
        path, first, last, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, head or "", tail or ""
    )


def begins_with(path: str, known: FileRange) -> bool:
    """Return whether a file begins with the bytes that are known, packed or not."""
    is_packed = path.endswith(".gz") and not known.path.endswith(".gz")
    try:
        with gzip.open(path, "rb") if is_packed else Path(path).open("rb") as stream:
            if not known.head:  # recorded by a version that knew sizes and times only
                status = os.fstat(stream.fileno())
                return (status.st_size, status.st_mtime_ns) == (known.last, known.modified_ns)
            return _hash_ends(stream, known.last) == (known.head, known.tail)
    except (OSError, EOFError):
        return False


def _hash_ends(stream: IO[bytes] | gzip.GzipFile, size: int) -> tuple[str | None, str | None]:
    """Return hashes of the first and the last bytes before `size`; None where the file is shorter."""
    head = stream.read(min(size, HASHED_BYTES))
    if len(head) < min(size, HASHED_BYTES):
        return None, None
    if size <= HASHED_BYTES:
        digest = xxhash.xxh3_64_hexdigest(head)
        return digest, digest
    stream.seek(size - HASHED_BYTES)
    tail = stream.read(HASHED_BYTES)
    if len(tail) < HASHED_BYTES:
        return None, None
    return xxhash.xxh3_64_hexdigest(head), xxhash.xxh3_64_hexdigest(tail)
