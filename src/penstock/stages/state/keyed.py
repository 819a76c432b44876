"""State per key: rows reach it one by one, in order, once the watermark has passed them.

The order is (time, place, columns). A row waits until the watermark is beyond its time, so that no earlier
row can still come; one that comes behind the watermark is late. On a stream without time a batch is processed
as it comes, its rows in order. Keys are never forgotten.

`KeyedStage` does all of that; what map, filter and flat_map with `state=` and accumulate do with a row and
the state of its key is in its subclasses (`stages/state/operators.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.python.lower import has_exact_check
from penstock.expr.values import from_checked
from penstock.operators.function import RowFunction
from penstock.operators.op import ERRORS, IN, LATE, OUT, Op, Stream
from penstock.stages.functions import calls
from penstock.stages.keys.changes import ChangedBuckets
from penstock.stages.keys.index import build_keys
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.input import ENDED, NEVER, InputRows, no_ints
from penstock.stages.rows.order import merge_batches, sort_batch
from penstock.stages.rows.store import (
    columns_from_snapshot,
    replace_row_columns,
    rows_from_snapshot,
    rows_to_snapshot,
)
from penstock.stages.snapshot import (
    COLUMNS,
    KEYS,
    BucketedStage,
    BucketState,
    restore_keys,
)
from penstock.stages.stage import Outputs, PlainRow, RowErrors, RowStage, RowStep, StageContext
from penstock.stages.state.codec import SavedStates, StateCodec

_STATES = "states"  # the part of saved state with the states, encoded
_OBJECT_ROWS = 1 << 16
"""Rows that are objects of Python at a time."""


class KeyedStage(BucketedStage, RowStage):
    """One replica of a step with a state per key.

    Restored states wait as bytes until a row asks for them; one of each bucket is decoded at once, so that a
    state that the step cannot take up is refused before the first row.

    loop   calls the function with rows and the states of their keys
    exact  whether keys that are equal look the same, so that a row's own key can stand for its slot
    """

    saves_changes = True
    loop: calls.RowLoop

    def __init__(
        self, op: Op, up: Stream, site: StageContext, function: RowFunction, new_state: Callable[[], Any]
    ) -> None:
        self.up, self.site, self._function = up, site, function
        self.down = op.outputs({IN: up})[OUT].schema
        self.new_row, self.validator = calls.row_type(up.schema).constructor(), calls.RowValidator(self.down)
        self._new_state, self._key, self._key_of = new_state, up.key, itemgetter(*up.key)
        types = [up.schema.field(name).type for name in up.key]
        # Why: equal zeros, NaN and decimals may look different.
        self.exact = all(has_exact_check(type_) and not kind.is_floating(type_) for type_ in types)
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._codec = StateCodec(op, up, site, function, new_state)
        self._process_plain: Callable[[PlainRow], Any] = self._process_row
        self._begin()

    def _begin(self) -> None:
        self.keys = build_keys([self.up.schema.field(name).type for name in self.up.key])
        self._changed_buckets = ChangedBuckets(self.keys)
        self._states: dict[int, Any] = {}
        self._saved = SavedStates()
        self._slot_by_key: dict[object, int] = {}
        self._waiting: list[tuple[Batch, Ints]] = []  # none without rows
        self._watermark = NEVER
        self._n_waiting = np.zeros(BUCKETS, np.int64)

    @abstractmethod
    def process_row(self, values: PlainRow, state: Any) -> tuple[Any, Any]:
        """Return what leaves for a row, None for nothing, and the state after it; may raise anything."""

    def collect(self, results: calls.RowResults) -> Batch:
        """Return the rows that leave, from what the loop made of those of a batch; counts them."""
        self.site.accounts.passed += results.rows.num_rows
        return results.rows.with_lists(results.lists, self.down)

    def explain(self) -> list[str]:
        """Return how the step is carried out."""
        when = "as they come" if self.up.time is None else "once the watermark has passed them"
        return [f"{self._function} runs in Python, row by row in order of time, {when}"]

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Emit late rows and what the watermark has passed; keeps the other rows of a stream with time."""
        if watermark > self._watermark:
            yield from self.on_watermark(watermark)
        self.site.accounts.rows_in += batch.num_rows
        if self.up.time is not None:
            if batch.num_rows and batch.time_range()[0] < self._watermark:
                late = batch.times < self._watermark
                self.site.accounts.late += int(late.sum())
                yield LATE, batch.where(late)
                batch = batch.where(~late)
            if batch.num_rows:
                self._waiting.append((batch, self._assign_slots(batch)))
        elif batch.num_rows:
            yield from self._process(batch, None)

    def on_watermark(self, watermark: float) -> Outputs:
        """Process the rows that the watermark has passed; one that goes back changes nothing."""
        reached = int(max(NEVER, min(ENDED, watermark)))
        if reached <= self._watermark:
            return
        self._watermark = reached
        ready: list[tuple[Batch, Ints]] = []
        waiting: list[tuple[Batch, Ints]] = []
        for batch, slots in self._waiting:
            least, greatest = batch.time_range()
            if greatest < reached:
                ready.append((batch, slots))
            elif least >= reached:
                waiting.append((batch, slots))
            else:
                passed = batch.times < reached
                ready.append((batch.where(passed), slots[passed]))
                waiting.append((batch.where(~passed), slots[~passed]))
        self._waiting = waiting
        if ready:
            merged = merge_batches([batch for batch, _ in ready], self.up.schema)
            slots = ready[0][1] if len(ready) == 1 else np.concatenate([slots for _, slots in ready])
            self._decode(slots)
            self._changed_buckets.note(slots)
            yield from self._process(merged, slots)

    def drain(self) -> Outputs:
        """Process everything that is left."""
        yield from self.on_watermark(ENDED)

    def _assign_slots(self, batch: Batch) -> Ints:
        """Return the slots of the rows' keys, whose states are about to change."""
        if self.exact and calls.keeps_plain_rows(batch):
            return np.array(self._find_slots(batch), np.int64)
        slots = self.keys.assign([batch.column(name) for name in self.up.key])
        self._decode(slots)
        self._changed_buckets.note(slots)
        return slots

    def _process(self, batch: Batch, slots: Ints | None) -> Outputs:
        """Process rows in order; the slots of their keys are found here if they are not known."""
        order = sort_batch(batch)
        if order is not None:
            batch, slots = batch.take(order), None if slots is None else slots[order]
        if batch.num_rows > _OBJECT_ROWS:
            # Why: a row is ten times as large as an object of Python as it is in columns.
            for start in range(0, batch.num_rows, _OBJECT_ROWS):
                part = np.arange(start, min(start + _OBJECT_ROWS, batch.num_rows))
                yield from self._process(batch.take(part), None if slots is None else slots[part])
            return
        if slots is not None:
            of_rows = slots.tolist()
        elif self.exact and calls.keeps_plain_rows(batch):
            of_rows = self._find_slots(batch)
        else:
            of_rows = self._assign_slots(batch).tolist()
        states = self._states
        results = calls.call_rows(
            batch, self.loop, self._function, self._errors, states=states, slots=of_rows
        )
        rows = self.collect(results)
        if rows.num_rows:
            self.site.accounts.rows_out += rows.num_rows
            yield OUT, rows
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def _find_slots(self, batch: Batch) -> list[int]:
        """Return what `_assign_slots` does, without columns (`python -m bench runtime`, rows)."""
        columns = [batch.values(name) for name in self._key]
        keys: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        slots = list(map(self._slot_by_key.get, keys))
        if None in slots:
            self._assign_keys([key for key, slot in zip(keys, slots, strict=True) if slot is None])
        of_rows = [self._slot_by_key[key] for key in keys] if None in slots else cast("list[int]", slots)
        if self._changed_buckets.tracks:
            self._changed_buckets.note(np.array(of_rows, np.int64))
        return of_rows

    def _assign_keys(self, keys: Sequence[Any]) -> list[int]:
        """Return the slots of keys as rows have them: a value each, or several in a tuple."""
        parts = [keys] if len(self._key) == 1 else list(zip(*keys, strict=True))
        slots = self.keys.assign_plain(parts) if self.exact else None
        if slots is None:
            types = [self.up.schema.field(name).type for name in self._key]
            slots = self.keys.assign(
                [from_checked(list(p), type_) for p, type_ in zip(parts, types, strict=True)]
            )
        self._decode(slots)
        of_keys: list[int] = slots.tolist()
        if self.exact:
            self._slot_by_key |= zip(keys, of_keys, strict=True)
        return of_keys

    def row_step(self) -> RowStep | None:
        """Return the work on one row, on a stream without time where at most one row leaves for a row."""
        if self.up.time is not None:
            return None
        return calls.function_step(self._process_plain, self._function, self._errors)

    def _process_row(self, values: PlainRow) -> Any:
        """Return what leaves for one row; if that fails, an accumulated state stays as it was."""
        key = self._key_of(values)
        slot = self._slot_by_key.get(key)
        if slot is None:
            (slot,) = self._assign_keys([key])
        if self._changed_buckets.tracks:
            self._changed_buckets.note_slot(slot)
        states = self._states
        if slot not in states:
            states[slot] = self._new_state()
        result, states[slot] = self.process_row(values, states[slot])
        return result

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Implement `BucketedStage.fingerprint`: the operator, the function, the key and the input."""
        return self._codec.fingerprint

    def snapshot_changes(self, buckets: Collection[int]) -> dict[int, bytes]:
        """Return the state per bucket that has changed; of these buckets only that of keys that have.

        Such a piece is restored on top of those before it: it says everything of its keys, and nothing of
        others.
        """
        if not buckets:
            return self.snapshot()
        n_keys = np.bincount(self.keys.buckets_of(self.keys.live()), minlength=BUCKETS).tolist()
        changed = self._changed_buckets.take(buckets)
        return self._encode_buckets(changed, {bucket: n_keys[bucket] for bucket in buckets})

    def _encode_buckets(
        self, slots_of: Mapping[int, Ints], n_rows: Mapping[int, int] | None = None
    ) -> dict[int, bytes]:
        waiting = [self.keys.buckets_of(of_rows).astype(np.int64) for _, of_rows in self._waiting]
        self._n_waiting = np.bincount(np.concatenate([no_ints(), *waiting]), minlength=BUCKETS)
        return super()._encode_buckets(slots_of, n_rows)

    def adapt(self, state: BucketState) -> BucketState:
        """Implement `BucketedStage.adapt`: rows that wait get the columns that rows have now."""
        waiting = state.batches["waiting"]
        if waiting.num_rows == 0 or (state.fingerprint or {}).get(COLUMNS) == self.fingerprint[COLUMNS]:
            return state
        columns = columns_from_snapshot(waiting, self.up.schema)
        rows = pa.RecordBatch.from_arrays(columns, schema=self.up.schema)
        return replace(state, batches={**state.batches, "waiting": replace_row_columns(waiting, rows)})

    def idle_buckets(self, buckets: Iterable[int]) -> set[int]:
        """Return those of some buckets that no row waits in: without rows, nothing happens there."""
        waiting = [self.keys.buckets_of(of_rows) for _, of_rows in self._waiting]
        return {*buckets}.difference(*(np.unique(of_rows).tolist() for of_rows in waiting))

    def _save_bucket(self, bucket: int, slots: Ints) -> BucketState:
        saved, states = self._export_bucket(bucket, slots)
        encoded = self._codec.encode(states, saved.batches[KEYS], saved.batches[_STATES])
        batches, n_waiting = {**saved.batches, _STATES: encoded}, int(self._n_waiting[bucket])
        return BucketState(bucket, saved.n_keys, saved.watermark, batches, n_waiting)

    def _load_buckets(self, saved: Sequence[BucketState]) -> None:
        for piece in saved:
            for state in piece.batches[_STATES].column("state").slice(0, 1):
                self._codec.decode(state.as_py())
        self._import_buckets([(piece, {}) for piece in saved])

    def _decode(self, slots: Ints) -> None:
        """Decode the saved states of slots, unless that has been done."""
        if self._saved:
            self._states |= {slot: self._codec.decode(data) for slot, data in self._saved.take(slots)}

    def _export_bucket(self, bucket: int, slots: Ints) -> tuple[BucketState, dict[int, Any]]:
        """Return the keys of a bucket with their waiting rows, and the states themselves by index of key."""
        masks = [(batch, of_rows, np.isin(of_rows, slots)) for batch, of_rows in self._waiting]
        waiting = [(batch.where(mask), of_rows[mask]) for batch, of_rows, mask in masks if mask.any()]
        rows: InputRows | None = None
        if waiting:
            merged = merge_batches([batch for batch, _ in waiting], self.up.schema)
            of_rows = np.concatenate([of_rows for _, of_rows in waiting])
            rows = InputRows(of_rows, merged.times, merged.order, rows=merged.rows)
        batches = {KEYS: self.keys.export(slots), "waiting": rows_to_snapshot(rows, slots)}
        batches[_STATES] = self._saved.select(slots)
        states = {i: self._states[slot] for i, slot in enumerate(slots.tolist()) if slot in self._states}
        return BucketState(bucket, len(slots), self._watermark, batches), states

    def _import_buckets(self, exported: Sequence[tuple[BucketState, dict[int, Any]]]) -> None:
        """Take up the keys of buckets, in place of what is known of some of them."""
        n_before, n_keys = self.keys.n_live, sum(saved.n_keys for saved, _ in exported)
        slots_of = restore_keys(self.keys, [saved for saved, _ in exported])
        if self.keys.n_live - n_before < n_keys:
            slots = np.concatenate(slots_of)
            masks = [(batch, of_rows, ~np.isin(of_rows, slots)) for batch, of_rows in self._waiting]
            self._waiting = [
                (batch.where(mask), of_rows[mask]) for batch, of_rows, mask in masks if mask.any()
            ]
            self._states = {slot: self._states[slot] for slot in self._states.keys() - set(slots.tolist())}
        for (saved, states), slots in zip(exported, slots_of, strict=True):
            rows = rows_from_snapshot(saved.batches["waiting"], slots)
            if rows is not None and len(rows.slots):
                self._waiting.append((Batch(rows.rows, rows.times, rows.order), rows.slots))
            self._states |= {int(slots[index]): state for index, state in states.items()}
            self._saved.put(slots, saved.batches[_STATES])
            self._watermark = max(self._watermark, saved.watermark)
