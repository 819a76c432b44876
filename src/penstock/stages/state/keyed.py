"""State per key: rows reach it one by one, in order, once the watermark has passed them.

The order is (time, place, columns). A row waits until the watermark is beyond its time, so that no earlier
row can still come; one that comes behind the watermark is late. On a stream without time a batch is processed
as it comes, its rows in order. Keys are never forgotten. What each operator does with a row and the state of
its key is in `operators.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.expr.values import from_checked
from penstock.operators.function import RowFunction
from penstock.operators.op import ERRORS, IN, LATE, OUT, Op
from penstock.operators.stream import Stream
from penstock.stages.functions.calls import (
    RowResults,
    call_rows,
    function_step,
    keeps_plain_rows,
)
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rows import RowValidator, is_exact_type, row_type
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.input import ENDED, NEVER, InputRows
from penstock.stages.rows.order import is_sorted, merge_batches, sort_indices
from penstock.stages.rows.store import rows_from_snapshot, rows_to_snapshot
from penstock.stages.snapshot import KEYS, BucketedStage, BucketState, ChangedBuckets
from penstock.stages.stage import Outputs, PlainRow, RowStage, RowStep, StageContext
from penstock.stages.state.codec import StateCodec

EmitRow = Callable[[PlainRow, Any], PlainRow | None]
"""From a row and the result of its processing to the row that leaves, None for no row."""


class KeyedStage(BucketedStage, RowStage):
    """One replica of a step with a state per key.

    exact  whether keys that are equal look the same, so that a row's own key can stand for its slot
    """

    def __init__(
        self, op: Op, up: Stream, site: StageContext, function: RowFunction, new_state: Callable[[], Any]
    ) -> None:
        self.up, self.site, self._function = up, site, function
        self.down = op.outputs({IN: up})[OUT].schema
        self.new_row, self.validator = row_type(up.schema).row, RowValidator(self.down)
        self._new_state, self._key_of = new_state, itemgetter(*up.key)
        self.exact = all(is_exact_type(up.schema.field(name).type) for name in up.key)
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._codec = StateCodec(op, up, site, function, new_state)
        self._begin()
        self._row_step = self.row_step()

    def _begin(self) -> None:
        self.keys = KeySlots([self.up.schema.field(name).type for name in self.up.key])
        self._changed_buckets = ChangedBuckets(self.keys)
        self._states: dict[int, Any] = {}
        self._slot_by_key: dict[object, int] = {}
        self._waiting: list[tuple[Batch, Ints]] = []
        self._watermark = NEVER

    @abstractmethod
    def process_row(self, values: PlainRow, state: Any) -> tuple[Any, Any]:
        """Returns the result for a row and the state after it; may raise anything."""

    @abstractmethod
    def collect(self, batch: Batch, slots: Ints, results: RowResults[Any]) -> Batch:
        """Returns the rows that leave, from the results for those of a batch; counts them."""

    def emit_row(self) -> EmitRow | None:
        """Returns what makes the row that leaves from a row and its result; None where it may be several."""
        return None

    def explain(self) -> list[str]:
        """Returns how the step is carried out."""
        when = "as they come" if self.up.time is None else "once the watermark has passed them"
        return [f"{self._function} runs in Python, row by row in order of time, {when}"]

    @property
    def n_keys(self) -> int:
        """Returns the number of keys with a state, or with rows that wait."""
        return self.keys.n_live

    @property
    def n_waiting(self) -> int:
        """Returns the number of rows that wait for the watermark."""
        return sum(batch.num_rows for batch, _ in self._waiting)

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Emits late rows and what the watermark has passed; keeps the other rows of a stream with time."""
        yield from self.on_watermark(watermark)
        self.site.accounts.rows_in += batch.num_rows
        if self.up.time is not None:
            late = batch.times < self._watermark
            if late.any():
                self.site.accounts.late += int(late.sum())
                yield LATE, batch.where(late)
                batch = batch.where(~late)
            if batch.num_rows:
                self._waiting.append((batch, self._assign_slots(batch)))
        elif batch.num_rows:
            in_order = batch.num_rows == 1 or bool(batch.order and is_sorted(batch.order))
            if self._row_step is not None and in_order and keeps_plain_rows(batch):
                yield from self._process_plain_rows(batch, self._row_step)
            else:
                yield from self._process(batch, self._assign_slots(batch))

    def on_watermark(self, watermark: float) -> Outputs:
        """Processes the rows that the watermark has passed; one that goes back changes nothing."""
        reached = int(max(NEVER, min(ENDED, watermark)))
        if reached <= self._watermark:
            return
        self._watermark = reached
        ready: list[tuple[Batch, Ints]] = []
        waiting: list[tuple[Batch, Ints]] = []
        for batch, slots in self._waiting:
            passed = batch.times < reached
            if passed.any():
                ready.append((batch.where(passed), slots[passed]))
            if not passed.all():
                waiting.append((batch.where(~passed), slots[~passed]))
        self._waiting = waiting
        if ready:
            merged = merge_batches([batch for batch, _ in ready], self.up.schema)
            slots = np.concatenate([slots for _, slots in ready])
            self._changed_buckets.note(slots)
            yield from self._process(merged, slots)

    def drain(self) -> Outputs:
        """Processes everything that is left."""
        yield from self.on_watermark(ENDED)

    def _assign_slots(self, batch: Batch) -> Ints:
        """Returns the slots of the rows' keys, whose states are about to change."""
        slots = self.keys.assign([batch.column(name) for name in self.up.key])
        self._changed_buckets.note(slots)
        return slots

    def _slot_of(self, values: PlainRow) -> int:
        """Returns the slot of a single row's key, as `_assign_slots` does."""
        key = self._key_of(values)
        slot = self._slot_by_key.get(key) if self.exact else None
        if slot is None:
            types = [(name, self.up.schema.field(name).type) for name in self.up.key]
            (slot,) = self.keys.assign([from_checked([values[name]], kind) for name, kind in types]).tolist()
            if self.exact:
                self._slot_by_key[key] = slot
        self._changed_buckets.note_slot(slot)
        return slot

    def _process(self, batch: Batch, slots: Ints) -> Outputs:
        if batch.num_rows > 1:
            order = sort_indices([batch.times, *batch.order], batch.rows)
            batch, slots = batch.take(order), slots[order]
        next_slot = iter(slots.tolist())
        results = call_rows(
            batch, lambda values: self._apply(next(next_slot), values), self._function, self._errors
        )
        rows = self.collect(batch, slots, results)
        if rows.num_rows:
            self.site.accounts.rows_out += rows.num_rows
            yield OUT, rows
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def _process_plain_rows(self, batch: Batch, step: RowStep) -> Outputs:
        """Does what `_process` does to few plain rows that stand in order, without making columns."""
        results = call_rows(batch, step.process, self._function, self._errors)
        emitted = [row for row in results.values if row is not None]
        rows, accounts = results.rows, self.site.accounts
        if len(emitted) < len(results.values):
            accounts.filtered += len(results.values) - len(emitted)
            rows = rows.where(np.array([row is not None for row in results.values], np.bool_))
        accounts.passed += len(emitted)
        accounts.rows_out += len(emitted)
        if emitted:
            yield OUT, rows.with_rows(emitted, self.down)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def row_step(self) -> RowStep | None:
        """Returns the work on one row, on a stream without time where at most one row leaves for a row."""
        emit = self.emit_row()
        if emit is None or self.up.time is not None:
            return None
        slot_of, apply = self._slot_of, self._apply
        return function_step(
            lambda values: emit(values, apply(slot_of(values), values)), self._function, self._errors
        )

    def _apply(self, slot: int, values: PlainRow) -> Any:
        """Returns the result for one row; if that fails, an accumulated state stays as it was."""
        states = self._states
        if slot not in states:
            states[slot] = self._new_state()
        result, states[slot] = self.process_row(values, states[slot])
        return result

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Implements `BucketedStage.fingerprint`: the operator, the function, the key and the input."""
        return self._codec.fingerprint

    def _save_bucket(self, bucket: int, slots: Ints) -> BucketState:
        saved, states = self._export_bucket(bucket, slots)
        encoded = self._codec.encode(states, saved.batches[KEYS])
        return BucketState(bucket, saved.n_keys, saved.watermark, {**saved.batches, "states": encoded})

    def _load_bucket(self, saved: BucketState) -> None:
        self._import_bucket((saved, self._codec.decode(saved.batches["states"])))

    def _export_bucket(self, bucket: int, slots: Ints) -> tuple[BucketState, dict[int, Any]]:
        """Returns the keys of a bucket with their waiting rows, and the states themselves by index of key."""
        masks = [(batch, of_rows, np.isin(of_rows, slots)) for batch, of_rows in self._waiting]
        waiting = [(batch.where(mask), of_rows[mask]) for batch, of_rows, mask in masks if mask.any()]
        rows: InputRows | None = None
        if waiting:
            merged = merge_batches([batch for batch, _ in waiting], self.up.schema)
            of_rows = np.concatenate([of_rows for _, of_rows in waiting])
            rows = InputRows(of_rows, merged.times, merged.order, rows=merged.rows)
        batches = {KEYS: self.keys.export(slots), "waiting": rows_to_snapshot(rows, slots)}
        indexed = enumerate(slots.tolist())
        states = {index: self._states[slot] for index, slot in indexed if slot in self._states}
        return BucketState(bucket, len(slots), self._watermark, batches), states

    def _import_bucket(self, exported: tuple[BucketState, dict[int, Any]]) -> None:
        saved, states = exported
        slots = self.keys.assign(saved.batches[KEYS].columns, saved.n_keys)
        rows = rows_from_snapshot(saved.batches["waiting"], slots)
        if rows is not None:
            self._waiting.append((Batch(rows.rows, rows.times, rows.order), rows.slots))
        for index, state in states.items():
            self._states[int(slots[index])] = state
        self._watermark = max(self._watermark, saved.watermark)
