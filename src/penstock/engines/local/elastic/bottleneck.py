"""Bottlenecks by write-blocked ratio: C-Stream's Algorithm 9.

A step is a bottleneck when its input is congested and what it writes to is not: it is slow by itself, and
not because something after it holds it back. A replicated step's input is the mean over its replicas.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engines.local.elastic.sample import StepSample


def bottlenecks(steps: Iterable[StepSample], congestion: float) -> list[StepSample]:
    """The bottlenecks among the steps, in the order of the graph.

    congestion  the write-blocked ratio from which a port counts as congested
    """
    return [step for step in steps if step.full_in >= congestion and step.full_out < congestion]
