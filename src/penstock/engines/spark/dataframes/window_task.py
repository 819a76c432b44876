"""What `window_aggregate` ships to workers: the window step, and the execution path of its rows.

JVM   Spark's own grouping makes one row of accumulator cells per key and slice; windows are put together from
      these (`jvm_partials.py`)
ROWS  rows travel to their bucket: sessions, count windows, folds, and what Spark's aggregates cannot count

Rows, partials and results travel between workers as packed batches, by group of buckets. Spark rebuilds the
input of its state operator row by row in Python, so few wide rows go in: (group, body), the body a batch in
Arrow's own form. Invariant: the groups are part of what a checkpoint means and never change.

In a streaming frame Spark keeps the state of each group, one cell of bytes. It calls once per group and
batch, and wakes groups by timer; a call asks the JVM a few times, about 2 ms in all, so there are few groups.
`GroupWindows` does the work and knows nothing of Spark. Spark's watermark is in milliseconds and starts at 0.
It runs on times that are moved by `shift`, so that 0 is before all of them; and 0 itself means that nothing
is known yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.engines.spark.jvm_partials import JvmPartials
from penstock.engines.spark.read_placement import can_group_in_jvm
from penstock.engines.spark.types import from_spark
from penstock.engines.spark.wire import WirePartitioner, pack_pieces
from penstock.engines.wire import unpack_batch
from penstock.errors import Where
from penstock.expr.nodes.forms import Column
from penstock.frozen import Frozen
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.windows import PANED, ResolvedWindows, Windows, why_not_pattern
from penstock.stages.patterns.partials import FinalAggregateStage
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.input import NEVER
from penstock.stages.rows.order import merge_batches
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.timing.slices import first_open
from penstock.timing.windows import BEFORE_ALL, TimeWindow

STEP = "window_aggregate"
# fmt: off
GROUPS = (
    2122, 3179, 1346, 1180, 7468, 3429, 296, 1133, 2478, 1212, 1049, 5159, 3146, 5168, 1328, 3137,
    13695, 5904, 1272, 3289, 5813, 813, 1210, 3473, 2813, 2248, 163, 1659, 12413, 6700, 1914, 7589,
)
# fmt: on
"""The names of groups. The murmur3 hash of the i-th, by which Spark finds its partition, is i modulo 3360: up
to eight partitions, and 16 and 32, get equally many groups, or one more."""
N_SLICE_GROUPS = 8
"""Groups of a stream of slices. They are so few, against rows, that calls cost more than the work in them."""
GROUP, BODY = "group", "body"
SCHEMA = pa.schema([(GROUP, pa.int32()), (BODY, pa.binary())])
SPARK_SCHEMA = "`group` int, body binary"
STATE = f"{BODY} binary"
RESULTS = f"{BODY} binary"
BATCH_ROWS = 1 << 17
"""Rows that are packed together."""

ArrowBatches = Iterator[pa.RecordBatch]
"""What the functions take and give that Spark runs by `mapInArrow`."""


class ExecutionPath(StrEnum):
    """How rows become windows."""

    JVM = "jvm"
    ROWS = "rows"


class WindowTask(Frozen):
    """A window step over the columns of a frame."""

    op: Windows
    up: Stream
    time: str
    where: Where | None
    path: ExecutionPath
    streams: bool

    @classmethod
    def of(
        cls, op: Windows, up: Stream, time: str, where: Where | None, *, utc: bool, streams: bool
    ) -> WindowTask:
        """Return the task on the best path that can take the step; `utc`: it is the session's zone."""
        has_partials = why_not_pattern(PANED, op, up, totally_ordered=False) is None
        in_jvm = has_partials and can_group_in_jvm(op, up) and (utc or _reads_columns_only(op))
        return cls(op, up, time, where, ExecutionPath.JVM if in_jvm else ExecutionPath.ROWS, streams)

    @property
    def windows(self) -> ResolvedWindows:
        """Return the windows in microseconds."""
        return self.op.resolve(self.up)

    @property
    def results(self) -> pa.Schema:
        """Return the columns that come out."""
        return self.op.outputs({IN: self.up})[OUT].schema

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the groups that keys are spread over."""
        few = self.streams and self.path is ExecutionPath.JVM
        return GROUPS[:N_SLICE_GROUPS] if few else GROUPS

    @property
    def wire_format(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns of packed batches, and the key among them."""
        if self.path is ExecutionPath.ROWS:
            return self.up.schema, self.up.key
        format_ = JvmPartials(self.op, self.up).format
        return format_.schema, format_.key

    def final_stage(self) -> WindowStage:
        """Return the stage that windows leave from: it takes rows, or on the other path partials."""
        stage = WindowStage if self.path is ExecutionPath.ROWS else FinalAggregateStage
        return stage(self.op, self.up, StageContext(STEP, self.where, Accounts(), WallClock()))

    def pack_by_group(self, batches: ArrowBatches) -> ArrowBatches:
        """Run before the exchange: pack rows, or what the JVM made of them, by group."""
        (schema, key), groups = self.wire_format, self.groups
        partitioner = WirePartitioner(key, schema)
        for batch in _coalesce(self._to_batches(batches), schema):
            packed = [
                (groups[place], body)
                for place, rows in partitioner.partition(batch, 0, len(groups))
                for body in pack_pieces(rows)
            ]
            names, bodies = zip(*packed, strict=True)
            columns = [pa.array(names, pa.int32()), pa.array(bodies, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def compute_windows(self, batches: ArrowBatches) -> ArrowBatches:
        """Run after the exchange of a batch frame: take everything in, then emit all windows."""
        stage, (schema, _) = self.final_stage(), self.wire_format
        for columns in batches:
            batch = _unpack_bodies(columns.column(BODY).to_pylist(), schema)
            for _ in () if batch is None else stage.on_batch(batch, BEFORE_ALL):
                raise AssertionError("nothing leaves before all is in")
        for _, results in stage.drain():
            for start in range(0, results.num_rows, BATCH_ROWS):
                yield results.rows.slice(start, BATCH_ROWS)

    def unpack_results(self, batches: ArrowBatches) -> ArrowBatches:
        """Run after the state operator: unpack results."""
        schema = self.results
        for columns in batches:
            for body in columns.column(BODY).to_pylist():
                yield unpack_batch(body, schema).rows

    def _to_batches(self, batches: ArrowBatches) -> Iterator[Batch]:
        """Yield rows with their times beside them, of which none is null; or partials of them."""
        if self.path is ExecutionPath.JVM:
            yield from map(JvmPartials(self.op, self.up).to_batch, batches)
            return
        for columns in batches:
            rows = from_spark(columns, self.up.schema)
            yield Batch(rows, rows.column(self.time).cast(pa.int64()).to_numpy(zero_copy_only=False))


def _reads_columns_only(op: Windows) -> bool:
    """Return whether all aggregates are of columns as they are.

    Expressions read the clock and the calendar of the session, which must be those of every engine.
    """
    values = [aggregate.value for aggregate in (op.aggregates or {}).values()]
    return all(value is None or isinstance(value, Column) for value in values)


def _coalesce(batches: Iterator[Batch], schema: pa.Schema) -> Iterator[Batch]:
    """Put batches together until they are worth a body per group."""
    pending: list[Batch] = []
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
        if sum(waiting.num_rows for waiting in pending) >= BATCH_ROWS:
            yield merge_batches(pending, schema)
            pending = []
    if pending:
        yield merge_batches(pending, schema)


def _unpack_bodies(bodies: Sequence[bytes], schema: pa.Schema) -> Batch | None:
    """Return packed batches as one; None if there are none."""
    return merge_batches([unpack_batch(body, schema) for body in bodies], schema) if bodies else None


class GroupWindows:
    """The windows of all groups that one task has; the stage is built once."""

    def __init__(self, task: WindowTask) -> None:
        self._path, self._stage = task.path, task.final_stage()
        self._schema = task.wire_format[0]
        self._resolved = task.windows

    def advance(
        self, state: bytes | None, bodies: Sequence[bytes], watermark: int
    ) -> tuple[bytes | None, list[bytes]]:
        """Take packed batches in and emit the windows that the watermark has passed.

        Returns the state that is left, if any, and packed results.
        """
        self._stage.restore({} if state is None else {0: state})
        outputs = self._process(_unpack_bodies(bodies, self._schema), watermark)
        results = [body for port, batch in outputs if port == OUT for body in pack_pieces(batch)]
        return self._stage.snapshot_whole(), results

    def _process(self, batch: Batch | None, watermark: int) -> Emitted:
        if self._path is ExecutionPath.JVM:
            # Why first: this very watermark closed these slices, and the windows that it closes need them.
            yield from () if batch is None else self._stage.on_batch(batch, NEVER)
            yield from self._stage.on_watermark(watermark)
            return
        yield from self._stage.on_watermark(watermark)
        yield from () if batch is None else self._stage.on_batch(batch, watermark)

    def next_emission(self, watermark: int) -> int:
        """Return the least watermark by which something may leave, if nothing more comes in."""
        lateness = self._resolved.lateness
        return min(
            first_open(window, watermark, lateness) + window.size + lateness
            if isinstance(window, TimeWindow)
            else watermark + 1
            for _, window in self._resolved.windows
        )


class WindowProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark is untyped to mypy here
    """The windows of some groups of buckets, as Spark calls them."""

    def __init__(self, task: WindowTask, shift: int) -> None:
        self._task, self._shift = task, shift

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Receive the state from Spark."""
        self._handle = handle
        self._state = handle.getValueState("pieces", STATE)
        self._windows = GroupWindows(self._task)
        self._seen: set[Any] = set()  # groups that were called in this batch

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Take packed batches of a group in."""
        bodies = [bytes(body) for frame in rows for body in frame[BODY]]
        self._seen.add(key)
        yield from self._advance(bodies, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        """Emit the windows of a group that the watermark may have passed."""
        if key not in self._seen:
            self._seen.add(key)
            yield from self._advance([], timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Do nothing: all that is held is the state."""

    def _advance(self, bodies: list[bytes], watermark_ms: int) -> Iterator[Any]:
        import pandas as pd

        watermark = NEVER if watermark_ms <= 0 else watermark_ms * 1_000 - self._shift
        held = self._state.get()
        before = None if held is None else bytes(held[0])
        state, results = self._windows.advance(before, bodies, watermark)
        if state is not None:
            self._state.update((state,))
            at = -(-(self._windows.next_emission(watermark) + self._shift) // 1_000)
            self._handle.registerTimer(max(at, watermark_ms + 1, 1))
        elif before is not None:
            self._state.clear()
        if results:
            yield pd.DataFrame({BODY: results})
