"""Which stores a window step needs, and what becomes of its rows there.

There is one store for all windows that can share their state: time windows share slices where their
boundaries allow it (`timing/slices.py`), count windows share pending and kept rows, and every session window
has a store of its own. Accumulators of time windows are kept in slices, with sketches and rows beside them
where aggregates need them.

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
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.errors import NotSupported, PenstockError
from penstock.frozen import Frozen
from penstock.kernels.cuda.device import Device, choose_device, explain_auto_cpu
from penstock.kernels.windows.accumulate import Rule
from penstock.operators.choices import AUTO, CUDA, device_refusal, on_cuda, why_not_by_itself, why_not_cuda
from penstock.operators.op import Stream
from penstock.operators.windows import ResolvedWindows, Windows
from penstock.options import Cuda
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
    WindowStore,
    unique_slots,
)
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.stages.window.sketches import Sketch

TimeStoreFactory = Callable[[Slicing, int, Sequence[WindowAccumulator]], TimeStore]


class WindowGroup(Frozen):
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


class Admission:
    """Asks the groups of a step about rows and keeps its accounts."""

    def __init__(self, resolved: ResolvedWindows, groups: Sequence[WindowGroup], accounts: Accounts) -> None:
        self._resolved, self._accounts = resolved, accounts
        self._certain = [group for group in groups if not group.counted]
        self._counted = [group for group in groups if group.counted]

    def admit(self, rows: InputRows, watermark: int) -> tuple[Mask, Mask] | None:
        """Add rows to windows; None when every kind has admitted every row.

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
        for group in self._counted:
            tagged = replace(rows, tags=np.where(passed, -1, 0))
            self._note(group, group.store.add(tagged, watermark), rows, watermark, decisions)
        admitted = (decisions == Decision.ADMITTED).any(axis=0)
        late = ~admitted & (decisions == Decision.LATE).any(axis=0)
        self._accounts.passed += int(passed.sum())
        self._accounts.late += int(late.sum())
        self._accounts.no_window += int((~admitted & ~late).sum())
        return np.asarray(late), np.asarray(~admitted)

    def settle(self, outcomes: Decisions) -> None:
        """Count rows that count windows had yet to decide about, now that their outcomes are known."""
        self._accounts.passed += int((outcomes == Outcome.PASSED).sum())
        self._accounts.unfinished += int((outcomes == Outcome.UNFINISHED).sum())
        self._accounts.no_window += int((outcomes == Outcome.NO_WINDOW).sum())

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
        if sketches or rows is not None:
            beside: Any = None
            if sketches:
                from penstock.stages.window.sketches import SliceSketches

                beside = SliceSketches(sketches, slicing.longest)
            store = TimeStore(slicing, resolved.lateness, accumulators, sketches=beside, rows=rows)
        else:
            store = time_store(slicing, resolved.lateness, accumulators)
        groups.append(WindowGroup(kinds, store))
    groups += sessions
    if counts:
        from penstock.stages.window.count_store import CountStore

        assert not sketches, "count windows keep rows, and no sketches"
        windows = [window for _, window in counts]
        counted = CountStore(windows, resolved.lateness, accumulators, partial=partial, rows=rows)
        groups.append(WindowGroup(np.array([number for number, _ in counts]), counted, counted=True))
    return tuple(groups)


def _take_number(waiting: list[tuple[int, TimeWindow]], window: TimeWindow) -> int:
    """Take the number of the first such window that has no group yet: equal windows are interchangeable."""
    numbered = next(pair for pair in waiting if pair[1] == window)
    waiting.remove(numbered)
    return numbered[0]


class Placement(Frozen):
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
