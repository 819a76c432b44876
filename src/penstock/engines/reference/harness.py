"""A run fed by hand, one round per push: what the public test harness drives."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.connect.protocol import SourceBatch
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.reference.rounds import Interpreter
from penstock.engines.reference.run import begin, end, result
from penstock.errors import EngineError, GraphError, nearest_first
from penstock.plan.plan import Ref


class ReferenceHarness:
    """Everything happens in the calling thread, and is done when a call returns."""

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        self._interpreter, self._options = interpreter, options
        self._taken: dict[Ref, int] = {}
        self._over = False
        begin(interpreter)

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """One round: a batch per named source, nothing from the others."""
        sources = [step.name for step in self._interpreter.plan.sources]
        for name in batches:
            if name not in sources:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, sources))}",
                )
        self._round(batches)

    def promise(self, watermark: int) -> None:
        """Move every source's watermark to a time in microseconds, as an empty round."""
        self._refuse_over()
        for step in self._interpreter.plan.sources:
            self._interpreter.source(step.name).promise(watermark)
        self._round({})

    def take(self, ref: Ref) -> pa.Table:
        """Rows that left on a collected port since the last take."""
        if ref not in self._interpreter.collected:
            ports = nearest_first(str(ref), map(str, self._interpreter.collected))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        first = self._taken.get(ref, 0)
        self._taken[ref] = len(self._interpreter.collected[ref])
        return self._interpreter.table(ref, first)

    def end(self) -> RunResult:
        """End all sources and drain."""
        self._refuse_over()
        outcome = "failed"
        try:
            if self._options.drain:
                self._interpreter.drain()
            outcome = "drained" if self._options.drain else "stopped"
        finally:
            self._close(outcome)
        return result(self._interpreter, outcome)

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        return copy.deepcopy(self._interpreter.accounts)

    def _round(self, batches: Mapping[str, SourceBatch]) -> None:
        self._refuse_over()
        try:
            self._interpreter.round(batches)
        except BaseException:
            self._close("failed")
            raise

    def _close(self, outcome: str) -> None:
        self._over = True
        try:
            self._interpreter.close()
        finally:
            end(self._interpreter, outcome)

    def _refuse_over(self) -> None:
        if self._over:
            raise EngineError(
                f'the run of "{self._interpreter.plan.graph}" is over', hint="begin another session"
            )
