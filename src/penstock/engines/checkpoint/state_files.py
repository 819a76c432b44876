"""Files of saved state, on storage that the driver and all workers reach.

Workers write them and the driver's manifest refers to them. A file holds pieces of state one after the other,
each ending with its checksum (`stages/snapshot.py`), compressed together because the pieces of one step have
equal headers. Before them it has its own name, which no other file ever has, so that one that was put in the
place of another is found.

Invariant: a file counts only once a manifest refers to it, and it is never written twice. So a file that a
failed task left behind is garbage, not damage.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import xxhash

from penstock.connect.writers.staged_files import sync_path
from penstock.engines.checkpoint.sealed_files import RESTORE
from penstock.errors import CheckpointError, describe_cause
from penstock.frozen import Frozen
from penstock.stages.snapshot import NO_ROWS_BEFORE, read_counts
from penstock.stages.stage import SavedBytes

_CHECKSUM_NBYTES = 8
_LENGTH_NBYTES = 8
"""Size of the prefix of a file that holds its length before compression."""
_MAGIC = b"PENSTATE"
"""What a file begins with, and then its name as a line; one of format 3 begins with its length."""
_MAX_RATIO = 1 << 16
"""More than zstd can compress a byte."""
_MIN_WHOLE_NBYTES, _MAX_PIECES = 1 << 16, 16
"""Buckets of less are always written whole; of others there are at most so many pieces and one more."""
_BUCKETS = 256


class StateHandle(NamedTuple):
    """Where the state of a bucket is: a file, the offset and size before compression, and the number of rows.

    idle     nothing happens to the bucket as long as no row comes, whatever the watermark does
    before   where the pieces are, oldest first, that this one has changes to
    waiting  the number of its windows that are open, or of rows that wait for the watermark

    rows_before  all rows of its windows lie before this time, in microseconds
    """

    file: str
    offset: int
    nbytes: int
    rows: int = 0
    idle: bool = False
    before: tuple[StateHandle, ...] = ()
    waiting: int = 0
    rows_before: int = NO_ROWS_BEFORE

    @classmethod
    def of(cls, fields: Sequence[Any]) -> StateHandle:
        """Return the handle that was written as JSON."""
        handle = cls(*fields)
        return handle._replace(before=tuple(map(cls.of, handle.before)))

    @property
    def pieces(self) -> tuple[StateHandle, ...]:
        """Return all pieces of the bucket, oldest first."""
        return (*self.before, self._replace(before=()))

    @property
    def size(self) -> int:
        """Return the number of bytes of all pieces."""
        return self.nbytes + sum(piece.nbytes for piece in self.before) if self.before else self.nbytes

    def takes_changes(self, bucket: int) -> bool:
        """Return whether the next piece may hold changes only; else it is whole, and replaces all of these.

        So as many bytes are written as have changed, or a few times as many, and as many are read as there
        are, or twice as many.
        """
        whole = self.before[0].nbytes if self.before else self.nbytes
        if whole < _MIN_WHOLE_NBYTES:
            return False
        # Why: buckets that change alike do not become whole in the same micro-batch.
        limit = whole * (_BUCKETS + bucket) // (2 * _BUCKETS)
        return len(self.before) < _MAX_PIECES and self.size - whole < limit


StateHandles = Mapping[str, Mapping[int, StateHandle]]
"""step -> bucket -> where its newest piece is."""


def state_size(state: StateHandles) -> tuple[int, int]:
    """Return the number of bytes and of rows of all buckets."""
    handles = [handle for by_bucket in state.values() for handle in by_bucket.values()]
    return sum(handle.size for handle in handles), sum(handle.rows for handle in handles)


def count_waiting(state: StateHandles) -> dict[str, int]:
    """Return how many windows, or rows, of each step wait for the watermark; steps without any are absent."""
    counts = {step: sum(handle.waiting for handle in by_bucket.values()) for step, by_bucket in state.items()}
    return {step: n for step, n in counts.items() if n}


class StateFiles(Frozen):
    """The folder of state files.

    durable  whether files must survive a crash of the machine
    """

    folder: str
    durable: bool

    def write(
        self, version: int, part: str, pieces: Mapping[str, Mapping[int, SavedBytes]]
    ) -> dict[str, dict[int, StateHandle]]:
        """Write the pieces of some steps into one file and return where each is."""
        state: dict[str, dict[int, StateHandle]] = {}
        name = f"{version:010d}-{part}-{uuid.uuid4().hex[:12]}.state"
        offset, bodies = 0, []
        for step, by_bucket in pieces.items():
            state[step] = {}
            for bucket, body in by_bucket.items():
                n_rows, n_waiting, before = read_counts(body)
                state[step][bucket] = StateHandle(
                    name, offset, len(body), n_rows, waiting=n_waiting, rows_before=before
                )
                bodies.append(body)
                offset += len(body)
        if bodies:
            whole = b"".join(bodies)
            packed: bytes = pa.compress(whole, codec="zstd", asbytes=True)
            path = Path(self.folder) / name
            try:
                with path.open("xb") as file:
                    prefix = _MAGIC + name.encode() + b"\n" + len(whole).to_bytes(_LENGTH_NBYTES, "little")
                    file.write(prefix + packed)
                    if self.durable:
                        file.flush()
                        os.fsync(file.fileno())
                if self.durable:
                    sync_path(path.parent)
            except OSError as cause:
                raise _cannot_write(Path(self.folder) / name, cause) from cause
        return state

    def read(self, handles: Mapping[int, StateHandle], step: str) -> dict[int, SavedBytes]:
        """Return what a step has saved by bucket, piece behind piece; raise CheckpointError if one is missing
        or damaged.
        """
        saved: dict[int, list[memoryview]] = {}
        files: dict[str, memoryview] = {}
        for bucket, (name, offset, nbytes, *_) in (
            (bucket, piece) for bucket, handle in handles.items() for piece in handle.pieces
        ):
            try:
                if name not in files:
                    files[name] = _decompress((Path(self.folder) / name).read_bytes(), name)
                piece = files[name][offset : offset + nbytes]
                if len(piece) != nbytes:
                    raise ValueError(f"it ends after {len(piece)} of {nbytes} bytes")
                if xxhash.xxh3_64_digest(piece[:-_CHECKSUM_NBYTES]) != piece[-_CHECKSUM_NBYTES:]:
                    raise ValueError("its checksum does not fit")
            except (OSError, ValueError) as cause:
                raise CheckpointError(
                    f'saved state of step "{step}" cannot be read',
                    step=step,
                    detail=f"{Path(self.folder) / name}: {describe_cause(cause)}",
                    hint=RESTORE,
                ) from cause
            saved.setdefault(bucket, []).append(piece)
        return {
            bucket: pieces[0] if len(pieces) == 1 else b"".join(pieces) for bucket, pieces in saved.items()
        }

    def open_rows(self, name: str) -> BinaryIO:
        """Create a file of rows beside the state, which lives until the driver has read it."""
        try:
            return (Path(self.folder) / name).open("xb")
        except OSError as cause:
            raise _cannot_write(Path(self.folder) / name, cause) from cause

    def read_rows(self, name: str, offset: int, nbytes: int) -> bytes:
        """Return some of what a file of rows holds; raise CheckpointError if it is not there."""
        try:
            with (Path(self.folder) / name).open("rb") as file:
                file.seek(offset)
                return file.read(nbytes)
        except OSError as cause:
            raise CheckpointError(
                f"rows that a task has written cannot be read: {describe_cause(cause)}",
                detail=str(Path(self.folder) / name),
                hint="give a checkpoint folder that the driver and all executors reach under one path",
            ) from cause

    def remove_rows(self, name: str) -> None:
        """Remove a file of rows."""
        (Path(self.folder) / name).unlink(missing_ok=True)


def _cannot_write(path: Path, cause: OSError) -> CheckpointError:
    return CheckpointError(
        f"state cannot be written: {describe_cause(cause)}",
        detail=str(path),
        hint="give a checkpoint folder with room that every worker can write to",
    )


def _decompress(data: bytes, name: str) -> memoryview:
    """Return the contents of a file; raise ValueError or OSError if it is damaged, or has another name."""
    if data.startswith(_MAGIC):
        own_name, _, data = data[len(_MAGIC) :].partition(b"\n")
        if own_name != name.encode():
            raise ValueError(f"it is {own_name.decode(errors='replace'):.80}")
    length = int.from_bytes(data[:_LENGTH_NBYTES], "little")
    # Why: a damaged length would otherwise allocate all memory there is.
    if length > _MAX_RATIO * len(data):
        raise ValueError(f"it says that it has {length} bytes, from {len(data)}")
    # Why cast: its bytes are signed, and not equal to those of a checksum.
    return memoryview(pa.decompress(data[_LENGTH_NBYTES:], length, codec="zstd")).cast("B")
