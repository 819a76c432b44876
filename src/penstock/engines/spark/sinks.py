"""Sinks on the driver: the rows of a round are written and committed under the round's number."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.connect.protocol import Output
from penstock.engines.spark import crash_points
from penstock.errors import ConnectorError, PenstockError
from penstock.expr.failure import reason_of
from penstock.operators.sink import Sink
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step


class Writing:
    """One sink at work. A round that brings nothing is not committed."""

    def __init__(self, step: Step, accounts: Accounts) -> None:
        assert isinstance(step.op, Sink), "only sinks write"
        self.step, self._writer, self._accounts = step, step.op.writer, accounts
        self._output: Output | None = None

    def open(self, *, resume: bool) -> None:
        """Begin to write; `resume` when a checkpoint says that this run goes on from another."""
        try:
            self._output = self._writer.open(self.step.up.schema, self.step.name, resume=resume)
        except Exception as cause:
            raise self._failed("could not open", cause) from cause

    def write(self, number: int, batches: Sequence[pa.RecordBatch]) -> int:
        """Write the rows of a round and make them visible; gives how many they are."""
        assert self._output is not None, "sinks are opened first"
        n_rows = sum(int(batch.num_rows) for batch in batches)
        if n_rows:
            try:
                for batch in batches:
                    self._output.write(number, batch)
                self._output.commit(number)
                crash_points.reached(crash_points.COMMITTED)
            except Exception as cause:
                raise self._failed("could not write", cause) from cause
        self._accounts.rows_in += n_rows
        self._accounts.passed += n_rows
        self._accounts.rows_out += n_rows
        return n_rows

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
            failure = ConnectorError(f"{what} {self._writer.describe()}", detail=reason_of(cause))
        return failure.at(self.step.name, self.step.where)
