"""How the rows of a join are saved and come back, by side and bucket, whole or as changes.

A row's bucket depends on its key, or on its number where no columns are equal: never on the layout. So any
layout, and any number of partitions, takes up what another has saved. The buckets of the left are numbered
from 0, those of the right from 256.

A piece has the rows of its bucket; one with changes has the rows that came since the piece before it, and the
numbers of older rows that have found a partner since. What is over by the watermark of the newest piece is
left out when the rows come back, so that nothing is written because rows are over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.frozen import Frozen
from penstock.operators.op import NO_HISTORY, StepHistory, Stream
from penstock.operators.stream_join import HANDSHAKE, StreamJoin
from penstock.stages.join.cell_places import NO_BUCKET
from penstock.stages.join.conditions import CLOCK
from penstock.stages.join.join_rows import JoinRows, RowsOfSide, concat_join_rows
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.store import columns_from_snapshot, ints_of
from penstock.stages.snapshot import (
    LEFT_COLUMNS,
    RIGHT_COLUMNS,
    BucketState,
    Fingerprint,
    decode_bucket,
    encode_bucket,
    split_pieces,
)
from penstock.stages.stage import SavedBytes
from penstock.timing.units import spell

ROWS, PAIRED, COUNTS = "rows", "paired", "counts"
"""The parts of a piece: rows, (number, clock) of rows that found a partner, and the stage's own numbers."""
_ROW = "row "
BEFORE_FIRST = -(2**62)
"""Stands for the watermark before the first row."""


def join_fingerprint(op: StreamJoin, left: Stream, right: Stream) -> Fingerprint:
    """Return what the state of a join depends on, in words by topic; the layout may change between runs."""

    def columns(stream: Stream) -> str:
        return ", ".join(f"{field.name}: {field.type}" for field in stream.schema)

    resolved = op.resolve(left, right)
    # Why: there some pairs of stored rows have yet to be found, and elsewhere all have been.
    meeting = {"meeting": f"{HANDSHAKE}, lateness {resolved.lateness} us"} if op.layout == HANDSHAKE else {}
    return meeting | {
        "operator": f"{op.how} join",
        "predicate": " and ".join(map(str, op.match_terms(left, right))),
        "bound": str(resolved.window)
        if resolved.window is not None
        else f"last rows {resolved.last_rows}"
        if resolved.last_rows is not None
        else f"within {spell(resolved.older_left)}, {spell(resolved.older_right)}",
        "lateness": spell(resolved.lateness),
        LEFT_COLUMNS: columns(left),
        RIGHT_COLUMNS: columns(right),
        "time": str(left.time),
    }


class SavedRows(Frozen):
    """Rows of one side as they come back.

    waits  bool[n]  which were not put in order yet (a join with the last rows)
    """

    rows: JoinRows
    waits: Mask


class SavedJoin(Frozen):
    """A join's state as it comes back: the rows of both sides, how far it had come, and its numbers."""

    sides: tuple[SavedRows, SavedRows]
    watermark: float
    counts: Ints


class ChangedRows:
    """What has changed since the last snapshot, by side and bucket.

    tracks  whether there was one, so that changes are tracked
    number  of the first row that came after it
    """

    def __init__(self) -> None:
        self.tracks = False
        self.number = 0
        self._changed = np.zeros((2, BUCKETS), np.bool_)
        self._held = np.zeros((2, BUCKETS), np.bool_)  # which have rows in the last snapshot
        self._told = np.zeros((2, BUCKETS), np.bool_)
        self._paired: list[tuple[int, Ints, Ints, Ints]] = []

    def tell(self, side: int, bucket: int) -> None:
        """Have a bucket in the next snapshot, rows or none, because its piece has the stage's numbers."""
        self._told[side, bucket] = True

    def note(self, side: int, buckets: Ints) -> None:
        """Note that rows of these buckets came or changed."""
        if self.tracks:
            self._changed[side, buckets[buckets != NO_BUCKET]] = True

    def note_paired(self, side: int, rows: RowsOfSide, at: Ints) -> None:
        """Note that stored rows have found their first partner."""
        at = at[rows.buckets[at] != NO_BUCKET]
        if self.tracks and len(at):
            buckets = rows.buckets[at]
            self._changed[side, buckets] = True
            self._paired.append((side, buckets, rows.numbers[at], rows.codes[CLOCK][at]))

    def take(self, has_rows: Sequence[Mask], number: int) -> tuple[list[Ints], list[pa.RecordBatch]]:
        """Return the buckets to be saved and who was paired, for each side; tracks from here on.

        has_rows  which buckets have rows now: one that had, and has none, is saved once more
        number    of the next row
        """
        held = np.array(has_rows)
        changed = (self._changed if self.tracks else held) | (self._held & ~held) | self._told
        paired = [_paired_batch([part for part in self._paired if part[0] == side]) for side in (0, 1)]
        self.start(held, number)
        return [np.flatnonzero(of_side) for of_side in changed], paired

    def start(self, held: Mask, number: int) -> None:
        """Track what changes from here on: everything so far is saved."""
        self.tracks, self.number, self._held = True, number, held
        self._changed[:] = self._told[:] = False
        self._paired = []

    def start_over(self, owned: Mask) -> None:
        """Let the next snapshot have all rows, and say of every bucket that is owned what it holds."""
        self.tracks, self._held = False, owned


Lots = Sequence[tuple[JoinRows, bool, Mask]]
"""Rows of a side, whether they wait, and which of them changed although they are old."""


def count_by_bucket(lots: Sequence[Lots]) -> Ints:
    """Return int64[2, 256]: how many rows each bucket of both sides has."""
    n_rows = np.zeros((2, BUCKETS), np.int64)
    for side, of_side in enumerate(lots):
        for rows, _, _ in of_side:
            n_rows[side] += np.bincount(rows.buckets, minlength=BUCKETS)
    return n_rows


def number_anew(saved: SavedJoin) -> tuple[SavedJoin, int]:
    """Return rows that came from several cells with numbers that no two share, and the next number."""
    n_left, n_right = (len(side.rows) for side in saved.sides)
    numbers = np.arange(n_left), n_left + np.arange(n_right)
    left, right = (
        replace(side, rows=replace(side.rows, numbers=of_side))
        for side, of_side in zip(saved.sides, numbers, strict=True)
    )
    return replace(saved, sides=(left, right)), n_left + n_right


def _paired_batch(parts: Sequence[tuple[int, Ints, Ints, Ints]]) -> pa.RecordBatch:
    columns = [
        np.concatenate([np.empty(0, np.int64), *(part[place] for part in parts)]) for place in (1, 2, 3)
    ]
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=["bucket", "number", "clock"])


def rows_to_save(rows: JoinRows, *, waits: bool) -> pa.RecordBatch:
    """Return rows as columns to be saved, with their bucket."""
    saved = {
        "bucket": pa.array(rows.buckets),
        "number": pa.array(rows.numbers),
        "clock": pa.array(np.ascontiguousarray(rows.codes[CLOCK])),
        "time": pa.array(rows.times),
        "paired": pa.array(rows.has_pair),
        "waits": pa.array(np.full(len(rows), waits)),
    }
    saved |= {f"order {place}": pa.array(column) for place, column in enumerate(rows.order)}
    batch = pa.RecordBatch.from_pydict(saved)
    for field, column in zip(rows.rows.schema, rows.rows.columns, strict=True):
        batch = batch.append_column(field.with_name(f"{_ROW}{field.name}"), column)
    return batch


class JoinSnapshots:
    """Encodes and decodes the pieces of one join."""

    def __init__(
        self,
        op: StreamJoin,
        left: Stream,
        right: Stream,
        step: str,
        history: StepHistory = NO_HISTORY,
    ) -> None:
        self.fingerprint = join_fingerprint(op, left, right)
        self._step, self._history, self._schemas = step, history, (left.schema, right.schema)

    def encode_changes(
        self,
        lots: Sequence[Lots],
        changes: ChangedRows,
        buckets: Collection[int],
        watermark: float,
        counts: Ints,
        *,
        has_moved: bool,
    ) -> dict[int, bytes]:
        """Return the pieces of all that has changed; of these buckets only the changes.

        has_moved  rows may be over since the last snapshot
        """
        is_tracking, first_new = changes.tracks, changes.number
        n_rows = count_by_bucket(lots)
        changed, paired = changes.take([of_side > 0 for of_side in n_rows], int(counts[0]))
        if is_tracking and has_moved and not any(map(len, changed)) and n_rows.any():
            # Why: what is over is known by the watermark of the newest piece, so one must say it.
            side = int(np.flatnonzero(n_rows.any(axis=1))[0])
            changed[side] = np.flatnonzero(n_rows[side])[:1]
        pieces: dict[int, bytes] = {}
        for side, of_side in enumerate(lots):
            partly = {bucket - side * BUCKETS for bucket in buckets if bucket // BUCKETS == side}
            if not is_tracking:
                partly = set()
            saved = []
            for rows, waits, is_changed in of_side:
                is_new = (rows.numbers >= first_new) | is_changed
                chosen = select_changed(rows, changed[side], partly, is_new)
                if len(chosen):
                    saved.append(rows_to_save(chosen, waits=waits))
            of_buckets = {}
            for bucket in partly.intersection(changed[side].tolist()):
                of_bucket = paired[side].column("bucket").to_numpy() == bucket
                of_buckets[bucket] = paired[side].take(pa.array(np.flatnonzero(of_bucket)))
            pieces |= self.encode(side, changed[side], saved, of_buckets, n_rows[side], watermark, counts)
        return pieces

    def encode(
        self,
        side: int,
        buckets: Ints,
        rows: Sequence[pa.RecordBatch],
        changes: Mapping[int, pa.RecordBatch],
        n_rows: Ints,
        watermark: float,
        counts: Ints,
    ) -> dict[int, bytes]:
        """Return the pieces of some buckets of a side.

        rows     what `rows_to_save` gave, of these buckets only
        changes  bucket -> who was paired, for those of which rows hold only the new ones
        n_rows   by bucket, of all rows that are there
        """
        whole = pa.Table.from_batches(rows).combine_chunks() if rows else None
        batches = whole.to_batches() if whole is not None and whole.num_rows else []
        of_rows = ints_of(batches[0], "bucket") if batches else np.empty(0, np.int64)
        order = np.argsort(of_rows, kind="stable")
        ends = np.searchsorted(of_rows[order], buckets, side="right").tolist()
        begins = np.searchsorted(of_rows[order], buckets).tolist()
        empty = rows_to_save(no_rows(self._schemas[side]), waits=False)
        reached = BEFORE_FIRST if watermark == -np.inf else int(min(watermark, 2**62))
        pieces = {}
        for bucket, begin, end in zip(buckets.tolist(), begins, ends, strict=True):
            part = batches[0].take(pa.array(order[begin:end])) if end > begin else empty
            parts = {ROWS: part, COUNTS: pa.RecordBatch.from_pydict({"n": counts})}
            if bucket in changes:
                parts[PAIRED] = changes[bucket]
            n_of_bucket = int(n_rows[bucket])
            state = BucketState(side * BUCKETS + bucket, 0, reached, parts, n_of_bucket)
            pieces[state.bucket] = encode_bucket(state, self._step, self.fingerprint, n_of_bucket)
        return pieces

    def decode(self, saved: Mapping[int, SavedBytes]) -> SavedJoin:
        """Return the rows of pieces, the later of which count where they name a row again."""
        by_side: tuple[list[JoinRows], list[JoinRows]] = ([], [])
        waits: tuple[list[Mask], list[Mask]] = ([], [])
        watermark, counts = float(BEFORE_FIRST), np.zeros(3, np.int64)
        for saved_bucket, data in saved.items():
            states = [
                decode_bucket(piece, self._step, self.fingerprint, self._history)
                for piece in split_pieces(data)
            ]
            side, bucket = divmod(saved_bucket, BUCKETS)
            for state in states:
                watermark = max(watermark, state.watermark)
                counts = np.maximum(counts, ints_of(state.batches[COUNTS], "n"))
            rows, waiting = self._merge_pieces(side, bucket, states)
            by_side[side].append(rows)
            waits[side].append(waiting)
        left, right = (
            SavedRows(
                concat_saved(rows or [no_rows(self._schemas[side])]),
                np.concatenate([np.empty(0, np.bool_), *waits[side]]),
            )
            for side, rows in enumerate(by_side)
        )
        is_first = watermark <= BEFORE_FIRST
        return SavedJoin((left, right), -np.inf if is_first else watermark, counts)

    def _merge_pieces(self, side: int, bucket: int, states: Iterable[BucketState]) -> tuple[JoinRows, Mask]:
        """Return the rows of a bucket, from all its pieces."""
        rows: list[JoinRows] = []
        waits: list[Mask] = []
        for state in states:
            newer, newer_waits = _rows_from_saved(state.batches[ROWS], bucket, self._schemas[side])
            for place, older in enumerate(rows):
                stays = ~np.isin(older.numbers, newer.numbers)
                rows[place], waits[place] = older.take(np.flatnonzero(stays)), waits[place][stays]
            if PAIRED in state.batches:
                numbers, clocks = (
                    ints_of(state.batches[PAIRED], name).tolist() for name in ("number", "clock")
                )
                entries = set(zip(numbers, clocks, strict=True))
                for older in rows:
                    both = zip(older.numbers.tolist(), older.codes[CLOCK].tolist(), strict=True)
                    older.has_pair[:] |= np.fromiter(
                        (entry in entries for entry in both), np.bool_, len(older)
                    )
            rows.append(newer)
            waits.append(newer_waits)
        return concat_saved(rows), np.concatenate(waits)


def concat_saved(rows: Sequence[JoinRows]) -> JoinRows:
    """Return lots of rows, some of which may be empty, as one; their places may be of different lengths."""
    return concat_join_rows([part for part in rows if len(part)] or list(rows[:1]))


def no_rows(schema: pa.Schema) -> JoinRows:
    """Return no rows."""
    nothing = np.empty(0, np.int64)
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    return JoinRows(
        nothing.reshape(1, 0), nothing, (), Batch(empty, nothing), nothing, nothing, np.empty(0, np.bool_)
    )


def _rows_from_saved(saved: pa.RecordBatch, bucket: int, schema: pa.Schema) -> tuple[JoinRows, Mask]:
    """Return the rows of a piece, with their clock as their only code, and which of them wait."""
    n_rows, names = saved.num_rows, saved.schema.names
    orders = sorted((name for name in names if name.startswith("order ")), key=lambda name: int(name[6:]))
    columns = columns_from_snapshot(saved, schema)
    times, order = ints_of(saved, "time"), tuple(ints_of(saved, name) for name in orders)
    rows = JoinRows(
        ints_of(saved, "clock").reshape(1, -1),
        times,
        order,
        Batch(pa.RecordBatch.from_arrays(columns, schema=schema), times, order),
        np.full(n_rows, bucket, np.int64),
        ints_of(saved, "number"),
        np.array(saved.column("paired").to_numpy(zero_copy_only=False), np.bool_),
    )
    return rows, np.array(saved.column("waits").to_numpy(zero_copy_only=False), np.bool_)


def select_changed(rows: JoinRows, buckets: Ints, partly: Collection[int], is_new: Mask) -> JoinRows:
    """Return the rows of some buckets; of those that are saved partly, only the new ones."""
    wanted = np.zeros(BUCKETS, np.bool_)
    wanted[buckets] = True
    whole = wanted.copy()
    whole[list(partly)] = False
    return rows.take(np.flatnonzero(whole[rows.buckets] | (wanted[rows.buckets] & is_new)))
