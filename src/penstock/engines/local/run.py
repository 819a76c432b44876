"""A run that goes by itself: opened, carried by its threads, closed, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.background_run import BackgroundRun
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.metrics.watchdog import run_watchdog
from penstock.engines.local.options import Settings
from penstock.engines.local.processes.pool import ProcessPool, build_process_pool
from penstock.engines.local.rescale.live import elastic_controller
from penstock.engines.local.runtime import Runtime, build_runtime
from penstock.engines.local.scheduling.pool import ThreadPool, assign_preferred_workers, depth_first_order
from penstock.engines.local.tasks.task import Task
from penstock.engines.local.topology.network import ExecutionGraph
from penstock.engines.protocol import Measurements, RunOptions, RunResult
from penstock.errors import PenstockError
from penstock.events import ignore_event
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.checkpoint.checkpoint import Checkpoint
    from penstock.events import EventSink


class LocalRun(BackgroundRun):
    """A run under way. Its threads are daemons, so they never keep a process alive."""

    def __init__(
        self, plan: Plan, settings: Settings, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        super().__init__(plan.graph, "local")
        self._plan, self._settings, self._options = plan, settings, options
        self._clock, self._events = clock, events
        self._made: Runtime | None = None
        self._pool: ThreadPool | None = None
        self._processes = build_process_pool(plan, settings, clock)  # forked before there are threads
        self.begin()

    def stop(self) -> None:
        """Ask the run to stop after the rounds at hand; `wait` then returns."""
        super().stop()
        if self._made is not None:
            self._made.progress.shut_down()
            _begin_shutdown(self._made)

    def is_worker(self, thread: threading.Thread) -> bool:
        """Whether a thread does the work of the run."""
        return super().is_worker(thread) or (self._pool is not None and self._pool.has(thread))

    def abandon(self) -> None:
        """Leave at once."""
        if self._made is not None:
            self._made.dispatcher.abort()
        self._processes.kill()

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        if self._made is None:
            return {step.name: Accounts() for step in self._plan}
        return self._made.graph.accounts()

    def statistics(self) -> list[TaskStatistics]:
        """What every node has counted so far, one for each replica: rows, batches, time, queues."""
        return [] if self._made is None else [node.statistics for node in self._made.graph.tasks]

    def measurements(self) -> Measurements | None:
        """Latency and where the time went so far, if that is measured."""
        return None if self._made is None else self._made.measurements()

    def execute(self) -> RunResult:
        """From opening to closing, and then no process of the run is left."""
        try:
            return self._carried()
        finally:
            self._processes.close()

    def _carried(self) -> RunResult:
        report_start(self._plan, self._clock, self._events)
        outcome, folder = "failed", None
        try:
            if self._options.checkpoint is not None:
                from penstock.engines.checkpoint.checkpoint import Checkpoint
                from penstock.engines.checkpoint.graph import describe_graph

                folder = Checkpoint(self._options.checkpoint, describe_graph(self._plan))
            run = self._made = self._make(folder)
            outcome = self._carry(run, folder)
        except PenstockError as failure:
            if failure.step is not None and self._events is not ignore_event:
                from penstock.events import StepFailed

                self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
            raise
        finally:
            if folder is not None:
                folder.close()
            if self._events is not ignore_event:
                from penstock.events import RunEnded

                self._events(RunEnded(self._clock.now(), outcome, self._n_through(outcome)))
        return build_result(run, outcome)

    def _carry(self, run: Runtime, folder: Checkpoint | None) -> str:
        """Open, work, save, and close whatever happens; gives the outcome."""
        run.dispatcher.on_failure = lambda node, failure: _failed(run)
        if self._stopping.is_set():
            run.progress.shut_down()
        self._processes.tell = run.progress.emit
        open_sinks(run, folder)
        try:
            self._work(run)
            reached = outcome_of(run.graph, self._options)
            self._save(run, drained=reached == "drained")
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                close_connectors(run.graph)
            raise
        close_connectors(run.graph)
        return reached

    def _n_through(self, outcome: str) -> int:
        """Rounds that went all the way through."""
        if self._made is None:
            return 0
        progress = self._made.progress
        return progress.n_reported if outcome == "failed" else progress.batches

    def _make(self, folder: Checkpoint | None) -> Runtime:
        saving = None
        if folder is not None:
            from penstock.engines.local.checkpoint import CheckpointCoordinator

            saving = CheckpointCoordinator(folder, self._clock, every=self._settings.save_every_us)
        return build_runtime(
            self._plan,
            self._settings,
            self._options,
            clock=self._clock,
            events=self._events,
            saving=saving,
            processes=self._processes,
        )

    def _save(self, run: Runtime, *, drained: bool) -> None:
        if run.progress.checkpoint is not None:
            rounds = run.progress.rounds + drained
            run.progress.emit(run.progress.checkpoint.end(rounds, drained=drained))

    def _work(self, run: Runtime) -> None:
        nodes, settings = run.graph.tasks, self._settings
        visited = depth_first_order(nodes)
        own = [node for node in visited if needs_own_thread(node, settings, run.graph, self._processes)]
        for node in own:
            node.dedicated = node.statistics.dedicated = True
        run.dispatcher.begin(nodes)
        pool = self._pool = ThreadPool(run.dispatcher, waits=settings.channels, pinning=settings.pinning)
        pool.dedicate(own)
        shared = len(nodes) - len(own)
        most = 1 if settings.seed is not None else settings.threads
        n_threads = min(most, shared)
        if settings.pinning and n_threads:
            assign_preferred_workers([node for node in visited if not node.dedicated], n_threads)
            run.dispatcher.pinned = True
        pool.set_threads(n_threads)
        limit_us = None if settings.seed is not None else settings.watchdog_us
        with (
            run_watchdog(run.dispatcher, limit_us, clock=self._clock, tell=run.progress.emit),
            elastic_controller(run, pool, settings, self._clock),
        ):
            pool.join()
        pool.join()  # those too that the controller has started in the last moment
        for node in nodes:
            node.quanta.close()
        if run.dispatcher.failure is not None:
            raise run.dispatcher.failure


def _failed(run: Runtime) -> None:
    run.progress.fail()
    _begin_shutdown(run)


def _begin_shutdown(run: Runtime) -> None:
    for writer in run.graph.writers.values():
        writer.begin_shutdown()


def needs_own_thread(node: Task, settings: Settings, graph: ExecutionGraph, processes: ProcessPool) -> bool:
    """Whether a node gets a thread of its own: asked for, or a reader or a process keeps it waiting."""
    if settings.seed is not None:
        return False
    waits = any(not graph.readers[s.name].bounded for s in node.steps if s.name in graph.readers)
    waits = waits or processes.serves(node)
    asked = any(step.op.dedicated or step.name in settings.dedicated for step in node.steps)
    return waits or asked or settings.threads == 0


def report_start(plan: Plan, clock: Clock, events: EventSink) -> None:
    """Say that a run begins."""
    if events is ignore_event:
        return
    from penstock.events import RunStarted

    events(RunStarted(clock.now(), plan.graph, "local", tuple(step.name for step in plan)))


def open_sinks(run: Runtime, folder: Checkpoint | None = None) -> None:
    """Open all sinks; if one fails, those that are open are closed again."""
    known = ((folder and folder.saved_graph) or {}).get("steps", {})
    try:
        for name, writer in run.graph.writers.items():
            saving = run.progress.checkpoint
            n_written = 0 if saving is None else saving.n_written(name)
            writer.open(resume=name in known, n_written=n_written)
        if folder is not None:
            folder.adopt()
    except BaseException:
        with suppress(Exception):
            close_connectors(run.graph)
        raise


def close_connectors(graph: ExecutionGraph) -> None:
    """Close readers and sinks, whatever happens to one of them; the first error is raised at the end."""
    first: Exception | None = None
    closing = [reader.close for reader in graph.readers.values()]
    closing += [writer.close for writer in graph.writers.values()]
    for close in closing:
        try:
            close()
        except Exception as failure:
            first = first or failure
    if first is not None:
        raise first


def outcome_of(graph: ExecutionGraph, options: RunOptions) -> str:
    """Whether all sources came to their end and everything was let go."""
    ended = all(reader.frontier.over for reader in graph.readers.values())
    return "drained" if ended and options.drain else "stopped"


def build_result(run: Runtime, outcome: str) -> RunResult:
    """What a finished run says of itself."""
    collected = {ref: kept.table() for ref, kept in run.graph.collections.items()}
    return RunResult(outcome, run.progress.batches, run.graph.accounts(), collected, run.measurements())
