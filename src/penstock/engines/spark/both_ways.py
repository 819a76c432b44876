"""Time windows that take rows and parts: whoever is before the exchange decides which it sends.

Rows are judged here by the watermark before their round; parts were judged where they were made, by the same
one. The state is that of keyed windows, so a run may go on from a checkpoint whatever was sent before.
"""

from __future__ import annotations

from penstock.operators.op import ERRORS, LATE
from penstock.operators.windows import Windows
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.batch import Batch
from penstock.stages.patterns.part_stages import PanesJoined, PaneStage
from penstock.stages.patterns.parts import PARTS
from penstock.stages.row_places import merged
from penstock.stages.site import Site
from penstock.stages.window_stage import Out, WindowStage

WORTH = 2
"""Parts go over the exchange while there are at least so many rows to each."""


class RowsAndParts(PanesJoined):
    """The stage behind the exchange."""

    def on_batch(self, batch: Batch, watermark: float) -> Out:
        """Take rows in, as keyed windows do."""
        return WindowStage.on_batch(self, batch, watermark)

    def on_parts(self, parts: Batch) -> None:
        """Take parts in; those judged by a later watermark wait for it."""
        self._waiting.append(parts)
        self._take_waiting()


class PartsOfRound:
    """Before the exchange: the rows of each round as parts, or as they are where parts would not be fewer."""

    def __init__(self, step: Step, site: Site, accounts: Accounts) -> None:
        self.accounts = accounts
        assert isinstance(step.op, Windows), "only windows come in parts"
        self.step = step
        self._stage = PaneStage(step.op, step.up, site)
        self.format = self._stage.format
        self.waiting: list[Batch] = []
        self.worth = True

    def made(self, watermark: float) -> tuple[list[tuple[str, Batch]], list[Batch]]:
        """What the rows that wait become, by port; and rows that are better sent as they are."""
        waiting, self.waiting = self.waiting, []
        if not waiting or not self.worth:
            return [], waiting
        rows = merged(waiting, self.step.up.schema) if len(waiting) > 1 else waiting[0]
        self._stage.restore({})  # a round that is done again is judged by the watermark of its own
        found = [*self._stage.on_batch(rows, watermark), *self._stage.flush()]
        assert all(port in (PARTS, LATE, ERRORS) for port, _ in found), "results leave behind the exchange"
        n_parts = sum(batch.num_rows for port, batch in found if port == PARTS)
        self.worth = n_parts * WORTH <= rows.num_rows
        return found, []
