"""A run that goes by itself: opened, carried by its threads, closed, whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.background_run import BackgroundRun
from penstock.engines.local.metrics.statistics import NodeStatistics
from penstock.engines.local.metrics.watchdog import watched
from penstock.engines.local.options import Settings
from penstock.engines.local.processes.pool import Crew, crew_of
from penstock.engines.local.rescale.live import adapting
from penstock.engines.local.runtime import Made, made
from penstock.engines.local.scheduling.pool import Pool, depth_first, prefer
from penstock.engines.local.tasks.task import Task
from penstock.engines.local.topology.network import Network
from penstock.engines.protocol import Measurements, RunOptions, RunResult
from penstock.errors import PenstockError
from penstock.nobody import nobody
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
        self._made: Made | None = None
        self._pool: Pool | None = None
        self._crew = crew_of(plan, settings, clock)  # forked before there are threads
        self.begin()

    def stop(self) -> None:
        """Ask the run to stop after the rounds at hand; `wait` then returns."""
        super().stop()
        if self._made is not None:
            self._made.progress.shut_down()
            _hurry(self._made)

    def is_worker(self, thread: threading.Thread) -> bool:
        """Whether a thread does the work of the run."""
        return super().is_worker(thread) or (self._pool is not None and self._pool.has(thread))

    def abandon(self) -> None:
        """Leave at once."""
        if self._made is not None:
            self._made.dispatcher.abort()
        self._crew.kill()

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        if self._made is None:
            return {step.name: Accounts() for step in self._plan}
        return self._made.network.accounts()

    def statistics(self) -> list[NodeStatistics]:
        """What every node has counted so far, one for each replica: rows, batches, time, queues."""
        return [] if self._made is None else [node.statistics for node in self._made.network.nodes]

    def measurements(self) -> Measurements | None:
        """Latency and where the time went so far, if that is measured."""
        return None if self._made is None else self._made.measurements()

    def execute(self) -> RunResult:
        """From opening to closing, and then no process of the run is left."""
        try:
            return self._carried()
        finally:
            self._crew.close()

    def _carried(self) -> RunResult:
        begin(self._plan, self._clock, self._events)
        outcome, folder = "failed", None
        try:
            if self._options.checkpoint is not None:
                from penstock.engines.checkpoint.checkpoint import Checkpoint, described

                folder = Checkpoint(self._options.checkpoint, described(self._plan))
            run = self._made = self._make(folder)
            outcome = self._carry(run, folder)
        except PenstockError as failure:
            if failure.step is not None and self._events is not nobody:
                from penstock.events import StepFailed

                self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
            raise
        finally:
            if folder is not None:
                folder.close()
            if self._events is not nobody:
                from penstock.events import RunEnded

                self._events(RunEnded(self._clock.now(), outcome, self._n_through(outcome)))
        return result(run, outcome)

    def _carry(self, run: Made, folder: Checkpoint | None) -> str:
        """Open, work, save, and close whatever happens; gives the outcome."""
        run.dispatcher.on_failure = lambda node, failure: _failed(run)
        if self._stopping.is_set():
            run.progress.shut_down()
        self._crew.tell = run.progress.tell
        open_all(run, folder)
        try:
            self._work(run)
            reached = outcome_of(run.network, self._options)
            self._save(run, drained=reached == "drained")
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                close_all(run.network)
            raise
        close_all(run.network)
        return reached

    def _n_through(self, outcome: str) -> int:
        """Rounds that went all the way through."""
        if self._made is None:
            return 0
        progress = self._made.progress
        return progress.n_told if outcome == "failed" else progress.batches

    def _make(self, folder: Checkpoint | None) -> Made:
        saving = None
        if folder is not None:
            from penstock.engines.local.checkpoint import Saving

            saving = Saving(folder, self._clock, every=self._settings.save_every_us)
        return made(
            self._plan,
            self._settings,
            self._options,
            clock=self._clock,
            events=self._events,
            saving=saving,
            crew=self._crew,
        )

    def _save(self, run: Made, *, drained: bool) -> None:
        if run.progress.saving is not None:
            rounds = run.progress.rounds + drained
            run.progress.tell(run.progress.saving.end(rounds, drained=drained))

    def _work(self, run: Made) -> None:
        nodes, settings = run.network.nodes, self._settings
        visited = depth_first(nodes)
        own = [node for node in visited if needs_thread(node, settings, run.network, self._crew)]
        for node in own:
            node.dedicated = node.statistics.dedicated = True
        run.dispatcher.begin(nodes)
        pool = self._pool = Pool(run.dispatcher, waits=settings.channels, pinning=settings.pinning)
        pool.dedicate(own)
        shared = len(nodes) - len(own)
        most = 1 if settings.seed is not None else settings.threads
        n_threads = min(most, shared)
        if settings.pinning and n_threads:
            prefer([node for node in visited if not node.dedicated], n_threads)
            run.dispatcher.pinned = True
        pool.set_threads(n_threads)
        limit_us = None if settings.seed is not None else settings.watchdog_us
        with (
            watched(run.dispatcher, limit_us, clock=self._clock, tell=run.progress.tell),
            adapting(run, pool, settings, self._clock),
        ):
            pool.join()
        pool.join()  # those too that the controller has started in the last moment
        for node in nodes:
            node.turns.close()
        if run.dispatcher.failure is not None:
            raise run.dispatcher.failure


def _failed(run: Made) -> None:
    run.progress.fail()
    _hurry(run)


def _hurry(run: Made) -> None:
    for writer in run.network.writers.values():
        writer.hurry()


def needs_thread(node: Task, settings: Settings, network: Network, crew: Crew) -> bool:
    """Whether a node gets a thread of its own: asked for, or a reader or a process keeps it waiting."""
    if settings.seed is not None:
        return False
    waits = any(not network.readers[s.name].bounded for s in node.steps if s.name in network.readers)
    waits = waits or crew.serves(node)
    asked = any(step.op.dedicated or step.name in settings.dedicated for step in node.steps)
    return waits or asked or settings.threads == 0


def begin(plan: Plan, clock: Clock, events: EventSink) -> None:
    """Say that a run begins."""
    if events is nobody:
        return
    from penstock.events import RunStarted

    events(RunStarted(clock.now(), plan.graph, "local", tuple(step.name for step in plan)))


def open_all(run: Made, folder: Checkpoint | None = None) -> None:
    """Open all sinks; if one fails, those that are open are closed again."""
    known = ((folder and folder.known) or {}).get("steps", {})
    try:
        for name, writer in run.network.writers.items():
            saving = run.progress.saving
            n_written = 0 if saving is None else saving.n_written(name)
            writer.open(resume=name in known, n_written=n_written)
        if folder is not None:
            folder.adopt()
    except BaseException:
        with suppress(Exception):
            close_all(run.network)
        raise


def close_all(network: Network) -> None:
    """Close readers and sinks, whatever happens to one of them; the first error is raised at the end."""
    first: Exception | None = None
    closing = [reader.close for reader in network.readers.values()]
    closing += [writer.close for writer in network.writers.values()]
    for close in closing:
        try:
            close()
        except Exception as failure:
            first = first or failure
    if first is not None:
        raise first


def outcome_of(network: Network, options: RunOptions) -> str:
    """Whether all sources came to their end and everything was let go."""
    ended = all(reader.frontier.over for reader in network.readers.values())
    return "drained" if ended and options.drain else "stopped"


def result(run: Made, outcome: str) -> RunResult:
    """What a finished run says of itself."""
    collected = {ref: kept.table() for ref, kept in run.network.collections.items()}
    return RunResult(outcome, run.progress.batches, run.network.accounts(), collected, run.measurements())
