"""The worker processes of a run: forked before its threads start, and gone when it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.groups import Group, Part, cut
from penstock.engines.local.node import Node
from penstock.engines.local.processes.choosing import chosen, is_alone
from penstock.engines.local.settings import AUTO, PROCESS, THREAD, Settings
from penstock.errors import EngineError
from penstock.plan.plan import Plan
from penstock.plan.step import Ref, Step
from penstock.stages.make import stage_of
from penstock.stages.protocol import Stage
from penstock.stages.site import Site
from penstock.stages.stateless import Stateless

if TYPE_CHECKING:  # what only a run with worker processes needs is loaded when one is made
    from penstock.engines.local.processes.trial import Choice
    from penstock.engines.local.processes.worker import Worker
    from penstock.events import Event


class Crew:
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
        self._choices: dict[str, Choice] = {}
        self.tell: Callable[[Event], None] = lambda event: None
        self._cores = _cores() if cores is None else cores
        if workers == PROCESS or (workers == AUTO and self._cores > 1 and is_alone()):
            self._begin()

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [worker.pid for worker in self.workers]

    def stage_of(self, step: Step, replica: int, site: Site, *, numbered: bool = False) -> Stage:
        """The stage of a step: itself, or one that asks a worker; `numbered` as for `stages.make`."""
        if (step.name, replica) not in self._places:
            return stage_of(step, site, numbered=numbered)
        from penstock.engines.local.processes.stage import Remote, RemoteStage, RemoteWork
        from penstock.engines.local.processes.trial import TriedWork

        worker, seat = self._places[step.name, replica]
        remote = Remote(worker, seat, step, site)
        if step.op.stateful:
            return RemoteStage(remote)
        if self._asked == PROCESS:
            return RemoteWork(remote)
        here = stage_of(step, site)
        assert isinstance(here, Stateless), "a step without state has such a stage"
        return TriedWork(here, RemoteWork(remote), self._choice(step))

    def serves(self, node: Node) -> bool:
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
            for group in cut(self._plan, most=self._most):
                if group.part is Part.WHOLE:
                    self._fork(group)
        except OSError as cause:
            self.close()
            if self._asked == PROCESS:
                raise EngineError(
                    "no worker process could be started",
                    detail=str(cause),
                    hint=f'run with ps.LocalOptions(workers="{THREAD}"), or lower parallelism=',
                ) from cause

    def _fork(self, group: Group) -> None:
        steps = [step for step in group.steps if chosen(step, self._asked)]
        if not steps:
            return
        from penstock.engines.local.processes.serving import Hosted
        from penstock.engines.local.processes.worker import Worker

        for replica in range(group.width):
            hosted = [Hosted(step, self._clock, self._read(step)) for step in steps]
            worker = Worker(hosted, before=self.workers)
            self.workers.append(worker)
            for seat, step in enumerate(steps):
                self._places[step.name, replica] = (worker, seat)

    def _read(self, step: Step) -> frozenset[str]:
        return frozenset(port for port in step.outputs if self._plan.is_read(Ref(step.name, port)))

    def _choice(self, step: Step) -> Choice:
        if step.name not in self._choices:
            from penstock.engines.local.processes.trial import Choice
            from penstock.events import ScaleDecided

            n = step.degree.least

            def told(reason: str) -> None:
                self.tell(ScaleDecided(self._clock.now(), step.name, n, n, reason))

            self._choices[step.name] = Choice(told)
        return self._choices[step.name]


def crew_of(plan: Plan, settings: Settings, clock: Clock) -> Crew:
    """The workers that are asked for; a run that replays a seed measures nothing."""
    replays = settings.seed is not None and settings.workers == AUTO
    return Crew(plan, THREAD if replays else settings.workers, clock, most=settings.most_replicas)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
