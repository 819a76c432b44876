"""The worker processes of a run, one per replica of the steps that run there (`placement.py`).

They are forked before the run's threads start, and gone when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.options import AUTO, PROCESS, THREAD, Settings, available_cores
from penstock.engines.local.processes.placement import is_single_threaded, uses_processes
from penstock.engines.local.tasks.task import Task
from penstock.engines.local.topology.groups import Role, TaskGroup, split_into_groups
from penstock.errors import EngineError
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.build import build_stage
from penstock.stages.stage import Stage, StageContext, StatelessStage

if TYPE_CHECKING:
    from penstock.engines.local.processes.stage import WorkerChoice
    from penstock.engines.local.processes.worker import Worker
    from penstock.events import Event


class ProcessPool:
    """One worker process per replica of a task group, if one of its steps is to run in processes.

    workers       "process": such steps run there; "auto": those that need it, once that has been measured
    max_replicas  upper bound for elastic steps
    report        called with an event when processes are chosen for a step
    """

    def __init__(self, plan: Plan, workers: str, clock: Clock, *, max_replicas: int = 1) -> None:
        self._clock, self._plan, self._mode = clock, plan, workers
        self.workers: list[Worker] = []
        self._hosts: dict[tuple[str, int], tuple[Worker, int]] = {}  # (step, replica) -> worker, index there
        self._choices: dict[str, WorkerChoice] = {}
        self.report: Callable[[Event], None] = lambda event: None
        try:
            for group in split_into_groups(plan, max_replicas=max_replicas):
                if group.role is Role.WHOLE:
                    self._fork(group)
        except OSError as cause:
            self.close()
            if workers == PROCESS:
                raise EngineError(
                    "no worker process could be started",
                    detail=str(cause),
                    hint=f'run with ps.LocalOptions(workers="{THREAD}"), or lower parallelism=',
                ) from cause

    @property
    def pids(self) -> list[int]:
        """Returns the ids of the processes."""
        return [worker.pid for worker in self.workers]

    def stage_of(self, step: Step, replica: int, site: StageContext, *, ordered: bool = False) -> Stage:
        """Returns the stage of a step: its own, or one that calls a worker process.

        ordered  whether its rows are totally ordered
        """
        if (step.name, replica) not in self._hosts:
            return build_stage(step.op, step.up, site, totally_ordered=ordered)
        from penstock.engines.local.processes.stage import (
            AdaptiveStage,
            RemoteStage,
            RemoteStateless,
            RemoteStep,
        )

        worker, index = self._hosts[step.name, replica]
        remote = RemoteStep(worker, index, step, site)
        if step.op.stateful:
            return RemoteStage(remote)
        if self._mode == PROCESS:
            return RemoteStateless(remote)
        local = build_stage(step.op, step.up, site)
        assert isinstance(local, StatelessStage), "a step without state has such a stage"
        return AdaptiveStage(local, RemoteStateless(remote), self._choice(step))

    def serves(self, task: Task) -> bool:
        """Returns whether a task waits for a worker process, so that it needs a thread of its own."""
        return any((step.name, task.replica) in self._hosts for step in task.steps)

    def kill(self) -> None:
        """Kills all processes."""
        for worker in self.workers:
            worker.kill()

    def close(self) -> None:
        """Ends all processes; none is left when this returns."""
        for worker in self.workers:
            worker.hang_up()
        for worker in self.workers:
            worker.end()
        self.workers.clear()
        self._hosts.clear()

    def _fork(self, group: TaskGroup) -> None:
        steps = [step for step in group.steps if uses_processes(step, self._mode)]
        if not steps:
            return
        from penstock.engines.local.processes.serve import HostedStep
        from penstock.engines.local.processes.worker import Worker

        for replica in range(group.width):
            hosted = [HostedStep(step, self._clock, self._read_ports(step)) for step in steps]
            worker = Worker(hosted, before=self.workers)
            self.workers.append(worker)
            for index, step in enumerate(steps):
                self._hosts[step.name, replica] = (worker, index)

    def _read_ports(self, step: Step) -> frozenset[str]:
        return frozenset(port for port in step.outputs if self._plan.is_read(Ref(step.name, port)))

    def _choice(self, step: Step) -> WorkerChoice:
        if step.name not in self._choices:
            from penstock.engines.local.processes.stage import WorkerChoice
            from penstock.events import ScaleDecided

            n = step.degree.least

            def report(reason: str) -> None:
                self.report(ScaleDecided(self._clock.now(), step.name, n, n, reason))

            self._choices[step.name] = WorkerChoice(report)
        return self._choices[step.name]


def build_process_pool(plan: Plan, settings: Settings, clock: Clock) -> ProcessPool | None:
    """Starts the worker processes of a run; returns None if no step is to run in one.

    Processes are not started unasked where they could not pay or would not be safe: on a single core, beside
    other threads, or in a simulated run, which measures nothing.
    """
    workers = settings.workers
    if workers == AUTO and (settings.seed is not None or available_cores() == 1 or not is_single_threaded()):
        return None
    if not any(uses_processes(step, workers) for step in plan):
        return None
    return ProcessPool(plan, workers, clock, max_replicas=settings.max_replicas)
