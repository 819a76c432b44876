"""Nodes to choose from: nothing but statistics."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engines.local.metrics.statistics import InputStatistics, OutputStatistics, TaskStatistics


@dataclass(frozen=True)
class Candidate:
    """A node as schedulers see it."""

    statistics: TaskStatistics


def reader(
    step: str, *, waiting: int = 0, oldest: int | None = None, last_ran: int | None = None
) -> Candidate:
    """A node with one input port and no output."""
    port = InputStatistics()
    port.put_rows, port.oldest = waiting, oldest
    statistics = TaskStatistics(step, inputs=(port,))
    statistics.last_ran = last_ran
    return Candidate(statistics)


def source(step: str, *, last_ran: int | None = None, writes_to: InputStatistics | None = None) -> Candidate:
    """A node without an input port."""
    outputs = (OutputStatistics((writes_to,)),) if writes_to else ()
    statistics = TaskStatistics(step, outputs=outputs)
    statistics.last_ran = last_ran
    return Candidate(statistics)
