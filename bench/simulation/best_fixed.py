"""The best configuration that does not change, found by search in the same simulator.

The search knows what no controller knows: the true costs. It tries pools of many sizes, each with replicas
in proportion to the work of the steps (WindFlow 5.3) at several degrees of generosity, and then looks around
the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bench.simulation.adaptation import Load, Setting, fixed, unchanged
from bench.simulation.topology import Busy, Topology

GENEROSITY = (1.0, 1.3, 2.0)


@dataclass(frozen=True, slots=True)
class Found:
    """A configuration and its throughput."""

    threads: int
    replicas: dict[str, int]
    rows_per_second: float


def best_fixed(topology: Topology, setting: Setting, load: Load = unchanged) -> Found:
    """Search pools and replicas; the best found."""
    tried: dict[tuple[int, tuple[int, ...]], Found] = {}

    def attempt(threads: int, replicas: dict[str, int]) -> Found:
        key = threads, tuple(replicas.values())
        if key not in tried:
            rows = fixed(topology, setting, threads, replicas, load=load)
            tried[key] = Found(threads, replicas, rows)
        return tried[key]

    for threads, replicas in configurations(topology, setting.cores):
        attempt(threads, replicas)
    best = max(tried.values(), key=lambda found: found.rows_per_second)
    for step in (-2, -1, 1, 2):
        if 1 <= best.threads + step <= setting.cores:
            attempt(best.threads + step, best.replicas)
    return max(tried.values(), key=lambda found: found.rows_per_second)


def configurations(topology: Topology, cores: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Pools and replicas to try."""
    work = work_per_row(topology)
    whole = sum(work.values())
    for threads in sorted({max(1, ceil(cores * part / 4)) for part in (1, 2, 3, 4)} | {min(cores, 12)}):
        for generous in GENEROSITY:
            yield (
                threads,
                {
                    busy.name: max(
                        1, min(busy.most, ceil(generous * threads * work[busy.name] / whole - 1e-9))
                    )
                    for busy in topology.operators
                },
            )


def work_per_row(topology: Topology) -> dict[str, float]:
    """Operator -> nanoseconds of its work for each row that a source gives out."""
    visits = dict.fromkeys(topology.sources, 1.0 / len(topology.sources))
    waiting: list[Busy] = list(topology.operators)
    while waiting:
        busy = next(b for b in waiting if not any(b.name in other.targets for other in waiting))
        waiting.remove(busy)
        out = visits[busy.name] * busy.selectivity / max(1, len(busy.targets))
        for target in busy.targets:
            visits[target] = visits.get(target, 0.0) + out
    return {busy.name: visits[busy.name] * busy.cost_ns for busy in topology.operators}


def ceiling(topology: Topology, cores: int) -> float:
    """Rows of the sources per second that no configuration can exceed.

    All cores are busy then, or all replicas of some operator.
    """
    work = work_per_row(topology)
    limits = [busy.most / work[busy.name] for busy in topology.operators if work[busy.name]]
    return 1e9 * min(cores / sum(work.values()), *limits)
