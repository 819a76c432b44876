"""A run fed by hand, one round per push: what the public test harness drives, all in the calling thread."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.engines.local.options import Settings
from penstock.engines.local.run import build_result, close_connectors, open_sinks, report_start
from penstock.engines.local.runtime import build_runtime
from penstock.engines.local.scheduling.pool import run_task
from penstock.engines.local.tasks.source import PushedInput
from penstock.engines.protocol import RunOptions, RunResult
from penstock.errors import EngineError, GraphError, PenstockError, nearest_first
from penstock.events import EventSink, RunEnded, StepFailed
from penstock.plan.plan import Plan, Ref


class LocalHarness:
    """Everything is done when a call returns."""

    def __init__(
        self, plan: Plan, settings: Settings, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        self._plan, self._options, self._clock, self._events = plan, options, clock, events
        self._feeds = {step.name: PushedInput() for step in plan.sources}
        self._over = False
        report_start(plan, clock, events)
        try:
            self._run = build_runtime(plan, settings, options, clock=clock, events=events, feeds=self._feeds)
            open_sinks(self._run)
        except BaseException as failure:
            self._failed(failure)
            raise
        self._run.dispatcher.may_starve = True
        self._run.dispatcher.begin(self._run.graph.tasks)
        self._drive()

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """One round: a batch per named source, nothing from the others."""
        for name in batches:
            if name not in self._feeds:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, list(self._feeds)))}",
                )
        self._refuse_over()
        for name, feed in self._feeds.items():
            feed.pushed.append(batches.get(name))
        self._drive()

    def promise(self, watermark: int) -> None:
        """Move every source's watermark to a time in microseconds, as an empty round."""
        self._refuse_over()
        for reader in self._run.graph.readers.values():
            reader.promise(watermark)
        self.push({})

    def take(self, ref: Ref) -> pa.Table:
        """Rows that left on a collected port since the last take."""
        collections = self._run.graph.collections
        if ref not in collections:
            ports = nearest_first(str(ref), map(str, collections))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        return collections[ref].take()

    def end(self) -> RunResult:
        """End all sources and drain."""
        self._refuse_over()
        for feed in self._feeds.values():
            feed.ended = True
        self._drive()
        self._over, outcome = True, "failed"
        try:
            close_connectors(self._run.graph)
            outcome = "drained" if self._options.drain else "stopped"
        finally:
            self._events(RunEnded(self._clock.now(), outcome, self._run.progress.batches))
        return build_result(self._run, outcome)

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        return self._run.graph.accounts()

    def _drive(self) -> None:
        """Run nodes until there is nothing to do."""
        dispatcher = self._run.dispatcher
        for source in dispatcher.tasks:
            dispatcher.wake_reader(source)
        while (node := dispatcher.next_task(0)) is not None:
            run_task(dispatcher, node)
        failure = dispatcher.failure
        if failure is not None:
            self._failed(failure)
            raise failure

    def _failed(self, failure: BaseException) -> None:
        self._over = True
        if hasattr(self, "_run"):
            close_connectors(self._run.graph)
        if isinstance(failure, PenstockError) and failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        batches = self._run.progress.batches if hasattr(self, "_run") else 0
        self._events(RunEnded(self._clock.now(), "failed", batches))

    def _refuse_over(self) -> None:
        if self._over:
            raise EngineError(f'the run of "{self._plan.graph}" is over', hint="begin another session")
