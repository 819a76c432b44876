"""The window stage: one replica of a windowed step, on columns.

A batch comes with the watermark that decides which of its rows are late:

    on_batch  ->  InputEvaluator   expressions are computed, rows lifted; rows that fail go to `.errors`
              ->  KeySlots         keys become slots
              ->  Admission        every store adds what is not late; late rows go to `.late`

A watermark closes windows, all keys at once:

    on_watermark  ->  WindowGroup.close  the windows of each store, as arrays
                  ->  Admission.settle   the outcome of rows that waited for count windows
                  ->  ResultBuilder      result rows
                  ->  KeySlots.free      keys without any state are forgotten

What all of that means is in docs/semantics.md; the reference engine says the same in plain Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import FunctionError, RowFailure
from penstock.expr import lower_python
from penstock.expr.nodes.forms import Column
from penstock.operators.aggregates import Fold
from penstock.operators.choices import uses_sketch, why_python
from penstock.operators.op import ERRORS, LATE, OUT, Stream
from penstock.operators.windows import Windows
from penstock.stages import policy
from penstock.stages.keys.changes import ChangedBuckets
from penstock.stages.keys.index import build_keys
from penstock.stages.rows.batch import Batch, Ints, Mask, Plain, RowBatch
from penstock.stages.rows.input import ENDED, NEVER, InputRows
from penstock.stages.rows.order import NO_ORDER
from penstock.stages.snapshot import (
    BY_KEY,
    KEYS,
    BucketedStage,
    BucketState,
    encode_bucket,
    restore_keys,
    window_fingerprint,
)
from penstock.stages.stage import RowErrors, StageContext
from penstock.stages.window.accumulators import AccumulatorLayout, plan_accumulators
from penstock.stages.window.folds import CombineFailure, describe_failure
from penstock.stages.window.groups import (
    Admission,
    WindowGroup,
    choose_placement,
    time_store_factory,
    window_groups,
)
from penstock.stages.window.inputs import AggregateInputs, InputEvaluator
from penstock.stages.window.results import ResultBuilder
from penstock.stages.window.store import ClosedWindows, StateBatches, unique_slots
from penstock.stages.window.time_store import TimeStore

if TYPE_CHECKING:
    from penstock.stages.changed_windows import StateAdapter

Emitted = Iterator[tuple[str, Batch]]


class WindowStage(BucketedStage):
    """Windows per key, and their results.

    form             of the state that it saves
    buffers_rows     whether single rows may wait for each other (`RowBuffer`)
    time_store       the class of its stores of time windows; None: as the device demands
    totally_ordered  batches have one order column, in which no two rows of one time are equal; first and
                     last then need no kept rows
    early            how often open windows fire early, in microseconds of the clock; None if they do not
    fired_at         when open windows last fired early, by the clock. Saved state does not say so, as it is
                     the same for all keys: whoever restores a stage sets it
    """

    form: ClassVar[str] = BY_KEY
    buffers_rows: ClassVar[bool] = True
    time_store: ClassVar[type[TimeStore] | None] = None

    def __init__(self, op: Windows, up: Stream, site: StageContext, *, totally_ordered: bool = False) -> None:
        self.site, self._up, self._op = site, up, op
        self._resolved = op.resolve(up)
        aggregates = op.aggregates or {}
        self._inputs = InputEvaluator(aggregates, up)
        self._errors = RowErrors(site, op.on_error, up.schema, self._inputs.error_context)
        windows = [window for _, window in self._resolved.windows]
        self._folds = self._inputs.accumulator_folds
        self._layout = AccumulatorLayout(
            up, totally_ordered=totally_ordered, windows=windows, folds=self._folds
        )
        plans = {name: plan_accumulators(aggregate, self._layout) for name, aggregate in aggregates.items()}
        self._plans = {name: plan for name, plan in plans.items() if plan is not None}
        self._keeps_rows = len(self._plans) < len(plans) or op.function is not None
        # Count windows put rows of one time in order by their columns, unless the reader orders them.
        self._needs_rows = self._keeps_rows or (self._resolved.has_counts and not totally_ordered)
        self._totally_ordered = totally_ordered
        # Why: places of rows cost as much to take as their times (`python -m bench peers`, YSB).
        self._needs_order = self._needs_rows or totally_ordered or bool(self._layout.sketches)
        rules = [fold.rule for fold in self._folds]
        self._placement = choose_placement(op, up, site, totally_ordered=totally_ordered, folds=rules)
        self.early, self.fired_at = self._resolved.early, site.clock.now()
        self._zeros = np.zeros(0, np.int64)
        self._begin()

    def _begin(self) -> None:
        """Begin without keys and windows."""
        op, up = self._op, self._up
        self._keys = build_keys([up.schema.field(name).type for name in up.key])
        self._changed_buckets = ChangedBuckets(self._keys)
        self._results = ResultBuilder(
            op, up, plans=self._plans, inputs=self._inputs, keys=self._keys, site=self.site
        )
        self._groups = window_groups(
            self._resolved,
            self._layout.accumulators if self._plans else [],
            self._inputs.row_schema if self._keeps_rows else None,
            partial=op.partial,
            sketches=self._layout.sketches,
            time_store=self.time_store or time_store_factory(self._placement.device, op.device),
        )
        self._admission = Admission(self._resolved, self._groups, self.site.accounts)
        # Invariant: rows wait only where it is known, without them, when the next window closes.
        store = self._groups[0].store
        only_one = self.buffers_rows and len(self._groups) == 1 and store.next_end is not None
        self._buffered_store = store if only_one else None
        self._buffer = RowBuffer(up, self._inputs)
        self._watermark = self._next_end = NEVER
        closed = self.site.history.closed
        self._least_watermark = NEVER if closed is None else closed + self._resolved.lateness

    @property
    def nbytes(self) -> int:
        """Return the memory held for keys and windows."""
        return self._keys.nbytes + self._buffer.nbytes + sum(group.store.nbytes for group in self._groups)

    @cached_property
    def fingerprint(self) -> Mapping[str, str]:
        """Return the operator, the key, the windows, the aggregates and the input."""
        whole = window_fingerprint(self._op, self._up, totally_ordered=self._totally_ordered, form=self.form)
        return {**whole, **self._adapter.topics()}

    @cached_property
    def _adapter(self) -> StateAdapter:
        """Return what takes up state of the step as it was."""
        from penstock.stages.changed_windows import StateAdapter

        accumulators = self._layout.accumulators if self._plans else []
        return StateAdapter(self._up, self._layout, self._inputs, accumulators, keeps_rows=self._keeps_rows)

    def adapt(self, state: BucketState) -> BucketState:
        """Implement `BucketedStage.adapt`."""
        return self._adapter.adapt(state, self.fingerprint)

    def explain(self) -> list[str]:
        """Say which algorithm works for which windows, where, and why."""
        lines = [*(line for group in self._groups for line in group.store.explain()), str(self._placement)]
        of_rows = [name for name in self._op.aggregates or {} if name not in self._plans]
        if of_rows:
            lines.append(f"rows are kept for {', '.join(of_rows)}: accumulators cannot hold them")
        if self._op.function is not None:
            lines.append(f"rows are kept for {self._op.function}: it sees whole windows")
        for name in of_rows:
            aggregate = (self._op.aggregates or {})[name]
            if uses_sketch(aggregate, ()):
                lines.append(f"{aggregate} is a sketch made from kept rows: count windows have them anyway")
            if isinstance(aggregate, Fold):
                lines.append(f"{aggregate} runs in Python: {why_python(aggregate, self._up)}")
        return lines + [fold.explain() for fold in self._folds]

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Add rows; the watermark decides which are late. Emit results, failed rows and late rows."""
        yield from self._advance(watermark)
        self.site.accounts.rows_in += batch.num_rows
        if batch.num_rows == 0:
            return
        maybe_late_before = self._watermark - self._resolved.lateness
        if self._buffered_store is not None and self._buffer.try_add(batch, maybe_late_before):
            return
        self.flush_pending()
        inputs = self._inputs.evaluate(batch)
        if inputs.failed is not None and inputs.failed.any():
            failed_rows = self._errors.handle(batch, inputs.failed)
            if failed_rows is not None:
                yield ERRORS, failed_rows
            places = np.flatnonzero(~inputs.failed)
            batch, inputs = batch.take(places), inputs.at(places)
        late = self._add(batch, inputs)
        if late is not None and late.any():
            yield LATE, batch.where(late)

    def on_watermark(self, watermark: float) -> Emitted:
        """Close every window that the watermark has passed; then fire open ones early, if it is time."""
        yield from self._advance(watermark)
        now = self.site.clock.now() if self.early is not None else 0
        if self.early is not None and now - self.fired_at >= self.early:
            self.fired_at = now
            yield from self._fire_early()

    def drain(self) -> Emitted:
        """Close all windows, because the stream has ended."""
        self.flush_pending()
        self._watermark = ENDED
        yield from self._close(ended=True)

    def flush_pending(self) -> None:
        """Add the buffered rows to their windows."""
        if self._buffer.n_rows:
            batch = self._buffer.take()
            late = self._add(batch, self._inputs.evaluate(batch))
            assert late is None or not late.any(), "rows that may be late are not buffered"

    def _advance(self, watermark: float) -> Emitted:
        """Close the windows that a watermark has passed; one that goes back changes nothing."""
        watermark = int(max(self._least_watermark, min(ENDED, watermark)))
        if watermark <= self._watermark:
            return
        closes = watermark >= self._next_end
        if closes:
            self.flush_pending()  # under the watermark that the rows came with
        self._watermark = watermark
        if closes:
            yield from self._close(ended=False)
            if self._buffered_store is not None and (end := self._buffered_store.next_end) is not None:
                self._next_end = end

    def _add(self, batch: Batch, inputs: AggregateInputs) -> Mask | None:
        """Add rows to the windows of their keys; return which are late, or None if none can be."""
        rows = self._input_rows(batch, inputs)
        slots = rows.slots
        self._changed_buckets.note(slots)
        try:
            rejected = self._admission.admit(rows, self._watermark)
        except CombineFailure as failure:
            raise self._describe_failure(failure) from failure.cause
        if rejected is None:
            return None
        late, unplaced = rejected
        if unplaced.any():
            self._free(unique_slots([slots[unplaced]]))
        return late

    def _input_rows(self, batch: Batch, inputs: AggregateInputs) -> InputRows:
        """Return the rows with the slots of their keys; without a key the same zeros every time."""
        n_rows = batch.num_rows
        if self._up.key:
            slots = self._keys.assign_batch(batch, self._up.key)
        else:
            self._keys.assign([], min(n_rows, 1))
            if len(self._zeros) < n_rows:
                self._zeros = np.zeros(n_rows, np.int64)
            slots = self._zeros[:n_rows]
        return InputRows(
            slots,
            batch.times,
            batch.order if self._needs_order else (),
            values=tuple(self._inputs.values(inputs, *source) for source in self._layout.values),
            rows=self._inputs.rows_to_keep(batch.rows, inputs) if self._needs_rows else None,
            single_key=not self._up.key,
            lifted=inputs.lifted,
        )

    def _close(self, *, ended: bool) -> Emitted:
        try:
            closed = [g.renumber(g.store.close(self._watermark, ended=ended)) for g in self._groups]
        except CombineFailure as failure:
            raise self._describe_failure(failure) from failure.cause
        for part in closed:
            if part.settled is not None:
                self._admission.settle(part.settled[1])
        yield from self._emit(closed, final=True)
        self._release(closed)

    def _fire_early(self) -> Emitted:
        """Emit the results of open windows so far."""
        self.flush_pending()
        try:
            fired = [group.renumber(group.store.fire_early()) for group in self._groups]
        except CombineFailure as failure:
            raise self._describe_failure(failure) from failure.cause
        self._note_fired(fired)
        yield from self._emit(fired, final=False)

    def _note_fired(self, fired: list[ClosedWindows]) -> None:
        """Note that windows fired early, which is part of the state of their keys."""
        self._changed_buckets.note(unique_slots([part.slots for part in fired]))

    def _emit(self, closed: list[ClosedWindows], *, final: bool) -> Emitted:
        batch = self._results.build(closed, final=final)
        if batch is not None:
            self.site.accounts.rows_out += batch.num_rows
            yield OUT, batch

    def _release(self, closed: list[ClosedWindows]) -> None:
        """Note whose state changed, and forget the keys that have none left."""
        touched = unique_slots([part.touched for part in closed])
        self._changed_buckets.note(touched)
        self._free(touched)

    def _describe_failure(self, failure: CombineFailure) -> FunctionError:
        return describe_failure(failure, self._folds, self.site, self._results.describe)

    def _free(self, slots: Ints) -> None:
        """Forget the keys among these slots, each once, that no store has state of."""
        held = np.logical_or.reduce([group.store.has_state(slots) for group in self._groups])
        self._changed_buckets.forget(slots[~held])
        self._keys.free(slots[~held])

    def snapshot_whole(self) -> bytes | None:
        """Return the state of all keys as one piece, which `restore` takes like a bucket; None without keys.

        For whoever always keeps the keys of a replica together: a piece costs the same for one key and many.
        """
        self.flush_pending()
        slots = self._keys.live()
        if not len(slots):
            return None
        return encode_bucket(self._save_bucket(0, slots), self.site.step, self.fingerprint)

    def _save_bucket(self, bucket: int, slots: Ints) -> BucketState:
        groups = self._export_groups(slots)
        watermark = max(self._watermark, self._least_watermark)
        n_open = sum(len(group.store.list_open(own).places) for group, own in self._by_group(groups))
        whole = {KEYS: self._keys.export(slots), **groups}
        return BucketState(bucket, len(slots), watermark, whole, n_open, self._rows_before(groups))

    def _rows_before(self, exported: StateBatches) -> int:
        """Return a time before which all rows of exported windows lie."""
        return max(group.store.rows_before(own) for group, own in self._by_group(exported))

    def _load_buckets(self, saved: Sequence[BucketState]) -> None:
        for piece, slots in zip(saved, restore_keys(self._keys, saved), strict=True):
            self._load_groups(piece.batches, slots)
            # Stores learn the watermark with the first batch: until then it only must not go back.
            self._least_watermark = max(self._least_watermark, piece.watermark)

    def _export_groups(self, slots: Ints) -> dict[str, pa.RecordBatch]:
        """Return the state of these slots by the number of the group and the store's own names."""
        return {
            f"{number}/{name}": batch
            for number, group in enumerate(self._groups)
            for name, batch in group.store.export(slots).items()
        }

    def _load_groups(self, batches: Mapping[str, pa.RecordBatch], slots: Ints) -> None:
        for group, own in self._by_group(batches):
            group.store.load(own, slots)

    def _by_group(self, batches: Mapping[str, pa.RecordBatch]) -> Iterator[tuple[WindowGroup, StateBatches]]:
        """Yield the groups, each with its own part of saved state."""
        for number, group in enumerate(self._groups):
            prefix = f"{number}/"
            own = {name.removeprefix(prefix): b for name, b in batches.items() if name.startswith(prefix)}
            yield group, own


class RowBuffer:
    """Single rows on their way into time windows: they wait for each other until a window can close.

    Adding one row to its window takes about as long as adding a thousand (`python -m bench runtime`, row by
    row). A row that comes alone, in no window that the watermark has passed, changes nothing visible before
    the next window closes, so until then it stays a plain row. Before anybody looks at the state, the rows
    are added. Rows that may be late or on which an expression fails are never buffered, because `.late`,
    `.errors` and errors must not be delayed.

    n_rows  the number of buffered rows
    """

    def __init__(self, up: Stream, inputs: InputEvaluator) -> None:
        self._schema, self.n_rows = up.schema, 0
        self._rows: list[Plain] = []
        self._times: list[int] = []
        self._orders: list[list[int]] = []
        # A fold's `lift` is the user's, and is called once for a row: it cannot be tried before.
        self._is_usable = not inputs.fold_callers
        computed = [expr for expr in inputs.expressions if not isinstance(expr, Column)]
        self._expressions = [lower_python(expr, up.schema) for expr in computed]

    @property
    def nbytes(self) -> int:
        """Return the memory held, estimated by the first row."""
        if not self._rows:
            return 0
        values = sum(sys.getsizeof(value) for value in self._rows[0].values())
        return self.n_rows * (sys.getsizeof(self._rows[0]) + values)

    def try_add(self, batch: Batch, maybe_late_before: int) -> bool:
        """Buffer the rows of a batch if that is allowed; return whether it was."""
        rows, sizes = batch.plain, policy.SIZES
        if not self._is_usable or rows is None or len(rows) > sizes.buffered_batch:
            return False
        if len(rows) + self.n_rows > sizes.buffered_rows:
            return False
        times, orders = batch.plain_times_and_order()
        if min(times) < maybe_late_before:
            return False
        try:
            for compute in self._expressions:
                for row in rows:
                    compute(row)
        except RowFailure:
            return False
        self._rows += rows
        self._times += times
        # Why: places of rows from streams with different histories have different lengths.
        while len(self._orders) < len(orders):
            self._orders.append([NO_ORDER] * self.n_rows)
        for number, buffered in enumerate(self._orders):
            buffered.extend(orders[number] if number < len(orders) else [NO_ORDER] * len(rows))
        self.n_rows += len(rows)
        return True

    def take(self) -> Batch:
        """Remove and return all rows, in the order in which they came."""
        batch = RowBatch(self._rows, self._schema, self._times, tuple(self._orders))
        self._rows, self._times, self._orders, self.n_rows = [], [], [], 0
        return batch
