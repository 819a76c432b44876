"""Schedulers by name: ours, presets, users' own, and names that are nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random as RandomNumbers
from typing import Any

import pytest

from penstock.engines.local import schedulers
from penstock.engines.local.schedulers import N
from penstock.errors import EngineError
from tests.support.ready_tasks import reader


class LastReady:
    """Takes the last."""

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """The last of them."""
        return ready[-1]


@pytest.fixture(autouse=True)
def _nothing_stays_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "_registered", {})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("random", schedulers.Random),
        ("max-queue-length", schedulers.MaxQueueLength),
        ("min-latency", schedulers.MinLatency),
        ("least-recently-run", schedulers.LeastRecentlyRun),
        ("max-running-time", schedulers.MaxRunningTime),
        ("latency", schedulers.LeastRecentlyRun),
        ("throughput", schedulers.Random),
    ],
)
def test_every_name_of_ours_makes_its_scheduler(name: str, kind: type) -> None:
    assert type(schedulers.make_scheduler(name, RandomNumbers(1))) is kind
    assert name in schedulers.names()


def test_a_registered_scheduler_is_found_by_its_name() -> None:
    schedulers.register("last-ready", lambda random: LastReady())
    ready = [reader("a"), reader("b")]
    assert schedulers.make_scheduler("last-ready", RandomNumbers(1)).choose(ready, 0, 0) is ready[1]
    assert "last-ready" in schedulers.names()


def test_registering_twice_replaces() -> None:
    schedulers.register("mine", lambda random: LastReady())
    schedulers.register("mine", schedulers.Random)
    assert isinstance(schedulers.make_scheduler("mine", RandomNumbers(1)), schedulers.Random)


def test_the_presets_differ_in_scheduler_quantum_batch_and_queue() -> None:
    fast, much = schedulers.preset_of("latency"), schedulers.preset_of("throughput")
    assert fast.quantum_ns < much.quantum_ns
    assert fast.queue_size < much.queue_size
    assert fast.scheduler != much.scheduler


def test_a_schedulers_own_name_comes_with_the_sizes_for_throughput() -> None:
    assert schedulers.preset_of("min-latency").quantum_ns == schedulers.preset_of("throughput").quantum_ns
    assert schedulers.preset_of("min-latency").scheduler == "min-latency"


def test_an_unknown_scheduler_is_refused_with_the_nearest_first() -> None:
    with pytest.raises(EngineError) as caught:
        schedulers.make_scheduler("min-latncy", RandomNumbers(1))
    assert caught.value.fact == 'there is no scheduler "min-latncy"'
    assert caught.value.detail is not None
    assert caught.value.detail.startswith("available: min-latency, ")
    assert caught.value.hint is not None
    assert 'LocalOptions(scheduler="min-latency")' in caught.value.hint


def test_a_name_of_ours_cannot_be_registered() -> None:
    with pytest.raises(EngineError, match='the scheduler "latency" is already there') as caught:
        schedulers.register("latency", lambda random: LastReady())
    assert caught.value.hint == 'register it under another name, such as "my-latency"'


def test_a_factory_must_be_callable() -> None:
    thing: Any = LastReady()
    with pytest.raises(EngineError, match="which cannot be called") as caught:
        schedulers.register("mine", thing)
    assert caught.value.hint == 'register("mine", lambda random: MyScheduler())'


def test_a_factory_that_raises_is_named() -> None:
    forgetful: Any = lambda: LastReady()  # noqa: PLW0108  # what somebody may write
    schedulers.register("mine", forgetful)
    with pytest.raises(EngineError, match='the factory of scheduler "mine" raised') as caught:
        schedulers.make_scheduler("mine", RandomNumbers(1))
    assert "lambda random: MyScheduler()" in str(caught.value.hint)


def test_a_factory_must_give_something_that_chooses() -> None:
    nothing: Any = lambda random: object()
    schedulers.register("mine", nothing)
    with pytest.raises(EngineError, match='"mine" gave object, which has no choose'):
        schedulers.make_scheduler("mine", RandomNumbers(1))
