"""Which stores a window step needs, and what becomes of its rows there.

There is one store for all windows that can share their state: time windows share slices where their
boundaries allow it (`timing/slices.py`), count windows share pending and kept rows, and every session window
has a store of its own. Accumulators of time windows are kept in slices, with sketches where aggregates need
them; rows, if any, in a store beside, and both are asked as one.

A row passes when some kind of window admits it; it is late when none does and one says late; otherwise it
lies in no window. Time and session windows know at once. Count windows decide last, and only over the rows
that nobody else has admitted: such a row is *pending* until the first window with it closes.

Invariant: rows_in = passed + late + no_window + unfinished + errors + pending, at every moment.

Where the accumulators of time windows are kept, in main memory or on a CUDA device, is decided here too,
when a stage is built, because only then is it known which machine it runs on. A step with device="auto"
never fails because there is no device; a step that asks for one never runs without. This is the only seam
to CUDA: `cuda_store.py` is imported for stages that have found a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.errors import NotSupported, PenstockError
from penstock.frozen import dataclass
from penstock.kernels.cuda.device import Device, choose_device, explain_auto_cpu
from penstock.kernels.windows.accumulate import Rule
from penstock.operators.choices import (
    AUTO,
    CUDA,
    device_refusal,
    on_cuda,
    why_not_by_itself,
    why_not_cuda,
)
from penstock.operators.op import Stream
from penstock.operators.windows import ResolvedWindows, Windows
from penstock.options import Cuda
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, InputRows, no_ints
from penstock.stages.stage import StageContext
from penstock.stages.window.accumulators import WindowAccumulator
from penstock.stages.window.store import (
    ClosedWindows,
    Decided,
    Decision,
    Decisions,
    Outcome,
    StateBatches,
    WindowStore,
    unique_slots,
)
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.stages.window.sketches import Sketch

BucketsOf = Callable[[Ints], npt.NDArray[np.uint8]]
_COLUMNS = ("tag", "answers", "outcome")
TimeStoreFactory = Callable[[Slicing, int, Sequence[WindowAccumulator]], TimeStore]


@dataclass(frozen=True, slots=True)
class WindowGroup:
    """The windows of a step that one store keeps.

    kinds    int64[n_kinds]  which windows of the step they are: the store counts its kinds from 0
    counted  whether they are count windows, which alone settle pending rows
    """

    kinds: Ints
    store: WindowStore
    counted: bool = False

    def renumber(self, closed: ClosedWindows) -> ClosedWindows:
        """Return windows of the store with the step's kinds; `touched` then names also their own slots."""
        touched = [closed.slots] if not len(closed.touched) else [closed.slots, closed.touched]
        return replace(closed, kinds=self.kinds[closed.kinds], touched=unique_slots(touched))


class CompositeStore:
    """Several stores of the same windows: they decide alike and close the same windows."""

    def __init__(self, stores: Sequence[WindowStore]) -> None:
        self._stores = tuple(stores)
        self.n_kinds = stores[0].n_kinds
        self.next_end = None

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return sum(store.nbytes for store in self._stores)

    def explain(self) -> tuple[str, ...]:
        """Say for each kind which algorithms were chosen, and why."""
        return tuple("; and ".join(lines) for lines in zip(*(s.explain() for s in self._stores), strict=True))

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Add rows to all stores; the first speaks for all."""
        decided = [store.add(rows, watermark) for store in self._stores]
        return decided[0]

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close windows, with what all stores hold of them."""
        return _zip([store.close(watermark, ended=ended) for store in self._stores])

    def fire_early(self) -> ClosedWindows:
        """Return the open windows that changed since they last fired early."""
        return _zip([store.fire_early() for store in self._stores])

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have state in some store."""
        return np.asarray(np.logical_or.reduce([store.has_state(slots) for store in self._stores]))

    def export(self, slots: Ints) -> StateBatches:
        """Return the state of these slots, by number and name: the names of all stores differ."""
        batches = [named for store in self._stores for named in store.export(slots).items()]
        return {f"{number}.{name}": batch for number, (name, batch) in enumerate(batches)}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over saved state."""
        named = {name.partition(".")[2]: batch for name, batch in saved.items()}
        for store in self._stores:
            store.load(named, slots)


def _zip(parts: Sequence[ClosedWindows]) -> ClosedWindows:
    """Put what several stores hold of the same windows side by side."""
    whole, *rest = (part.sort() for part in parts)
    touched = unique_slots([part.touched for part in parts])
    for other in rest:
        same = np.array_equal(whole.slots, other.slots) and np.array_equal(whole.starts, other.starts)
        assert same, "two stores of the same windows closed different ones"
        whole = replace(
            whole,
            cells=whole.cells + other.cells,
            members=whole.members or other.members,
            sketches=whole.sketches + other.sketches,
        )
    return replace(whole, touched=touched)


class Admission:
    """Asks the groups of a step about rows and keeps its accounts."""

    def __init__(self, resolved: ResolvedWindows, groups: Sequence[WindowGroup], accounts: Accounts) -> None:
        self._resolved, self._accounts = resolved, accounts
        self._certain = [group for group in groups if not group.counted]
        self._counted = [group for group in groups if group.counted]
        self.pending = PendingRows(accounts, sum(len(group.kinds) for group in self._counted))

    def admit(self, rows: InputRows, watermark: int, buckets_of: BucketsOf) -> tuple[Mask, Mask] | None:
        """Add rows to windows; None when every kind has admitted every row. `buckets_of` is of slots.

        Returns which rows are late, and which no kind has admitted, late or not.
        """
        decided = [group.store.add(rows, watermark) for group in self._certain]
        n_rows = len(rows.slots)
        if self._certain and not self._counted and all(answer is None for answer in decided):
            self._accounts.passed += n_rows  # the common case by far
            return None
        decisions = np.full((len(self._resolved.windows), n_rows), Decision.ADMITTED, np.uint8)
        for group, answer in zip(self._certain, decided, strict=True):
            self._note(group, answer, rows, watermark, decisions)
        kinds = np.concatenate([no_ints(), *(group.kinds for group in self._certain)])
        passed = np.asarray((decisions[kinds] == Decision.ADMITTED).any(axis=0))
        if self._counted:
            self._admit_counted(rows, watermark, decisions, passed, buckets_of)
        admitted = (decisions == Decision.ADMITTED).any(axis=0)
        late = ~admitted & (decisions == Decision.LATE).any(axis=0)
        self._accounts.passed += int(passed.sum())
        self._accounts.late += int(late.sum())
        self._accounts.no_window += int((~admitted & ~late).sum())
        return np.asarray(late), np.asarray(~admitted)

    def _admit_counted(
        self, rows: InputRows, watermark: int, decisions: Decisions, passed: Mask, buckets_of: BucketsOf
    ) -> None:
        buckets = np.zeros(len(passed), np.int64)
        if self.pending.needs_ids:
            buckets = buckets_of(rows.slots).astype(np.int64)
        tags = self.pending.tag(passed, buckets)
        for group in self._counted:
            answer = group.store.add(replace(rows, tags=tags), watermark)
            self._note(group, answer, rows, watermark, decisions)
        kinds = np.concatenate([group.kinds for group in self._counted])
        self.pending.expect(tags, (decisions[kinds] == Decision.ADMITTED).sum(axis=0))

    def _note(
        self, group: WindowGroup, answer: Decided | None, rows: InputRows, watermark: int, all_: Decisions
    ) -> None:
        """Write a group's decisions among all, and count the windows that rows have missed."""
        if answer is None:
            return
        decisions, misses = answer
        all_[group.kinds] = decisions
        if rows.times.min(initial=ENDED) >= watermark:
            return  # no window of such a time can have closed
        for kind, missed in zip(group.kinds.tolist(), misses.sum(axis=1).tolist(), strict=True):
            if missed:
                label, window = self._resolved.windows[kind]
                # Invariant: a new dict, never a changed one, because another thread may be reading it.
                counts, name = self._accounts.late_by_window, label or str(window)
                self._accounts.late_by_window = {**counts, name: counts.get(name, 0) + missed}


class PendingRows:
    """Rows whose outcome only count windows know, for `n_kinds` kinds of count window.

    A pending row has a tag. With one kind of count window tags need not differ: what comes back is counted.
    With several, a row is pending until all have answered, and the best answer counts; then tags are ids that
    no two rows share, also after state has moved between replicas: bucket + 256 * a running number.
    """

    def __init__(self, accounts: Accounts, n_kinds: int) -> None:
        self._accounts, self._n_kinds = accounts, n_kinds
        self._next = 0
        self._rows = np.empty((0, 3), np.int64)  # tag, answers to come, best outcome so far

    @property
    def needs_ids(self) -> bool:
        """Return whether tags must differ, and the buckets of rows are needed to make them so."""
        return self._n_kinds > 1

    def tag(self, passed: Mask, buckets: Ints) -> Ints:
        """Return a tag per row; -1 for rows that have passed already."""
        tags = np.zeros(len(passed), np.int64)
        if self.needs_ids:
            tags = (self._next + np.arange(len(tags))) * BUCKETS + buckets
            self._next += len(tags)
        return np.where(passed, -1, tags)

    def expect(self, tags: Ints, n_answers: Ints) -> None:
        """Note how many kinds will answer for each row."""
        if self.needs_ids:
            new = (tags >= 0) & (n_answers > 0)
            rows = np.stack([tags[new], n_answers[new], np.zeros(int(new.sum()), np.int64)], axis=1)
            self._rows = np.concatenate([self._rows, rows])

    def settle(self, tags: Ints, outcomes: Decisions) -> None:
        """Count the rows whose outcome is known now; the tag -1 is of a row that had passed."""
        known = tags >= 0
        tags, outcomes = tags[known], outcomes[known]
        if not self.needs_ids:
            self._count(outcomes)
            return
        order = np.argsort(self._rows[:, 0])
        places = order[np.searchsorted(self._rows[order, 0], tags)]
        # Why `.at`: one tag may come back from several kinds at once.
        np.subtract.at(self._rows[:, 1], places, 1)
        np.maximum.at(self._rows[:, 2], places, outcomes.astype(np.int64))
        done = self._rows[:, 1] == 0
        self._count(self._rows[done, 2])
        self._rows = self._rows[~done]

    def _count(self, outcomes: npt.NDArray[Any]) -> None:
        self._accounts.passed += int((outcomes == Outcome.PASSED).sum())
        self._accounts.unfinished += int((outcomes == Outcome.UNFINISHED).sum())
        self._accounts.no_window += int((outcomes == Outcome.NO_WINDOW).sum())

    def export(self, bucket: int | None = None) -> pa.RecordBatch:
        """Return the pending rows of a bucket, or of all, to be saved."""
        rows = self._rows if bucket is None else self._rows[self._rows[:, 0] % BUCKETS == bucket]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in rows.T], names=_COLUMNS)

    def load(self, saved: pa.RecordBatch) -> None:
        """Take over saved pending rows; new tags come after theirs."""
        rows = np.stack([saved.column(name).to_numpy() for name in _COLUMNS], axis=1)
        self._rows = np.concatenate([self._rows, rows])
        self._next = max(self._next, int(rows[:, 0].max(initial=-1)) // BUCKETS + 1)


def window_groups(
    resolved: ResolvedWindows,
    accumulators: Sequence[WindowAccumulator],
    rows: pa.Schema | None,
    *,
    partial: bool,
    sketches: Sequence[Sketch] = (),
    time_store: TimeStoreFactory = TimeStore,
) -> tuple[WindowGroup, ...]:
    """Build the groups of a step, count windows last: other kinds must have decided on a row before them.

    `accumulators` is empty when everything is computed from rows; `rows` is the schema of kept rows, if any
    are. Only time and session windows keep sketches, and not without accumulators. `time_store` decides where
    time windows keep their accumulators (`groups.py`).
    """
    times: list[tuple[int, TimeWindow]] = []
    sessions: list[WindowGroup] = []
    counts: list[tuple[int, CountWindow]] = []
    for number, (_, window) in enumerate(resolved.windows):
        if isinstance(window, TimeWindow):
            times.append((number, window))
        elif isinstance(window, SessionWindow):
            from penstock.stages.window.session_store import SessionStore

            session = SessionStore(window, resolved.lateness, accumulators, rows=rows, sketches=sketches)
            sessions.append(WindowGroup(np.array([number]), session))
        elif isinstance(window, CountWindow):
            counts.append((number, window))
    groups = []
    for slicing in Slicing.groups([window for _, window in times]):
        kinds = np.array([_take_number(times, window) for window in slicing.windows])
        stores: list[WindowStore] = []
        if sketches:
            from penstock.stages.window.sketches import SliceSketches

            beside = SliceSketches(sketches, slicing.longest)
            stores.append(TimeStore(slicing, resolved.lateness, accumulators, sketches=beside))
        elif accumulators:
            stores.append(time_store(slicing, resolved.lateness, accumulators))
        if rows is not None:
            from penstock.stages.window.row_store import RowStore

            stores.append(RowStore(slicing.windows, resolved.lateness, rows=rows))
        # Saved state numbers what is kept side by side, also where one store has it all.
        is_alone = len(stores) == 1 and not sketches
        groups.append(WindowGroup(kinds, stores[0] if is_alone else CompositeStore(stores)))
    groups += sessions
    if counts:
        from penstock.stages.window.count_store import CountStore

        assert not sketches, "count windows keep rows, and no sketches"
        windows = [window for _, window in counts]
        store = CountStore(windows, resolved.lateness, accumulators, partial=partial, rows=rows)
        groups.append(WindowGroup(np.array([number for number, _ in counts]), store, counted=True))
    return tuple(groups)


def _take_number(waiting: list[tuple[int, TimeWindow]], window: TimeWindow) -> int:
    """Take the number of the first such window that has no group yet: equal windows are interchangeable."""
    numbered = next(pair for pair in waiting if pair[1] == window)
    waiting.remove(numbered)
    return numbered[0]


@dataclass(frozen=True, slots=True)
class Placement:
    """A device, and why it was chosen."""

    device: Device
    why: str

    def __str__(self) -> str:
        return f"device: {self.device}, because {self.why}"


def choose_placement(
    op: Windows, up: Stream, site: StageContext, *, totally_ordered: bool, folds: Sequence[Rule] = ()
) -> Placement:
    """Choose the device of a step; `folds` are the rules of users' combines."""
    refusal = device_refusal(op, up, totally_ordered=totally_ordered)
    if refusal is not None:
        raise refusal.at(site.step, site.where)
    if op.device != AUTO:
        try:
            device = choose_device(CUDA if on_cuda(op) else str(op.device))
            if device == "cuda":
                _check_folds(folds)
        except PenstockError as error:
            raise error.at(site.step, site.where) from None
        return Placement(device, "it was asked for by name")
    reason = (
        why_not_cuda(op, up, totally_ordered=totally_ordered) or why_not_by_itself(op) or explain_auto_cpu()
    )
    if reason is not None:
        return Placement("cpu", reason)
    return Placement("cuda", "there is a CUDA device, and it can hold all accumulators of the step")


def _check_folds(folds: Sequence[Rule]) -> None:
    for rule in folds:
        reason = _why_not_compiled(rule)
        if reason is not None:
            raise NotSupported(
                f"numba cannot compile {rule.name} for a CUDA device",
                detail=reason,
                hint='say device="cpu", or write combine with numbers and tuples only',
            )


def _why_not_compiled(rule: Rule) -> str | None:
    from penstock.kernels.cuda.kernels import explain_rule_refusal

    return explain_rule_refusal(rule)


def time_store_factory(device: Device, asked: str | Cuda) -> Callable[..., TimeStore]:
    """Return what builds the store of time windows for a device."""
    if device == "cpu":
        return TimeStore
    from penstock.stages.window.cuda_store import CudaStore

    limits = asked if isinstance(asked, Cuda) else Cuda()
    return partial(CudaStore, **limits.limits())
