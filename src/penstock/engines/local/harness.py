"""The engine harness: a run whose rows a test pushes, one round per push, all in the calling thread."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.engines.local.dispatch import run_task
from penstock.engines.local.metrics.statistics import READ_BLOCKED
from penstock.engines.local.options import Settings
from penstock.engines.local.run import build_runtime
from penstock.engines.local.tasks.source import PushedInput
from penstock.engines.protocol import RunOptions, RunResult
from penstock.errors import EngineError, GraphError, PenstockError, nearest_first
from penstock.events import EventSink, RunEnded, RunStarted, StepFailed
from penstock.plan.plan import Plan, Ref


class LocalHarness:
    """A run driven by a test; everything is done when a call returns."""

    def __init__(
        self, plan: Plan, settings: Settings, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        self._plan, self._options, self._clock, self._events = plan, options, clock, events
        self._inputs = {step.name: PushedInput() for step in plan.sources}
        self._ended = False
        events(RunStarted(clock.now(), plan.graph, "local", tuple(step.name for step in plan)))
        try:
            self._runtime = build_runtime(
                plan, settings, options, clock=clock, events=events, inputs=self._inputs
            )
            self._runtime.open_sinks()
        except BaseException as failure:
            self._report_failure(failure)
            raise
        self._runtime.dispatcher.may_starve = True
        self._runtime.dispatcher.begin(self._runtime.graph.tasks)
        self._drive()

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Run one round: a batch of each named source, nothing from the others."""
        for name in batches:
            if name not in self._inputs:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, list(self._inputs)))}",
                )
        self._refuse_after_end()
        for name, source in self._inputs.items():
            source.batches.append(batches.get(name))
        self._drive()

    def promise(self, watermark: int) -> None:
        """Move the watermark of every source to a time in microseconds, as an empty round."""
        self._refuse_after_end()
        for reader in self._runtime.graph.readers.values():
            reader.promise(watermark)
        self.push({})

    def take(self, ref: Ref) -> pa.Table:
        """Return the rows that left on a collected port since the last call."""
        collections = self._runtime.graph.collections
        if ref not in collections:
            ports = nearest_first(str(ref), map(str, collections))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        return collections[ref].take()

    def end(self) -> RunResult:
        """End all sources and drains."""
        self._refuse_after_end()
        for source in self._inputs.values():
            source.ended = True
        self._drive()
        self._ended, outcome = True, "failed"
        try:
            self._runtime.close()
            outcome = "drained" if self._options.drain else "stopped"
        finally:
            self._events(RunEnded(self._clock.now(), outcome, self._runtime.progress.rounds))
        return self._runtime.result(outcome)

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""
        return self._runtime.graph.accounts()

    def _drive(self) -> None:
        """Run tasks until there is nothing to do."""
        dispatcher = self._runtime.dispatcher
        for task in dispatcher.tasks:
            dispatcher.wake(task, READ_BLOCKED)
        while (next_task := dispatcher.next_task(0)) is not None:
            run_task(dispatcher, next_task)
        failure = dispatcher.failure
        if failure is not None:
            self._report_failure(failure)
            raise failure

    def _report_failure(self, failure: BaseException) -> None:
        self._ended = True
        if hasattr(self, "_runtime"):
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                self._runtime.close()
        if isinstance(failure, PenstockError) and failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        batches = self._runtime.progress.rounds if hasattr(self, "_runtime") else 0
        self._events(RunEnded(self._clock.now(), "failed", batches))

    def _refuse_after_end(self) -> None:
        if self._ended:
            raise EngineError(f'the run of "{self._plan.graph}" is over', hint="begin another run")
