"""The state operator of a streaming frame: Spark keeps the state of each group of buckets.

Spark calls once per group and batch, and wakes groups by timer; `GroupWindows` does the work and knows
nothing of Spark. Spark's watermark is in milliseconds and starts at 0. It runs on times that are moved by
`shift`, so that 0 is before all of them; and 0 itself means that nothing is known yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from penstock.engines.spark.dataframes.batches import BODY, packed_schema, unpack_bodies
from penstock.engines.spark.dataframes.window_task import STEP, ExecutionPath, WindowTask
from penstock.engines.spark.wire import pack_pieces
from penstock.frozen import dataclass
from penstock.operators.op import OUT
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.input import NEVER
from penstock.stages.snapshot import decode_bucket, window_fingerprint
from penstock.timing.slices import first_open
from penstock.timing.windows import TimeWindow

STATE = "bucket array<int>, piece array<binary>"
RESULTS = f"{BODY} binary"

Pieces = Mapping[int, bytes]
"""A stage's state by bucket."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What one call for a group gives: the buckets that still have state, and packed results."""

    pieces: Pieces
    results: tuple[bytes, ...]


class GroupWindows:
    """The windows of all groups that one task has; the stage is built once."""

    def __init__(self, task: WindowTask) -> None:
        self._path, self._stage = task.path, task.final_stage()
        self._schema = packed_schema(task)[0]
        self._resolved, self._slicings = task.windows, dict(task.slicings)
        self._fingerprint = window_fingerprint(task.op, task.up, totally_ordered=False)

    def advance(self, pieces: Pieces, bodies: Sequence[bytes], watermark: int) -> GroupResult:
        """Takes packed batches in and emits the windows that the watermark has passed."""
        self._stage.restore(pieces)
        batch = unpack_bodies(bodies, self._schema)
        results = tuple(body for result in self._process(batch, watermark) for body in pack_pieces(result))
        changed = self._stage.snapshot()
        unchanged = {bucket: piece for bucket, piece in pieces.items() if bucket not in changed}
        live = {bucket: piece for bucket, piece in changed.items() if self._n_keys(piece)}
        return GroupResult(unchanged | live, results)

    def _process(self, batch: Batch | None, watermark: int) -> Iterator[Batch]:
        if self._path is ExecutionPath.JVM:
            # Why first: this very watermark closed these slices, and the windows that it closes need them.
            yield from self._take_in(batch, NEVER)
            yield from self._emit(watermark)
            return
        yield from self._emit(watermark)
        if batch is not None and self._path is ExecutionPath.PARTIALS:
            batch = self._drop_late(batch, watermark)
        yield from self._take_in(batch, watermark)

    def _emit(self, watermark: int) -> Iterator[Batch]:
        return (batch for port, batch in self._stage.on_watermark(watermark) if port == OUT)

    def _take_in(self, batch: Batch | None, watermark: int) -> Iterator[Batch]:
        if batch is not None:
            yield from (result for port, result in self._stage.on_batch(batch, watermark) if port == OUT)

    def _drop_late(self, partials: Batch, watermark: int) -> Batch:
        """Returns the slices that some open window needs: all rows of a slice are in the same windows."""
        windows = partials.rows.column("window").to_numpy()
        needed = np.zeros(partials.num_rows, np.bool_)
        for window, slicing in self._slicings.items():
            is_open = partials.times >= slicing.open_from(watermark, self._resolved.lateness)
            needed |= (windows == window) & is_open
        return partials.where(needed)

    def next_emission(self, watermark: int) -> int:
        """Returns the least watermark by which something may leave, if nothing more comes in."""
        lateness = self._resolved.lateness
        return min(
            first_open(window, watermark, lateness) + window.size + lateness
            if isinstance(window, TimeWindow)
            else watermark + 1
            for _, window in self._resolved.windows
        )

    def _n_keys(self, piece: bytes) -> int:
        return decode_bucket(piece, STEP, self._fingerprint).n_keys


class WindowProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark is untyped to mypy here
    """The windows of some groups of buckets, as Spark calls them."""

    def __init__(self, task: WindowTask, shift: int) -> None:
        self._task, self._shift = task, shift

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Receives the state from Spark."""
        self._handle = handle
        self._state = handle.getValueState("pieces", STATE)
        self._windows = GroupWindows(self._task)
        self._seen: set[Any] = set()  # groups that were called in this batch

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Takes packed batches of a group in."""
        bodies = [bytes(body) for frame in rows for body in frame[BODY]]
        self._seen.add(key)
        yield from self._advance(bodies, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        """Emits the windows of a group that the watermark may have passed."""
        if key not in self._seen:
            self._seen.add(key)
            yield from self._advance([], timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Does nothing: all that is held is the state."""

    def _advance(self, bodies: list[bytes], watermark_ms: int) -> Iterator[Any]:
        watermark = NEVER if watermark_ms <= 0 else watermark_ms * 1_000 - self._shift
        before = self._pieces()
        result = self._windows.advance(before, bodies, watermark)
        if result.pieces:
            self._keep(result.pieces)
            at = -(-(self._windows.next_emission(watermark) + self._shift) // 1_000)
            self._handle.registerTimer(max(at, watermark_ms + 1, 1))
        elif before:
            self._state.clear()
        if result.results:
            yield pd.DataFrame({BODY: list(result.results)})

    def _pieces(self) -> Pieces:
        held = self._state.get() if self._state.exists() else None
        return {} if held is None else dict(zip(held[0], map(bytes, held[1]), strict=True))

    def _keep(self, pieces: Pieces) -> None:
        self._state.update((list(pieces), list(pieces.values())))
