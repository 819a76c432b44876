"""The worker processes of a run: which steps run in one, and why the others stay in threads.

There is one process per replica of such a step, forked before the run's threads start, and gone when it ends.
A step moves to processes on request (`workers="process"`), or after measurement (`workers="auto"`, see
`stage.py`) if its function is pure, that is, could not tell that it runs in a copy of the program. What it
changed outside itself would change in the copy only, and it would not see what others change later. So its
captured variables, its defaults and the globals it reads must be constants, modules, classes, or functions
for which the same holds. Functions of other modules are trusted.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dis import get_instructions
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.engines.local.options import AUTO, PROCESS, THREAD, Settings, available_cores
from penstock.engines.local.task_groups import Role, TaskGroup, split_into_groups
from penstock.engines.local.tasks.task import Task
from penstock.errors import EngineError
from penstock.events import Event, ScaleDecided
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.op import IN, OUT
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, user_function
from penstock.plan.plan import Plan, Step
from penstock.stages.build import build_stage
from penstock.stages.stage import Stage, StageContext, StatelessStage

if TYPE_CHECKING:
    from penstock.engines.local.processes.stage import WorkerChoice
    from penstock.engines.local.processes.worker import Worker


CAN_FORK = hasattr(os, "fork")
_NO_FORK = "this platform has no fork, by which functions would reach another process"
_CONSTANT = (bool, int, float, complex, str, bytes, re.Pattern, Enum, ModuleType, type, BuiltinFunctionType)
_SETS_GLOBAL = ("STORE_GLOBAL", "DELETE_GLOBAL")
_SETS_CAPTURED = ("STORE_DEREF", "DELETE_DEREF")


def uses_processes(step: Step, workers: str) -> bool:
    """Return whether a worker process is forked for every replica of a step."""
    if not CAN_FORK or workers == THREAD:
        return False
    if step.degree.elastic and step.op.stateful:  # its state moves from replica to replica
        return False
    if workers == PROCESS:
        return can_run_in_process(step)
    return step.degree.most > 1 and can_run_in_process(step) and reason_for_threads(step) is None


def can_run_in_process(step: Step) -> bool:
    """Return whether a step is a user's function in plain Python that a worker process can host."""
    op = step.op
    if not isinstance(op, Map | Filter | FlatMap | Accumulate):
        return False
    if isinstance(op.how, BatchFunction):
        return True
    return isinstance(op.how, RowFunction) and not _may_be_compiled(step)


def reason_for_threads(step: Step) -> str | None:
    """Return why only the user can decide that a step should run in processes; None if measuring can."""
    function = user_function(step.op)
    assert function is not None, "only steps that can run in a process are asked about"
    if not CAN_FORK:
        return _NO_FORK
    if isinstance(function, BatchFunction):
        return "what it calls on whole columns may well scale on threads"
    if step.op.stateful:
        return "its state would be in another process"
    return find_shared_state(function.call)


def is_single_threaded() -> bool:
    """Return whether the program has no other thread, beside which forking would not be quite safe."""
    return threading.active_count() == 1


def explain_workers(plan: Iterable[Step]) -> list[str]:
    """Return the lines of explain() about replicas of plain-Python functions."""
    lines = []
    for step in plan:
        if step.degree.most == 1 or not can_run_in_process(step):
            continue
        reason = reason_for_threads(step)
        if reason is None:
            lines.append(
                f"{step.name}: replicas turn into processes when a batch takes much longer than the way "
                "there and back, on more than one core and in a program without other threads"
            )
        else:
            ask = "" if reason == _NO_FORK else '; workers="process" makes them processes'
            lines.append(f"{step.name}: replicas are threads, because {reason}{ask}")
    return lines


def _may_be_compiled(step: Step) -> bool:
    """Return whether a function may be compiled; then threads do what processes could."""
    op = step.op
    if not isinstance(op, Map | Filter) or op.state is not None or not isinstance(op.how, RowFunction):
        return False
    from penstock.stages.functions.compile import CompiledFunction

    down = op.outputs({IN: step.up})[OUT].schema if isinstance(op, Map) else None
    return CompiledFunction(op.how, step.up.schema, down, wraps=op.compile).program is not None


def find_shared_state(call: Callable[..., Any], seen: set[CodeType] | None = None) -> str | None:
    """Return why the function would behave differently in a copy of the program; None if it would not.

    seen  functions that need no second look
    """
    if not isinstance(call, FunctionType):
        return "it is an object, which may have a state of its own"
    seen = set() if seen is None else seen
    if call.__code__ in seen:
        return None
    seen.add(call.__code__)
    changed = next(_assigned_names(call.__code__), None)
    if changed is not None:
        return f"it sets {changed}, which the rest of the program can see"
    if call.__dict__:
        return "it has attributes, which it may change"
    for name, value in _outside_values(call):
        if isinstance(value, FunctionType):
            own = value.__module__ == call.__module__
            inner = find_shared_state(value, seen) if own else None
            if inner is not None:
                return f"it calls {name}, and {inner}"
        elif not _is_constant(value):
            return f"it uses {name}, a {type(value).__name__} that may change"
    return None


def _assigned_names(code: CodeType, inner: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield names outside a function that it assigns; `inner` are variables of functions that enclose it."""
    for instruction in get_instructions(code):
        outside = instruction.argval in code.co_freevars and instruction.argval not in inner
        opname = instruction.opname
        if opname in _SETS_GLOBAL or (opname in _SETS_CAPTURED and outside):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _assigned_names(constant, (*inner, *code.co_cellvars))


def _outside_values(call: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function gets from outside, by name; a name without a value fails when it is called."""
    for name, cell in zip(call.__code__.co_freevars, call.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet, so it will be set
            yield name, cell
    for place, value in enumerate(call.__defaults__ or ()):
        yield f"default {place + 1}", value
    yield from (call.__kwdefaults__ or {}).items()
    codes = [call.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in call.__globals__:
                yield str(instruction.argval), call.__globals__[instruction.argval]


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, _CONSTANT)


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

    def stage_of(self, step: Step, replica: int, site: StageContext, *, ordered: bool = False) -> Stage:
        """Return the stage of a step: its own, or one that calls a worker process.

        ordered  whether its rows are totally ordered
        """
        if (step.name, replica) not in self._hosts:
            return build_stage(step.op, step.up, site, totally_ordered=ordered)
        from penstock.engines.local.processes import stage as stages

        worker, index = self._hosts[step.name, replica]
        if step.op.stateful:
            return stages.RemoteStage(worker, index, step, site)
        remote = stages.RemoteStateless(worker, index, step, site)
        if self._mode == PROCESS:
            return remote
        local = build_stage(step.op, step.up, site)
        assert isinstance(local, StatelessStage), "a step without state has such a stage"
        choice = self._choices.setdefault(step.name, stages.WorkerChoice(partial(self._report_choice, step)))
        return stages.AdaptiveStage(local, remote, choice)

    def serves(self, task: Task) -> bool:
        """Return whether a task waits for a worker process, so that it needs a thread of its own."""
        return any((step.name, task.replica) in self._hosts for step in task.steps)

    def kill(self) -> None:
        """Kill all processes."""
        for worker in self.workers:
            worker.kill()

    def close(self) -> None:
        """End all processes; none is left when this returns."""
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
        from penstock.engines.local.processes.worker import HostedStep, Worker

        for replica in range(group.width):
            hosted = [HostedStep(step, self._clock, self._plan.read_ports(step)) for step in steps]
            worker = Worker(hosted, before=self.workers)
            self.workers.append(worker)
            for index, step in enumerate(steps):
                self._hosts[step.name, replica] = (worker, index)

    def _report_choice(self, step: Step, reason: str) -> None:
        n = step.degree.least
        self.report(ScaleDecided(self._clock.now(), step.name, n, n, reason))


def build_process_pool(plan: Plan, settings: Settings, clock: Clock) -> ProcessPool | None:
    """Start the worker processes of a run; return None if no step is to run in one.

    Processes are not started unasked where they could not pay or would not be safe: on a single core, beside
    other threads, or in a simulated run, which measures nothing.
    """
    workers = settings.workers
    if workers == AUTO and (settings.seed is not None or available_cores() == 1 or not is_single_threaded()):
        return None
    if not any(uses_processes(step, workers) for step in plan):
        return None
    return ProcessPool(plan, workers, clock, max_replicas=settings.max_replicas)
