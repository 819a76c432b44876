"""Every change is a trial: judged by the throughput of the next period, and taken back if it failed.

A change that adds something must raise throughput, one that takes something away must not lower it. What
failed is held: nobody touches it for a while, twice as long after every further failure, so nothing flaps.
A hold ends at once when the load is another one, because then it says nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engines.local.elastic.decision import Decision
from penstock.engines.local.elastic.sample import Sample
from penstock.frozen import dataclass

GAIN = 0.02  # what added threads or replicas must bring
LOSS = 0.02  # what taking some away may cost
HALF = 0.5
ANOTHER_LOAD = 0.3  # a throughput this far from the one at the time of the hold is another load


def another_load(now: int, then: int) -> bool:
    """Whether a throughput is so far from an earlier one that conclusions from then say nothing now."""
    return abs(now - then) > ANOTHER_LOAD * then


@dataclass(frozen=True, slots=True)
class Trial:
    """A change under judgement, what the period before it was like, and how much faster it promised to be."""

    decisions: tuple[Decision, ...]
    before: Sample
    promised: float = 1.0

    @property
    def growing(self) -> bool:
        """Whether it added something."""
        return any(decision.after > decision.before for decision in self.decisions)

    def failure(self, after: Sample, congestion: float) -> str | None:
        """Why it is to be taken back; None if it may stay."""
        old, new = self.before.throughput, after.throughput
        if self.growing:
            kept_up = not (self.before.pressed(congestion) and after.pressed(congestion))
            if kept_up or new >= old * (1 + GAIN):
                return None
            return f"throughput did not rise ({new / old - 1:+.0%})"
        if not after.pressed(congestion) or new >= old * (1 - LOSS):
            return None
        return f"throughput fell ({new / old - 1:+.0%})"

    def disappointed(self, after: Sample) -> bool:
        """Whether it brought less than half of what it promised: something else than threads is short."""
        return self.growing and self.gain(after) - 1 < (self.promised - 1) * HALF

    def gain(self, after: Sample) -> float:
        """How many times as much was done."""
        return after.throughput / max(1, self.before.throughput)


@dataclass(slots=True)
class _Hold:
    until: int
    failures: int
    throughput: int


class Holds:
    """What must not be touched for now, by step."""

    def __init__(self, periods: int) -> None:
        self._periods = periods
        self._holds: dict[str, _Hold] = {}

    def hold(self, decisions: Sequence[Decision], period: int, throughput: int) -> None:
        """Leave these alone for a while."""
        for decision in decisions:
            last = self._holds.get(decision.step)
            failures = last.failures + 1 if last else 1
            until = period + self._periods * 2 ** (failures - 1)
            self._holds[decision.step] = _Hold(until, failures, throughput)

    def lift(self, throughput: int) -> None:
        """Forget the holds of another load."""
        self._holds = {
            step: hold for step, hold in self._holds.items() if not another_load(throughput, hold.throughput)
        }

    def allowed(self, decisions: Sequence[Decision], period: int) -> list[Decision]:
        """The decisions that no hold forbids."""
        return [d for d in decisions if d.step not in self._holds or period >= self._holds[d.step].until]
