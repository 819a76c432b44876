"""The runner: warm-up, then interleaved rounds; each answer is checked before its time is recorded.

Every round runs every way on every case once, in a random order: what is compared, ways or cases, runs at
about the same time, and nothing always runs first, or after the same other. The price is that the data of all
cases of a group is in memory at once. Groups follow each other, all rounds of one before the next. Setup,
checking, notes and clean-up happen outside the clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple, TypeVar

from bench.machine import (
    commit_of,
    describe_machine,
    keep_awake,
    package_versions,
    read_core_times,
    time_step,
)
from bench.result import Figures, Result, evaluate_claim
from bench.workload import BenchError, Case, Cell, Size, Way, WayFailed, Workload, WrongAnswer

Clock = Callable[[], int]
NARROW_ROUNDS = 41
"""Timed rounds of what a narrow claim compares: the quickest quarter of them is then ten."""
ROUNDS_PER_LAYOUT = 4
"""Rounds of narrow claims after which their data is rebuilt, elsewhere in memory."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a measurement: `done` of `total` runs; the next one is `cell`."""

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
    awake: bool = False,
    clock: Clock = time.perf_counter_ns,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Result:
    """Time every way on every case. A wrong answer, in any round, stops the whole measurement.

    awake  keep the cores from sleeping meanwhile
    """
    usual = workload.rounds or (5 if size == "quick" else 15)
    chosen, rounds = rounds is not None, usual if rounds is None else rounds
    if warm_up is None:
        warm_up = workload.warm_up if workload.warm_up is not None else (1 if size == "quick" else 2)
    if rounds < 1 or warm_up < 0:
        raise BenchError(
            f"{rounds} rounds after {warm_up} warm-up rounds measure nothing",
            hint="use at least one round, such as --rounds 5",
        )
    machine, started_at = describe_machine(), datetime.now(UTC).isoformat(timespec="seconds")
    more = 0 if chosen else max(NARROW_ROUNDS - rounds, 0)
    n_narrow = sum(len(workload.narrow_cells_of(group)) for group in workload.groups)
    n_cells = sum(len(workload.cells_of(group)) for group in workload.groups)
    counter = _Counter(on_progress, n_cells * (warm_up + rounds) + n_narrow * more)
    figures: list[Figures] = []
    before = read_core_times()
    with keep_awake() if awake else nullcontext(False) as is_awake:
        machine = replace(machine, awake=is_awake, step_ns=time_step())
        for group in workload.groups:
            planned = _plan_rounds(workload, group, seed, warm_up + rounds, more)
            timed = _time_rounds(workload, planned, clock, counter)
            figures += [_build_figures(cell, units, samples, warm_up) for cell, (units, samples) in timed]
    after = read_core_times()
    stolen = None if before is None or after is None else round(after.stolen_since(before), 3)
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
        machine=replace(machine, stolen=stolen),
        versions=package_versions(),
        commit=commit_of(),
        figures=tuple(figures),
        verdicts=tuple(evaluate_claim(claim, by_cell) for claim in workload.claims),
        charts=workload.charts,
        remarks=workload.remarks,
    )


def shuffle_tasks(tasks: Sequence[T], round_number: int) -> list[T]:
    """Return the tasks in the random order of that round, so that no task always follows the same one.

    A run depends on the caches and memory that the one before it left; in a fixed order that would look like
    a difference between ways.
    """
    return Random(round_number).sample(tasks, len(tasks))  # noqa: S311  # no secret hangs on it


@dataclass(frozen=True, slots=True)
class _Task:
    """One way on one case, with its data, the expected answer and the units of work."""

    case: Case
    way: Way
    data: Any
    expected: Any
    units: Mapping[str, int]

    @property
    def cell(self) -> Cell:
        return Cell(self.case.name, self.way.name)


class _Sample(NamedTuple):
    """One run: its time and its notes."""

    ns: int
    notes: Mapping[str, float]


@dataclass(slots=True)
class _Counter:
    """Counts the runs of all groups and reports the progress."""

    tell: Callable[[Progress], None]
    total: int
    done: int = 0

    def begin(self, cell: Cell) -> None:
        self.tell(Progress(self.done, self.total, cell))
        self.done += 1


def _plan_rounds(workload: Workload, group: str, seed: int, n_all: int, n_more: int) -> Iterator[list[_Task]]:
    """Yield the tasks of each round: `n_all` rounds of all, then `n_more` of what narrow claims compare.

    The position of data in memory is random and stays the same from round to round, so it would look like a
    cost. Therefore the further rounds rebuild the data every few rounds.
    """
    tasks = _build_tasks(workload, group, seed, workload.cells_of(group))
    for _ in range(n_all):
        yield tasks
    narrow = workload.narrow_cells_of(group)
    for number in range(n_more if narrow else 0):
        if number % ROUNDS_PER_LAYOUT == 0:
            # Why: the old tasks stay alive until the new ones exist, so that their memory is not reused.
            workload.forget()
            tasks = _build_tasks(workload, group, seed, narrow)
        yield tasks


def _build_tasks(workload: Workload, group: str, seed: int, cells: Collection[Cell]) -> list[_Task]:
    tasks = []
    for case in workload.cases:
        ways = [way for way in workload.ways if Cell(case.name, way.name) in cells]
        if case.group != group or not ways:
            continue
        data = case.make(seed)
        right = workload.oracle(data)
        counted = workload.counts(right) if workload.counts else {}
        for way in ways:
            if way.oracle:
                tasks.append(_Task(case, way, data, way.oracle(data), case.units))
            else:
                tasks.append(_Task(case, way, data, right, {**case.units, **counted}))
    return tasks


def _time_rounds(
    workload: Workload, planned: Iterable[list[_Task]], clock: Clock, counter: _Counter
) -> Iterable[tuple[Cell, tuple[Mapping[str, int], list[_Sample]]]]:
    """Time the tasks of each round and return the units of work and the samples of each cell."""
    samples: dict[Cell, tuple[Mapping[str, int], list[_Sample]]] = {}
    for round_number, tasks in enumerate(planned):
        if round_number == 0:
            samples = {task.cell: (task.units, []) for task in tasks}
        for task in shuffle_tasks(tasks, round_number):
            counter.begin(task.cell)
            samples[task.cell][1].append(_time_task(workload, task, clock))
    return samples.items()


def _time_task(workload: Workload, task: _Task, clock: Clock) -> _Sample:
    """Time one run and check its answer; the answer is freed here, before the next run begins."""
    way, case = task.way, task.case
    try:
        prepared = task.data if way.setup is None else way.setup(task.data)
        with _garbage_collection(workload.collector):
            started = clock()
            answer = way.run(prepared)
            elapsed = clock() - started
    except Exception as error:
        raise WayFailed(
            f'way "{way.name}" failed on case "{case.name}" of workload "{workload.name}"',
            detail=f"{type(error).__name__}: {error}",
        ) from error
    wrong = workload.check(task.expected, answer)
    if wrong is not None:
        raise WrongAnswer(
            f'way "{way.name}" gave a wrong answer on case "{case.name}" of "{workload.name}"',
            detail=wrong,
            hint="mend the way (or the oracle); a wrong answer is never timed",
        )
    return _Sample(elapsed, way.notes(answer) if way.notes else {})


def _build_figures(cell: Cell, units: Mapping[str, int], samples: list[_Sample], warm_up: int) -> Figures:
    timed = samples[warm_up:]
    return Figures(
        cell=cell,
        units=dict(units),
        warm_up_ns=tuple(one.ns for one in samples[:warm_up]),
        samples_ns=tuple(one.ns for one in timed),
        checks=len(samples),
        notes={name: tuple(one.notes[name] for one in timed) for name in timed[0].notes},
    )


@contextmanager
def _garbage_collection(stays_on: bool) -> Iterator[None]:
    """Collect garbage first, then keep the collector off while timing, unless it `stays_on`."""
    was_on = gc.isenabled()
    gc.collect()
    if not stays_on:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
