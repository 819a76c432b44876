"""The number of replicas of each step: more for a bottleneck, fewer where they have nothing to do.

Algorithm 9 of C-Stream says whether: some step is congested and nothing after it is. The demand says how far
and for whom: the bottleneck gets the replicas it can keep busy on all the threads that there may be, and so
do the steps that would be the next bottleneck; C-Stream adds one replica of one step per period instead.
The paper never takes replicas away; here a step that has more than one whole replica too many gives them up.
"""

from __future__ import annotations

from math import ceil

from penstock.engines.local.elastic.bottleneck import bottlenecks
from penstock.engines.local.elastic.decision import Decision, Limits
from penstock.engines.local.elastic.demand import replicas_for, replicas_to_keep_up
from penstock.engines.local.elastic.sample import Sample, StepSample


def more_replicas(sample: Sample, limits: Limits) -> list[Decision]:
    """Replicas to add; none if nothing is congested, or if all threads are busy anyway."""
    if sample.utilisation > limits.high and sample.threads >= limits.most_threads:
        return []
    slow = bottlenecks(sample.steps, limits.congestion)
    if not slow:
        return []
    wanted = replicas_for(sample, limits.most_threads)
    growing = [_grow(step, wanted[step.step], slow[-1]) for step in sample.steps]
    found = [decision for decision in growing if decision is not None]
    if found or sample.utilisation >= limits.low:
        return found
    # The demand sees no need and threads are idle, yet a step is congested: C-Stream's one replica more.
    for step in slow:
        if step.replicas < step.most:
            reason = f"its input is full {step.full_in:.0%} of the time"
            return [Decision(step.step, step.replicas, step.replicas + 1, reason)]
    return []


def _grow(step: StepSample, wanted: float, slow: StepSample) -> Decision | None:
    after = min(step.most, ceil(wanted - 1e-9))
    if after <= step.replicas:
        return None
    if step.full_in:
        reason = (
            f"its input is full {step.full_in:.0%} of the time and there is work for {wanted:.1f} replicas"
        )
    else:
        reason = (
            f'"{slow.step}" is slow now, and this step would be next: there is work for {wanted:.1f} replicas'
        )
    return Decision(step.step, step.replicas, after, reason)


def fewer_replicas(sample: Sample, limits: Limits) -> list[Decision]:
    """Replicas to take away: those that neither the sources' rows nor all the threads could keep busy."""
    if sample.pressed(limits.congestion):
        wanted = replicas_for(sample, limits.most_threads)
    else:
        wanted = replicas_to_keep_up(sample)
    found = []
    for step in sample.steps:
        after = max(step.least, ceil(wanted[step.step] + 0.5))
        if after < step.replicas and step.most > 1:
            reason = f"there is work for {wanted[step.step]:.1f} replicas"
            found.append(Decision(step.step, step.replicas, after, reason))
    return found
