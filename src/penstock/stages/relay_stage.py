"""Relay: rows as they come, where streams meet and part again with nothing between."""

from __future__ import annotations

from penstock.operators.op import OUT
from penstock.stages.batch import Batch
from penstock.stages.stateless import Out, Stateless


class RelayStage(Stateless):
    """Passes every batch on."""

    def at_once(self, batch: Batch) -> Batch:
        """The batch itself."""
        return batch

    def made(self, batch: Batch) -> Out:
        """The batch itself."""
        self.site.accounts.passed += batch.num_rows
        yield OUT, batch

    def explain(self) -> list[str]:
        """Nothing to do."""
        return ["batches are passed on as they are"]
