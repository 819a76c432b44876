"""The controller: once per adaptation period, a sample in, decisions with reasons out.

It has no clock, starts no thread and changes nothing itself: whoever calls it carries the decisions out
before the next period begins. One change is under trial at a time, threads and replicas together, because
replicas are of no use without threads and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from penstock.engines.local.elastic.decision import THREADS, Decision, Limits
from penstock.engines.local.elastic.demand import FILL, useful_threads
from penstock.engines.local.elastic.replicas import fewer_replicas, more_replicas
from penstock.engines.local.elastic.sample import Sample
from penstock.engines.local.elastic.threads import resize_pool
from penstock.engines.local.elastic.trial import Holds, Trial, another_load


class Controller:
    """Decides on threads and replicas for one run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._holds = Holds(limits.hold)
        self._trial: Trial | None = None
        self._careful_at: int | None = (
            None  # the throughput since which it only doubles; None when it may jump
        )
        self._period = 0

    def decide(self, sample: Sample) -> list[Decision]:
        """What to change before the next period; empty to leave everything as it is."""
        self._period += 1
        trial, self._trial = self._trial, None
        if trial is not None and (failure := trial.failure(sample, self._limits.congestion)):
            self._holds.hold(trial.decisions, self._period, trial.before.throughput)
            return [Decision(d.step, d.after, d.before, failure) for d in trial.decisions]
        self._holds.lift(sample.throughput)
        decisions = self._undo_most(trial, sample) if trial is not None else []
        decisions = decisions or self._change(sample)
        if decisions:
            self._trial = Trial(tuple(decisions), sample, _promise(sample, decisions))
        return decisions

    def _undo_most(self, trial: Trial, sample: Sample) -> list[Decision]:
        """After a growth that disappointed: go back to the threads that can have done the work.

        To do g times as much takes g times as many busy threads, if the others were of any use. From there
        on the pool doubles, and every doubling is a trial of its own.
        """
        if self._careful_at is not None:
            if trial.growing:
                self._careful_at = sample.throughput  # another throughput, but not another load
            return []
        if not (trial.disappointed(sample) and sample.pressed(self._limits.congestion)):
            return []
        self._careful_at = sample.throughput
        used = trial.before.utilisation * trial.before.threads
        after = max(self._limits.least_threads, ceil(used * trial.gain(sample) / FILL))
        if after >= sample.threads:
            return []
        reason = f"{trial.promised:.1f} times the work was expected, {trial.gain(sample):.1f} needs no more"
        return [Decision(THREADS, sample.threads, after, reason)]

    def _change(self, sample: Sample) -> list[Decision]:
        careful = self._is_careful(sample)
        most = min(self._limits.most_threads, 2 * sample.threads) if careful else self._limits.most_threads
        limits = replace(self._limits, most_threads=most)
        growing = self._holds.allowed(more_replicas(sample, limits), self._period)
        if growing and careful:
            return growing
        replicas = {step.step: step.replicas for step in sample.steps}
        replicas |= {decision.step: decision.after for decision in growing}
        pool = resize_pool(sample, replicas, limits)
        threads = self._holds.allowed([pool], self._period) if pool is not None else []
        if growing or any(decision.after > decision.before for decision in threads):
            return [*growing, *(decision for decision in threads if decision.after > decision.before)]
        return [*threads, *self._holds.allowed(fewer_replicas(sample, limits), self._period)]

    def _is_careful(self, sample: Sample) -> bool:
        """Whether the load is still one on which a large jump disappointed.

        Then it goes one thing at a time, replicas before threads, and no further than twice the threads.
        """
        if self._careful_at is not None and another_load(sample.throughput, self._careful_at):
            self._careful_at = None
        return self._careful_at is not None


def _promise(sample: Sample, decisions: Sequence[Decision]) -> float:
    """How many times as fast the graph should go after the decisions, if nothing but threads is short."""
    after = {decision.step: decision.after for decision in decisions}
    replicas = {step.step: after.get(step.step, step.replicas) for step in sample.steps}
    threads = min(after.get(THREADS, sample.threads), useful_threads(sample, replicas))
    used = sample.utilisation * sample.threads
    return threads / used if used else 1.0
