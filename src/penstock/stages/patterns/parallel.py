"""Parallel windows: whole windows, also of one key, dealt to replicas.

A replica takes in every row of its windows and, for slices are shared, holds parts of windows that are not
its own; these it lets go unseen. A row that several replicas get is judged and counted by its home
(`dealing.py`). A replica's state is of use to that replica only, so it cannot go to another number of them.
"""

from __future__ import annotations

import numpy as np

from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages.batch import Batch
from penstock.stages.patterns.dealing import WindowDeal
from penstock.stages.shelf import picked
from penstock.stages.site import Site
from penstock.stages.store import Left
from penstock.stages.window_stage import Out, WindowStage


class ParallelStage(WindowStage):
    """Replica number `replica` of those that `deal` deals windows to."""

    def __init__(
        self, op: Windows, up: Stream, site: Site, deal: WindowDeal, replica: int, *, numbered: bool = False
    ) -> None:
        self._deal, self._replica = deal, replica
        super().__init__(op, up, site, numbered=numbered)
        self._depends_on = {**self._depends_on, "replica": f"{replica + 1} of {deal.degree}"}

    def on_batch(self, batch: Batch, watermark: float) -> Out:
        """Take rows in: those at home here as any window stage does, guests without a word about them."""
        at_home = self._deal.homes(batch) == self._replica
        yield from super().on_batch(batch.where(at_home), watermark)
        if not at_home.all():
            self._take_guests(batch.where(~at_home))

    def _take_guests(self, batch: Batch) -> None:
        """Rows into windows; one that fails or is late is told of by its home."""
        lifted = self._lifting.lift(batch.rows)
        if lifted.failed is not None and lifted.failed.any():
            batch = batch.where(~lifted.failed)
            lifted = self._lifting.lift(batch.rows)
        if batch.num_rows == 0:
            return
        slots = self._slots(batch)
        self._touched.note(slots)
        arriving = self._arriving(batch, lifted, slots)
        for shelf in self._shelves:
            shelf.take(arriving, self._watermark)
        self._free(slots)

    def _given(self, lefts: list[Left], *, final: bool) -> Out:
        return super()._given([self._mine(left) for left in lefts], final=final)

    def _mine(self, left: Left) -> Left:
        """The windows that belong to this replica."""
        slots, which = np.unique(left.slots, return_inverse=True)
        buckets = self._keys.buckets_of(slots).astype(np.int64)
        owners = self._deal.owners(left.kinds, left.starts, buckets[which])
        return picked(left, np.flatnonzero(owners == self._replica))
