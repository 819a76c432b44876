"""Spark's own checkpoint of a query: its log of offsets and commits, and whether it is whole.

    metadata        the id of the query
    offsets/7       what batch 7 is to read; written before it is run
    commits/7       batch 7 is done
    sources/0/7     of a stream of files, the files of batch 7

Beside each file Spark keeps checksums of it (`.7.crc`), by which it refuses a damaged one with an exception
of its own. Here damage is found before the query is started, and named.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import xxhash

_CRC_MAGIC = b"crc\0"


def find_damage(folder: Path) -> tuple[Path, str] | None:
    """Return a file of a query's checkpoint that is damaged or missing, and why; None if all is whole."""
    if not folder.exists():
        return None
    for file in _list_files(folder):
        try:
            data = file.read_bytes()
            _check_crc(file, data)
            _check_lines(file, data.decode("utf-8"))
        except (OSError, ValueError) as problem:
            return file, str(problem)
    offsets, commits = list_batches(folder / "offsets"), list_batches(folder / "commits")
    last = max(offsets, default=-1)
    if last > 0 and last not in commits and last - 1 not in commits:
        return folder / "commits" / str(last - 1), "it is missing"
    if max(commits, default=-1) > last:
        return folder / "offsets" / str(max(commits)), "it is missing"
    # Old ones are removed in time, but Spark starts from the last two.
    first = max(min(*offsets, last - 1), 0) if offsets else 0
    if missing := set(range(first, last + 1)) - offsets:
        return folder / "offsets" / str(max(missing)), "it is missing"
    if offsets and not (folder / "metadata").exists():
        return folder / "metadata", "it is missing"
    return None


def list_batches(folder: Path) -> set[int]:
    """Return the numbers of the batches that have a file in a folder of the log."""
    return {int(file.name) for file in folder.glob("*") if file.name.isdigit()}


def sign_offsets(folder: Path, batch: int) -> str:
    """Return a checksum of what the log says that a batch reads; empty if it says nothing."""
    try:
        return xxhash.xxh3_64_hexdigest((folder / "offsets" / str(batch)).read_bytes())
    except OSError:
        return ""


def _list_files(folder: Path) -> Iterator[Path]:
    for pattern in ("metadata", "offsets/*", "commits/*", "sources/*/*"):
        for file in sorted(folder.glob(pattern)):
            if file.is_file() and not file.name.startswith("."):
                yield file


def _check_crc(file: Path, data: bytes) -> None:
    """Raise ValueError if a file is not what its checksums, if it has any, were made of."""
    checksums = file.with_name(f".{file.name}.crc")
    if not checksums.exists():
        return
    packed = checksums.read_bytes()
    size = int.from_bytes(packed[4:8], "big") if packed.startswith(_CRC_MAGIC) else 0
    if size <= 0:
        raise ValueError(f"its checksums in {checksums.name} cannot be read")
    wanted = [zlib.crc32(data[start : start + size]) for start in range(0, len(data), size)]
    if packed[8:] != struct.pack(f">{len(wanted)}I", *wanted):
        raise ValueError("its checksum does not fit")


def _check_lines(file: Path, text: str) -> None:
    """Raise ValueError unless a file is a version and lines of JSON, as Spark writes them."""
    version, *lines = text.splitlines() if file.name != "metadata" else ["v1", text]
    if not version.startswith("v") or not version[1:].isdigit():
        raise ValueError(f"it begins with {version!r:.20}, which is no version")
    if not lines and file.parent.name in ("offsets", "commits"):
        raise ValueError("it ends after its version")
    for line in lines:
        if line != "-":  # a source that has read nothing yet
            json.loads(line)
