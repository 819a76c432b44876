"""State on storage that driver and workers both reach: workers write it, the driver's manifest names it.

A file holds pieces of state one after the other, each with its checksum at its end (`stages/snapshot.py`),
compressed together: what pieces of one step say of themselves is the same in all of them. It counts only once
a manifest names it, so a file that a failed task left behind is garbage, not damage; and a file is never
written twice.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import xxhash

from penstock.connect.writers.folder import sync_folder
from penstock.errors import CheckpointError
from penstock.expr.failure import reason_of
from penstock.frozen import dataclass
from penstock.stages.snapshot import count_saved_rows

_CHECK = 8
"""Bytes of a checksum."""

_MOST_PACKED = 1 << 16
"""More than zstd can make of a byte."""
_LENGTH = 8
"""Bytes at the front of a file that say how long it is when it is not compressed."""


class Place(NamedTuple):
    """Where a piece is: the file's name, the first byte once it is not compressed, how many; and its rows."""

    file: str
    at: int
    nbytes: int
    rows: int = 0


Places = Mapping[str, Mapping[int, Place]]
"""step -> bucket -> where its piece is."""


def kept(state: Places) -> tuple[int, int]:
    """How many bytes all pieces have, and how many rows."""
    places = [place for found in state.values() for place in found.values()]
    return sum(place.nbytes for place in places), sum(place.rows for place in places)


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The folder of state files. `durable` says that they must outlive a crash of the machine."""

    folder: str
    durable: bool

    def write(
        self, version: int, part: str, pieces: Mapping[str, Mapping[int, bytes]]
    ) -> dict[str, dict[int, Place]]:
        """Write the pieces of some steps into one file; gives where each is."""
        places: dict[str, dict[int, Place]] = {}
        name = f"{version:010d}-{part}-{uuid.uuid4().hex[:12]}.state"
        at, bodies = 0, []
        for step, found in pieces.items():
            places[step] = {}
            for bucket, body in found.items():
                places[step][bucket] = Place(name, at, len(body), count_saved_rows(body))
                bodies.append(body)
                at += len(body)
        if bodies:
            self._put(name, _deflated(b"".join(bodies)))
        return places

    def read(self, places: Mapping[int, Place], step: str) -> dict[int, bytes]:
        """The pieces at these places."""
        found: dict[int, bytes] = {}
        files: dict[str, bytes] = {}
        for bucket, place in places.items():
            name = place.file
            try:
                if name not in files:
                    files[name] = _inflated((Path(self.folder) / name).read_bytes())
                found[bucket] = _checked(files[name][place.at : place.at + place.nbytes], place.nbytes)
            except (OSError, ValueError) as cause:
                raise CheckpointError(
                    f'saved state of step "{step}" cannot be read',
                    step=step,
                    detail=f"state/{name}: {reason_of(cause)}",
                    hint="bring the file back, or start with an empty checkpoint folder",
                ) from cause
        return found

    def _put(self, name: str, data: bytes) -> None:
        path = Path(self.folder) / name
        try:
            with path.open("xb") as file:
                file.write(data)
                if self.durable:
                    file.flush()
                    os.fsync(file.fileno())
            if self.durable:
                sync_folder(path.parent)
        except OSError as cause:
            raise CheckpointError(
                f"state cannot be written: {reason_of(cause)}",
                detail=name,
                hint="give a checkpoint folder with room that every worker can write to",
            ) from cause


def _deflated(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return len(data).to_bytes(_LENGTH, "little") + packed


def _inflated(data: bytes) -> bytes:
    """What was written; ValueError or OSError if that is not to be had."""
    length = int.from_bytes(data[:_LENGTH], "little")
    if length > _MOST_PACKED * len(data):  # else a damaged length would ask for all memory there is
        raise ValueError(f"it says that it has {length} bytes, from {len(data)}")
    found: bytes = pa.decompress(data[_LENGTH:], length, codec="zstd", asbytes=True)
    return found


def _checked(piece: bytes, length: int) -> bytes:
    """The piece, if it is whole and ends with the checksum of what is before."""
    if len(piece) != length:
        raise ValueError(f"it ends after {len(piece)} of {length} bytes")
    if xxhash.xxh3_64_digest(piece[:-_CHECK]) != piece[-_CHECK:]:
        raise ValueError("its checksum does not fit")
    return piece
