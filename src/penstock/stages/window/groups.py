"""Which stores a window step needs: one group for all windows that can share their state.

Time windows share slices where their boundaries allow it (`timing/slices.py`), count windows share pending
and kept rows, and every session window has a store of its own. Accumulators of time windows are kept in
slices; sketches and rows, where aggregates need them, in stores beside, which are asked as one.

Where the accumulators of time windows are kept, in main memory or on a CUDA device, is decided here too,
when a stage is built, because only then is it known which machine it runs on. A step with device="auto"
never fails because there is no device; a step that asks for one never runs without. This is the only seam
to CUDA: `cuda_store.py` is imported for stages that have found a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

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
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import InputRows
from penstock.stages.stage import StageContext
from penstock.stages.window.accumulators import WindowAccumulator
from penstock.stages.window.store import ClosedWindows, Decided, StateBatches, WindowStore, unique_slots
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.stages.sketches.store import Sketch

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

    def close(self, watermark: int, *, ended: bool) -> ClosedWindows:
        """Close windows, with the step's kinds; `touched` then names also the slots of closed windows."""
        return self._renumber(self.store.close(watermark, ended=ended))

    def fire_early(self) -> ClosedWindows:
        """Return the open windows that changed since they last fired early, with the step's kinds."""
        return self._renumber(self.store.fire_early())

    def _renumber(self, closed: ClosedWindows) -> ClosedWindows:
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
        """Return the state of these slots, by store and name."""
        return {
            f"{number}.{name}": batch
            for number, store in enumerate(self._stores)
            for name, batch in store.export(slots).items()
        }

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over saved state."""
        for number, store in enumerate(self._stores):
            store.load(batches_with_prefix(saved, f"{number}."), slots)


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


def batches_with_prefix(saved: StateBatches, prefix: str) -> StateBatches:
    """Return the batches whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): batch for name, batch in saved.items() if name.startswith(prefix)}


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
        if accumulators:
            stores.append(time_store(slicing, resolved.lateness, accumulators))
        if sketches:
            from penstock.stages.sketches.store import SketchStore

            stores.append(SketchStore(slicing, resolved.lateness, sketches))
        if rows is not None:
            from penstock.stages.window.row_store import RowStore

            stores.append(RowStore(slicing.windows, resolved.lateness, rows=rows))
        groups.append(WindowGroup(kinds, stores[0] if len(stores) == 1 else CompositeStore(stores)))
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
    from penstock.kernels.cuda.accumulators import explain_rule_refusal

    return explain_rule_refusal(rule)


def time_store_factory(device: Device, asked: str | Cuda) -> Callable[..., TimeStore]:
    """Return what builds the store of time windows for a device."""
    if device == "cpu":
        return TimeStore
    from penstock.stages.window.cuda_store import CudaStore

    limits = asked if isinstance(asked, Cuda) else Cuda()
    return partial(CudaStore, **limits.limits())
