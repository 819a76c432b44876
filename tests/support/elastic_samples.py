"""Samples made by hand: a source, steps one after the other, no sink."""

from __future__ import annotations

from penstock.engines.local.elastic.sample import Sample, StepSample


def step(name: str, busy: float, *, replicas: int = 1, most: int = 64, full: float = 0.0) -> StepSample:
    """A step that was so busy; `full` is the write-blocked ratio of its input."""
    return StepSample(name, replicas, most, busy, 0, 0, full, 0.0)


def sample(threads: int, *steps: StepSample, rows: int = 1_000, waiting: float = 0.9) -> Sample:
    """A source that gave out so many rows and waited so long for more, and steps that write to each other."""
    after = [*(step.full_in for step in steps), 0.0]
    source = StepSample("source", 1, 1, 0.0, 0, rows, 0.0, after[0], source=True, waiting=waiting)
    chained = [
        StepSample(s.step, s.replicas, s.most, s.busy, rows, rows, s.full_in, after[i + 1])
        for i, s in enumerate(steps)
    ]
    return Sample(threads, (source, *chained))
