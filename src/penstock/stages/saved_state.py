"""A stage's state as bytes, one piece per bucket, and back.

    magic, version (u16), length of header (u32), header (JSON), parts (Arrow IPC streams), xxh3 of all before

The header names the step and what its state depends on, and the parts with their lengths. Nothing is pickled.
A piece that is foreign, damaged, newer, or of a step that has changed is refused, naming what differs.

Version 2 says of slices whether they were shown early, and how many rows a piece has. Version 1 is read as if
nothing had been shown.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.frozen import dataclass

MAGIC = b"PENSTOCK"
VERSION = 2
_FRONT = struct.Struct("<8sHI")
_CHECK = 8
HINT = "start with an empty checkpoint folder, or bring back the step as it was"
KEYS = "keys"
"""The part that names the keys."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The state of one bucket.

    n_keys     how many keys it has: batches count them in their column "place"
    watermark  how far the stream had come
    batches    by name
    """

    bucket: int
    n_keys: int
    watermark: int
    batches: Mapping[str, pa.RecordBatch]


def encode(piece: Piece, step: str, depends_on: Mapping[str, str]) -> bytes:
    """The piece as bytes."""
    import json

    import xxhash

    parts = {name: _stream(batch) for name, batch in piece.batches.items()}
    header = {
        "step": step,
        "depends_on": dict(depends_on),
        "bucket": piece.bucket,
        "n_keys": piece.n_keys,
        "watermark": piece.watermark,
        "rows": sum(batch.num_rows for name, batch in piece.batches.items() if name != KEYS),
        "parts": [[name, len(part)] for name, part in parts.items()],
    }
    told = json.dumps(header, sort_keys=True).encode()
    whole = b"".join([_FRONT.pack(MAGIC, VERSION, len(told)), told, *parts.values()])
    return whole + xxhash.xxh3_64_digest(whole)


def decode(data: bytes, step: str, depends_on: Mapping[str, str]) -> Piece:
    """The piece back, or a CheckpointError that says why it cannot be taken up."""
    header, body = _opened(data, step)
    if header["step"] != step:
        raise _refused(f'saved state of step "{header["step"]}" was given to step "{step}"', step)
    _same(header["depends_on"], depends_on, step)
    batches, start = {}, 0
    for name, length in header["parts"]:
        batches[name] = _batch(body[start : start + length])
        start += length
    return Piece(header["bucket"], header["n_keys"], header["watermark"], batches)


def rows_in(data: bytes) -> int:
    """How much a piece keeps: a row for each slice, session, state, or row that waits."""
    import json

    if not data.startswith(MAGIC):
        return 0
    _, _, length = _FRONT.unpack_from(data)
    rows: int = json.loads(data[_FRONT.size : _FRONT.size + length]).get("rows", 0)
    return rows


def depends_on(data: bytes, step: str) -> Mapping[str, str]:
    """What a piece says that it depends on."""
    found: dict[str, str] = _opened(data, step)[0]["depends_on"]
    return found


def _opened(data: bytes, step: str) -> tuple[dict[str, Any], bytes]:
    """The header and the parts, once the piece is known to be whole and readable."""
    import json

    import xxhash

    if data[: len(MAGIC)] != MAGIC or len(data) < _FRONT.size + _CHECK:
        raise _refused(f'what was given to step "{step}" is not saved state of Penstock', step)
    _, version, length = _FRONT.unpack_from(data)
    if version > VERSION:
        raise CheckpointError(
            f"saved state has format version {version}, and this Penstock reads up to {VERSION}",
            step=step,
            hint="run it with the Penstock that wrote it, or a newer one",
        )
    whole, check = data[:-_CHECK], data[-_CHECK:]
    if xxhash.xxh3_64_digest(whole) != check:
        raise CheckpointError(
            f'saved state of step "{step}" is damaged: its checksum does not fit',
            step=step,
            detail=f"{len(data)} bytes",
            hint="take the checkpoint before this one",
        )
    end = _FRONT.size + length
    return json.loads(whole[_FRONT.size : end]), whole[end:]


def _same(saved: Mapping[str, str], now: Mapping[str, str], step: str) -> None:
    """Raise unless the step is what it was when the state was saved."""
    for topic in dict.fromkeys([*now, *saved]):
        if saved.get(topic) != now.get(topic):
            raise CheckpointError(
                f'step "{step}" is not the step that the state was saved for: its {topic} differs',
                step=step,
                detail=f"saved: {saved.get(topic)}; now: {now.get(topic)}",
                hint=HINT,
            )


def _refused(fact: str, step: str) -> CheckpointError:
    return CheckpointError(fact, step=step, hint=HINT)


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batch(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
