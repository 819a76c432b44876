"""What is shipped to workers: the window step, and the road that its rows take there.

NATIVE  the JVM makes one row of numbers per (slice, key); windows are put together from these
PARTS   Python makes those numbers, near the rows, for folds and what the JVM cannot count
ROWS    rows travel to their bucket: sessions, count windows, and aggregates of whole windows
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pyarrow as pa

from penstock.clock import WallClock
from penstock.errors import Where
from penstock.expr.columns import Column
from penstock.frozen import dataclass
from penstock.operators.choices.kept import Kind
from penstock.operators.choices.patterns import PANED, unfit
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import ResolvedWindows, Windows
from penstock.plan.accounts import Accounts
from penstock.stages.lifting import Lifting
from penstock.stages.lowering import lower
from penstock.stages.patterns.part_stages import PanesJoined, PaneStage
from penstock.stages.sheet import Sheet
from penstock.stages.site import Site
from penstock.stages.window_stage import WindowStage
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

STEP = "window_aggregate"
IN_THE_JVM = frozenset(
    {Kind.ROWS, Kind.COUNT, Kind.INT_SUM, Kind.FLOAT_SUM, Kind.MOST, Kind.LEAST, Kind.MOMENTS, Kind.LATEST}
)
"""Registers that Spark's own aggregates make."""


class Road(StrEnum):
    """How rows become windows."""

    NATIVE = "native"
    PARTS = "parts"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A window step over the columns of a frame."""

    op: Windows
    up: Stream
    time: str
    where: Where | None
    road: Road

    @classmethod
    def of(cls, op: Windows, up: Stream, time: str, where: Where | None, *, utc: bool) -> Recipe:
        """The recipe with the best road that can take the step; `utc` is the zone of the session."""
        if unfit(PANED, op, up, numbered=False) is not None:
            return cls(op, up, time, where, Road.ROWS)
        made = cls(op, up, time, where, Road.NATIVE)
        return made if made._is_native(utc) else cls(op, up, time, where, Road.PARTS)

    def _is_native(self, utc: bool) -> bool:
        sheet = self.sheet()
        if len(self.slicings) > 1 or any(each.kind not in IN_THE_JVM for each in sheet.registers):
            return False
        # Expressions read the clock and the calendar of the session, which must be those of every engine.
        return utc or all(isinstance(expr, Column) for expr, _ in sheet.values)

    @property
    def resolved(self) -> ResolvedWindows:
        """The windows in microseconds."""
        return self.op.resolved(self.up)

    @property
    def slicings(self) -> Mapping[int, Slicing]:
        """The slices of time windows, each by the number that its parts have in the column "window"."""
        windows = [window for _, window in self.resolved.windows if isinstance(window, TimeWindow)]
        return {windows.index(slicing.windows[0]): slicing for slicing in Slicing.groups(windows)}

    @property
    def results(self) -> pa.Schema:
        """The columns that come out."""
        return self.op.outputs({IN: self.up})[OUT].schema

    def sheet(self) -> Sheet:
        """The registers of the step, as its stages have them."""
        aggregates = self.op.aggregates or {}
        windows = [window for _, window in self.resolved.windows]
        foldings = Lifting(aggregates, self.up).foldings
        sheet = Sheet(self.up, numbered=False, windows=windows, foldings=foldings)
        for aggregate in aggregates.values():
            lower(aggregate, sheet)
        return sheet

    def stage(self) -> WindowStage:
        """The stage that windows leave from: it takes rows, or on the other roads parts of slices."""
        if self.road is Road.ROWS:
            return WindowStage(self.op, self.up, self._site())
        return PanesJoined(self.op, self.up, self._site())

    def part_stage(self) -> PaneStage:
        """The stage that makes parts of rows."""
        return PaneStage(self.op, self.up, self._site())

    def _site(self) -> Site:
        return Site(STEP, self.where, Accounts(), WallClock())
