"""A run of the in-process engine: its runtime, built from a plan, and its life; a harness drives the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import OpeningStopped, SourceBatch
from penstock.engines.background_run import BackgroundRun
from penstock.engines.ends import close_all
from penstock.engines.local import dispatch
from penstock.engines.local.build import ExecutionGraph, TaskBuilder, needs_own_thread
from penstock.engines.local.connect import ChannelBuilder
from penstock.engines.local.direct_call import InlineTasks
from penstock.engines.local.metrics.statistics import READ_BLOCKED, TaskStatistics
from penstock.engines.local.metrics.watchdog import LOOKS_PER_LIMIT, Watchdog
from penstock.engines.local.options import Settings
from penstock.engines.local.processes.pool import ProcessPool, build_process_pool
from penstock.engines.local.progress import Progress
from penstock.engines.local.schedulers import make_scheduler
from penstock.engines.local.tasks.source import PushedInput, SourceTask
from penstock.engines.local.tasks.task import Task
from penstock.engines.protocol import Measurements, RoundHarness, RunOptions, RunResult
from penstock.engines.run_log import report_restore
from penstock.errors import PenstockError
from penstock.events import Event, EventSink, RunEnded, RunStarted, StepFailed, ignore_event
from penstock.frozen import Frozen
from penstock.plan.plan import Plan, load_tables

if TYPE_CHECKING:
    from penstock.engines.checkpoint.checkpoint import Checkpoint
    from penstock.engines.local.checkpoint import CheckpointCoordinator
    from penstock.engines.local.metrics.latency import TimeBreakdown
    from penstock.engines.local.timer import RoundTimer
    from penstock.options import Elastic

MAX_SIMULATED_QUANTUM = 5
"""Messages in a quantum of a simulated run, at most."""


class Runtime(Frozen):
    """Everything that a run is made of."""

    graph: ExecutionGraph
    dispatcher: dispatch.Dispatcher
    progress: Progress
    breakdown: TimeBreakdown | None = None

    def open_sinks(self, checkpoint: Checkpoint | None = None) -> None:
        """Open all sinks; if one fails, the caller closes everything."""
        coordinator = self.progress.checkpoint
        for name, writer in self.graph.writers.items():
            n_written = 0 if coordinator is None else coordinator.n_written(name)
            link = None if checkpoint is None else checkpoint.link(name)
            knows = checkpoint is not None and checkpoint.knows(name)
            writer.open(resume=knows, n_written=n_written, link=link)
        if checkpoint is not None and coordinator is not None:
            checkpoint.adopt()
            self.progress.n_committed = coordinator.resume_ends()

    def close(self) -> None:
        """Close all readers and sinks, whatever happens to one of them; then raise the first error."""
        close_all([*self.graph.readers.values(), *self.graph.writers.values()])

    def begin_shutdown(self) -> None:
        """Tell all sinks that the run is to end soon."""
        for writer in self.graph.writers.values():
            writer.begin_shutdown()

    def measurements(self) -> Measurements | None:
        """Return latencies and where the time went so far, if they are measured."""
        latencies = self.progress.latencies
        if self.breakdown is None or latencies is None:
            return None
        return self.breakdown.measurements(self.graph, latencies)

    def result(self, outcome: str) -> RunResult:
        """Return the result of a run that has ended."""
        tables = {ref: rows.table() for ref, rows in self.graph.collections.items()}
        n_rounds = self.progress.rounds - self.progress.first - self.progress.n_empty
        measured = None if self.breakdown is None else self.measurements()
        waiting = {} if self.progress.checkpoint is None else self.progress.checkpoint.count_waiting()
        return RunResult(outcome, n_rounds, self.graph.accounts(), tables, measured, waiting)


def build_runtime(
    plan: Plan,
    settings: Settings,
    options: RunOptions,
    *,
    clock: Clock,
    events: EventSink,
    inputs: Mapping[str, PushedInput] | None = None,
    checkpoint: CheckpointCoordinator | None = None,
    processes: ProcessPool | None = None,
) -> Runtime:
    """Build tasks, channels and the dispatcher; tables are read here, and nothing is opened yet.

    inputs      source -> its batches, if a harness pushes them
    checkpoint  restores the tasks from its latest checkpoint
    processes   worker processes, forked before
    """
    plan = load_tables(plan)
    first = 0 if checkpoint is None else checkpoint.done.rounds
    if settings.seed is None:
        scheduler = make_scheduler(settings.scheduler, Random())  # noqa: S311  # no secrets: it picks tasks
        dispatcher = dispatch.Dispatcher(scheduler, time.perf_counter_ns, settings.quantum_ns)
    else:  # a simulated run: every choice comes from one seed, and time is a count of steps
        random = Random(settings.seed)  # noqa: S311  # no secrets: it picks tasks
        scheduler = make_scheduler("random", random)
        dispatcher = dispatch.Dispatcher(scheduler, count().__next__, MAX_SIMULATED_QUANTUM, random)
    latencies = breakdown = None
    if (events is not ignore_event or settings.measure) and settings.seed is None:
        from penstock.engines.local.metrics.latency import LatencyTracker, TimeBreakdown

        latencies, breakdown = LatencyTracker(), TimeBreakdown(dispatcher.now)
    progress = Progress(
        clock,
        events,
        until=options.until,
        drain=options.drain,
        first=first,
        in_rounds=settings.deterministic or inputs is not None or checkpoint is not None,
        checkpoint=checkpoint,
        latencies=latencies,
    )
    progress.wake = lambda task: dispatcher.wake(task, READ_BLOCKED)
    # Why: a worker that also runs a borrowed task would seem busy with two tasks at once.
    dispatcher.allows_borrowing = settings.elastic is None and not settings.measure
    observe = (lambda worker: None) if breakdown is None or not settings.measure else breakdown.observe
    tasks = TaskBuilder(plan, settings, progress, inputs=inputs, processes=processes, observe=observe)
    graph = ChannelBuilder(tasks, dispatcher, settings).connect()
    if checkpoint is not None:
        checkpoint.restore(graph)
        report_restore(plan.graph, first)
    return Runtime(graph, dispatcher, progress, breakdown)


class LocalRun(BackgroundRun):
    """A run in threads, which are daemons, so they never keep a process alive."""

    def __init__(
        self, plan: Plan, settings: Settings, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        super().__init__(plan, "local", clock)
        self._settings, self._options, self._events = settings, options, events
        self._runtime: Runtime | None = None
        self._pool: dispatch.ThreadPool | None = None
        self._timer: RoundTimer | None = None
        # Why here: processes must be forked before there are threads.
        self._processes = build_process_pool(plan, settings, clock)
        self.begin()

    def stop(self, *, drain: bool = False) -> None:
        """Ask the run to stop after the current rounds; `wait` then returns.

        With `drain` all windows are closed first, as at the end of the sources.
        """
        super().stop(drain=drain)
        if self._runtime is not None:
            self._runtime.progress.stop(drain=drain)
            self._runtime.begin_shutdown()
        if self._timer is not None:
            self._timer.wake()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Implement `BackgroundRun.is_worker`."""
        return self._pool is not None and self._pool.owns(thread)

    def abandon(self) -> None:
        """End the run at once."""
        if self._runtime is not None:
            self._runtime.dispatcher.abort()
        if self._processes is not None:
            self._processes.kill()

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""
        if self._runtime is None:
            return {step.name: Accounts() for step in self._plan}
        return self._runtime.graph.metrics()

    def watermarks(self) -> Mapping[str, float]:
        """Implement `BackgroundRun.watermarks`."""
        readers = {} if self._runtime is None else self._runtime.graph.readers
        return {name: reader.watermark for name, reader in readers.items() if reader.timed}

    def idle_sources(self) -> frozenset[str]:
        """Implement `BackgroundRun.idle_sources`."""
        readers = {} if self._runtime is None else self._runtime.graph.readers
        return frozenset(name for name, reader in readers.items() if reader.idle)

    def statistics(self) -> list[TaskStatistics]:
        """Return what every task has counted so far, one per replica: rows, batches, time, queues."""
        return [] if self._runtime is None else [task.statistics for task in self._runtime.graph.tasks]

    def measurements(self) -> Measurements | None:
        """Return latencies and where the time went so far, if they are measured."""
        return None if self._runtime is None else self._runtime.measurements()

    def execute(self) -> RunResult:
        """Run from opening to closing; no process of the run is left afterwards."""
        plan, options, clock = self._plan, self._options, self._clock
        outcome, checkpoint, coordinator = "failed", None, None
        try:
            self._events(RunStarted(clock.now(), plan.graph, "local", tuple(step.name for step in plan)))
            try:
                if options.checkpoint is not None:
                    from penstock.engines.checkpoint.checkpoint import Checkpoint
                    from penstock.engines.checkpoint.graph import describe_graph
                    from penstock.engines.local.checkpoint import CheckpointCoordinator

                    graph = describe_graph(plan)
                    checkpoint = Checkpoint(options.checkpoint, graph, "local", options.renamed)
                    plan = checkpoint.adapt(plan)
                    every = self._settings.save_every_us
                    coordinator = CheckpointCoordinator(checkpoint, plan, clock, every=every)
                runtime = self._runtime = build_runtime(
                    plan,
                    self._settings,
                    options,
                    clock=clock,
                    events=self._events,
                    checkpoint=coordinator,
                    processes=self._processes,
                )
                outcome = self._run_to_end(runtime, checkpoint)
            except PenstockError as failure:
                if failure.step is not None:
                    self._events(StepFailed(clock.now(), failure.step, str(failure)))
                raise
            finally:
                if checkpoint is not None:
                    checkpoint.close()
                n_completed = 0
                if self._runtime is not None:
                    progress = self._runtime.progress
                    end = progress.next_report if outcome == "failed" else progress.rounds
                    n_completed = end - progress.first - progress.n_empty
                self._events(RunEnded(clock.now(), outcome, n_completed))
        finally:
            if self._processes is not None:
                self._processes.close()
        return runtime.result(outcome)

    def _run_to_end(self, runtime: Runtime, checkpoint: Checkpoint | None) -> str:
        """Open, work, save, and close whatever happens; return the outcome."""
        progress = runtime.progress

        def fail(task: Task, failure: BaseException) -> None:
            progress.stop(failed=True)
            runtime.begin_shutdown()

        runtime.dispatcher.on_failure = fail
        if self._stopping.is_set():
            progress.stop(drain=self._drains)
        if self._processes is not None:
            self._processes.report = progress.emit
        try:
            try:
                runtime.open_sinks(checkpoint)
            except OpeningStopped:
                runtime.close()
                return "stopped"
            self._work(runtime)
            readers = runtime.graph.readers.values()
            drained = progress.drain and all(reader.frontier.over for reader in readers)
            if progress.checkpoint is not None and progress.checkpoint.refusal is not None:
                # It was killed between its end and its exit, or is run again: all is done.
                drained = True
            elif progress.checkpoint is not None:
                progress.emit(progress.checkpoint.commit_end(progress.rounds + drained, drained=drained))
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                runtime.close()
            raise
        runtime.close()
        return "drained" if drained else "ended" if all(reader.ended for reader in readers) else "stopped"

    def _work(self, runtime: Runtime) -> None:
        """Run all tasks to their end, with the watchdog and the elastic controller beside them."""
        tasks, settings, simulated = runtime.graph.tasks, self._settings, self._settings.seed is not None
        # Why: threads are pinned in this order, so that neighbours in the graph are near.
        ordered = dispatch.depth_first_order(tasks) if settings.pinning else tasks
        timer: AbstractContextManager[None] = nullcontext()
        waiting = [task for task in tasks if isinstance(task, SourceTask) and task.reader.waits]
        if waiting and not simulated:
            timer = self._build_timer(runtime, waiting).run()
        dedicated = [
            task for task in ordered if needs_own_thread(task, settings, runtime.graph, self._processes)
        ]
        for task in dedicated:
            task.dedicated = task.statistics.dedicated = True
        if runtime.dispatcher.allows_borrowing and not simulated and not settings.pinning:
            for task in waiting:
                task.inline = InlineTasks(runtime.dispatcher)
        runtime.dispatcher.begin(tasks)
        pool = self._pool = dispatch.ThreadPool(
            runtime.dispatcher, wait_mode=settings.channels, pinning=settings.pinning
        )
        if dedicated:
            pool.dedicate(dedicated)
        n_threads = min(1 if simulated else settings.threads, len(tasks) - len(dedicated))
        if settings.pinning and n_threads:
            dispatch.assign_preferred_workers([task for task in ordered if not task.dedicated], n_threads)
            runtime.dispatcher.pinned = True
        pool.set_threads(n_threads)
        watchdog: AbstractContextManager[None] = nullcontext()
        if settings.watchdog_us is not None and not simulated:
            emit, limit_ns = runtime.progress.emit, settings.watchdog_us * 1_000
            dog = Watchdog(runtime.dispatcher, limit_ns, clock=self._clock, emit=emit)
            watchdog = dispatch.call_every(limit_ns / 1e9 / LOOKS_PER_LIMIT, dog.look, "penstock-watchdog")
        elastic: AbstractContextManager[None] = nullcontext()
        if settings.elastic is not None and not simulated:
            elastic = self._controller(runtime, pool, settings.elastic)
        with watchdog, timer:
            with elastic:
                pool.join()
            pool.join()  # also threads that the controller has started in the last moment
        for task in tasks:
            if not task.abandoned:
                task.quanta.close()
        if runtime.dispatcher.failure is not None:
            raise runtime.dispatcher.failure

    def _build_timer(self, runtime: Runtime, waiting: list[SourceTask]) -> RoundTimer:
        """Return the timer of sources that wait."""
        from penstock.engines.deadlines import Deadlines
        from penstock.engines.local.timer import RoundTimer

        for task in waiting:
            reader = task.reader
            task.deadlines = Deadlines(runtime.graph.plan, reader.last_rows_at, [reader.step.name])
        self._timer = RoundTimer(waiting, runtime.dispatcher, runtime.progress, self._clock)
        return self._timer

    def _controller(
        self, runtime: Runtime, pool: dispatch.ThreadPool, options: Elastic
    ) -> AbstractContextManager[None]:
        """Return the context in which the elastic controller runs."""
        from penstock.engines.local.elastic.controller import (
            ElasticController,
            ReplicaScaling,
            resolve_limits,
        )

        def emit(event: Event) -> None:
            try:
                runtime.progress.emit(event)
            except Exception as failure:  # a listener has failed, and so has the run
                runtime.dispatcher.record_failure(runtime.graph.tasks[0], failure)

        # Why: more threads than cores are what the user wants, because blocking functions can use them.
        limits, period_us = resolve_limits(options, max(self._settings.cores, self._settings.threads))
        controller = ElasticController(
            ReplicaScaling(runtime.graph),
            pool,
            limits,
            now=runtime.dispatcher.now,
            clock=self._clock,
            events=emit,
        )
        return dispatch.call_every(period_us / 1e6, controller.adapt, "penstock-elastic")


class LocalHarness(RoundHarness):
    """A run driven by a test, one round per push, in the calling thread; all is done when a call returns."""

    again = "begin another run"

    def __init__(
        self, plan: Plan, settings: Settings, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        super().__init__(plan)
        self._options, self._clock, self._events = options, clock, events
        self._inputs = {step.name: PushedInput() for step in plan.sources}
        events(RunStarted(clock.now(), plan.graph, "local", tuple(step.name for step in plan)))
        try:
            self._runtime = build_runtime(
                plan, settings, options, clock=clock, events=events, inputs=self._inputs
            )
            self._runtime.open_sinks()
        except BaseException as failure:
            self._report_failure(failure)
            raise
        collected = self.collected = self._runtime.graph.collections
        self.table = lambda ref, first: collected[ref].table(first)
        self._runtime.dispatcher.may_starve = True
        self._runtime.dispatcher.begin(self._runtime.graph.tasks)
        self._drive()

    def end(self) -> RunResult:
        """End all sources and drains."""
        self._refuse_over()
        for source in self._inputs.values():
            source.ended = True
        self._drive()
        self._over, outcome = True, "failed"
        try:
            self._runtime.close()
            outcome = "drained" if self._options.drain else "ended"
        finally:
            self._events(RunEnded(self._clock.now(), outcome, self._runtime.progress.rounds))
        return self._runtime.result(outcome)

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts so far."""
        return self._runtime.graph.metrics()

    def _drive(self) -> None:
        """Run tasks until there is nothing to do."""
        dispatcher = self._runtime.dispatcher
        for task in dispatcher.tasks:
            dispatcher.wake(task, READ_BLOCKED)
        while (next_task := dispatcher.next_task(0)) is not None:
            dispatch.run_task(dispatcher, next_task)
        failure = dispatcher.failure
        if failure is not None:
            self._report_failure(failure)
            raise failure

    def _report_failure(self, failure: BaseException) -> None:
        self._over = True
        if hasattr(self, "_runtime"):
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                self._runtime.close()
        if isinstance(failure, PenstockError) and failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        batches = self._runtime.progress.rounds if hasattr(self, "_runtime") else 0
        self._events(RunEnded(self._clock.now(), "failed", batches))

    def _round(self, batches: Mapping[str, SourceBatch]) -> None:
        for name, source in self._inputs.items():
            source.batches.append(batches.get(name))
        self._drive()

    def _promise(self, watermark: int) -> None:
        for reader in self._runtime.graph.readers.values():
            reader.promise(watermark)
