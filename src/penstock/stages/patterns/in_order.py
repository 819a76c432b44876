"""Results of several replicas in order: by (window_end, window_start) per key, as one replica gives them.

Results wait until the watermark, the least of all replicas, says that no earlier one can come. So between two
watermarks that all replicas have passed nothing waits, and there is nothing to save.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import FINAL, START, WINDOW, Windows
from penstock.stages.batch import Batch, Ints, Mask, joined
from penstock.stages.window_stage import Out


class InOrder:
    """The stage after parallel windows. Results were counted by the replicas that made them."""

    def __init__(self, op: Windows, up: Stream) -> None:
        self._schema = op.outputs({IN: up})[OUT].schema
        self._resolved = op.resolved(up)
        self._waiting: list[Batch] = []

    def on_batch(self, batch: Batch, watermark: float) -> Out:
        """Keep results until all replicas have come as far."""
        self._waiting.append(batch)
        return iter(())

    def on_watermark(self, watermark: float) -> Out:
        """Give the results of windows that the watermark has passed, and early ones."""
        if not self._waiting:
            return
        waiting = joined(self._waiting, self._schema)
        ready = waiting.times + 1 + self._resolved.lateness <= watermark
        if self._resolved.early is not None:
            ready |= ~self._final(waiting)
        self._waiting = [] if ready.all() else [waiting.where(~ready)]
        if ready.any():
            given = waiting.where(ready)
            yield OUT, given.take(self._order(given))

    def drain(self) -> Out:
        """Give everything."""
        yield from self.on_watermark(float("inf"))

    def snapshot(self) -> Mapping[int, bytes]:
        """Nothing waits once a watermark has come from all replicas."""
        assert not self._waiting, "a snapshot is made between batches, when every replica has the watermark"
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Begin anew."""
        assert not saved, "results that wait are not saved"
        self._waiting = []

    def _final(self, batch: Batch) -> Mask:
        return np.asarray(batch.rows.column(FINAL).to_numpy(zero_copy_only=False), np.bool_)

    def _order(self, batch: Batch) -> Ints:
        """By end, start and window; rows of one window stay as they were."""
        columns = {"end": pa.array(batch.times), "start": batch.rows.column(START)}
        if self._resolved.labelled:
            labels = pa.array([label for label, _ in self._resolved.windows], pa.string())
            columns["window"] = pc.index_in(batch.rows.column(WINDOW), labels)
        columns["place"] = pa.array(np.arange(batch.num_rows))
        keys = [(name, "ascending") for name in columns]
        return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy(), np.int64)
