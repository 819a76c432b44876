"""Which steps can run in worker processes, which do, and what explain() says of it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.options import AUTO, PROCESS, THREAD, Settings
from penstock.engines.local.processes.stage import RemoteStateless
from penstock.engines.local.tasks.task import Task
from penstock.engines.local.topology.tasks import Role, TaskGroup, split_into_groups
from penstock.errors import EngineError
from penstock.operators.accumulate import Accumulate
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.map import Filter, FlatMap, Map
from penstock.operators.op import IN, OUT
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.make import build_stage
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Site, Stage
from penstock.stages.stateless import Outputs, StatelessStage

if TYPE_CHECKING:
    from penstock.engines.local.processes.worker import Worker
    from penstock.events import Event

CAN_FORK = hasattr(os, "fork")
_NO_FORK = "this platform has no fork, by which functions would reach another process"


def can_run_in_process(step: Step) -> bool:
    """Whether a step is a function of the user's in plain Python, and one that a worker process can host."""
    op = step.op
    if not isinstance(op, Map | Filter | FlatMap | Accumulate):
        return False
    if isinstance(op.how, BatchFunction):
        return True
    return isinstance(op.how, RowFunction) and not _may_be_compiled(step)


def reason_for_threads(step: Step) -> str | None:
    """Why nobody but the user can decide that a step is better off in processes; None if measuring can."""
    function = getattr(step.op, "how", None)
    assert isinstance(function, BatchFunction | RowFunction), "only steps that can move are asked about"
    if not CAN_FORK:
        return _NO_FORK
    if isinstance(function, BatchFunction):
        return "what it calls on whole columns may well scale on threads"
    if step.op.stateful:
        return "its state would be in another process"
    from penstock.engines.local.processes.purity import find_shared_state

    return find_shared_state(function.call)


def uses_processes(step: Step, workers: str) -> bool:
    """Whether a worker process is made for every replica of a step."""
    if not CAN_FORK or workers == THREAD:
        return False
    if step.degree.elastic and step.op.stateful:  # its state moves from replica to replica
        return False
    if workers == PROCESS:
        return can_run_in_process(step)
    return step.degree.most > 1 and can_run_in_process(step) and reason_for_threads(step) is None


def is_single_threaded() -> bool:
    """Whether there is no other thread, beside which it would not be quite safe to fork unasked."""
    return threading.active_count() == 1


def explain_workers(plan: Iterable[Step]) -> list[str]:
    """What becomes of replicas of plain-Python functions."""
    return [_line(step) for step in plan if step.degree.most > 1 and can_run_in_process(step)]


def _line(step: Step) -> str:
    reason = reason_for_threads(step)
    if reason is None:
        return (
            f"{step.name}: replicas turn into processes when a batch takes much longer than the way there "
            "and back, on more than one core and in a program without other threads"
        )
    ask = "" if reason == _NO_FORK else '; workers="process" makes them processes'
    return f"{step.name}: replicas are threads, because {reason}{ask}"


def _may_be_compiled(step: Step) -> bool:
    """Whether Numba gets to see a function; then threads do what processes could."""
    op = step.op
    if not isinstance(op, Map | Filter) or op.state is not None or not isinstance(op.how, RowFunction):
        return False
    from penstock.stages.functions.compile import CompiledFunction

    down = op.outputs({IN: step.up})[OUT].schema if isinstance(op, Map) else None
    return CompiledFunction(op.how, step.up.schema, down, wraps=op.compile).program is not None


# The worker processes of a run: forked before its threads start, and gone when it ends.


class ProcessPool:
    """One worker per replica of steps that are fused, if one of them is to run in processes.

    workers  "process": such steps run there; "auto": those that need it, once that has been measured
    cores    how many there are; with one, only "process" makes processes
    most     replicas of an elastic step, at most, as for `groups.cut`
    tell     who is told of a choice
    """

    def __init__(
        self, plan: Plan, workers: str, clock: Clock, *, cores: int | None = None, most: int = 1
    ) -> None:
        self._clock, self._plan, self._asked, self._most = clock, plan, workers, most
        self.workers: list[Worker] = []
        self._places: dict[tuple[str, int], tuple[Worker, int]] = {}
        self._choices: dict[str, WorkerChoice] = {}
        self.tell: Callable[[Event], None] = lambda event: None
        self._cores = _cores() if cores is None else cores
        if workers == PROCESS or (workers == AUTO and self._cores > 1 and is_single_threaded()):
            self._begin()

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [worker.pid for worker in self.workers]

    def stage_of(self, step: Step, replica: int, site: Site, *, totally_ordered: bool = False) -> Stage:
        """The stage of a step: itself, or one that asks a worker; `totally_ordered` as for `stages.make`."""
        if (step.name, replica) not in self._places:
            return build_stage(step, site, totally_ordered=totally_ordered)
        from penstock.engines.local.processes.pool import AdaptiveStage
        from penstock.engines.local.processes.stage import RemoteStage, RemoteStateless, RemoteStep

        worker, seat = self._places[step.name, replica]
        remote = RemoteStep(worker, seat, step, site)
        if step.op.stateful:
            return RemoteStage(remote)
        if self._asked == PROCESS:
            return RemoteStateless(remote)
        here = build_stage(step, site)
        assert isinstance(here, StatelessStage), "a step without state has such a stage"
        return AdaptiveStage(here, RemoteStateless(remote), self._choice(step))

    def serves(self, node: Task) -> bool:
        """Whether a node waits for a worker, so that it needs a thread to wait in."""
        return any((step.name, node.replica) in self._places for step in node.steps)

    def kill(self) -> None:
        """End all of them at once."""
        for worker in self.workers:
            worker.kill()

    def close(self) -> None:
        """The run is over: no process is left when this returns."""
        for worker in self.workers:
            worker.hang_up()
        for worker in self.workers:
            worker.end()
        self.workers.clear()
        self._places.clear()

    def _begin(self) -> None:
        try:
            for group in split_into_groups(self._plan, most=self._most):
                if group.role is Role.WHOLE:
                    self._fork(group)
        except OSError as cause:
            self.close()
            if self._asked == PROCESS:
                raise EngineError(
                    "no worker process could be started",
                    detail=str(cause),
                    hint=f'run with ps.LocalOptions(workers="{THREAD}"), or lower parallelism=',
                ) from cause

    def _fork(self, group: TaskGroup) -> None:
        steps = [step for step in group.steps if uses_processes(step, self._asked)]
        if not steps:
            return
        from penstock.engines.local.processes.serve import HostedStep
        from penstock.engines.local.processes.worker import Worker

        for replica in range(group.width):
            hosted = [HostedStep(step, self._clock, self._read(step)) for step in steps]
            worker = Worker(hosted, before=self.workers)
            self.workers.append(worker)
            for seat, step in enumerate(steps):
                self._places[step.name, replica] = (worker, seat)

    def _read(self, step: Step) -> frozenset[str]:
        return frozenset(port for port in step.outputs if self._plan.is_read(Ref(step.name, port)))

    def _choice(self, step: Step) -> WorkerChoice:
        if step.name not in self._choices:
            from penstock.engines.local.processes.pool import WorkerChoice
            from penstock.events import ScaleDecided

            n = step.degree.least

            def told(reason: str) -> None:
                self.tell(ScaleDecided(self._clock.now(), step.name, n, n, reason))

            self._choices[step.name] = WorkerChoice(told)
        return self._choices[step.name]


def build_process_pool(plan: Plan, settings: Settings, clock: Clock) -> ProcessPool:
    """The workers that are asked for; a run that replays a seed measures nothing."""
    replays = settings.seed is not None and settings.workers == AUTO
    return ProcessPool(plan, THREAD if replays else settings.workers, clock, most=settings.max_replicas)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Threads first, then processes if that pays: measured on the batches that come.
#
# Processor time of the thread is what counts, because a function that waits scales on threads. The way to a
# worker and back is measured with the same batch. Whichever replica finds out first decides for all of them;
# both ways give the same rows, so nobody can tell from the results.

TRIED = 3
"""Batches that must all take long."""
ENOUGH = 4
"""A batch must take so many times as long as the way there and back."""
LEAST_WAY_NS = 200_000
"""What the way costs at least, so that it need not be measured for small batches."""


class WorkerChoice:
    """Threads or processes, for all replicas of a step.

    tell         called once, with the reason, when processes are chosen
    timers       processor time of this thread, and time: nanoseconds
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        worked_ns: Callable[[], int] = time.thread_time_ns,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._tell, self.worked_ns, self.now_ns = tell, worked_ns, now_ns
        self.processes = False
        self._lock = threading.Lock()
        self._recent: deque[int] = deque(maxlen=TRIED)
        self._way_ns = LEAST_WAY_NS

    def note(self, took_ns: int, way: Callable[[], None]) -> None:
        """A batch took so long in a thread; `way` goes to the worker and back with it."""
        self._recent.append(took_ns)
        if len(self._recent) < TRIED or min(self._recent) < ENOUGH * self._way_ns:
            return
        way()  # the first time the worker gets ready
        before = self.now_ns()
        way()
        self._way_ns = max(LEAST_WAY_NS, self.now_ns() - before)
        if min(self._recent) >= ENOUGH * self._way_ns:
            self._choose(min(self._recent))

    def _choose(self, took_ns: int) -> None:
        with self._lock:
            first, self.processes = not self.processes, True
        if first:
            took, way = took_ns / 1e6, self._way_ns / 1e6
            self._tell(
                f"processes: a batch takes {took:.1f} ms of plain Python, the way there and back {way:.1f} ms"
            )


class AdaptiveStage(StatelessStage):
    """One replica: here until the choice falls on processes."""

    def __init__(self, here: StatelessStage, there: RemoteStateless, choice: WorkerChoice) -> None:
        super().__init__(here.up, here.site)
        self._here, self._there, self._choice = here, there, choice

    def made(self, batch: Batch) -> Outputs:
        """What the rows become, here or there."""
        return self._there.made(batch) if self._choice.processes else self._measured(batch)

    def _measured(self, batch: Batch) -> Outputs:
        worked_ns = self._choice.worked_ns
        before = worked_ns()
        given = list(self._here.made(batch))
        self._choice.note(worked_ns() - before, lambda: self._there.echo(batch))
        return iter(given)

    def explain(self) -> list[str]:
        """As it is done here, at first."""
        return self._here.explain()
