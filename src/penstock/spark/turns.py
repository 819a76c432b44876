"""One turn of a group of buckets: state and packed batches in, a watermark; state and results out.

The state operator of Spark calls this once per group and batch; nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from penstock.engines.spark.wire import packed
from penstock.frozen import dataclass
from penstock.operators.op import OUT
from penstock.spark.packing import carried_schema, opened
from penstock.spark.recipe import STEP, Recipe, Road
from penstock.stages.batch import Batch
from penstock.stages.fingerprint import fingerprint
from penstock.stages.saved_state import decode
from penstock.stages.store import NEVER
from penstock.timing.slices import first_open
from penstock.timing.windows import TimeWindow

Pieces = Mapping[int, bytes]
"""A stage's state by bucket."""


@dataclass(frozen=True, slots=True)
class Turned:
    """What a turn gives: the buckets that still have state, and packed results."""

    pieces: Pieces
    results: tuple[bytes, ...]


class Turns:
    """The work of all groups that one task has; the stage is made once."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._stage = recipe, recipe.stage()
        self._schema = carried_schema(recipe)[0]
        self._resolved, self._slicings = recipe.resolved, dict(recipe.slicings)
        self._depends_on = fingerprint(recipe.op, recipe.up, numbered=False)

    def turn(self, pieces: Pieces, bodies: Sequence[bytes], watermark: int) -> Turned:
        """Take packed batches in and let go what the watermark has passed."""
        self._stage.restore(pieces)
        came = opened(bodies, self._schema)
        results = tuple(body for batch in self._worked(came, watermark) for body in packed(batch))
        changed = self._stage.snapshot()
        kept = {bucket: piece for bucket, piece in pieces.items() if bucket not in changed}
        return Turned(kept | {b: piece for b, piece in changed.items() if self._n_keys(piece)}, results)

    def _worked(self, came: Batch | None, watermark: int) -> Iterator[Batch]:
        if self._recipe.road is Road.NATIVE:
            # These slices left the JVM by this very watermark, and windows that leave by it need them.
            yield from self._taken(came, NEVER)
            yield from self._left(watermark)
            return
        yield from self._left(watermark)
        if came is not None and self._recipe.road is Road.PARTS:
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
        return decode(piece, STEP, self._depends_on).n_keys
