"""Real runs: topologies by scheduler and threads (C-Stream, Fig. 4), cost, size and selectivity (6 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import penstock as ps
from bench.cell import Cell
from bench.chart import Chart, Line, Point
from bench.workload import Case, Way
from bench.workloads.cstream.busy import Busy
from bench.workloads.cstream.shapes import SHAPES, chain, data_parallel

SCHEDULERS = ("random", "max-queue-length", "min-latency", "least-recently-run", "max-running-time")
COST_US = 100.0
SIZED: dict[str, Callable[[int, Busy, int], ps.PipeGraph]] = {"chain": chain, "data parallel": data_parallel}


class Task(NamedTuple):
    """A graph to run, how many rows go in, and what makes it."""

    shape: str
    n_rows: int
    busy: Busy
    n_busy: int = 12

    def graph(self) -> ps.PipeGraph:
        """Return the graph; only chains and side by side have a number of operators to choose."""
        if self.shape in SIZED:
            return SIZED[self.shape](self.n_rows, self.busy, self.n_busy)
        return SHAPES[self.shape](self.n_rows, self.busy)


def named(scheduler: str, threads: int) -> str:
    """Return the way with that scheduler and so many threads."""
    return f"{scheduler}, {threads} {'thread' if threads == 1 else 'threads'}"


def run(task: Task, *, scheduler: str, threads: int) -> int:
    """Run the graph; how many rows came to its end."""
    result = task.graph().run(engine="local", options=ps.LocalOptions(scheduler=scheduler, threads=threads))
    return sum(step.rows_in for name, step in result.accounts.items() if name.startswith("sink"))


def n_finished(task: Task) -> int:
    """Return the number of rows must come to the end: in a chain, those that every operator lets pass."""
    places = range(task.n_busy) if task.shape == "chain" else [0]
    on_the_way = [replace(task.busy, place=place) for place in places]
    return sum(all(busy.passes(number) for busy in on_the_way) for number in range(task.n_rows))


def ways(
    usual: int, threads: Sequence[int], schedulers: Sequence[str], cases: Sequence[str], shapes: Sequence[str]
) -> list[Way]:
    """One way per scheduler and number of threads; what is no plain shape only gets the usual number."""
    return [
        Way(named(s, n), partial(run, scheduler=s, threads=n), only=tuple(cases if n == usual else shapes))
        for s in schedulers
        for n in threads
    ]


def case(task: Task, name: str = "", group: str = "") -> Case:
    """Return one graph on so many rows; those of one group are measured together."""
    return Case(name or task.shape, lambda seed: task, {"rows": task.n_rows}, group=group or task.shape)


def threads_chart(shape: str, threads: Sequence[int], schedulers: Sequence[str]) -> Chart:
    """Throughput by threads, a line per scheduler."""
    lines = tuple(
        Line(s, tuple(Point(n, str(n), Cell(shape, named(s, n))) for n in threads)) for s in schedulers
    )
    return Chart(
        f"{shape}: threads and schedulers",
        f"Busy operators of {COST_US:.0f} us on the cores of this machine (C-Stream, Fig. 4).",
        "threads",
        lines,
    )


class Sweep(NamedTuple):
    """One thing varied: its cases, and the chart of them, a line per scheduler."""

    cases: list[Case]
    chart: Chart


def costs(n_rows: int, threads: int, schedulers: Sequence[str]) -> Sweep:
    """Return what an operator costs, side by side (C-Stream, Fig. 6)."""
    tasks = {cost: Task("data parallel", n_rows, Busy(cost)) for cost in (10.0, 50.0, 200.0)}
    return _sweep("cost", "us", tasks, threads, schedulers, "C-Stream, Fig. 6")


def sizes(n_rows: int, threads: int, schedulers: Sequence[str]) -> Sweep:
    """Return the number of operators are side by side (C-Stream, Fig. 7)."""
    tasks = {float(n): Task("data parallel", n_rows, Busy(COST_US), n) for n in (4, 8, 16)}
    return _sweep("size", "operators", tasks, threads, schedulers, "C-Stream, Fig. 7")


def selectivities(n_rows: int, threads: int, schedulers: Sequence[str]) -> Sweep:
    """Return what share of the rows an operator of a chain lets pass (C-Stream, Fig. 8)."""
    tasks = {share: Task("chain", n_rows, Busy(COST_US, share)) for share in (0.5, 0.8, 1.0)}
    return _sweep("selectivity", "of the rows", tasks, threads, schedulers, "C-Stream, Fig. 8")


def _sweep(
    what: str, unit: str, tasks: Mapping[float, Task], threads: int, schedulers: Sequence[str], figure: str
) -> Sweep:
    shape = next(iter(tasks.values())).shape
    cases = {at: case(task, f"{shape}, {what} {at:g} {unit}", what) for at, task in tasks.items()}
    lines = tuple(
        Line(s, tuple(Point(at, f"{at:g}", Cell(c.name, named(s, threads))) for at, c in cases.items()))
        for s in schedulers
    )
    return Sweep(
        list(cases.values()), Chart(f"{shape}: {what}", f"With {threads} threads ({figure}).", unit, lines)
    )
