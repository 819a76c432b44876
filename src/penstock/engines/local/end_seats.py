"""Seats where rows leave the steps of a node: sinks, rows wanted in hand, rows that are only dealt."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.engines.local.seats import Seat
from penstock.engines.marks import Mark
from penstock.engines.writing import Writing
from penstock.plan.step import Step
from penstock.stages.batch import Batch, columns_together


class SinkSeat(Seat):
    """Writes and commits the rows of each round under its number."""

    def __init__(self, step: Step, writing: Writing) -> None:
        super().__init__(step)
        self.writing, self.accounts = writing, writing.accounts
        self._waiting: list[Batch] = []
        self.written = 0
        self._write_row, self.tally = writing.write_row, writing.count_rows

    def feed(self, batch: Batch) -> None:
        """Rows wait for the end of the round."""
        self._waiting.append(batch)

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Write and commit."""
        batches, self._waiting = self._waiting, []
        self.written = self.writing.write_batches(number, batches)
        return mark

    def put_row(
        self,
        values: Mapping[str, object] | None,
        time: int,
        order: tuple[int, ...],
        pace: int,
        number: int,
        turn: int,
        mark: Mark,
        now: int,
    ) -> bool:
        """Write and commit a row that is all of a round (`line.Tail`)."""
        if values is not None:
            self._write_row(turn, values)
        return False


class Collection:
    """Rows that are wanted in hand."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[Batch] = []
        self._n_taken = 0

    def feed(self, batch: Batch) -> None:
        """Keep the rows."""
        self._batches.append(batch)

    def table(self) -> pa.Table:
        """All rows so far."""
        return self._from(0)

    def take(self) -> pa.Table:
        """The rows since the last take."""
        first, self._n_taken = self._n_taken, len(self._batches)
        return self._from(first)

    def _from(self, first: int) -> pa.Table:
        return pa.Table.from_batches(columns_together(self._batches[first:]), schema=self._schema)


class PassSeat(Seat):
    """Rows of a port as they come: where a node of its own deals them."""

    def __init__(self, step: Step, port: str) -> None:
        super().__init__(step)
        self._port = port

    def feed(self, batch: Batch) -> None:
        """Pass them on."""
        for target in self.targets.get(self._port, ()):
            target(batch)

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Nothing waits here."""
        return mark


class CollectSeat(Seat):
    """Collects the rows of several replicas in a node of its own."""

    def __init__(self, step: Step, collection: Collection) -> None:
        super().__init__(step)
        self.feed = collection.feed  # type: ignore[method-assign]  # one call less per batch

    def feed(self, batch: Batch) -> None:
        """Keep the rows."""

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Nothing happens at the end of a round."""
        return mark
