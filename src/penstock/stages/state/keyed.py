"""State per key: rows reach it one by one, in order, once the watermark has passed them.

The order is (time, place, columns). A row waits until the watermark is beyond its time, so that no earlier
row can still come; one that comes behind the watermark is late. On a stream without time a batch is processed
as it comes, its rows in order. Keys are never forgotten.

`KeyedStage` does all of that; what map, filter and flat_map with `state=` and accumulate do with a row and
the state of its key is in its subclasses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure
from penstock.expr.python.lower import exact_type_check, has_exact_check
from penstock.expr.values import from_checked, from_python
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.op import ERRORS, IN, LATE, OUT, Op, Stream
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map
from penstock.stages.functions.calls import (
    RowResults,
    RowValidator,
    call_rows,
    check_rows,
    check_truth,
    function_step,
    keeps_plain_rows,
    new_object,
    row_type,
)
from penstock.stages.keys.index import build_keys
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.map import expand_rows, filter_rows
from penstock.stages.rows.batch import Batch, Ints, rows_to_columns
from penstock.stages.rows.input import ENDED, NEVER, InputRows
from penstock.stages.rows.order import is_sorted, merge_batches, sort_indices
from penstock.stages.rows.store import rows_from_snapshot, rows_to_snapshot
from penstock.stages.snapshot import KEYS, BucketedStage, BucketState, ChangedBuckets
from penstock.stages.stage import Outputs, PlainRow, RowErrors, RowStage, RowStep, StageContext
from penstock.stages.state.codec import SavedStates, StateCodec

_STATES = "states"  # the part of saved state with the states, encoded
_OBJECT_ROWS = 1 << 16
"""Rows that are objects of Python at a time."""

EmitRow = Callable[[PlainRow, Any], PlainRow | None]
"""From a row and the result of its processing to the row that leaves, None for no row."""


class KeyedStage(BucketedStage, RowStage):
    """One replica of a step with a state per key.

    exact         whether keys that are equal look the same, so that a row's own key can stand for its slot
    decodes_late  whether restored states wait as bytes until a row asks for them; else they are decoded, and
                  refused if need be, at once
    """

    decodes_late = False

    def __init__(
        self, op: Op, up: Stream, site: StageContext, function: RowFunction, new_state: Callable[[], Any]
    ) -> None:
        self.up, self.site, self._function = up, site, function
        self.down = op.outputs({IN: up})[OUT].schema
        self.new_row, self.validator = row_type(up.schema).row, RowValidator(self.down)
        self._new_state, self._key_of = new_state, itemgetter(*up.key)
        types = [up.schema.field(name).type for name in up.key]
        # Why: equal zeros, NaN and decimals may look different.
        self.exact = all(has_exact_check(type_) and not kind.is_floating(type_) for type_ in types)
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._codec = StateCodec(op, up, site, function, new_state)
        self._begin()
        self._row_step = self.row_step()

    def _begin(self) -> None:
        self.keys = build_keys([self.up.schema.field(name).type for name in self.up.key])
        self._changed_buckets = ChangedBuckets(self.keys)
        self._states: dict[int, Any] = {}
        self._saved = SavedStates()
        self._slot_by_key: dict[object, int] = {}
        self._waiting: list[tuple[Batch, Ints]] = []
        self._watermark = NEVER

    @abstractmethod
    def process_row(self, values: PlainRow, state: Any) -> tuple[Any, Any]:
        """Return the result for a row and the state after it; may raise anything."""

    @abstractmethod
    def collect(self, batch: Batch, slots: Ints, results: RowResults[Any]) -> Batch:
        """Return the rows that leave, from the results for those of a batch; counts them."""

    def emit_row(self) -> EmitRow | None:
        """Return what makes the row that leaves from a row and its result; None where it may be several."""
        return None

    def explain(self) -> list[str]:
        """Return how the step is carried out."""
        when = "as they come" if self.up.time is None else "once the watermark has passed them"
        return [f"{self._function} runs in Python, row by row in order of time, {when}"]

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Emit late rows and what the watermark has passed; keeps the other rows of a stream with time."""
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
        """Process the rows that the watermark has passed; one that goes back changes nothing."""
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
            self._decode(slots)
            self._changed_buckets.note(slots)
            yield from self._process(merged, slots)

    def drain(self) -> Outputs:
        """Process everything that is left."""
        yield from self.on_watermark(ENDED)

    def _assign_slots(self, batch: Batch) -> Ints:
        """Return the slots of the rows' keys, whose states are about to change."""
        slots = self.keys.assign([batch.column(name) for name in self.up.key])
        self._decode(slots)
        self._changed_buckets.note(slots)
        return slots

    def _slot_of(self, values: PlainRow) -> int:
        """Return the slot of a single row's key, as `_assign_slots` does."""
        key = self._key_of(values)
        slot = self._slot_by_key.get(key) if self.exact else None
        if slot is None:
            types = [(name, self.up.schema.field(name).type) for name in self.up.key]
            (slot,) = self.keys.assign(
                [from_checked([values[name]], type_) for name, type_ in types]
            ).tolist()
            self._decode(np.array([slot]))
            if self.exact:
                self._slot_by_key[key] = slot
        self._changed_buckets.note_slot(slot)
        return slot

    def _process(self, batch: Batch, slots: Ints) -> Outputs:
        if batch.num_rows > 1:
            order = sort_indices([batch.times, *batch.order], batch.rows)
            batch, slots = batch.take(order), slots[order]
        if batch.num_rows > _OBJECT_ROWS:
            # Why: a row is ten times as large as an object of Python as it is in columns.
            for start in range(0, batch.num_rows, _OBJECT_ROWS):
                part = np.arange(start, min(start + _OBJECT_ROWS, batch.num_rows))
                yield from self._process(batch.take(part), slots[part])
            return
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
        """Do what `_process` does to few plain rows that stand in order, without making columns.

        Why: with batches of 1,000 rows this is 1.3 times as fast (`python -m bench runtime`, group rows).
        """
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
        """Return the work on one row, on a stream without time where at most one row leaves for a row."""
        emit = self.emit_row()
        if emit is None or self.up.time is not None:
            return None
        slot_of, apply = self._slot_of, self._apply
        return function_step(
            lambda values: emit(values, apply(slot_of(values), values)), self._function, self._errors
        )

    def _apply(self, slot: int, values: PlainRow) -> Any:
        """Return the result for one row; if that fails, an accumulated state stays as it was."""
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

    def idle_buckets(self, buckets: Iterable[int]) -> set[int]:
        """Return those of some buckets that no row waits in: without rows, nothing happens there."""
        waiting = [self.keys.buckets_of(of_rows) for _, of_rows in self._waiting]
        return {*buckets}.difference(*(np.unique(of_rows).tolist() for of_rows in waiting))

    def _save_bucket(self, bucket: int, slots: Ints) -> BucketState:
        saved, states = self._export_bucket(bucket, slots)
        encoded = self._codec.encode(states, saved.batches[KEYS], saved.batches[_STATES])
        return BucketState(bucket, saved.n_keys, saved.watermark, {**saved.batches, _STATES: encoded})

    def _load_bucket(self, saved: BucketState) -> None:
        self._import_bucket((saved, {}))

    def _decode(self, slots: Ints) -> None:
        """Decode the saved states of slots, unless that has been done."""
        if self._saved:
            self._states |= self._codec.decode(self._saved.take(slots))

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

    def _import_bucket(self, exported: tuple[BucketState, dict[int, Any]]) -> None:
        """Take up the keys of a bucket, in place of what is known of some of them."""
        saved, states = exported
        n_before = self.keys.n_live
        slots = self.keys.assign(saved.batches[KEYS].columns, saved.n_keys)
        if self.keys.n_live - n_before < saved.n_keys:
            masks = [(batch, of_rows, ~np.isin(of_rows, slots)) for batch, of_rows in self._waiting]
            self._waiting = [(batch.where(mask), of_rows[mask]) for batch, of_rows, mask in masks]
            self._states = {slot: self._states[slot] for slot in self._states.keys() - set(slots.tolist())}
        rows = rows_from_snapshot(saved.batches["waiting"], slots)
        if rows is not None:
            self._waiting.append((Batch(rows.rows, rows.times, rows.order), rows.slots))
        self._states |= {int(slots[index]): state for index, state in states.items()}
        self._saved.put(slots, saved.batches[_STATES])
        if not self.decodes_late:
            self._decode(slots)
        self._watermark = max(self._watermark, saved.watermark)


class UserStateStage(KeyedStage):
    """`fn(row, state)`, which may change the state object it is given."""

    def __init__(self, op: Map | Filter | FlatMap, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, RowFunction), "only row functions keep state"
        assert op.state is not None, "a step without state has a stage of its own"
        self._call = own_copy(op.how.call)
        new_state: Callable[[], Any] = own_copy(op.state)
        super().__init__(op, up, site, op.how, new_state)

    @abstractmethod
    def check(self, returned: Any) -> Any:
        """Return what the function returned for a row as plain values; may raise anything."""

    def process_row(self, values: PlainRow, state: Any) -> tuple[Any, Any]:
        """Implement `KeyedStage.process_row`."""
        return self.check(self._call(self.new_row(values), state)), state


class StateMap(UserStateStage):
    """One row out for one row in."""

    def check(self, returned: Any) -> PlainRow:
        """Return the new row."""
        return self.validator.plain(returned)

    def emit_row(self) -> EmitRow:
        """Emit the new row."""
        return lambda values, new_row: new_row

    def collect(self, batch: Batch, slots: Ints, results: RowResults[PlainRow]) -> Batch:
        """Return the new rows, at the same times and places."""
        self.site.accounts.passed += len(results.values)
        return results.rows.with_rows(results.values, self.down)


class StateFilter(UserStateStage):
    """The function says whether the row stays."""

    def check(self, returned: Any) -> bool:
        """Return whether it stays."""
        return check_truth(returned)

    def emit_row(self) -> EmitRow:
        """Emit the row if it stays."""
        return lambda values, holds: values if holds else None

    def collect(self, batch: Batch, slots: Ints, results: RowResults[bool]) -> Batch:
        """Return the rows that stay."""
        return filter_rows(results.rows, np.array(results.values, np.bool_), self.site.accounts)


class StateFlatMap(UserStateStage):
    """The function returns any number of rows."""

    def check(self, returned: Any) -> list[PlainRow]:
        """Return the new rows."""
        return check_rows(returned, self.validator)

    def collect(self, batch: Batch, slots: Ints, results: RowResults[list[PlainRow]]) -> Batch:
        """Return the new rows, each with its index among its siblings."""
        self.site.accounts.passed += len(results.values)
        return expand_rows(results.rows, results.values, self.validator)


class AccumulateStage(KeyedStage):
    """`state = fn(row, state)`; the key and the new state leave. A row that fails leaves the state alone."""

    def __init__(self, op: Accumulate, up: Stream, site: StageContext) -> None:
        self._call, self._state = own_copy(op.how.call), RowValidator(op.state_schema)
        self._is_plain = exact_type_check(op.state_schema.field(0).type)
        self._only_field = op.state_schema.field(0) if len(op.state_schema) == 1 else None
        super().__init__(op, up, site, op.how, op.new_state)

    def process_row(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """Return the new state as columns, and itself."""
        new_state = self._call(self.new_row(values), state)
        return self._columns(new_state), new_state

    def emit_row(self) -> EmitRow | None:
        """Emit the key and the state, where the row's own key can stand for the key."""
        key = self.up.key
        if not self.exact:
            return None
        if len(key) == 1:
            (name,) = key
            return lambda row, state: {name: row[name], **state}
        return lambda row, state: {**{name: row[name] for name in key}, **state}

    def row_step(self) -> RowStep | None:
        """Return the work on one row, in one function where the key is one column and the state another.

        Why: a call per part of the work makes `python -m bench runtime`, group rows, 1.3 times as slow.
        """
        step = super().row_step()
        if step is None or self._only_field is None or len(self.up.key) > 1:
            return step
        (key,), name, call = self.up.key, self._only_field.name, self._call
        row_class, fill = row_type(self.up.schema)
        slot_by_key, changed, states = self._slot_by_key, self._changed_buckets, self._states
        slot_of, is_plain, columns, new_state = self._slot_of, self._is_plain, self._columns, self._new_state

        def process(values: PlainRow) -> PlainRow:
            key_value = values[key]
            slot = None if changed.tracks else slot_by_key.get(key_value)
            if slot is None:
                slot = slot_of(values)
            if slot not in states:
                states[slot] = new_state()
            row = new_object(row_class)
            fill(row, values)
            state = call(row, states[slot])
            emitted = {key: key_value, name: state} if is_plain(state) else {key: key_value, **columns(state)}
            states[slot] = state  # after the columns: a state that does not fit leaves the old one
            return emitted

        return replace(step, process=process)

    def collect(self, batch: Batch, slots: Ints, results: RowResults[PlainRow]) -> Batch:
        """Return the key columns and the state's columns."""
        self.site.accounts.passed += len(results.values)
        rows, emit = results.rows, self.emit_row()
        if rows.plain is not None and emit is not None:
            emitted = [emit(row, state) for row, state in zip(rows.plain, results.values, strict=True)]
            return rows.with_rows([row for row in emitted if row is not None], self.down)
        slots = slots if results.indices is None else slots[results.indices]
        columns = [*self.keys.columns_of(slots), *rows_to_columns(results.values, self._state.schema).columns]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.down), rows.times, rows.order)

    def _columns(self, state: object) -> PlainRow:
        """Return a state as columns: a row, or a plain value where there is one column."""
        if self._only_field is not None and self._is_plain(state):
            return {self._only_field.name: state}
        if self._only_field is not None and isinstance(state, int | float | str | bytes | None):
            with suppress(RowFailure):  # then the error below says that a row was expected
                return self._only_column(self._only_field, state)
        try:
            return self._state.plain(state)
        except RowFailure as not_a_row:
            if self._only_field is None:
                raise
            try:
                return self._only_column(self._only_field, state)
            except RowFailure:
                raise not_a_row from None

    def _only_column(self, field: pa.Field, state: object) -> dict[str, object]:
        return {field.name: from_python(state, field.type)}
