"""The state operator: Spark keeps the pieces of each group, calls once per batch, and wakes groups by timer.

Spark's watermark is in milliseconds and starts at 0. It runs on times that are moved by `shift`, so that 0 is
before all of them; and 0 itself means that nothing is known yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from penstock.spark.packing import BODY
from penstock.spark.recipe import Recipe
from penstock.spark.turns import Pieces, Turns
from penstock.stages.store import NEVER

STATE = "bucket array<int>, piece array<binary>"
RESULTS = f"{BODY} binary"


class WindowProcessor(StatefulProcessor):  # type: ignore[misc]  # pyspark is untyped to mypy here
    """Windows of some groups of buckets."""

    def __init__(self, recipe: Recipe, shift: int) -> None:
        self._recipe, self._shift = recipe, shift

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark gives the state."""
        self._handle = handle
        self._state = handle.getValueState("pieces", STATE)
        self._turns = Turns(self._recipe)
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
