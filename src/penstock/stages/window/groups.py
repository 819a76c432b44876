"""Which stores a window step needs: one shelf per group of windows that can share their state.

Time windows share slices where their boundaries allow it (`timing/slices.py`), count windows share waiting
and kept rows, and every session window has a store of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.operators.windows import ResolvedWindows
from penstock.stages.window.accumulators import WindowAccumulator
from penstock.stages.window.store import WindowGroup, WindowStore
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

if TYPE_CHECKING:
    from penstock.stages.sketches.store import Sketch


def window_groups(
    resolved: ResolvedWindows,
    registers: Sequence[WindowAccumulator],
    rows: pa.Schema | None,
    *,
    partial: bool,
    sketches: Sequence[Sketch] = (),
    slices: Callable[..., TimeStore] = TimeStore,
) -> tuple[WindowGroup, ...]:
    """The shelves of a step, count windows last: other kinds must have judged a row before them.

    `registers` is empty when everything is made from rows; `rows` is the schema of kept rows, if any are.
    Sketches are kept by time and session windows only, and not without registers. `slices` is where time
    windows keep their registers (`device.py`).
    """
    lateness = resolved.lateness
    timed: list[tuple[int, TimeWindow]] = []
    sessions: list[WindowGroup] = []
    counts: list[tuple[int, CountWindow]] = []
    for number, (_, window) in enumerate(resolved.windows):
        if isinstance(window, TimeWindow):
            timed.append((number, window))
        elif isinstance(window, SessionWindow):
            from penstock.stages.window.session_store import SessionStore

            session = SessionStore(window, lateness, registers, rows=rows, sketches=sketches)
            sessions.append(WindowGroup([number], [session]))
        elif isinstance(window, CountWindow):
            counts.append((number, window))
    counted = []
    if counts:
        numbers, windows = [number for number, _ in counts], [window for _, window in counts]
        from penstock.stages.window.count_store import CountStore

        store = CountStore(windows, lateness, registers, partial=partial, rows=rows)
        counted.append(WindowGroup(numbers, [store], counted=True))
    assert not (counts and sketches), "count windows keep rows, and no sketches"
    return (*_time_groups(timed, lateness, registers, rows, sketches, slices), *sessions, *counted)


def _time_groups(
    timed: list[tuple[int, TimeWindow]],
    lateness: int,
    registers: Sequence[WindowAccumulator],
    rows: pa.Schema | None,
    sketches: Sequence[Sketch],
    slices: Callable[..., TimeStore],
) -> list[WindowGroup]:
    shelves = []
    waiting = list(timed)
    for slicing in Slicing.groups([window for _, window in timed]):
        numbers = [_take_number(waiting, window) for window in slicing.windows]
        shelves.append(
            WindowGroup(numbers, _time_stores(slicing, lateness, registers, rows, sketches, slices))
        )
    return shelves


def _take_number(waiting: list[tuple[int, TimeWindow]], window: TimeWindow) -> int:
    """The number of the first such window that is not placed yet: equal windows are interchangeable."""
    found = next(each for each in waiting if each[1] == window)
    waiting.remove(found)
    return found[0]


def _time_stores(
    slicing: Slicing,
    lateness: int,
    registers: Sequence[WindowAccumulator],
    rows: pa.Schema | None,
    sketches: Sequence[Sketch],
    slices: Callable[..., TimeStore],
) -> list[WindowStore]:
    stores: list[WindowStore] = []
    if registers:
        stores.append(slices(slicing, lateness, registers))
    if sketches:
        from penstock.stages.sketches.store import SketchStore

        stores.append(SketchStore(slicing, lateness, sketches))
    if rows is not None:
        from penstock.stages.window.row_store import RowStore

        stores.append(RowStore(slicing.windows, lateness, rows=rows))
    return stores
