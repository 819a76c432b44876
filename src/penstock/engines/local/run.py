"""A run in threads: opened, worked on by its thread pool, saved, and closed whatever happens."""

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
from penstock.engines.local.runtime import Runtime, build_runtime
from penstock.engines.local.scheduling.pool import ThreadPool, assign_preferred_workers, depth_first_order
from penstock.engines.local.tasks.task import Task
from penstock.engines.local.topology.graph import ExecutionGraph
from penstock.engines.protocol import Measurements, RunOptions, RunResult
from penstock.errors import PenstockError
from penstock.events import ignore_event
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.checkpoint.checkpoint import Checkpoint
    from penstock.events import EventSink


class LocalRun(BackgroundRun):
    """A run in threads, which are daemons, so they never keep a process alive."""

    def __init__(
        self, plan: Plan, settings: Settings, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> None:
        super().__init__(plan.graph, "local")
        self._plan, self._settings, self._options = plan, settings, options
        self._clock, self._events = clock, events
        self._runtime: Runtime | None = None
        self._pool: ThreadPool | None = None
        self._processes = build_process_pool(plan, settings, clock)  # forked before there are threads
        self.begin()

    def stop(self) -> None:
        """Asks the run to stop after the current rounds; `wait` then returns."""
        super().stop()
        if self._runtime is not None:
            self._runtime.progress.shut_down()
            self._runtime.begin_shutdown()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Whether a thread does the work of the run."""
        return super().is_worker(thread) or (self._pool is not None and self._pool.owns(thread))

    def break_off(self) -> None:
        """Ends the run at once."""
        if self._runtime is not None:
            self._runtime.dispatcher.abort()
        self._processes.kill()

    def metrics(self) -> Mapping[str, Accounts]:
        """Returns the accounts so far."""
        if self._runtime is None:
            return {step.name: Accounts() for step in self._plan}
        return self._runtime.graph.accounts()

    def statistics(self) -> list[TaskStatistics]:
        """Returns what every task has counted so far, one per replica: rows, batches, time, queues."""
        return [] if self._runtime is None else [task.statistics for task in self._runtime.graph.tasks]

    def measurements(self) -> Measurements | None:
        """Returns latencies and where the time went so far, if they are measured."""
        return None if self._runtime is None else self._runtime.measurements()

    def execute(self) -> RunResult:
        """Runs from opening to closing; no process of the run is left afterwards."""
        try:
            return self._execute()
        finally:
            self._processes.close()

    def _execute(self) -> RunResult:
        report_start(self._plan, self._clock, self._events)
        outcome, checkpoint = "failed", None
        try:
            if self._options.checkpoint is not None:
                from penstock.engines.checkpoint.checkpoint import Checkpoint
                from penstock.engines.checkpoint.graph import describe_graph

                checkpoint = Checkpoint(self._options.checkpoint, describe_graph(self._plan))
            runtime = self._runtime = self._build(checkpoint)
            outcome = self._run_to_end(runtime, checkpoint)
        except PenstockError as failure:
            if failure.step is not None and self._events is not ignore_event:
                from penstock.events import StepFailed

                self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
            raise
        finally:
            if checkpoint is not None:
                checkpoint.close()
            if self._events is not ignore_event:
                from penstock.events import RunEnded

                self._events(RunEnded(self._clock.now(), outcome, self._n_completed(outcome)))
        return runtime.result(outcome)

    def _build(self, checkpoint: Checkpoint | None) -> Runtime:
        coordinator = None
        if checkpoint is not None:
            from penstock.engines.local.checkpoint import CheckpointCoordinator

            coordinator = CheckpointCoordinator(checkpoint, self._clock, every=self._settings.save_every_us)
        return build_runtime(
            self._plan,
            self._settings,
            self._options,
            clock=self._clock,
            events=self._events,
            checkpoint=coordinator,
            processes=self._processes,
        )

    def _run_to_end(self, runtime: Runtime, checkpoint: Checkpoint | None) -> str:
        """Opens, works, saves, and closes whatever happens; returns the outcome."""

        def fail(task: Task, failure: BaseException) -> None:
            runtime.progress.fail()
            runtime.begin_shutdown()

        runtime.dispatcher.on_failure = fail
        if self._stopping.is_set():
            runtime.progress.shut_down()
        self._processes.report = runtime.progress.emit
        runtime.open_sinks(checkpoint)
        try:
            self._work(runtime)
            ended = all(reader.frontier.over for reader in runtime.graph.readers.values())
            drained = ended and self._options.drain
            progress = runtime.progress
            if progress.checkpoint is not None:
                progress.emit(progress.checkpoint.commit_end(progress.rounds + drained, drained=drained))
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                runtime.close()
            raise
        runtime.close()
        return "drained" if drained else "stopped"

    def _n_completed(self, outcome: str) -> int:
        """Returns the number of completed rounds."""
        if self._runtime is None:
            return 0
        progress = self._runtime.progress
        return progress.n_reported if outcome == "failed" else progress.batches

    def _work(self, runtime: Runtime) -> None:
        """Runs all tasks to their end, with the watchdog and the elastic controller beside them."""
        tasks, settings, simulated = runtime.graph.tasks, self._settings, self._settings.seed is not None
        ordered = depth_first_order(tasks)
        dedicated = [
            task for task in ordered if needs_own_thread(task, settings, runtime.graph, self._processes)
        ]
        for task in dedicated:
            task.dedicated = task.statistics.dedicated = True
        runtime.dispatcher.begin(tasks)
        pool = self._pool = ThreadPool(
            runtime.dispatcher, wait_mode=settings.channels, pinning=settings.pinning
        )
        pool.dedicate(dedicated)
        n_threads = min(1 if simulated else settings.threads, len(tasks) - len(dedicated))
        if settings.pinning and n_threads:
            assign_preferred_workers([task for task in ordered if not task.dedicated], n_threads)
            runtime.dispatcher.pinned = True
        pool.set_threads(n_threads)
        if simulated:
            pool.join()
        else:
            self._supervise(runtime, pool)
        for task in tasks:
            task.quanta.close()
        if runtime.dispatcher.failure is not None:
            raise runtime.dispatcher.failure

    def _supervise(self, runtime: Runtime, pool: ThreadPool) -> None:
        """Waits for the pool beside a watchdog and an elastic controller, if they are asked for."""
        settings = self._settings
        emit = runtime.progress.emit
        with run_watchdog(runtime.dispatcher, settings.watchdog_us, clock=self._clock, emit=emit):
            if settings.elastic is None:
                pool.join()
                return
            from penstock.engines.local.elastic.live import run_controller

            with run_controller(runtime, pool, settings, self._clock):
                pool.join()
            pool.join()  # those too that the controller has started in the last moment


def needs_own_thread(task: Task, settings: Settings, graph: ExecutionGraph, processes: ProcessPool) -> bool:
    """Whether a task gets a thread of its own: as asked, or because it waits for a reader or a process."""
    if settings.seed is not None:
        return False
    if settings.threads == 0 or processes.serves(task):
        return True
    return any(
        step.op.dedicated
        or step.name in settings.dedicated
        or (step.name in graph.readers and not graph.readers[step.name].bounded)
        for step in task.steps
    )


def report_start(plan: Plan, clock: Clock, events: EventSink) -> None:
    """Emits the first event of a run."""
    if events is ignore_event:
        return
    from penstock.events import RunStarted

    events(RunStarted(clock.now(), plan.graph, "local", tuple(step.name for step in plan)))
