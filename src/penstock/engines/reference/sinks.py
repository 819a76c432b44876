"""Sinks: the rows of a round are written and committed under the round's number."""

from __future__ import annotations

from penstock.connect.protocol import Output
from penstock.engines.reference.node import Arrived, Node, Outputs, Site
from penstock.engines.timed import batch_of
from penstock.errors import ConnectorError, PenstockError
from penstock.expr.failure import reason_of
from penstock.operators.sink import Sink


class SinkNode(Node):
    """Writes what comes, in the order it comes. A round that brings nothing is not committed."""

    def __init__(self, site: Site, op: Sink) -> None:
        super().__init__(site)
        self._op = op
        self._output: Output | None = None
        self._next = 0
        self.written = 0

    def open(self) -> None:
        """Begin to write; the interpreter opens all sinks before anything is read."""
        step = self.site.step
        try:
            self._output = self._op.writer.open(step.up.schema, step.name)
        except Exception as cause:
            raise self._failed("could not open", cause) from cause

    def round(self, arrived: Arrived) -> Outputs:
        """Write the rows under this round's number and make them visible."""
        number, self._next = self._next, self._next + 1
        self.written = len(arrived.only)
        if arrived.only:
            assert self._output is not None, "the interpreter opens sinks first"
            try:
                self._output.write(number, batch_of(arrived.only, self.site.step.up.schema))
                self._output.commit(number)
            except Exception as cause:
                raise self._failed("could not write", cause) from cause
        self.accounts.passed += self.written
        self.accounts.rows_out += self.written
        return {}

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
        """A writer's own error as it is; anything else with the step that it happened in."""
        if isinstance(cause, PenstockError):
            return cause
        return ConnectorError(f"{what} {self._op.writer.describe()}", detail=reason_of(cause))
