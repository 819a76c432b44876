"""Replicas for the next run, from what a run has counted (WindFlow 5.3).

WindFlow measures the processing time per row and the selectivity of every operator, weighs each by the rows
that reach it, and gives out replicas in proportion until the cores are used up. The running time of a step
is that weight. Proportions are whole numbers in the end: every further replica goes to the step whose
replicas have most to do, which no other sharing of as many replicas improves on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace

from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.errors import EngineError


def suggest_parallelism(
    statistics: Iterable[TaskStatistics], *, cores: int, most: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Returns step -> the replicas it should have so that all cores are used; at least one each.

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
    threads_left = cores - _threads(work, replicas)
    heap: list[tuple[float, str]] = [(-ns, step) for step, ns in work.items() if ns]
    heapify(heap)
    while heap and threads_left > 0:
        busiest = heap[0][1]
        if replicas[busiest] >= allowed.get(busiest, 1):
            break  # it limits the graph, and more replicas of the others would have nothing to do
        replicas[busiest] += 1
        heapreplace(heap, (-work[busiest] / replicas[busiest], busiest))
        threads_left = cores - _threads(work, replicas)
    return replicas


def _threads(work: Mapping[str, int], replicas: Mapping[str, int]) -> float:
    """Returns how many threads the replicas keep busy if the busiest of them is never idle."""
    slowest = max((ns / replicas[step] for step, ns in work.items()), default=0)
    return sum(work.values()) / slowest if slowest else 0.0
