"""A run on Spark that is fed by hand: a push is a round, run by Spark jobs before the call returns."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.failures import translate_failure
from penstock.errors import EngineError, GraphError, nearest_first
from penstock.events import EventSink, RunEnded, RunStarted
from penstock.plan.plan import Plan, Ref


class SparkHarness:
    """What the public test harness drives."""

    def __init__(
        self,
        plan: Plan,
        loop: DriverLoop,
        checkpoint: Checkpoint,
        *,
        clock: Clock,
        events: EventSink,
        options: RunOptions,
    ) -> None:
        self._plan, self._loop, self._checkpoint = plan, loop, checkpoint
        self._clock, self._events, self._drain = clock, events, options.drain
        self._taken: dict[Ref, int] = {}
        self._over = False
        weakref.finalize(self, checkpoint.close)  # a session need not be ended, and is then just let go
        events(RunStarted(clock.now(), plan.graph, "spark", tuple(step.name for step in plan)))
        try:
            loop.open()
        except BaseException:
            self._fail()
            raise

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Runs one round: a batch per named source, nothing from the others."""
        sources = [step.name for step in self._plan.sources]
        for name in batches:
            if name not in sources:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, sources))}",
                )
        self._round(batches)

    def promise(self, watermark: int) -> None:
        """Moves every source's watermark to a time in microseconds, as an empty round."""
        self._refuse_over()
        self._loop.promise(watermark)
        self._round({})

    def take(self, ref: Ref) -> pa.Table:
        """Returns the rows that left on a collected port since the last take."""
        if ref not in self._loop.sinks.collected:
            ports = nearest_first(str(ref), map(str, self._loop.sinks.collected))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        first = self._taken.get(ref, 0)
        self._taken[ref] = len(self._loop.sinks.collected[ref])
        return self._loop.sinks.table(ref, first)

    def end(self) -> RunResult:
        """Ends all sources and drains."""
        if self._drain:
            self._round({}, last=True)
        self._refuse_over()
        self._over, outcome = True, "failed"
        try:
            self._loop.close()
            outcome = "drained" if self._drain else "stopped"
        finally:
            self._events(RunEnded(self._clock.now(), outcome, self._loop.batches))
            self._checkpoint.close()
        return RunResult(outcome, self._loop.batches, self.metrics(), self._loop.tables())

    def metrics(self) -> Mapping[str, Accounts]:
        """Returns the accounts so far."""
        return copy.deepcopy(self._loop.accounts)

    def _round(self, batches: Mapping[str, Any], *, last: bool = False) -> None:
        self._refuse_over()
        try:
            self._loop.run_round(batches, last=last)
        except BaseException as failure:
            self._fail()
            error = translate_failure(failure, self._plan)
            if error is failure:
                raise
            raise error from failure

    def _fail(self) -> None:
        self._over = True
        with suppress(Exception):  # what stopped the run matters more than what followed from it
            self._loop.close()
        self._events(RunEnded(self._clock.now(), "failed", self._loop.batches))
        self._checkpoint.close()

    def _refuse_over(self) -> None:
        if self._over:
            raise EngineError(f'the run of "{self._plan.graph}" is over', hint="begin another session")
