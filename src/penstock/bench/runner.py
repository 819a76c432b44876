"""The runner: warm-up, then interleaved rounds, each answer checked before its time is kept.

Every round runs every way on every case once, and begins one further on than the last: what is compared,
ways or cases, sees the same moments of the machine, and nothing always runs first. The price is that the
data of all cases lives at once. Setup, checking and clean-up happen outside the clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from penstock.bench.errors import BenchError, WayFailed, WrongAnswer
from penstock.bench.machine import commit_of, this_machine, versions
from penstock.bench.result import Figures, Result, judge
from penstock.bench.workload import Case, Cell, Size, Way, Workload

Clock = Callable[[], int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a measurement is: `done` of `total` runs, the next one being `cell`."""

    done: int
    total: int
    cell: Cell


def measure(
    workload: Workload,
    *,
    size: Size = "full",
    rounds: int | None = None,
    warm_up: int | None = None,
    seed: int = 1,
    clock: Clock = time.perf_counter_ns,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Result:
    """Time every way on every case. A wrong answer, in any round, stops the whole measurement."""
    rounds = rounds if rounds is not None else (5 if size == "quick" else 15)
    warm_up = warm_up if warm_up is not None else (1 if size == "quick" else 2)
    if rounds < 1 or warm_up < 0:
        raise BenchError(
            f"{rounds} rounds after {warm_up} warm-up rounds measure nothing",
            hint="use at least one round, such as --rounds 5",
        )
    machine, started_at = this_machine(), datetime.now(UTC).isoformat(timespec="seconds")
    tasks = _tasks(workload, seed)
    samples = _timed(workload, tasks, warm_up + rounds, clock, on_progress)
    figures = [_figures(task, samples[task.cell], warm_up) for task in tasks]
    by_cell = {one.cell: one for one in figures}
    return Result(
        workload=workload.name,
        about=workload.about,
        size=size,
        seed=seed,
        rounds=rounds,
        warm_up=warm_up,
        collector=workload.collector,
        started_at=started_at,
        machine=machine,
        versions=versions(),
        commit=commit_of(),
        figures=tuple(figures),
        verdicts=tuple(judge(claim, by_cell) for claim in workload.claims),
    )


def order_of_round(tasks: Sequence[T], round_number: int) -> list[T]:
    """The tasks, begun one later in each round: A B C, B C A, C A B, A B C …"""
    start = round_number % len(tasks)
    return [*tasks[start:], *tasks[:start]]


@dataclass(frozen=True, slots=True)
class _Task:
    """One way on one case, with its data and the right answer."""

    case: Case
    way: Way
    data: Any
    expected: Any

    @property
    def cell(self) -> Cell:
        return Cell(self.case.name, self.way.name)


def _tasks(workload: Workload, seed: int) -> list[_Task]:
    tasks = []
    for case in workload.cases:
        data = case.make(seed)
        right = workload.oracle(data)
        tasks += [
            _Task(case, way, data, way.oracle(data) if way.oracle else right)
            for way in workload.ways
            if way.takes(case.name)
        ]
    return tasks


def _timed(
    workload: Workload,
    tasks: list[_Task],
    n_rounds: int,
    clock: Clock,
    on_progress: Callable[[Progress], None],
) -> dict[Cell, list[int]]:
    samples: dict[Cell, list[int]] = {task.cell: [] for task in tasks}
    done = 0
    for round_number in range(n_rounds):
        for task in order_of_round(tasks, round_number):
            on_progress(Progress(done, n_rounds * len(tasks), task.cell))
            samples[task.cell].append(_once(workload, task, clock))
            done += 1
    return samples


def _once(workload: Workload, task: _Task, clock: Clock) -> int:
    """Time one run and check its answer; the answer dies here, before the next way begins."""
    way, case = task.way, task.case
    try:
        prepared = task.data if way.setup is None else way.setup(task.data)
        with _collector(workload.collector):
            begun = clock()
            answer = way.run(prepared)
            taken = clock() - begun
    except Exception as error:
        raise WayFailed(
            f'way "{way.name}" failed on case "{case.name}" of workload "{workload.name}"',
            detail=f"{type(error).__name__}: {error}",
        ) from error
    wrong = workload.wrong(task.expected, answer)
    if wrong is not None:
        raise WrongAnswer(
            f'way "{way.name}" gave a wrong answer on case "{case.name}" of "{workload.name}"',
            detail=wrong,
            hint="mend the way (or the oracle); a wrong answer is never timed",
        )
    return taken


def _figures(task: _Task, samples: list[int], warm_up: int) -> Figures:
    return Figures(
        cell=task.cell,
        units=dict(task.case.units),
        warm_up_ns=tuple(samples[:warm_up]),
        samples_ns=tuple(samples[warm_up:]),
        checks=len(samples),
    )


@contextmanager
def _collector(stays_on: bool) -> Iterator[None]:
    """Begin from a clean heap; unless asked otherwise, let no collection fall into somebody's time."""
    was_on = gc.isenabled()
    gc.collect()
    if not stays_on:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
