"""How much work each step has, and so how many threads and replicas are of use (WindFlow 5.3).

WindFlow gives out replicas in proportion to processing time per row times the rows that reach a step. The
running time of a step in a period is just that product, so its share of the work needs no other measure: if
a graph went g times as fast, every step would be g times as busy, until one has all its replicas busy all
the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf

from penstock.engines.local.elastic.sample import Sample

FILL = 0.8  # how busy a replica should be that limits the graph: it waits now and then for a worker, for rows
FULL = (
    0.95  # how busy it may be when another step limits the graph, and more replicas would only be in the way
)
SPARE = 0.8  # how busy replicas should be that only have to keep up with the sources


def speed_up(sample: Sample, replicas: Mapping[str, int]) -> float:
    """How many times as fast the graph could go with these replicas, if there were threads for it."""
    return min((replicas[s.step] / s.busy for s in sample.steps if s.busy), default=inf)


def useful_threads(sample: Sample, replicas: Mapping[str, int]) -> int:
    """How many threads these replicas can keep busy, and some more, so that the slowest need not wait."""
    busy = sample.pooled_busy
    if not busy:
        return 1
    most = sum(replicas[step.step] for step in sample.steps if step.pooled)
    return max(1, min(most, ceil(busy * speed_up(sample, replicas) / FILL - 1e-9)))


def replicas_for(sample: Sample, threads: int) -> dict[str, float]:
    """Step -> the replicas it should have if the graph used so many threads, as a fraction.

    A step that has all the replicas it may have limits the others too.
    """
    busy = sum(step.busy for step in sample.steps)
    if not busy:
        return {step.step: float(step.replicas) for step in sample.steps}
    fastest = min(step.most / step.busy for step in sample.steps if step.busy)
    faster, fill = (threads / busy, FILL) if threads / busy < fastest else (fastest, FULL)
    return {step.step: faster * step.busy / fill for step in sample.steps}


def replicas_to_keep_up(sample: Sample) -> dict[str, float]:
    """Step -> the replicas that keep up with what the sources give now, as a fraction."""
    return {step.step: step.busy / SPARE for step in sample.steps}
