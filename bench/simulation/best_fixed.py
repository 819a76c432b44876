"""The best fixed configuration, searched for in the same simulator.

The search knows the true costs, which no controller knows. It tries pools of many sizes, each with replicas
in proportion to the work of the steps (WindFlow 5.3) and with several degrees of excess, then the neighbours
of the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bench.simulation.adaptation import Load, Setting, keep_load, run_fixed
from bench.simulation.topology import Busy, Topology

GENEROSITY = (1.0, 1.3, 2.0)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration and its throughput."""

    threads: int
    replicas: dict[str, int]
    rows_per_second: float


def search_best_fixed(topology: Topology, setting: Setting, load: Load = keep_load) -> Configuration:
    """Search pool sizes and replicas, and return the configuration with the highest throughput."""
    tried: dict[tuple[int, tuple[int, ...]], Configuration] = {}

    def attempt(threads: int, replicas: dict[str, int]) -> Configuration:
        key = threads, tuple(replicas.values())
        if key not in tried:
            rows = run_fixed(topology, setting, threads, replicas, load=load)
            tried[key] = Configuration(threads, replicas, rows)
        return tried[key]

    for threads, replicas in list_configurations(topology, setting.cores):
        attempt(threads, replicas)
    best = max(tried.values(), key=lambda configuration: configuration.rows_per_second)
    for step in (-2, -1, 1, 2):
        if 1 <= best.threads + step <= setting.cores:
            attempt(best.threads + step, best.replicas)
    return max(tried.values(), key=lambda configuration: configuration.rows_per_second)


def list_configurations(topology: Topology, cores: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the pool sizes and replicas to try."""
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
    """Return the nanoseconds of work of each operator per row that a source emits."""
    visits = dict.fromkeys(topology.sources, 1.0 / len(topology.sources))
    waiting: list[Busy] = list(topology.operators)
    while waiting:
        busy = next(b for b in waiting if not any(b.name in other.targets for other in waiting))
        waiting.remove(busy)
        out = visits[busy.name] * busy.selectivity / max(1, len(busy.targets))
        for target in busy.targets:
            visits[target] = visits.get(target, 0.0) + out
    return {busy.name: visits[busy.name] * busy.cost_ns for busy in topology.operators}


def throughput_limit(topology: Topology, cores: int) -> float:
    """Return the source rows per second that no configuration can exceed.

    At that rate all cores are busy, or all replicas of some operator.
    """
    work = work_per_row(topology)
    limits = [busy.most / work[busy.name] for busy in topology.operators if work[busy.name]]
    return 1e9 * min(cores / sum(work.values()), *limits)
