"""Sink writers: the rows of a round are written and committed under the round's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.connect.protocol import DurableOutput, Output, PlainOutput, RowOutput, WaitingOutput
from penstock.crash_points import COMMITTED, pass_crash_point
from penstock.errors import CheckpointError, ConnectorError, PenstockError, describe_cause
from penstock.operators.ends import Sink
from penstock.plan.plan import Step
from penstock.stages.rows.batch import Batch, RowBatch


class SinkWriter:
    """Writes one sink. A round without rows is not committed.

    write_row  writes and commits a plain row that is all the rows of a round, without counting it; outputs
               in memory have a shorter way of their own (benchmark: `python -m bench runtime`)
    """

    def __init__(self, step: Step, accounts: Accounts) -> None:
        assert isinstance(step.op, Sink), "only sinks write"
        self.step, self._writer, self.accounts = step, step.op.writer, accounts
        self._output: Output | None = None
        self._schema = step.up.schema
        self._plain: PlainOutput | None = None
        self.write_row: Callable[[int, Mapping[str, object]], object] = self._commit_row

    def open(self, *, resume: bool, n_written: int = 0) -> None:
        """Open the output.

        resume     whether a checkpoint says that this run continues an earlier one
        n_written  the number of rows that the earlier run had written
        """
        try:
            self._output = self._writer.open(self._schema, self.step.name, resume=resume)
            if isinstance(self._output, PlainOutput):
                self._plain = self._output
            if isinstance(self._output, RowOutput):
                self.write_row = self._output.commit_row
        except Exception as cause:
            raise self._error("could not open", cause) from cause
        # Why: the checkpoint goes on behind those rows, so without them they would stay lost.
        is_lost = isinstance(self._output, DurableOutput) and self._output.last_committed is None
        if resume and n_written and is_lost:
            self.close()
            raise CheckpointError(
                f"{n_written:,} rows have been written to {self._writer.describe()}, and they are not there",
                step=self.step.name,
                where=self.step.where,
                detail="the checkpoint goes on behind them, so they would stay lost",
                hint="bring the output back, or start over with an empty checkpoint folder",
            )

    def write(self, number: int, batches: Sequence[Batch | pa.RecordBatch]) -> int:
        """Write and commit the rows of a round; return their number."""
        n_rows = sum([batch.num_rows for batch in batches])
        if n_rows:
            self._commit(number, batches)
        self.accounts.rows_in += n_rows
        self.accounts.passed += n_rows
        self.accounts.rows_out += n_rows
        return n_rows

    def begin_shutdown(self) -> None:
        """Tell an output that waits for somebody else to stop waiting soon; any thread may call it."""
        if isinstance(self._output, WaitingOutput):
            self._output.begin_shutdown()

    def close(self) -> None:
        """Close the output, if it was opened."""
        output, self._output = self._output, None
        if output is None:
            return
        try:
            output.close()
        except Exception as cause:
            raise self._error("could not close", cause) from cause

    def _commit_row(self, number: int, row: Mapping[str, object]) -> None:
        self._commit(number, [RowBatch((row,), self._schema, (0,))])

    def _commit(self, number: int, batches: Sequence[Batch | pa.RecordBatch]) -> None:
        assert self._output is not None, "sinks are opened first"
        try:
            for batch in batches:
                if not isinstance(batch, Batch):
                    self._output.write(number, batch)
                elif batch.plain is not None and self._plain is not None:
                    self._plain.write_plain(number, batch.plain, batch.schema)
                else:
                    self._output.write(number, batch.rows)
            self._output.commit(number)
            pass_crash_point(COMMITTED)
        except Exception as cause:
            raise self._error("could not write", cause) from cause

    def _error(self, fact: str, cause: Exception) -> PenstockError:
        failure = cause
        if not isinstance(failure, PenstockError):
            failure = ConnectorError(f"{fact} {self._writer.describe()}", detail=describe_cause(cause))
        return failure.at(self.step.name, self.step.where)
