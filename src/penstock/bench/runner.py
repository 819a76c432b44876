"""The runner: warm-up, then interleaved rounds, each answer checked before its time is kept.

Cases come one after the other, so that only one case's data lives at a time. Within a case every round
runs every way once, and each round starts one way later than the last, so that no way
always runs first. Setup, checking and clean-up happen outside the clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.bench.errors import BenchError, WayFailed, WrongAnswer
from penstock.bench.machine import commit_of, this_machine, versions
from penstock.bench.result import Figures, Result, judge
from penstock.bench.workload import Case, Cell, Size, Way, Workload

Clock = Callable[[], int]


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
    runs = _Runs(workload, seed, clock, on_progress, per_case=(warm_up + rounds) * len(workload.ways))
    figures = [one for case in workload.cases for one in runs.of_case(case, warm_up, rounds)]
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


def order_of_round(ways: Sequence[Way], round_number: int) -> list[Way]:
    """The ways, begun one later in each round: A B C, B C A, C A B, A B C …"""
    start = round_number % len(ways)
    return [*ways[start:], *ways[:start]]


class _Runs:
    """The runs of one measurement, and how many of them are done."""

    def __init__(
        self,
        workload: Workload,
        seed: int,
        clock: Clock,
        on_progress: Callable[[Progress], None],
        *,
        per_case: int,
    ) -> None:
        self._workload, self._seed, self._clock, self._on_progress = workload, seed, clock, on_progress
        self._done, self._total = 0, per_case * len(workload.cases)

    def of_case(self, case: Case, warm_up: int, rounds: int) -> list[Figures]:
        data = case.make(self._seed)
        ways = self._workload.ways
        expected = {way.name: (way.oracle or self._workload.oracle)(data) for way in ways}
        samples: dict[str, list[int]] = {way.name: [] for way in ways}
        for round_number in range(warm_up + rounds):
            for way in order_of_round(ways, round_number):
                samples[way.name].append(self._once(case, way, data, expected[way.name]))
        return [
            Figures(
                cell=Cell(case.name, way.name),
                units=dict(case.units),
                warm_up_ns=tuple(samples[way.name][:warm_up]),
                samples_ns=tuple(samples[way.name][warm_up:]),
                checks=warm_up + rounds,
            )
            for way in ways
        ]

    def _once(self, case: Case, way: Way, data: Any, expected: Any) -> int:
        """Time one run and check its answer; the answer dies here, before the next way begins."""
        self._on_progress(Progress(self._done, self._total, Cell(case.name, way.name)))
        try:
            prepared = data if way.setup is None else way.setup(data)
            with _collector(self._workload.collector):
                begun = self._clock()
                answer = way.run(prepared)
                taken = self._clock() - begun
        except Exception as error:
            raise WayFailed(
                f'way "{way.name}" failed on case "{case.name}" of workload "{self._workload.name}"',
                detail=f"{type(error).__name__}: {error}",
            ) from error
        wrong = self._workload.wrong(expected, answer)
        if wrong is not None:
            raise WrongAnswer(
                f'way "{way.name}" gave a wrong answer on case "{case.name}" of "{self._workload.name}"',
                detail=wrong,
                hint="mend the way (or the oracle); a wrong answer is never timed",
            )
        self._done += 1
        return taken


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
