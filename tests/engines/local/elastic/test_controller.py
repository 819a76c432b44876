"""The controller over several periods: growth kept or taken back, holds, another load, limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engines.local.elastic.controller import THREADS, Limits, ScalingDecision, ScalingPolicy
from penstock.engines.local.elastic.sample import Sample, StepSample
from tests.support.elastic_samples import sample, step


def changes(decisions: list[ScalingDecision]) -> dict[str, tuple[int, int]]:
    return {d.step: (d.before, d.after) for d in decisions}


def slow(threads: int, n: int, rows: int, busy: float | None = None) -> Sample:
    """One slow step with n replicas, its input full."""
    return sample(threads, step("slow", busy if busy is not None else n, replicas=n, full=0.9), rows=rows)


def test_threads_and_replicas_grow_together() -> None:
    assert changes(ScalingPolicy(Limits(most_threads=4)).decide(slow(1, 1, 100))) == {
        "slow": (1, 5),
        THREADS: (1, 4),
    }


def test_growth_that_raised_throughput_stays() -> None:
    controller = ScalingPolicy(Limits(most_threads=4))
    controller.decide(slow(1, 1, 100))
    assert controller.decide(slow(4, 5, 390, busy=3.9)) == []


def test_growth_that_raised_nothing_is_taken_back_with_a_reason() -> None:
    controller = ScalingPolicy(Limits(most_threads=4))
    controller.decide(slow(1, 1, 100))
    back = controller.decide(slow(4, 5, 101, busy=3.9))
    assert changes(back) == {"slow": (5, 1), THREADS: (4, 1)}
    assert {d.reason for d in back} == {"throughput did not rise (+1%)"}


def test_what_was_taken_back_is_held_for_twice_as_long_every_time() -> None:
    controller = ScalingPolicy(Limits(most_threads=4, hold=3))
    tried = []
    for period in range(1, 40):
        if controller.decide(slow(1, 1, 100)):
            tried.append(period)
            controller.decide(slow(4, 5, 101, busy=3.9))  # no better: taken back
    #  the period of the failure counts too: 3, then 6, then 12 periods of rest
    assert [later - earlier for earlier, later in pairwise(tried)][:3] == [3, 6, 12]


def test_a_hold_ends_when_the_load_is_another() -> None:
    controller = ScalingPolicy(Limits(most_threads=4, hold=100))
    controller.decide(slow(1, 1, 100))
    controller.decide(slow(4, 5, 101, busy=3.9))
    assert controller.decide(slow(1, 1, 100)) == []
    assert controller.decide(slow(1, 1, 200)) != []


def test_when_sources_are_slow_more_threads_need_not_bring_more_rows() -> None:
    controller = ScalingPolicy(Limits(most_threads=4))
    assert changes(controller.decide(sample(1, step("a", 0.5), step("b", 0.48)))) == {THREADS: (1, 3)}
    assert controller.decide(sample(3, step("a", 1.0), step("b", 1.75, replicas=2))) == []


def test_a_smaller_pool_that_costs_throughput_is_put_back() -> None:
    controller = ScalingPolicy(Limits(most_threads=8))
    narrow = step("merge", 1, most=1, full=0.9)
    assert changes(controller.decide(sample(8, narrow, rows=100))) == {THREADS: (8, 2)}
    back = controller.decide(sample(2, narrow, rows=90))
    assert changes(back) == {THREADS: (2, 8)}
    assert back[0].reason == "throughput fell (-10%)"


def test_after_growth_that_disappoints_the_pool_starts_again_from_what_was_of_use() -> None:
    #  Sixteen threads promise sixteen times as much and bring three times: something else is short.
    controller = ScalingPolicy(Limits(most_threads=16))
    assert changes(controller.decide(slow(1, 1, 100)))[THREADS] == (1, 16)
    (undone,) = controller.decide(slow(16, 20, 300, busy=15.9))
    assert (undone.step, undone.before, undone.after) == (THREADS, 16, 4)
    assert undone.reason == "16.0 times the work was expected, 3.0 needs no more"
    #  From there it doubles, and no more than that, as long as it helps.
    assert changes(controller.decide(slow(4, 10, 310, busy=3.95)))[THREADS] == (4, 8)
    assert changes(controller.decide(slow(8, 10, 312, busy=7.95)))[THREADS] == (8, 4)
    assert THREADS not in changes(controller.decide(slow(4, 10, 310, busy=3.95)))


def test_on_another_load_the_pool_may_jump_again() -> None:
    controller = ScalingPolicy(Limits(most_threads=16))
    controller.decide(slow(1, 1, 100))
    controller.decide(slow(16, 20, 300, busy=15.9))
    controller.decide(sample(4, step("slow", 0.7, replicas=20), rows=50))
    assert changes(controller.decide(slow(1, 20, 500, busy=0.99)))[THREADS] == (1, 16)


def test_scaling_down_takes_threads_and_replicas() -> None:
    controller = ScalingPolicy(Limits(most_threads=16))
    idle = sample(16, step("a", 0.8, replicas=8), rows=10)
    assert changes(controller.decide(idle)) == {THREADS: (16, 1), "a": (8, 2)}


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any sample at all, sensible or not."""
    share = st.integers(0, 1_000).map(lambda part: part / 1_000)  # times are whole nanoseconds
    steps = [
        StepSample(
            "source", 1, 1, draw(share), 0, draw(st.integers(0, 10_000)), 0.0, draw(share), source=True
        )
    ]
    for i in range(draw(st.integers(1, 5))):
        most = draw(st.integers(1, 64))
        n = draw(st.integers(1, most))
        steps.append(StepSample(f"s{i}", n, most, draw(share) * n, 1, 1, draw(share), draw(share)))
    return Sample(draw(st.integers(1, 64)), tuple(steps))


@pytest.mark.slow
@given(st.lists(samples(), max_size=12), st.integers(1, 64))
@settings(deadline=None)
def test_whatever_happens_growth_stays_within_the_limits_and_every_change_has_a_reason(
    seen: list[Sample], most: int
) -> None:
    controller = ScalingPolicy(Limits(most_threads=most))
    for one in seen:
        allowed = {s.step: s.most for s in one.steps} | {THREADS: most}
        trial = None
        for decision in controller.decide(one):
            assert decision.before != decision.after
            assert decision.reason
            assert decision.after >= 1
            taken_back = decision.reason.startswith("throughput")
            trial = trial or taken_back
            assert taken_back or decision.after <= max(decision.before, allowed.get(decision.step, most))


@pytest.mark.slow
@given(st.lists(samples(), max_size=12))
@settings(deadline=None)
def test_the_same_samples_give_the_same_decisions(seen: list[Sample]) -> None:
    one, two = ScalingPolicy(Limits(most_threads=16)), ScalingPolicy(Limits(most_threads=16))
    assert [one.decide(s) for s in seen] == [two.decide(s) for s in seen]
