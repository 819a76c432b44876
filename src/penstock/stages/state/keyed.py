"""State per key: rows reach it one by one, in order, once the watermark has passed them.

The order is (time, place, columns). A row waits until the watermark is beyond its time, so that no earlier
row can still come; one that comes behind the watermark is late. On a stream without time a batch is handled
as it comes, its rows in order. Keys are never forgotten. What happens to a row at its turn is in
`state_stages.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.expr.values import from_checked
from penstock.operators.function import RowFunction
from penstock.operators.op import ERRORS, IN, LATE, OUT, Op
from penstock.operators.stream import Stream
from penstock.stages.functions.calls import RowResults, call_plain_rows, call_rows, is_few
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rows import PlainRow, RowValidator, is_exact_type, row_factory
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.order import is_sorted, merge_batches, sort_indices
from penstock.stages.rows.store import rows_from_snapshot, rows_to_snapshot
from penstock.stages.snapshot import KEYS, BucketedStage, BucketState, ChangedBuckets
from penstock.stages.stage import Site
from penstock.stages.state.codec import StateCodec
from penstock.stages.stateless import RowStep, function_step
from penstock.stages.window.store import ENDED, NEVER, InputRows

Outputs = Iterator[tuple[str, Batch]]


class KeyedStage(BucketedStage):
    """One replica of a step with a state per key.

    exact  whether keys that are equal look the same, so that a row's own key is the key
    """

    def __init__(
        self, op: Op, up: Stream, site: Site, function: RowFunction, new_state: Callable[[], Any]
    ) -> None:
        self.up, self.site, self._function = up, site, function
        self.down = op.outputs({IN: up})[OUT].schema
        self.new_row, self.shape = row_factory(up.schema), RowValidator(self.down)
        self._new_state, self._key_of = new_state, itemgetter(*up.key)
        self.exact = all(is_exact_type(up.schema.field(name).type) for name in up.key)
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._simple = up.time is None and self._errors.stops
        self._format = StateCodec(op, up, site, function, new_state)
        self._begin()

    def _begin(self) -> None:
        """No keys, no rows."""
        self.keys = KeySlots([self.up.schema.field(name).type for name in self.up.key])
        self._touched = ChangedBuckets(self.keys)
        self._states: dict[int, Any] = {}
        self._known: dict[object, int] = {}
        self._waiting: list[tuple[Batch, Ints]] = []
        self._watermark = NEVER

    @abstractmethod
    def step(self, values: PlainRow, state: Any) -> tuple[Any, Any]:
        """What is made of a row, and the state after it; it may raise anything."""

    @abstractmethod
    def leaving(self, batch: Batch, slots: Ints, results: RowResults[Any]) -> Batch:
        """The rows that leave, from what was made of those in a batch; counts them."""

    def explain(self) -> list[str]:
        """How the step is carried out."""
        when = "as they come" if self.up.time is None else "once the watermark has passed them"
        return [f"{self._function} runs in Python, row by row in order of time, {when}"]

    @property
    def n_keys(self) -> int:
        """How many keys have a state, or rows that wait."""
        return self.keys.n_live

    @property
    def n_waiting(self) -> int:
        """How many rows wait for the watermark."""
        return sum(batch.num_rows for batch, _ in self._waiting)

    def few_rows(self, batch: Batch) -> Batch | None:
        """What leaves for few plain rows of a stream without time; None where it is not as simple."""
        if not self._simple or not is_few(batch):
            return None
        if batch.num_rows > 1 and not (self._by_row and batch.order and is_sorted(batch.order)):
            return None
        accounts = self.site.accounts
        accounts.rows_in += batch.num_rows
        if self._by_row is None:
            rows = self._only_row(batch)
        else:
            results = call_plain_rows(batch, self._by_row.step, self._function, self._errors)
            made = [row for row in results if row is not None]
            if len(made) < len(results):
                accounts.filtered += len(results) - len(made)
                batch = batch.where(np.array([row is not None for row in results], np.bool_))
            rows = batch.with_rows(made, self.down)
            accounts.passed += len(made)
        accounts.rows_out += rows.num_rows
        return rows

    def _only_row(self, batch: Batch) -> Batch:
        slots = self._slots(batch)
        self._touched.note(slots)
        (slot,) = slots.tolist()
        results = call_plain_rows(
            batch, lambda values: self._turn(slot, values), self._function, self._errors
        )
        return self.leaving(batch, slots, RowResults(batch, results))

    def on_batch(self, batch: Batch, watermark: float) -> Outputs:
        """Take rows in, judged by the watermark; give late rows, and what had to leave first."""
        yield from self.on_watermark(watermark)
        self.site.accounts.rows_in += batch.num_rows
        if self.up.time is not None:
            late = batch.times < self._watermark
            if late.any():
                self.site.accounts.late += int(late.sum())
                yield LATE, batch.where(late)
                batch = batch.where(~late)
        if batch.num_rows == 0:
            return
        slots = self._slots(batch)
        self._touched.note(slots)
        if self.up.time is None:
            yield from self._handled(batch, slots)
        else:
            self._waiting.append((batch, slots))

    def _slots(self, batch: Batch) -> Ints:
        """The slots of the rows' keys; that of a single plain row is looked up."""
        if batch.plain is None or batch.num_rows != 1:
            return self.keys.assign([batch.column(name) for name in self.up.key])
        return np.array((self._slot(batch.plain[0]),), np.int64)

    def slot_of(self, values: PlainRow) -> int:
        """The slot of a single row's key, whose state is about to change."""
        slot = self._slot(values)
        if self._touched.noting:
            self._touched.note(np.array((slot,), np.int64))
        return slot

    def _slot(self, values: PlainRow) -> int:
        slot = self._known.get(self._key_of(values)) if self.exact else None
        if slot is None:
            types = [(name, self.up.schema.field(name).type) for name in self.up.key]
            (slot,) = self.keys.assign([from_checked([values[name]], kind) for name, kind in types]).tolist()
            if self.exact:
                self._known[self._key_of(values)] = slot
        return slot

    def on_watermark(self, watermark: float) -> Outputs:
        """Handle the rows that the watermark has passed; one that goes back is no news."""
        reached = int(max(NEVER, min(ENDED, watermark)))
        if reached > self._watermark:
            self._watermark = reached
            yield from self._ready()

    def drain(self) -> Outputs:
        """The stream has ended: handle everything."""
        yield from self.on_watermark(ENDED)

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The operator, the function, the key and the input."""
        return self._format.fingerprint

    def _ready(self) -> Outputs:
        ready: list[tuple[Batch, Ints]] = []
        waiting: list[tuple[Batch, Ints]] = []
        for batch, slots in self._waiting:
            passed = batch.times < self._watermark
            if passed.any():
                ready.append((batch.where(passed), slots[passed]))
            if not passed.all():
                waiting.append((batch.where(~passed), slots[~passed]))
        self._waiting = waiting
        if ready:
            batch = merge_batches([each for each, _ in ready], self.up.schema)
            slots = np.concatenate([each for _, each in ready])
            self._touched.note(slots)
            yield from self._handled(batch, slots)

    def _handled(self, batch: Batch, slots: Ints) -> Outputs:
        if batch.num_rows > 1:
            places = sort_indices([batch.times, *batch.order], batch.rows)
            batch, slots = batch.take(places), slots[places]
        listed: list[int] = slots.tolist()
        results = call_rows(
            batch, lambda place, values: self._turn(listed[place], values), self._function, self._errors
        )
        rows = self.leaving(batch, slots, results)
        if rows.num_rows:
            self.site.accounts.rows_out += rows.num_rows
            yield OUT, rows
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    @cached_property
    def _by_row(self) -> RowStep | None:
        return self.by_row()

    def by_row(self) -> RowStep | None:
        """What is made of a single plain row, on a stream without time, where a row leaves for a row."""
        leaves = self.leaves()
        if leaves is None or self.up.time is not None:
            return None
        slot_of, turn = self.slot_of, self._turn
        return function_step(
            lambda values: leaves(values, turn(slot_of(values), values)), self._function, self._errors
        )

    def leaves(self) -> Callable[[PlainRow, Any], PlainRow | None] | None:
        """What leaves for a row, of the row and what was made of it; None where that may be several."""
        return None

    def _turn(self, slot: int, values: PlainRow) -> Any:
        """One row at its turn; if it fails, an accumulated state stays as it was."""
        if slot not in self._states:
            self._states[slot] = self._new_state()
        made, self._states[slot] = self.step(values, self._states[slot])
        return made

    def _piece(self, bucket: int, slots: Ints) -> BucketState:
        piece, states = self._export_bucket(bucket, slots)
        saved = self._format.saved(states, piece.batches[KEYS])
        return BucketState(bucket, piece.n_keys, piece.watermark, {**piece.batches, "states": saved})

    def _export_bucket(self, bucket: int, slots: Ints) -> tuple[BucketState, dict[int, Any]]:
        """The keys of a bucket and their rows that wait; and beside them the states as they are, by place."""
        mine = [(batch, each, np.isin(each, slots)) for batch, each in self._waiting]
        some = [(batch.where(mask), each[mask]) for batch, each, mask in mine if mask.any()]
        rows: InputRows | None = None
        if some:
            whole = merge_batches([batch for batch, _ in some], self.up.schema)
            rows = InputRows(
                np.concatenate([each for _, each in some]), whole.times, whole.order, rows=whole.rows
            )
        batches = {KEYS: self.keys.export(slots), "waiting": rows_to_snapshot(rows, slots)}
        known = enumerate(slots.tolist())
        states = {place: self._states[slot] for place, slot in known if slot in self._states}
        return BucketState(bucket, len(slots), self._watermark, batches), states

    def _load(self, piece: BucketState) -> None:
        self._import_bucket((piece, self._format.loaded(piece.batches["states"])))

    def _import_bucket(self, part: tuple[BucketState, dict[int, Any]]) -> None:
        piece, states = part
        slots = self.keys.assign(piece.batches[KEYS].columns, piece.n_keys)
        rows = rows_from_snapshot(piece.batches["waiting"], slots)
        if rows is not None:
            self._waiting.append((Batch(rows.rows, rows.times, rows.order), rows.slots))
        for place, state in states.items():
            self._states[int(slots[place])] = state
        self._watermark = max(self._watermark, piece.watermark)
