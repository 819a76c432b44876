"""Samples: what happened in an adaptation period, per step, and how many threads and replicas are of use.

Counters only grow, so a period is the difference of two looks at them. A replica that is new in this period
counts from zero; one that has gone counts up to the last look.

Demand (WindFlow, 5.3): WindFlow gives out replicas in proportion to the processing time per row times the
rows that reach a step, until the cores are used up. The running time of a step in a period is that product,
so its share of the work needs no other measure: if a graph went g times as fast, every step would be g times
as busy, until one has all its replicas busy all the time. `suggest_parallelism` does the same for the next
run. Proportions are whole numbers in the end: every further replica goes to the step whose replicas have
most to do, which no other sharing of as many replicas improves on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from math import ceil, inf

from penstock.engines.local.metrics.statistics import InputStatistics, TaskStatistics
from penstock.errors import EngineError
from penstock.frozen import Frozen

SELDOM = 0.1  # a source that waits for rows less than this share of a period could give out more


class StepSample(Frozen):
    """One step over a period.

    replicas  how many there are
    most      how many there may be; 1 for a step that cannot be replicated
    busy      running time of all replicas, in periods: 2.5 means that two and a half ran all the time
    rows_in   rows read by all replicas
    rows_out  rows emitted by all replicas
    full_in   write-blocked ratio of its input: share of the period that it was full, mean over replicas
    full_out  the greatest write-blocked ratio of the ports that it writes to
    source    whether it reads no port
    waiting   share of the period that it waited for rows, mean over replicas
    least     how many there must be
    pooled    whether the threads of the pool run it; not if its replicas have threads of their own
    """

    step: str
    replicas: int
    most: int
    busy: float
    rows_in: int
    rows_out: int
    full_in: float
    full_out: float
    source: bool = False
    waiting: float = 0.0
    pooled: bool = True
    least: int = 1


class Sample(Frozen):
    """A whole run over a period."""

    threads: int
    steps: tuple[StepSample, ...]

    @property
    def utilisation(self) -> float:
        """Return the share of the threads' time that went into running tasks (C-Stream, 4.1)."""
        return self.pooled_busy / max(1, self.threads)

    @property
    def pooled_busy(self) -> float:
        """Return the running time of the tasks that the pool runs, in periods."""
        return sum(step.busy for step in self.steps if step.pooled)

    @property
    def throughput(self) -> int:
        """Return the number of rows that steps read and sources emitted: the work done, wherever rows wait.

        Rows that only fill queues count little; counting the rows of the sources alone would overrate them.
        """
        return sum(step.rows_out if step.source else step.rows_in for step in self.steps)

    def has_backlog(self, congestion: float) -> bool:
        """Return whether more could be done: a source has no room to write to, or hardly waits for rows."""
        return any(step.full_out >= congestion or step.waiting < SELDOM for step in self.steps if step.source)


class Sampler:
    """Samples the statistics once per period.

    Replicas that have gone are remembered: one that comes back has old counts, which do not belong to this
    period.

    most   step -> the replicas it may have; steps left out stay as they are
    least  step -> the replicas it must have, if not one
    """

    def __init__(self, most: Mapping[str, int], now: int, least: Mapping[str, int] | None = None) -> None:
        self._most, self._least = most, least or {}
        self._looked = now
        self._tasks: dict[TaskStatistics, tuple[int, ...]] = {}  # the counts of each replica at the last look
        self._ports: dict[InputStatistics, int] = {}

    def look(self, tasks: Iterable[TaskStatistics], threads: int, now: int) -> Sample:
        """Return the sample of the period since the last look."""
        took = max(1, now - self._looked)
        self._looked = now
        steps: dict[str, list[TaskStatistics]] = {}
        for task in tasks:
            steps.setdefault(task.step, []).append(task)
        full: dict[InputStatistics, float] = {}
        for task in chain.from_iterable(steps.values()):
            for port in chain(task.inputs, *(out.subscribers for out in task.outputs)):
                if port not in full:
                    before, self._ports[port] = self._ports.get(port, 0), port.full_until(now)
                    full[port] = min(1.0, (self._ports[port] - before) / took)
        samples = []
        for step, replicas in steps.items():
            totals = [0, 0, 0, 0]
            for task in replicas:
                last = self._tasks.get(task, (0, 0, 0, 0))
                counts = (task.running_until(now), task.waiting_until(now), task.rows_in, task.rows_out)
                totals = [total + new - old for total, new, old in zip(totals, counts, last, strict=True)]
                self._tasks[task] = counts
            running, waiting, rows_in, rows_out = totals
            full_in = [max((full[port] for port in task.inputs), default=0.0) for task in replicas]
            full_out = [full[port] for task in replicas for out in task.outputs for port in out.subscribers]
            sample = StepSample(
                step=step,
                replicas=len(replicas),
                most=self._most.get(step, len(replicas)),
                busy=running / took,
                rows_in=rows_in,
                rows_out=rows_out,
                full_in=sum(full_in) / len(full_in),
                full_out=max(full_out, default=0.0),
                source=replicas[0].source,
                waiting=waiting / took / len(replicas),
                least=self._least.get(step, 1),
                pooled=not all(task.dedicated for task in replicas),
            )
            samples.append(sample)
        return Sample(threads, tuple(samples))


FILL = 0.8  # how busy a replica should be that limits the graph: now and then it waits for a worker or rows
FULL = 0.95  # how busy it may be when another step limits the graph, and more replicas would be in the way


def speed_up(sample: Sample, replicas: Mapping[str, int]) -> float:
    """Return how many times as fast the graph could go with these replicas, given enough threads."""
    return min((replicas[s.step] / s.busy for s in sample.steps if s.busy), default=inf)


def useful_threads(sample: Sample, replicas: Mapping[str, int]) -> int:
    """Return how many threads these replicas can keep busy, with some spare ones for the slowest."""
    busy = sample.pooled_busy
    if not busy:
        return 1
    most = sum(replicas[step.step] for step in sample.steps if step.pooled)
    return max(1, min(most, ceil(busy * speed_up(sample, replicas) / FILL - 1e-9)))


def replicas_for(sample: Sample, threads: int) -> dict[str, float]:
    """Return step -> the replicas it should have if the graph used so many threads, as a fraction.

    A step that has all the replicas it may have limits the others too.
    """
    busy = sum(step.busy for step in sample.steps)
    if not busy:
        return {step.step: float(step.replicas) for step in sample.steps}
    fastest = min(step.most / step.busy for step in sample.steps if step.busy)
    faster, fill = (threads / busy, FILL) if threads / busy < fastest else (fastest, FULL)
    return {step.step: faster * step.busy / fill for step in sample.steps}


def suggest_parallelism(
    statistics: Iterable[TaskStatistics], *, cores: int, most: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return step -> the replicas it should have so that all cores are used; at least one each.

    Of steps that share a task the first is named: they have equally many.

    statistics  of all replicas of a run, or of a part of one: `run.statistics()`
    cores       how many to use; steps without much work share them
    most        step -> the replicas it may have; steps left out, and sources, keep one. None for any but
    sources
    """
    if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
        raise EngineError(f"cores={cores!r} is not a number of cores", hint="use 1 or more, e.g. cores=4")
    tasks = list(statistics)
    allowed = {task.step: cores for task in tasks if not task.source} if most is None else most
    work: dict[str, int] = {}
    for task in tasks:
        work[task.step] = work.get(task.step, 0) + task.running_ns
    replicas = dict.fromkeys(work, 1)
    while any(work.values()):
        busiest = min(work, key=lambda step: (-work[step] / replicas[step], step))
        # The replicas keep so many threads busy if the busiest of them is never idle.
        n_busy = sum(work.values()) * replicas[busiest] / work[busiest]
        if n_busy >= cores or replicas[busiest] >= allowed.get(busiest, 1):
            break  # it limits the graph, and more replicas of the others would have nothing to do
        replicas[busiest] += 1
    return replicas
