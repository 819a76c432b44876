"""One turn of a group of buckets: state and packed batches in, a watermark; state and results out.

The state operator of Spark calls this once per group and batch; nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from penstock.engines.spark.dataframes.packing import BODY, packed_schema, unpack_bodies
from penstock.engines.spark.dataframes.partials import STEP, ExecutionPath, WindowTask
from penstock.engines.spark.wire import pack_pieces
from penstock.frozen import dataclass
from penstock.operators.op import OUT
from penstock.stages.rows.batch import Batch
from penstock.stages.snapshot import decode_bucket, window_fingerprint
from penstock.stages.window.store import NEVER
from penstock.timing.slices import first_open
from penstock.timing.windows import TimeWindow

Pieces = Mapping[int, bytes]
"""A stage's state by bucket."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What a turn gives: the buckets that still have state, and packed results."""

    pieces: Pieces
    results: tuple[bytes, ...]


class GroupWindows:
    """The work of all groups that one task has; the stage is made once."""

    def __init__(self, recipe: WindowTask) -> None:
        self._recipe, self._stage = recipe, recipe.stage()
        self._schema = packed_schema(recipe)[0]
        self._resolved, self._slicings = recipe.resolved, dict(recipe.slicings)
        self._depends_on = window_fingerprint(recipe.op, recipe.up, totally_ordered=False)

    def turn(self, pieces: Pieces, bodies: Sequence[bytes], watermark: int) -> GroupResult:
        """Take packed batches in and let go what the watermark has passed."""
        self._stage.restore(pieces)
        came = unpack_bodies(bodies, self._schema)
        results = tuple(body for batch in self._worked(came, watermark) for body in pack_pieces(batch))
        changed = self._stage.snapshot()
        kept = {bucket: piece for bucket, piece in pieces.items() if bucket not in changed}
        return GroupResult(kept | {b: piece for b, piece in changed.items() if self._n_keys(piece)}, results)

    def _worked(self, came: Batch | None, watermark: int) -> Iterator[Batch]:
        if self._recipe.road is ExecutionPath.NATIVE:
            # These slices left the JVM by this very watermark, and windows that leave by it need them.
            yield from self._taken(came, NEVER)
            yield from self._left(watermark)
            return
        yield from self._left(watermark)
        if came is not None and self._recipe.road is ExecutionPath.PARTS:
            came = self._not_late(came, watermark)
        yield from self._taken(came, watermark)

    def _left(self, watermark: int) -> Iterator[Batch]:
        return (batch for port, batch in self._stage.on_watermark(watermark) if port == OUT)

    def _taken(self, came: Batch | None, watermark: int) -> Iterator[Batch]:
        if came is not None:
            yield from (batch for port, batch in self._stage.on_batch(came, watermark) if port == OUT)

    def _not_late(self, parts: Batch, watermark: int) -> Batch:
        """The slices that some open window needs: all rows of a slice are in the same windows."""
        kinds = parts.rows.column("window").to_numpy()
        kept = np.zeros(parts.num_rows, np.bool_)
        for kind, slicing in self._slicings.items():
            kept |= (kinds == kind) & (parts.times >= slicing.open_from(watermark, self._resolved.lateness))
        return parts.where(kept)

    def next_turn(self, watermark: int) -> int:
        """The least watermark by which something may leave, if nothing more comes in."""
        lateness = self._resolved.lateness
        return min(
            first_open(window, watermark, lateness) + window.size + lateness
            if isinstance(window, TimeWindow)
            else watermark + 1
            for _, window in self._resolved.windows
        )

    def _n_keys(self, piece: bytes) -> int:
        return decode_bucket(piece, STEP, self._depends_on).n_keys


# The state operator: Spark keeps the pieces of each group, calls once per batch, and wakes groups by
# timer.
#
# Spark's watermark is in milliseconds and starts at 0. It runs on times that are moved by `shift`, so that
# 0 is before all of them; and 0 itself means that nothing is known yet.

STATE = "bucket array<int>, piece array<binary>"
RESULTS = f"{BODY} binary"


class WindowProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark is untyped to mypy here
    """Windows of some groups of buckets."""

    def __init__(self, recipe: WindowTask, shift: int) -> None:
        self._recipe, self._shift = recipe, shift

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark gives the state."""
        self._handle = handle
        self._state = handle.getValueState("pieces", STATE)
        self._turns = GroupWindows(self._recipe)
        self._seen: set[Any] = set()  # groups that had their turn in this batch

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """Packed batches came for a group."""
        bodies = [bytes(body) for frame in rows for body in frame[BODY]]
        self._seen.add(key)
        yield from self._turn(bodies, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        """The watermark has come to where something of a group may leave."""
        if key not in self._seen:
            self._seen.add(key)
            yield from self._turn([], timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Nothing is held but the state."""

    def _turn(self, bodies: list[bytes], watermark_ms: int) -> Iterator[Any]:
        watermark = NEVER if watermark_ms <= 0 else watermark_ms * 1_000 - self._shift
        before = self._pieces()
        turned = self._turns.turn(before, bodies, watermark)
        if turned.pieces:
            self._keep(turned.pieces)
            at = -(-(self._turns.next_turn(watermark) + self._shift) // 1_000)
            self._handle.registerTimer(max(at, watermark_ms + 1, 1))
        elif before:
            self._state.clear()
        if turned.results:
            yield pd.DataFrame({BODY: list(turned.results)})

    def _pieces(self) -> Pieces:
        held = self._state.get() if self._state.exists() else None
        return {} if held is None else dict(zip(held[0], map(bytes, held[1]), strict=True))

    def _keep(self, pieces: Pieces) -> None:
        self._state.update((list(pieces), list(pieces.values())))
