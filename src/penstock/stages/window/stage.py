"""Single rows on their way into time windows: they wait for each other until a window could leave.

To add a row to its window takes about as long as to add a thousand. A row that comes by itself, and lies in
no window that the watermark has passed, changes nothing that anybody can see before the next window leaves,
so until then it stays the plain row that it is. Who looks at the state has the rows taken in first.

Only rows that nothing can be said about are let wait: none that is late, and none on which an expression
fails, since `.late`, `.errors` and errors are not to be late themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from penstock.errors import RowFailure
from penstock.expr import Expr, lower_python
from penstock.expr.nodes.columns import Column
from penstock.operators.aggregates import Fold
from penstock.operators.choices.accumulators import uses_sketch
from penstock.operators.choices.folds import why_python
from penstock.operators.op import ERRORS, LATE, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages import policy
from penstock.stages.functions.errors import RowErrors
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.arrays import Form, encode_column
from penstock.stages.rows.batch import Batch, Ints, Mask, Plain, RowBatch
from penstock.stages.snapshot import (
    BY_KEY,
    KEYS,
    BucketedStage,
    BucketState,
    ChangedBuckets,
    window_fingerprint,
)
from penstock.stages.stage import Site
from penstock.stages.window.accumulators import AccumulatorLayout, plan_accumulators
from penstock.stages.window.admission import Admission
from penstock.stages.window.device import choose_placement, store_factory
from penstock.stages.window.folds import AccumulatorFold, report_combine_failure
from penstock.stages.window.groups import window_groups
from penstock.stages.window.inputs import AggregateInputs, InputEvaluator
from penstock.stages.window.results import ResultBuilder
from penstock.stages.window.store import ENDED, NEVER, ClosedWindows, InputRows, Values, unique_slots
from penstock.stages.window.time_store import TimeStore


class RowBuffer:
    """The rows of a step that wait.

    n_rows  how many
    """

    def __init__(self, up: Stream, lifting: InputEvaluator) -> None:
        self._schema, self.n_rows = up.schema, 0
        self._rows: list[Plain] = []
        self._times: list[int] = []
        self._orders: list[list[int]] = []
        # A fold's `lift` is the user's, and is called once for a row.
        self._any = not lifting.folds
        computed = [expr for expr in lifting.expressions if not isinstance(expr, Column)]
        self._tries = [lower_python(expr, up.schema) for expr in computed]

    @property
    def nbytes(self) -> int:
        """The memory held: what the first row takes, for every row."""
        if not self._rows:
            return 0
        values = sum(sys.getsizeof(value) for value in self._rows[0].values())
        return self.n_rows * (sys.getsizeof(self._rows[0]) + values)

    def let_wait(self, batch: Batch, since: int) -> bool:
        """Whether the rows of a batch wait now. Rows before the time `since` may be late."""
        rows = batch.plain
        if (
            not self._any
            or rows is None
            or len(rows) > policy.SIZES.buffered_batch
            or len(rows) + self.n_rows > policy.SIZES.buffered_rows
        ):
            return False
        times, orders = batch.plain_times_and_order()
        if min(times) < since or not self._can(rows):
            return False
        self._rows += rows
        self._times += times
        if not self._orders:
            self._orders = [[] for _ in orders]
        for mine, order in zip(self._orders, orders, strict=True):
            mine.extend(order)
        self.n_rows += len(rows)
        return True

    def take(self) -> Batch:
        """All of them, in the order in which they came."""
        found = RowBatch(self._rows, self._schema, self._times, tuple(self._orders))
        self._rows, self._times, self._orders, self.n_rows = [], [], [], 0
        return found

    def _can(self, rows: Sequence[Plain]) -> bool:
        """Whether no expression fails on them."""
        try:
            for compute in self._tries:
                for row in rows:
                    compute(row)
        except RowFailure:
            return False
        return True


# The window stage: one replica of a windowed step, on columns.
#
# A batch goes in with the watermark that judges it: expressions are computed, keys become slots, and every
# shelf of stores takes what is not late. A watermark lets windows leave, all keys at once. What all of that
# means is in docs/semantics.md; the reference engine says the same in plain Python and judges this.

Emitted = Iterator[tuple[str, Batch]]


class WindowStage(BucketedStage):
    """Windows per key, and what is made of them.

    form      of the state that it saves
    gathers   whether rows that come by themselves may wait for each other
    totally_ordered  batches have one order column, in which no two rows of one time are equal; first and
              last then need no rows kept
    fired_at  when open windows were last shown early, by the clock. Pieces of state do not say so, as it is
              the same for all keys: who makes a stage go on from saved state sets it
    """

    form: ClassVar[str] = BY_KEY
    gathers: ClassVar[bool] = True

    def __init__(self, op: Windows, up: Stream, site: Site, *, totally_ordered: bool = False) -> None:
        self.site, self._up, self._op = site, up, op
        self._resolved = op.resolve(up)
        aggregates = op.aggregates or {}
        self._lifting = InputEvaluator(aggregates, up)
        self._errors = RowErrors(site, op.on_error, up.schema, self._lifting.error_context)
        windows = [window for _, window in self._resolved.windows]
        self._sheet = AccumulatorLayout(
            up, totally_ordered=totally_ordered, windows=windows, foldings=self._lifting.foldings
        )
        found = {name: plan_accumulators(aggregate, self._sheet) for name, aggregate in aggregates.items()}
        self._lowered = {name: each for name, each in found.items() if each is not None}
        self._keeps_rows = len(self._lowered) < len(found) or op.function is not None
        self._depends_on = window_fingerprint(op, up, totally_ordered=totally_ordered, form=self.form)
        folds = [folding.rule for folding in self._lifting.foldings]
        self._placement = choose_placement(op, up, site, totally_ordered=totally_ordered, folds=folds)
        self.fired_at = site.clock.now()
        self._zeros = np.zeros(0, np.int64)
        self._begin()

    def _begin(self) -> None:
        """No keys, no windows."""
        op, up, lowered, lifting = self._op, self._up, self._lowered, self._lifting
        self._keys = KeySlots([up.schema.field(name).type for name in up.key])
        self._changed_buckets = ChangedBuckets(self._keys)
        self._results = ResultBuilder(
            op, up, lowered=lowered, lifting=lifting, keys=self._keys, site=self.site
        )
        registers = self._sheet.registers if lowered else []
        rows = lifting.kept_schema if self._keeps_rows else None
        sketches = self._sheet.sketches
        slices = store_factory(self._placement.device, op.device)
        self._shelves = window_groups(
            self._resolved, registers, rows, partial=op.partial, sketches=sketches, slices=slices
        )
        self._judging = Admission(self._resolved, self._shelves, self.site.accounts)
        stores = [store for shelf in self._shelves for store in shelf.stores]
        # Only slices know when the next window leaves.
        sliced = [store for store in stores if type(store) is TimeStore]
        self._slices = sliced[0] if self.gathers and len(stores) == len(sliced) == 1 else None
        self._gathering = RowBuffer(up, lifting)
        self._watermark = self._least = self._next_end = NEVER

    @property
    def nbytes(self) -> int:
        """The memory held for keys and windows."""
        return self._keys.nbytes + self._gathering.nbytes + sum(shelf.nbytes for shelf in self._shelves)

    def explain(self) -> list[str]:
        """Which algorithm works for which windows, where, and why."""
        lines = [*(line for shelf in self._shelves for line in shelf.explain()), str(self._placement)]
        kept = [name for name in self._op.aggregates or {} if name not in self._lowered]
        if kept:
            lines.append(f"rows are kept for {', '.join(kept)}: registers cannot hold them")
        if self._op.function is not None:
            lines.append(f"rows are kept for {self._op.function}: it sees whole windows")
        for name in kept:
            aggregate = (self._op.aggregates or {})[name]
            if uses_sketch(aggregate, ()):
                lines.append(f"{aggregate} is a sketch made from kept rows: count windows have them anyway")
            if isinstance(aggregate, Fold):
                lines.append(f"{aggregate} runs in Python: {why_python(aggregate, self._up)}")
        return lines + [folding.explain() for folding in self._lifting.foldings]

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Take rows in, judged by the watermark; give late rows, failed rows, and what had to leave first."""
        yield from self._up_to(self._clamped(watermark))
        self.site.accounts.rows_in += batch.num_rows
        if batch.num_rows == 0 or self._waits(batch):
            return
        self.flush_pending()
        lifted = self._lifting.lift(batch)
        if lifted.failed is not None and lifted.failed.any():
            dead_letters = self._errors.handle(batch, lifted.failed)
            if dead_letters is not None:
                yield ERRORS, dead_letters
            places = np.flatnonzero(~lifted.failed)
            batch, lifted = batch.take(places), lifted.at(places)
        late = self._take(batch, lifted)
        if late is not None and late.any():
            yield LATE, batch.where(late)

    def on_watermark(self, watermark: float) -> Emitted:
        """Let every window go that the watermark has passed; then show open ones, if it is time."""
        yield from self._up_to(self._clamped(watermark))
        yield from self._early()

    def drain(self) -> Emitted:
        """The stream has ended: let everything go."""
        self.flush_pending()
        self._watermark = ENDED
        yield from self._leave(ended=True)

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The operator, the key, the windows, the aggregates and the input."""
        return self._depends_on

    def _save_bucket(self, bucket: int, slots: Ints) -> BucketState:
        batches = {KEYS: self._keys.export(slots), "tickets": self._judging.settling.export(bucket)}
        for number, shelf in enumerate(self._shelves):
            batches |= {f"{number}/{name}": batch for name, batch in shelf.export(slots).items()}
        return BucketState(bucket, len(slots), max(self._watermark, self._least), batches)

    def _load_bucket(self, piece: BucketState) -> None:
        slots = self._keys.assign(piece.batches[KEYS].columns, piece.n_keys)
        self._judging.settling.load(piece.batches["tickets"])
        for number, shelf in enumerate(self._shelves):
            start = f"{number}/"
            mine = {n.removeprefix(start): b for n, b in piece.batches.items() if n.startswith(start)}
            shelf.load(mine, slots)
        # Stores learn the watermark with the first batch: until then it only must not go back.
        self._least = max(self._least, piece.watermark)

    def _clamped(self, watermark: float) -> int:
        return int(max(self._least, min(ENDED, watermark)))

    def _up_to(self, watermark: int) -> Emitted:
        """Windows that the watermark has passed; one that goes back is no news."""
        if watermark > self._watermark:
            if watermark >= self._next_end:
                self.flush_pending()  # by the watermark that they came with
            self._watermark = watermark
            if watermark >= self._next_end:
                yield from self._leave(ended=False)
                self._next_end = NEVER if self._slices is None else self._slices.next_end

    def _waits(self, batch: Batch) -> bool:
        """Whether rows wait for others until a window leaves; see `gathering.py`."""
        return self._slices is not None and self._gathering.let_wait(
            batch, self._watermark - self._resolved.lateness
        )

    def flush_pending(self) -> None:
        """Take in the rows that wait."""
        if self._gathering.n_rows:
            batch = self._gathering.take()
            late = self._take(batch, self._lifting.lift(batch))
            assert late is None or not late.any(), "rows that may be late do not wait"

    def _take(self, batch: Batch, lifted: AggregateInputs) -> Mask | None:
        """Rows into the windows of their keys; gives which are late, or None if none can be."""
        slots = self._slots(batch)
        self._changed_buckets.note(slots)
        arriving = self._arriving(batch, lifted, slots)
        with report_combine_failure(self._lifting.foldings, self.site, self._results.place_of):
            verdict = self._judging.add(arriving, self._watermark, self._keys.buckets_of)
        if verdict is None:
            return None
        if verdict.lost.any():
            self._free(unique_slots([slots[verdict.lost]]))
        return verdict.late

    def _slots(self, batch: Batch) -> Ints:
        """The slots of the rows' keys; without a key the same zeros every time."""
        n = batch.num_rows
        if self._up.key:
            return self._keys.assign_batch(batch, self._up.key)
        self._keys.assign([], min(n, 1))
        if len(self._zeros) < n:
            self._zeros = np.zeros(n, np.int64)
        return self._zeros[:n]

    def _arriving(self, batch: Batch, lifted: AggregateInputs, slots: Ints) -> InputRows:
        values = tuple(self._values(lifted, *source) for source in self._sheet.values)
        # Count windows put rows of one time in order by their columns, unless the reader numbers them.
        carried = self._keeps_rows or (self._resolved.has_counts and not self._sheet.totally_ordered)
        rows = self._lifting.kept(batch.rows, lifted.arrays) if carried else None
        return InputRows(
            slots, batch.times, batch.order, values, rows, single_key=not self._up.key, lifted=lifted.kept
        )

    def _values(self, lifted: AggregateInputs, what: Expr | AccumulatorFold, how: Form | None) -> Values:
        """One lot of numbers: an expression in a form, or a fold's parts."""
        if isinstance(what, AccumulatorFold):
            return lifted.parts[self._lifting.foldings.index(what)]
        assert isinstance(how, Form), "expressions come in a form"
        return encode_column(lifted.arrays[self._lifting.place(what)], how)

    def _leave(self, *, ended: bool) -> Emitted:
        with report_combine_failure(self._lifting.foldings, self.site, self._results.place_of):
            lefts = [shelf.close(self._watermark, ended=ended) for shelf in self._shelves]
        self._judging.settling.settle(lefts)
        yield from self._given(lefts, final=True)
        touched = lefts[0].touched if len(lefts) == 1 else unique_slots([left.touched for left in lefts])
        self._changed_buckets.note(touched)
        self._free(touched)

    def _early(self) -> Emitted:
        """Unfinished results, if the clock says that it is time for them again."""
        if self._is_time():
            self.flush_pending()
            with report_combine_failure(self._lifting.foldings, self.site, self._results.place_of):
                lefts = [shelf.fire_early() for shelf in self._shelves]
            self._note_shown(lefts)
            yield from self._given(lefts, final=False)

    @property
    def early(self) -> int | None:
        """How often open windows are shown, in microseconds of the clock; None if they are not."""
        return self._resolved.early

    def _is_time(self) -> bool:
        """Whether open windows are to be shown now."""
        if self.early is None or (now := self.site.clock.now()) - self.fired_at < self.early:
            return False
        self.fired_at = now
        return True

    def _note_shown(self, lefts: list[ClosedWindows]) -> None:
        """That windows were shown is part of the state of their keys."""
        self._changed_buckets.note(unique_slots([left.slots for left in lefts]))

    def _given(self, lefts: list[ClosedWindows], *, final: bool) -> Emitted:
        batch = self._results.batch(lefts, final=final)
        if batch is not None:
            self.site.accounts.rows_out += batch.num_rows
            yield OUT, batch

    def _free(self, slots: Ints) -> None:
        """Forget the keys among these slots, each once, that no shelf has state of."""
        held = np.logical_or.reduce([shelf.has_state(slots) for shelf in self._shelves])
        self._changed_buckets.forget(slots[~held])
        self._keys.free(slots[~held])
