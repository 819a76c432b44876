"""Seats where rows leave the steps of a node: sinks, rows wanted in hand, rows that are only dealt."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pyarrow as pa

from penstock.engines.local.seats import Seat, count
from penstock.engines.local.stretch import Plain, Stretch
from penstock.engines.marks import Mark
from penstock.engines.writing import Writing
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step
from penstock.stages.batch import Batch, columns_together


class SinkSeat(Seat):
    """Writes and commits the rows of each round under its number; also a `stretch.Tail` of single rows.

    written  rows of the last round
    """

    every_round: ClassVar[bool] = False

    def __init__(self, step: Step, writing: Writing) -> None:
        super().__init__(step)
        self.writing, self.accounts = writing, writing.accounts
        self._waiting: list[Batch] = []
        self.written = self._n_alone = 0
        self._write_row: Callable[[int, Plain], object] = writing.write_row
        self.tally = self._count_alone

    def feed(self, batch: Batch) -> None:
        """Rows wait for the end of the round."""
        self._waiting.append(batch)

    def pass_on(self, number: int, mark: Mark) -> Mark:
        """Write and commit."""
        batches, self._waiting = self._waiting, []
        self.written = self.writing.write_batches(number, batches)
        return mark

    def begin(self, stretch: Stretch, number: int, mark: Mark) -> None:
        """The output is open by now."""
        self._write_row = self.writing.shows_row or self.writing.write_row

    def moved(self, mark: Mark) -> None:
        """No mark concerns it."""

    def put_row(self, values: Plain | None, number: int) -> bool:
        """Write and commit a row that is all of a round."""
        if values is not None:
            self._write_row(number, values)
            self._n_alone += 1
        return False

    def end(self, number: int) -> int:
        """Nothing is behind it."""
        return 0

    def _count_alone(self, accounts: Accounts) -> None:
        """Add the rows that came by themselves."""
        count(accounts, self._n_alone, self._n_alone)


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
