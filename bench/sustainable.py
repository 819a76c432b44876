"""Sustainable throughput, as AIR (5.2) defines it: the greatest rate that a system keeps up with.

A system under test gets rows at a rate for some seconds and tells what it did: the latency of each window,
how many windows came, and what was waiting when the rows ended. The rate is raised until the average latency
jumps, or grows from window to window, rows wait, or fewer windows come than should (AIR saw the first of
Spark and itself, the last of Flink). Then the knee is narrowed by bisection. A rate that fails is tried once
more before it counts: on a machine that others use too, a single trial may be disturbed, and nothing is ever
faster than it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

JUMP = 2.0
"""An average latency of so many times that of the lowest rate is a jump, if it is also `FLOOR_S` more."""
FLOOR_S = 0.5
"""Seconds of latency by which a system may differ from itself without it meaning anything."""
BACKLOG = 0.05
"""The share of all rows that may wait when the last one has been sent, besides `FLOOR_S` of rows."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a system did at one rate.

    rate       rows per second that were sent
    seconds    for how long
    latencies  of each window that came, in the order of the windows: release minus the greatest time in it
    expected   windows that should have come
    backlog    rows that were still waiting when the last one was sent
    """

    rate: float
    seconds: float
    latencies: tuple[float, ...]
    expected: int
    backlog: float = 0.0

    @property
    def latency(self) -> float:
        """Return the average latency; infinite if no window came."""
        return mean(self.latencies) if self.latencies else math.inf

    @property
    def growth(self) -> float:
        """Return by how many seconds the latency of the last third of windows exceeds that of the first."""
        third = len(self.latencies) // 3
        return mean(self.latencies[-third:]) - mean(self.latencies[:third]) if third else 0.0


System = Callable[[float, float], Trial]
"""A system under test: gets a rate and a number of seconds."""


@dataclass(frozen=True, slots=True)
class Knee:
    """The end of a search: the greatest rate that was sustained, and every trial, in order.

    reason  why the least rate that failed did; empty if none failed below the most that was tried
    """

    rate: float
    trials: tuple[Trial, ...]
    reason: str = ""

    @property
    def latency(self) -> float:
        """Return the average latency at the knee; infinite if no rate was sustained."""
        return min((one.latency for one in self.trials if one.rate == self.rate), default=math.inf)

    def curve(self) -> list[Trial]:
        """Return a trial per rate, by rate: the best, since others of the machine only ever disturb."""
        best: dict[float, Trial] = {}
        for trial in self.trials:
            known = best.get(trial.rate)
            if known is None or _rank(trial) < _rank(known):
                best[trial.rate] = trial
        return [best[rate] for rate in sorted(best)]


def _rank(trial: Trial) -> tuple[int, float]:
    return -len(trial.latencies), trial.latency


def explain_overload(trial: Trial, calm: Trial | None = None) -> str:
    """Return why a rate is not sustained, or the empty string; `calm` is the trial of the lowest rate."""
    missing = trial.expected - len(trial.latencies)
    if missing > 0:
        return f"{missing} of {trial.expected} windows did not come"
    if trial.backlog > trial.rate * max(trial.seconds * BACKLOG, FLOOR_S):
        return f"{trial.backlog:,.0f} rows were waiting at the end"
    if trial.growth > max(FLOOR_S, trial.seconds * BACKLOG):
        return f"latency grew by {trial.growth:.2f} s"
    if calm is not None and trial.latency > max(calm.latency * JUMP, calm.latency + FLOOR_S):
        return f"average latency rose from {calm.latency:.2f} s to {trial.latency:.2f} s"
    return ""


def find_knee(
    system: System,
    *,
    start: float,
    seconds: float,
    most: float = 1e9,
    step: float = 4.0,
    precision: float = 1.2,
    attempts: int = 2,
) -> Knee:
    """Raise the rate by `step` until it is not sustained, then bisect until the bounds are near.

    start      the lowest rate
    most       the greatest rate to try
    precision  how many times the sustained rate the one that fails may be
    attempts   trials of a rate before it counts as failed
    """
    trials: list[Trial] = []
    calm: Trial | None = None

    def fails(rate: float) -> str:
        reason = ""
        for _ in range(attempts):
            trials.append(system(rate, seconds))
            reason = explain_overload(trials[-1], calm)
            if not reason:
                return ""
        return reason

    low, high, rate = 0.0, math.inf, start
    reason = why = ""
    while True:
        why = fails(rate)
        if why:
            high, reason = rate, why
        else:
            low = rate
            calm = calm or trials[-1]
        if math.isinf(high):
            if low >= most:
                break
            rate = min(low * step, most)
        elif low == 0.0:
            rate = high / step
            if rate < start / step**4:
                break
        elif high / low <= precision:
            break
        else:
            rate = math.sqrt(low * high)
    return Knee(low, tuple(trials), reason)
