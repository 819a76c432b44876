"""Sinks: the rows of a round are written and committed under the round's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.connect.protocol import Output
from penstock.crash_points import COMMITTED, pass_crash_point
from penstock.errors import CheckpointError, ConnectorError, PenstockError, describe_cause
from penstock.operators.sink import Sink
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch

_Takes = Callable[[int, Sequence[Mapping[str, object]], pa.Schema], None]


class SinkWriter:
    """One sink at work. A round that brings nothing is not committed.

    shows_row  does what `write_row` does, where the output has a way for it that cannot fail
    """

    def __init__(self, step: Step, accounts: Accounts) -> None:
        assert isinstance(step.op, Sink), "only sinks write"
        self.step, self._writer, self.accounts = step, step.op.writer, accounts
        self._output: Output | None = None
        self._schema = step.up.schema
        self._put_plain: _Takes | None = None
        self.shows_row: Callable[[int, Mapping[str, object]], object] | None = None

    def open(self, *, resume: bool, n_written: int = 0) -> None:
        """Begin to write; `resume` when a checkpoint says that this run goes on from another, which had
        written so many rows.
        """
        try:
            self._output = self._writer.open(self.step.up.schema, self.step.name, resume=resume)
            self._put_plain = getattr(self._output, "write_plain", None)
            self.shows_row = getattr(self._output, "show_row", None)
        except Exception as cause:
            raise self._failed("could not open", cause) from cause
        if resume and n_written and getattr(self._output, "committed", 0) is None:
            self.close()
            raise CheckpointError(
                f"{n_written:,} rows have been written to {self._writer.describe()}, and they are not there",
                step=self.step.name,
                where=self.step.where,
                detail="the checkpoint goes on behind them, so they would stay lost",
                hint="bring the output back, or start over with an empty checkpoint folder",
            )

    def write(self, number: int, batches: Sequence[pa.RecordBatch]) -> int:
        """Write the rows of a round and make them visible; gives how many they are."""
        return self._written(number, batches)

    def write_batches(self, number: int, batches: Sequence[Batch]) -> int:
        """The same for batches; an output that takes plain rows gets those that are at hand so."""
        return self._written(number, batches)

    def write_row(self, number: int, row: Mapping[str, object]) -> None:
        """Write a plain row that is all of a round, and make it visible; who calls it counts it."""
        assert self._output is not None, "sinks are opened first"
        try:
            self._put(number, Batch.from_rows((row,), self._schema, (0,)))
            self._output.commit(number)
            pass_crash_point(COMMITTED)
        except Exception as cause:
            raise self._failed("could not write", cause) from cause

    def _written(self, number: int, batches: Sequence[Batch | pa.RecordBatch]) -> int:
        assert self._output is not None, "sinks are opened first"
        n_rows = sum([batch.num_rows for batch in batches])
        if n_rows:
            try:
                for batch in batches:
                    self._put(number, batch)
                self._output.commit(number)
                pass_crash_point(COMMITTED)
            except Exception as cause:
                raise self._failed("could not write", cause) from cause
        self.accounts.rows_in += n_rows
        self.accounts.passed += n_rows
        self.accounts.rows_out += n_rows
        return n_rows

    def _put(self, number: int, batch: Batch | pa.RecordBatch) -> None:
        assert self._output is not None, "sinks are opened first"
        if type(batch) is not Batch:
            self._output.write(number, batch)
        elif batch.plain is not None and self._put_plain is not None:
            self._put_plain(number, batch.plain, batch.schema)
        else:
            self._output.write(number, batch.rows)

    def hurry(self) -> None:
        """The run is to end: who waits for somebody else need not wait long. Any thread may say so."""
        hurry = getattr(self._output, "hurry", None)
        if hurry is not None:
            hurry()

    def close(self) -> None:
        """Close the output, if it was opened."""
        output, self._output = self._output, None
        if output is None:
            return
        try:
            output.close()
        except Exception as cause:
            raise self._failed("could not close", cause) from cause

    def _failed(self, what: str, cause: Exception) -> PenstockError:
        failure = cause
        if not isinstance(failure, PenstockError):
            failure = ConnectorError(f"{what} {self._writer.describe()}", detail=describe_cause(cause))
        return failure.at(self.step.name, self.step.where)
