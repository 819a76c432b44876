"""Snapshots of a stage's state: one binary blob per bucket of keys, and back.

    magic, version (u16), length of header (u32), header (JSON), parts (Arrow IPC streams), xxh3 of all before

The header names the step, the fingerprint of what its state depends on, and the parts with their lengths.
Nothing is pickled. A blob that is foreign, damaged, of another version, or of a step that has changed is
refused, naming what differs.

`BucketedStage` is the base of all stages with a state per key. It saves state, restores it, and hands it from
replica to replica while rows flow; `keys/changes.py` knows what has changed since the last snapshot.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.caller import name_of
from penstock.errors import CheckpointError
from penstock.frozen import Frozen
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import NO_HISTORY, StepHistory, Stream
from penstock.operators.windows import Windows
from penstock.stages.keys.changes import ChangedBuckets
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Ints
from penstock.stages.stage import SavedBytes, StageContext
from penstock.timing.units import spell

MAGIC = b"PENSTOCK"
VERSION = 4
_FRONT = struct.Struct("<8sHI")
_CHECK = 8
HINT = "start with an empty checkpoint folder, or bring back the step as it was"
KEYS = "keys"
"""The part that names the keys."""
_MAX_KEYS_NBYTES = 1 << 30
"""Keys are restored so many bytes at a time: the strings of a column of Arrow have at most twice as many."""
NO_ROWS_BEFORE = -(2**62)
"""Before all times: there are no rows."""
Fingerprint = Mapping[str, str]
FORM, AGGREGATES, LATENESS, COLUMNS = "operator", "aggregates", "lateness", "input schema"
"""Topics of a fingerprint; FORM names the form."""
CELLS, SKETCHES = "cells", "sketches"
"""Topics that say in which order a window step keeps what it keeps, as JSON."""
LEFT_COLUMNS, RIGHT_COLUMNS = "left columns", "right columns"
_MAY_DIFFER = frozenset({AGGREGATES, LATENESS, COLUMNS, CELLS, SKETCHES, LEFT_COLUMNS, RIGHT_COLUMNS})
"""Topics of steps that a checkpoint may allow to differ: stages adapt their state."""


class BucketState(Frozen):
    """The state of one bucket.

    n_keys     the number of its keys: batches refer to them by index, in their column "place"
    watermark  how far the stream had come
    batches    by name
    n_waiting    the number of windows that are open in it, or of rows that wait for the watermark
    rows_before  all rows of its windows lie before this time, in microseconds
    fingerprint  of the step that saved it, once it was read
    """

    bucket: int
    n_keys: int
    watermark: int
    batches: Mapping[str, pa.RecordBatch]
    n_waiting: int = 0
    rows_before: int = NO_ROWS_BEFORE
    fingerprint: Fingerprint | None = None


def encode_bucket(
    state: BucketState, step: str, fingerprint: Mapping[str, str], n_rows: int | None = None
) -> bytes:
    """Return the state as bytes.

    n_rows  about how many rows the bucket has, if the state is that of only some keys
    """
    import json

    import xxhash

    parts = {}
    for name, batch in state.batches.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        parts[name] = sink.getvalue().to_pybytes()
    fields_by_name = {
        "step": step,
        "fingerprint": dict(fingerprint),
        "bucket": state.bucket,
        "n_keys": state.n_keys,
        "watermark": state.watermark,
        "rows": sum(batch.num_rows for name, batch in state.batches.items() if name != KEYS)
        if n_rows is None
        else n_rows,
        "waiting": state.n_waiting,
        "rows_before": state.rows_before,
        "parts": [[name, len(part)] for name, part in parts.items()],
    }
    header = json.dumps(fields_by_name, sort_keys=True).encode()
    whole = b"".join([_FRONT.pack(MAGIC, VERSION, len(header)), header, *parts.values()])
    return whole + xxhash.xxh3_64_digest(whole)


def decode_bucket(
    data: SavedBytes, step: str, fingerprint: Mapping[str, str], history: StepHistory = NO_HISTORY
) -> BucketState:
    """Return the state, or raises a CheckpointError that says why the step cannot take it up."""
    header, body = _read_header(data, step)
    if header["step"] not in (step, *history.former):
        raise _refusal(f'saved state of step "{header["step"]}" was given to step "{step}"', step)
    saved = header["fingerprint"] = _upgrade_fingerprint(header["fingerprint"], fingerprint)
    for topic in dict.fromkeys([*fingerprint, *saved]):
        if saved.get(topic) != fingerprint.get(topic) and not (history.judged and topic in _MAY_DIFFER):
            raise _refusal(
                f'step "{step}" is not the step that the state was saved for: its {topic} differs',
                step,
                f"saved: {saved.get(topic)}; now: {fingerprint.get(topic)}",
            )
    batches, start = {}, 0
    for name, length in header["parts"]:
        with pa.ipc.open_stream(pa.py_buffer(body[start : start + length])) as reader:
            batches[name] = reader.read_next_batch()
        start += length
    return BucketState(
        header["bucket"], header["n_keys"], header["watermark"], batches, fingerprint=header["fingerprint"]
    )


def _upgrade_fingerprint(saved: Fingerprint, now: Fingerprint) -> Fingerprint:
    """Return a fingerprint that an earlier version saved, with its topics of today.

    It did not say in which order cells are kept, so aggregates must be the same.
    """
    window, has_lateness, lateness = saved.get("window", "").partition("; lateness ")
    if not has_lateness or saved[AGGREGATES] != now.get(AGGREGATES):
        return saved
    topics = {topic: now[topic] for topic in (CELLS, SKETCHES) if topic in now}
    return {**saved, "window": window, LATENESS: lateness, **topics}


def split_pieces(data: SavedBytes) -> Iterator[SavedBytes]:
    """Yield the pieces of a bucket that stand one after the other; what cannot be split, as it is."""
    import json

    data = memoryview(data)
    start, end = 0, -1
    while end < len(data):
        end = len(data)
        with suppress(ValueError, KeyError, TypeError, struct.error):  # damaged: whoever reads it says so
            magic, version, length = _FRONT.unpack_from(data, start)
            if (magic, version) == (MAGIC, VERSION):
                body = start + _FRONT.size + length
                parts = json.loads(bytes(data[start + _FRONT.size : body]))["parts"]
                end = body + sum(max(nbytes, 0) for _, nbytes in parts) + _CHECK
        yield data[start:end]
        start = end


def read_counts(data: SavedBytes) -> tuple[int, int, int]:
    """Return the number of rows that are saved, of what waits for the watermark, and `rows_before`.

    A row is saved for each slice, session, state, or waiting row; what waits are windows, or rows.
    """
    import json

    if data[: len(MAGIC)] != MAGIC:
        return 0, 0, NO_ROWS_BEFORE
    _, _, length = _FRONT.unpack_from(data)
    header = json.loads(bytes(data[_FRONT.size : _FRONT.size + length]))
    rows_before = header.get("rows_before", NO_ROWS_BEFORE)
    return header.get("rows", 0), header.get("waiting", 0), rows_before


def read_fingerprint(data: SavedBytes, step: str) -> Mapping[str, str]:
    """Return the fingerprint of the step that the state was saved for."""
    fingerprint: dict[str, str] = _read_header(data, step)[0]["fingerprint"]
    return fingerprint


def _read_header(data: SavedBytes, step: str) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the parts, once the data are known to be whole and readable."""
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
    data = memoryview(data)
    whole, check = data[:-_CHECK], data[-_CHECK:]
    if xxhash.xxh3_64_digest(whole) != check:
        raise CheckpointError(
            f'saved state of step "{step}" is damaged: its checksum does not fit',
            step=step,
            detail=f"{len(data)} bytes",
            hint="take the checkpoint before this one",
        )
    end = _FRONT.size + length
    return json.loads(bytes(whole[_FRONT.size : end])), whole[end:]


def _refusal(fact: str, step: str, detail: str | None = None) -> CheckpointError:
    return CheckpointError(fact, step=step, detail=detail, hint=HINT)


BY_KEY, BY_PARTITION = "windows by key", "windows by virtual partition"
"""The forms of saved windows: their slices and rows by the bucket of the key, or by the virtual partition of
the window (`patterns/pattern.py`)."""


def window_fingerprint(op: Windows, up: Stream, *, totally_ordered: bool, form: str = BY_KEY) -> Fingerprint:
    """Return what the state of a window step depends on, in words by topic.

    Degrees, sinks, patterns and stateless code are not in it: these may change between runs. The form is,
    but one can be converted into the other (`patterns/parallel.py`).
    """
    # Why: the words are kept and not hashed, so that a refusal can name what differs.
    resolved = op.resolve(up)
    windows = [f"{label}: {window}" if label else str(window) for label, window in resolved.windows]
    aggregates = [
        f"{name}={describe_aggregate(aggregate, up)}" for name, aggregate in (op.aggregates or {}).items()
    ]
    return {
        FORM: form,
        "key": ", ".join(up.key) or "none",
        "window": ", ".join(windows),
        LATENESS: spell(resolved.lateness),
        AGGREGATES: str(op.function) if op.function is not None else ", ".join(aggregates),
        COLUMNS: ", ".join(f"{field.name}: {field.type}" for field in up.schema),
        "time": str(up.time),
        "order": "numbered by the reader" if totally_ordered else "by columns",
    }


def describe_aggregate(aggregate: Aggregate, up: Stream) -> str:
    """Return an aggregate with its options and the type of its results, in words."""
    options = [
        f"{field.name}={name_of(value) if callable(value) else value!r}"
        for field in fields(aggregate)
        if field.name != "value" and (value := getattr(aggregate, field.name)) is not None
    ]
    suffix = f" ({', '.join(options)})" if options else ""
    return f"{aggregate}{suffix} as {aggregate.type(up)}"


class BucketedStage(ABC):
    """A stage with a state per key, which is saved and handed over bucket by bucket.

    What is handed over stays in the process, so it is never turned into bytes, and may hold what could not be
    saved. Whoever moves state sees to it that all replicas have come equally far.
    """

    saves_changes = False
    """Whether `snapshot_changes` saves only what has changed in a bucket."""
    site: StageContext
    _changed_buckets: ChangedBuckets

    def flush_pending(self) -> None:
        """Take in what still waits, because somebody looks at the state."""
        return

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, str]:
        """Return what must be the same for saved state to fit, in words by topic."""

    @abstractmethod
    def _begin(self) -> None:
        """Start with no keys and no rows."""

    @abstractmethod
    def _save_bucket(self, bucket: int, slots: Ints) -> BucketState:
        """Return the state of the keys of a bucket, to be saved."""

    @abstractmethod
    def _load_buckets(self, saved: Sequence[BucketState]) -> None:
        """Take up buckets, none of which is there twice, in place of what is known of their keys."""

    def adapt(self, state: BucketState) -> BucketState:
        """Return saved state as this step keeps it, if the step has changed since it was saved."""
        return state

    def snapshot(self) -> dict[int, bytes]:
        """Return the state per bucket: all of it at first, then what changed since the last snapshot."""
        self.flush_pending()
        return self._encode_buckets(self._changed_buckets.take())

    def snapshot_changes(self, buckets: Collection[int]) -> dict[int, bytes]:
        """Return the state per bucket that has changed; of these buckets only the changes, where it can."""
        del buckets
        return self.snapshot()

    def _encode_buckets(
        self, slots_of: Mapping[int, Ints], n_rows: Mapping[int, int] | None = None
    ) -> dict[int, bytes]:
        states = [self._save_bucket(bucket, slots) for bucket, slots in slots_of.items()]
        step, fingerprint = self.site.step, self.fingerprint
        return {
            state.bucket: encode_bucket(state, step, fingerprint, (n_rows or {}).get(state.bucket))
            for state in states
        }

    def restore(self, saved: Mapping[int, SavedBytes]) -> None:
        """Go back to a snapshot, or takes up some buckets of one that other replicas took.

        A bucket may be several pieces, one after the other: what a later one says of a key counts.
        """
        pieces = (piece for data in saved.values() for piece in split_pieces(data))
        site = self.site
        states = [decode_bucket(piece, site.step, self.fingerprint, site.history) for piece in pieces]
        states = [self.adapt(state) for state in states]
        self._begin()
        for layer in _split_layers(states):
            self._load_buckets(layer)
        self._changed_buckets.start()

    def export_buckets(self) -> dict[int, Any]:
        """Return all state per bucket, for `replace_buckets` of this replica or of another."""
        self.flush_pending()
        return {
            bucket: self._export_bucket(bucket, slots)
            for bucket, slots in self._changed_buckets.live_buckets().items()
        }

    def replace_buckets(
        self, exported: Mapping[int, Any], *, removed: Collection[int], added: Collection[int]
    ) -> None:
        """Replace all state, because buckets have gone to other replicas, or come from them.

        Those that were added are saved here next, also where nothing is left of them; those that were
        removed are saved elsewhere.
        """
        tracks, changed = self._changed_buckets.tracks, self._changed_buckets.peek()
        self._begin()
        self._import_buckets(list(exported.values()))
        self._changed_buckets.replace(
            tracks, [bucket for bucket in changed if bucket not in removed] + list(added)
        )

    def _export_bucket(self, bucket: int, slots: Ints) -> Any:
        return self._save_bucket(bucket, slots)

    def _import_buckets(self, exported: Sequence[Any]) -> None:
        self._load_buckets(exported)


def _split_layers(states: Iterable[BucketState]) -> list[list[BucketState]]:
    """Return the first pieces of all buckets, then their second ones, and so on."""
    layers: list[list[BucketState]] = []
    n_pieces: Counter[int] = Counter()
    for state in states:
        if n_pieces[state.bucket] == len(layers):
            layers.append([])
        layers[n_pieces[state.bucket]].append(state)
        n_pieces[state.bucket] += 1
    return layers


def restore_keys(keys: KeySlots, saved: Sequence[BucketState]) -> list[Ints]:
    """Return the slots of the keys of each bucket, once `keys` knows them."""
    slots_of: list[Ints] = []
    for group in _split_groups(saved):
        columns = [
            pa.concat_arrays(parts) for parts in zip(*(b.batches[KEYS].columns for b in group), strict=True)
        ]
        slots = keys.restore(columns, sum(state.n_keys for state in group))
        slots_of += np.split(slots, np.cumsum([state.n_keys for state in group])[:-1])
    return slots_of


def _split_groups(saved: Sequence[BucketState]) -> Iterator[Sequence[BucketState]]:
    """Yield states, as many at a time as have keys that fit into one column each."""
    begin, nbytes = 0, 0
    for at, state in enumerate(saved):
        nbytes += state.batches[KEYS].nbytes
        if nbytes > _MAX_KEYS_NBYTES and at > begin:
            yield saved[begin:at]
            begin, nbytes = at, state.batches[KEYS].nbytes
    if saved:
        yield saved[begin:]
