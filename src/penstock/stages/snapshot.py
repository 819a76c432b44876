"""A stage's state as bytes, one piece per bucket, and back.

    magic, version (u16), length of header (u32), header (JSON), parts (Arrow IPC streams), xxh3 of all before

The header names the step and what its state depends on, and the parts with their lengths. Nothing is pickled.
A piece that is foreign, damaged, newer, or of a step that has changed is refused, naming what differs.

Version 2 says of slices whether they were shown early, and how many rows a piece has. Version 1 is read as if
nothing had been shown.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import name_of
from penstock.errors import CheckpointError
from penstock.frozen import dataclass
from penstock.operators.aggregates import Aggregate
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.stage import Site
from penstock.timing.bucket import BUCKETS
from penstock.timing.duration import spell

MAGIC = b"PENSTOCK"
VERSION = 3
_FRONT = struct.Struct("<8sHI")
_CHECK = 8
HINT = "start with an empty checkpoint folder, or bring back the step as it was"
KEYS = "keys"
"""The part that names the keys."""


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of one bucket.

    n_keys     how many keys it has: batches count them in their column "place"
    watermark  how far the stream had come
    batches    by name
    """

    bucket: int
    n_keys: int
    watermark: int
    batches: Mapping[str, pa.RecordBatch]


def encode_bucket(piece: BucketState, step: str, fingerprint: Mapping[str, str]) -> bytes:
    """The piece as bytes."""
    import json

    import xxhash

    parts = {name: _to_ipc(batch) for name, batch in piece.batches.items()}
    header = {
        "step": step,
        "fingerprint": dict(fingerprint),
        "bucket": piece.bucket,
        "n_keys": piece.n_keys,
        "watermark": piece.watermark,
        "rows": sum(batch.num_rows for name, batch in piece.batches.items() if name != KEYS),
        "parts": [[name, len(part)] for name, part in parts.items()],
    }
    told = json.dumps(header, sort_keys=True).encode()
    whole = b"".join([_FRONT.pack(MAGIC, VERSION, len(told)), told, *parts.values()])
    return whole + xxhash.xxh3_64_digest(whole)


def decode_bucket(data: bytes, step: str, fingerprint: Mapping[str, str]) -> BucketState:
    """The piece back, or a CheckpointError that says why it cannot be taken up."""
    header, body = _read_header(data, step)
    if header["step"] != step:
        raise _refusal(f'saved state of step "{header["step"]}" was given to step "{step}"', step)
    _check_fingerprint(header["fingerprint"], fingerprint, step)
    batches, start = {}, 0
    for name, length in header["parts"]:
        batches[name] = _from_ipc(body[start : start + length])
        start += length
    return BucketState(header["bucket"], header["n_keys"], header["watermark"], batches)


def count_saved_rows(data: bytes) -> int:
    """How much a piece keeps: a row for each slice, session, state, or row that waits."""
    import json

    if not data.startswith(MAGIC):
        return 0
    _, _, length = _FRONT.unpack_from(data)
    rows: int = json.loads(data[_FRONT.size : _FRONT.size + length]).get("rows", 0)
    return rows


def read_fingerprint(data: bytes, step: str) -> Mapping[str, str]:
    """What a piece says that it depends on."""
    found: dict[str, str] = _read_header(data, step)[0]["fingerprint"]
    return found


def _read_header(data: bytes, step: str) -> tuple[dict[str, Any], bytes]:
    """The header and the parts, once the piece is known to be whole and readable."""
    import json

    import xxhash

    if data[: len(MAGIC)] != MAGIC or len(data) < _FRONT.size + _CHECK:
        raise _refusal(f'what was given to step "{step}" is not saved state of Penstock', step)
    _, version, length = _FRONT.unpack_from(data)
    if version != VERSION:
        other = "a newer one" if version > VERSION else "start with an empty checkpoint folder"
        raise CheckpointError(
            f"saved state has format version {version}, and this Penstock reads version {VERSION}",
            step=step,
            hint=f"run it with the Penstock that wrote it, or {other}",
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


def _check_fingerprint(saved: Mapping[str, str], now: Mapping[str, str], step: str) -> None:
    """Raise unless the step is what it was when the state was saved."""
    for topic in dict.fromkeys([*now, *saved]):
        if saved.get(topic) != now.get(topic):
            raise CheckpointError(
                f'step "{step}" is not the step that the state was saved for: its {topic} differs',
                step=step,
                detail=f"saved: {saved.get(topic)}; now: {now.get(topic)}",
                hint=HINT,
            )


def _refusal(fact: str, step: str) -> CheckpointError:
    return CheckpointError(fact, step=step, hint=HINT)


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_ipc(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


# What a window step's state depends on, in words: state is taken up again only by a step that says the
# same.
#
# Degrees, sinks and stateless code are not in it, nor are patterns: these may change between runs. But
# their state has one of three forms, which is in it. What is in one of the first two can be brought into
# the other (`patterns/forms.py`). The words are kept as they are and not hashed, so that a refusal can
# name what differs.

Fingerprint = Mapping[str, str]

BY_KEY, BY_PARTITION, AS_PARTIALS = "windows by key", "windows dealt to replicas", "windows by key, in parts"
"""The forms of saved windows: their slices and rows by the bucket of the key, or by the lane of the window
(`patterns/dealing.py`); or what is known of whole windows by the bucket of the key."""
FORM = "operator"
"""The topic of the form."""


def window_fingerprint(op: Windows, up: Stream, *, totally_ordered: bool, form: str = BY_KEY) -> Fingerprint:
    """The step in words, by topic."""
    resolved = op.resolve(up)
    windows = [f"{label}: {window}" if label else str(window) for label, window in resolved.windows]
    aggregates = [f"{name}={_aggregate(each, up)}" for name, each in (op.aggregates or {}).items()]
    return {
        FORM: form,
        "key": ", ".join(up.key) or "none",
        "window": f"{', '.join(windows)}; lateness {spell(resolved.lateness)}",
        "aggregates": str(op.function) if op.function is not None else ", ".join(aggregates),
        "input schema": ", ".join(f"{field.name}: {field.type}" for field in up.schema),
        "time": str(up.time),
        "order": "numbered by the reader" if totally_ordered else "by columns",
    }


def _aggregate(aggregate: Aggregate, up: Stream) -> str:
    """The aggregate with its options and the type it gives."""
    options = [
        f"{field.name}={name_of(value) if callable(value) else value!r}"
        for field in fields(aggregate)
        if field.name != "value" and (value := getattr(aggregate, field.name)) is not None
    ]
    told = f" ({', '.join(options)})" if options else ""
    return f"{aggregate}{told} as {aggregate.type(up)}"


# Which buckets changed since the last snapshot.
#
# Slots are noted as rows come and windows leave; only when a snapshot is made, or a key is forgotten, are
# keys hashed. Before the first snapshot nothing is noted: that one saves everything.


class ChangedBuckets:
    """The slots with news, and the buckets of keys that are gone."""

    def __init__(self, keys: KeySlots) -> None:
        self._keys = keys
        self._on = False
        self._slots = np.zeros(0, np.bool_)
        self._gone = np.zeros(BUCKETS, np.bool_)

    def note(self, slots: Ints) -> None:
        """The state of these slots has changed."""
        if self._on and len(slots):
            more = int(slots.max()) + 1 - len(self._slots)
            if more > 0:
                self._slots = np.append(self._slots, np.zeros(max(more, len(self._slots)), np.bool_))
            self._slots[slots] = True

    def forget(self, slots: Ints) -> None:
        """The keys of these slots are about to be freed: their buckets change."""
        if self._on and len(slots):
            self._gone[self._keys.buckets_of(slots)] = True
            self._slots[slots[slots < len(self._slots)]] = False

    @property
    def noting(self) -> bool:
        """Whether something has been saved, so that changes are noted."""
        return self._on

    def news(self) -> list[int]:
        """The buckets that changed since the last snapshot; they stay news."""
        return [] if not self._on else np.flatnonzero(self._changed(*self._live())).tolist()

    def held(self) -> dict[int, Ints]:
        """All buckets with live slots."""
        live, buckets = self._live()
        return {int(bucket): live[buckets == bucket] for bucket in np.unique(buckets)}

    def go_on(self, noting: bool, news: Sequence[int]) -> None:
        """After all slots are others: note as before, with these buckets changed, be they empty."""
        self.start()
        self._on = noting
        self._gone[list(news)] = noting

    def take(self) -> dict[int, Ints]:
        """The buckets that changed since the last call, each with its live slots; from now on, note."""
        live, buckets = self._live()
        changed = self._changed(live, buckets)
        self.start()
        return {int(bucket): live[buckets == bucket] for bucket in np.flatnonzero(changed)}

    def start(self) -> None:
        """Everything so far is saved: note what changes from here."""
        self._on = True
        self._slots[:] = False
        self._gone[:] = False

    def _live(self) -> tuple[Ints, Ints]:
        live = self._keys.live()
        return live, self._keys.buckets_of(live).astype(np.int64)

    def _changed(self, live: Ints, buckets: Ints) -> Mask:
        changed = self._gone.copy()
        if self._on:
            known = live < len(self._slots)
            changed[buckets[known][self._slots[live[known]]]] = True
        else:
            changed[buckets] = True
        return changed


# State by key, bucket by bucket: saved, taken up again, and handed from replica to replica while rows flow.
#
# What changes hands stays in the process, so it is never turned into bytes, and may hold what could not be
# saved. Whoever moves state sees to it that all replicas have come equally far.


class BucketedStage(ABC):
    """A stage with a state per key."""

    site: Site
    _touched: ChangedBuckets

    def settle(self) -> None:
        """Take in what still waits, because somebody looks at the state."""
        return

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, str]:
        """What must be the same for saved state to fit."""

    @abstractmethod
    def _begin(self) -> None:
        """Forget everything."""

    @abstractmethod
    def _piece(self, bucket: int, slots: Ints) -> BucketState:
        """What is known of the keys of a bucket, to be saved."""

    @abstractmethod
    def _load(self, piece: BucketState) -> None:
        """Take up a bucket."""

    def snapshot(self) -> dict[int, bytes]:
        """The state per bucket: all of it at first, then what changed since the last snapshot."""
        self.settle()
        pieces = [self._piece(bucket, slots) for bucket, slots in self._touched.take().items()]
        return {piece.bucket: encode_bucket(piece, self.site.step, self.fingerprint) for piece in pieces}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Go back to a snapshot, or take up some buckets of one that other replicas made."""
        pieces = [decode_bucket(data, self.site.step, self.fingerprint) for data in saved.values()]
        self._begin()
        for piece in pieces:
            self._load(piece)
        self._touched.start()

    def export_buckets(self) -> dict[int, Any]:
        """All state per bucket, for `replace_buckets` of this replica or of another in the process."""
        self.settle()
        return {bucket: self._export_bucket(bucket, slots) for bucket, slots in self._touched.held().items()}

    def replace_buckets(
        self, held: Mapping[int, Any], *, gone: Collection[int], came: Collection[int]
    ) -> None:
        """Have this state and no other, because buckets have gone to other replicas, or come from them.

        Those that came are to be saved, also where nothing is left of them; those that went, elsewhere.
        """
        noting, news = self._touched.noting, self._touched.news()
        self._begin()
        for part in held.values():
            self._import_bucket(part)
        self._touched.go_on(noting, [bucket for bucket in news if bucket not in gone] + list(came))

    def _export_bucket(self, bucket: int, slots: Ints) -> Any:
        return self._piece(bucket, slots)

    def _import_bucket(self, part: Any) -> None:
        self._load(part)
