"""The runner: warm-up, then interleaved rounds, each answer checked before its time is kept.

Every round runs every way on every case once, in an order of its own: what is compared, ways or cases, sees
the same moments of the machine, and nothing always runs first, or after the same other. The price is that the
data of all cases of a group lives at once. Groups follow each other, all rounds of one before the next.
Setup, checking, notes and clean-up happen outside the clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple, TypeVar

from bench.cell import Cell
from bench.errors import BenchError, WayFailed, WrongAnswer
from bench.machine import commit_of, this_machine, versions
from bench.result import Figures, Result, judge
from bench.workload import Case, Size, Way, Workload

Clock = Callable[[], int]
NARROW_ROUNDS = 41
"""Timed rounds of what a narrow claim compares: the quickest quarter of them is then ten."""
LAID_OUT = 4
"""Rounds of those after which their data is made anew, elsewhere in memory."""
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
    usual = workload.rounds or (5 if size == "quick" else 15)
    told, rounds = rounds is not None, usual if rounds is None else rounds
    warm_up = warm_up if warm_up is not None else (1 if size == "quick" else 2)
    if rounds < 1 or warm_up < 0:
        raise BenchError(
            f"{rounds} rounds after {warm_up} warm-up rounds measure nothing",
            hint="use at least one round, such as --rounds 5",
        )
    machine, started_at = this_machine(), datetime.now(UTC).isoformat(timespec="seconds")
    more = 0 if told else max(NARROW_ROUNDS - rounds, 0)
    n_narrow = sum(len(workload.narrow_cells_of(group)) for group in workload.groups)
    n_cells = sum(len(workload.cells_of(group)) for group in workload.groups)
    counter = _Counter(on_progress, n_cells * (warm_up + rounds) + n_narrow * more)
    figures: list[Figures] = []
    for group in workload.groups:
        planned = _rounds(workload, group, seed, warm_up + rounds, more)
        timed = _timed(workload, planned, clock, counter)
        figures += [_figures(cell, units, samples, warm_up) for cell, (units, samples) in timed]
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
        charts=workload.charts,
    )


def order_of_round(tasks: Sequence[T], round_number: int) -> list[T]:
    """Return the tasks in an order of the round's own, so that none has always the same one before it.

    What ran before leaves its mark on caches and memory: in a fixed order it would look like a difference.
    """
    return Random(round_number).sample(tasks, len(tasks))  # noqa: S311  # no secret hangs on it


@dataclass(frozen=True, slots=True)
class _Task:
    """One way on one case, with its data, the right answer and how much work it is."""

    case: Case
    way: Way
    data: Any
    expected: Any
    units: Mapping[str, int]

    @property
    def cell(self) -> Cell:
        return Cell(self.case.name, self.way.name)


class _Sample(NamedTuple):
    """One run: its time, and what else it had to tell."""

    ns: int
    notes: Mapping[str, float]


@dataclass(slots=True)
class _Counter:
    """Counts the runs of all groups, and tells."""

    tell: Callable[[Progress], None]
    total: int
    done: int = 0

    def begin(self, cell: Cell) -> None:
        self.tell(Progress(self.done, self.total, cell))
        self.done += 1


def _rounds(workload: Workload, group: str, seed: int, n_all: int, n_more: int) -> Iterator[list[_Task]]:
    """Yield the tasks of each round: all of them, then, so many times more, those that narrow claims compare.

    Where data lies in memory is luck, which stays with it from round to round and would look like a cost. So
    the further rounds see it made anew every few rounds.
    """
    tasks = _tasks(workload, group, seed, workload.cells_of(group))
    for _ in range(n_all):
        yield tasks
    narrow = workload.narrow_cells_of(group)
    for number in range(n_more if narrow else 0):
        if number % LAID_OUT == 0:
            # What there was goes only then, or its place would be taken again.
            workload.forget()
            tasks = _tasks(workload, group, seed, narrow)
        yield tasks


def _tasks(workload: Workload, group: str, seed: int, cells: Collection[Cell]) -> list[_Task]:
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


def _timed(
    workload: Workload, planned: Iterable[list[_Task]], clock: Clock, counter: _Counter
) -> Iterable[tuple[Cell, tuple[Mapping[str, int], list[_Sample]]]]:
    """Time the tasks of each round; gives the work and the samples of each cell, as in the first round."""
    found: dict[Cell, tuple[Mapping[str, int], list[_Sample]]] = {}
    for round_number, tasks in enumerate(planned):
        if round_number == 0:
            found = {task.cell: (task.units, []) for task in tasks}
        for task in order_of_round(tasks, round_number):
            counter.begin(task.cell)
            found[task.cell][1].append(_once(workload, task, clock))
    return found.items()


def _once(workload: Workload, task: _Task, clock: Clock) -> _Sample:
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
    return _Sample(taken, way.notes(answer) if way.notes else {})


def _figures(cell: Cell, units: Mapping[str, int], samples: list[_Sample], warm_up: int) -> Figures:
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
