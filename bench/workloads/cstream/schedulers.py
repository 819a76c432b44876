"""Real runs: topologies by scheduler and threads (C-Stream, Fig. 4), cost, size and selectivity (6 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import penstock as ps
from bench.workload import Case, Cell, Chart, Line, Point, Way
from penstock.apps.busy_operators import SHAPES, Busy, build_chain, build_data_parallel

SCHEDULERS = ("random", "max-queue-length", "min-latency", "least-recently-run", "max-running-time")
COST_US = 100.0
SIZED: dict[str, Callable[[int, Busy, int], ps.PipeGraph]] = {
    "chain": build_chain,
    "data parallel": build_data_parallel,
}


class Task(NamedTuple):
    """A graph to run: its topology, the rows that go in, and its busy operators."""

    shape: str
    n_rows: int
    busy: Busy
    n_busy: int = 12

    def graph(self) -> ps.PipeGraph:
        """Build the graph; only chains and data-parallel graphs have a configurable number of operators."""
        if self.shape in SIZED:
            return SIZED[self.shape](self.n_rows, self.busy, self.n_busy)
        return SHAPES[self.shape](self.n_rows, self.busy)


def way_name(scheduler: str, threads: int) -> str:
    """Return the name of the way with that scheduler and that many threads."""
    return f"{scheduler}, {threads} {'thread' if threads == 1 else 'threads'}"


def run(task: Task, *, scheduler: str, threads: int) -> int:
    """Run the graph and return the number of rows that reached its sinks."""
    result = task.graph().run(engine="local", options=ps.LocalOptions(scheduler=scheduler, threads=threads))
    return sum(step.rows_in for name, step in result.accounts.items() if name.startswith("sink"))


def count_finished(task: Task) -> int:
    """Return the number of rows that must reach the sinks: in a chain, those that every operator passes."""
    places = range(task.n_busy) if task.shape == "chain" else [0]
    on_the_way = [replace(task.busy, place=place) for place in places]
    return sum(all(busy.passes(number) for busy in on_the_way) for number in range(task.n_rows))


def build_ways(
    usual: int, threads: Sequence[int], schedulers: Sequence[str], cases: Sequence[str], shapes: Sequence[str]
) -> list[Way]:
    """Build a way per scheduler and number of threads; cases of a sweep get the `usual` number only."""
    return [
        Way(way_name(s, n), partial(run, scheduler=s, threads=n), only=tuple(cases if n == usual else shapes))
        for s in schedulers
        for n in threads
    ]


def build_case(task: Task, name: str = "", group: str = "") -> Case:
    """Build the case of one graph; cases of one group are measured together."""
    return Case(name or task.shape, lambda seed: task, {"rows": task.n_rows}, group=group or task.shape)


def build_threads_chart(shape: str, threads: Sequence[int], schedulers: Sequence[str]) -> Chart:
    """Build the chart of the throughput by threads, with a line per scheduler."""
    lines = tuple(
        Line(s, tuple(Point(n, str(n), Cell(shape, way_name(s, n))) for n in threads)) for s in schedulers
    )
    return Chart(
        f"{shape}: threads and schedulers",
        f"Busy operators of {COST_US:.0f} us on the cores of this machine (C-Stream, Fig. 4).",
        "threads",
        lines,
    )


class Sweep(NamedTuple):
    """The cases of one varied parameter, and their chart with a line per scheduler."""

    cases: list[Case]
    chart: Chart


def sweep_costs(n_rows: int, threads: int, schedulers: Sequence[str]) -> Sweep:
    """Vary the cost of an operator, data parallel (C-Stream, Fig. 6)."""
    tasks = {cost: Task("data parallel", n_rows, Busy(cost)) for cost in (10.0, 50.0, 200.0)}
    return _sweep("cost", "us", tasks, threads, schedulers, "C-Stream, Fig. 6")


def sweep_sizes(n_rows: int, threads: int, schedulers: Sequence[str]) -> Sweep:
    """Vary the number of operators, data parallel (C-Stream, Fig. 7)."""
    tasks = {float(n): Task("data parallel", n_rows, Busy(COST_US), n) for n in (4, 8, 16)}
    return _sweep("size", "operators", tasks, threads, schedulers, "C-Stream, Fig. 7")


def sweep_selectivities(n_rows: int, threads: int, schedulers: Sequence[str]) -> Sweep:
    """Vary the share of rows that each operator of a chain passes (C-Stream, Fig. 8)."""
    tasks = {share: Task("chain", n_rows, Busy(COST_US, share)) for share in (0.5, 0.8, 1.0)}
    return _sweep("selectivity", "of the rows", tasks, threads, schedulers, "C-Stream, Fig. 8")


def _sweep(
    parameter: str,
    unit: str,
    tasks: Mapping[float, Task],
    threads: int,
    schedulers: Sequence[str],
    figure: str,
) -> Sweep:
    shape = next(iter(tasks.values())).shape
    cases = {
        at: build_case(task, f"{shape}, {parameter} {at:g} {unit}", parameter) for at, task in tasks.items()
    }
    lines = tuple(
        Line(s, tuple(Point(at, f"{at:g}", Cell(c.name, way_name(s, threads))) for at, c in cases.items()))
        for s in schedulers
    )
    return Sweep(
        list(cases.values()),
        Chart(f"{shape}: {parameter}", f"With {threads} threads ({figure}).", unit, lines),
    )
