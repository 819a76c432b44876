"""What steps without state have in common: rows go through at once, keep their time, and nothing is saved.

Such a stage gives back whatever a batch becomes, whichever watermark judges it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.operators.op import ERRORS
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch
from penstock.stages.site import Site

if TYPE_CHECKING:
    from penstock.stages.by_row import ByRow

Out = Iterator[tuple[str, Batch]]


class Stateless(ABC):
    """One replica of a step that handles each batch by itself."""

    def __init__(self, up: Stream, site: Site) -> None:
        self.up, self.site = up, site

    def at_once(self, batch: Batch) -> Batch | None:
        """All that some rows become, where that goes out on the main port, and the others are filtered.

        None where it is not as simple as that: then nothing has been done, and `made` is to be asked. Rows
        are counted by who asks.
        """
        return None

    def by_row(self) -> ByRow | None:
        """What is made of a single plain row, where the stage has a shorter way for it."""
        return None

    @abstractmethod
    def made(self, batch: Batch) -> Out:
        """What some rows become, by port; counts them. Batches without rows may be among it."""

    @abstractmethod
    def explain(self) -> list[str]:
        """How the step is carried out, and why."""

    def on_batch(self, batch: Batch, watermark: float) -> Out:
        """The rows of a batch, at once."""
        self.site.accounts.rows_in += batch.num_rows
        if batch.num_rows == 0:
            return
        for port, rows in self.made(batch):
            if rows.num_rows:
                if port != ERRORS:
                    self.site.accounts.rows_out += rows.num_rows
                yield port, rows

    def on_watermark(self, watermark: float) -> Out:
        """Nothing waits."""
        return iter(())

    def drain(self) -> Out:
        """Nothing waits."""
        return iter(())

    def snapshot(self) -> dict[int, bytes]:
        """Nothing is kept."""
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Nothing to take up."""
        assert not saved, f"the stateless step {self.site.step} was given {len(saved)} buckets of state"
