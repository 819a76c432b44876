"""What `window_aggregate` ships to workers: the window step, and the execution path of its rows.

JVM       Spark's own grouping makes one row of accumulator cells per key and slice; windows are put together
          from these (`jvm/partials.py`)
PARTIALS  Python makes those cells, near the rows, for folds and what Spark's aggregates cannot count
ROWS      rows travel to their bucket: sessions, count windows, and aggregates of whole windows
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.engines.spark.jvm.partials import JvmPartials
from penstock.engines.spark.read_placement import why_not_in_jvm
from penstock.errors import Where
from penstock.expr.nodes.columns import Column
from penstock.frozen import dataclass
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.patterns import PANED, why_not_pattern
from penstock.operators.windows import ResolvedWindows, Windows
from penstock.stages.patterns.partials import FinalAggregateStage, PartialAggregateStage
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

STEP = "window_aggregate"


class ExecutionPath(StrEnum):
    """How rows become windows."""

    JVM = "jvm"
    PARTIALS = "partials"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class WindowTask:
    """A window step over the columns of a frame."""

    op: Windows
    up: Stream
    time: str
    where: Where | None
    path: ExecutionPath

    @classmethod
    def of(cls, op: Windows, up: Stream, time: str, where: Where | None, *, utc: bool) -> WindowTask:
        """Returns the task on the best path that can take the step; `utc`: it is the session's zone."""
        if why_not_pattern(PANED, op, up, totally_ordered=False) is not None:
            path = ExecutionPath.ROWS
        elif why_not_in_jvm(op, up) is None and (utc or _reads_columns_only(op)):
            path = ExecutionPath.JVM
        else:
            path = ExecutionPath.PARTIALS
        return cls(op, up, time, where, path)

    @property
    def windows(self) -> ResolvedWindows:
        """Returns the windows in microseconds."""
        return self.op.resolve(self.up)

    @property
    def slicings(self) -> Mapping[int, Slicing]:
        """Returns the slices of time windows, by the number of their partials in the column "window"."""
        windows = [window for _, window in self.windows.windows if isinstance(window, TimeWindow)]
        return {windows.index(slicing.windows[0]): slicing for slicing in Slicing.groups(windows)}

    @property
    def results(self) -> pa.Schema:
        """Returns the columns that come out."""
        return self.op.outputs({IN: self.up})[OUT].schema

    def jvm_partials(self) -> JvmPartials:
        """Returns the lowering of the step's accumulators to Spark, for the path JVM."""
        return JvmPartials(self.op, self.up)

    def partial_stage(self) -> PartialAggregateStage:
        """Returns the stage that makes partials of rows."""
        return PartialAggregateStage(self.op, self.up, self._site())

    def final_stage(self) -> WindowStage:
        """Returns the stage that windows leave from: it takes rows, or on the other paths partials."""
        if self.path is ExecutionPath.ROWS:
            return WindowStage(self.op, self.up, self._site())
        return FinalAggregateStage(self.op, self.up, self._site())

    def _site(self) -> StageContext:
        return StageContext(STEP, self.where, Accounts(), WallClock())


def _reads_columns_only(op: Windows) -> bool:
    """Returns whether all aggregates are of columns as they are.

    Expressions read the clock and the calendar of the session, which must be those of every engine.
    """
    values = [aggregate.value for aggregate in (op.aggregates or {}).values()]
    return all(value is None or isinstance(value, Column) for value in values)
