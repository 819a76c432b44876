"""The controller in virtual time: near the best fixed configuration within ten periods, and it stays there.

`ceiling` is what no configuration can exceed, so being near it is being near the best. Where a share of the
work needs something that only one worker can have, the ceiling is out of reach, and the best is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.simulation.adaptation import Period, Setting, adapt, run_fixed
from bench.simulation.best_fixed import search_best_fixed, throughput_limit
from bench.simulation.machine import MS, Costs, Machine
from bench.simulation.topology import TOPOLOGIES, US, build_chain, build_data_parallel, build_reverse_tree
from penstock.engines.local import schedulers

TEN = 10  # periods to settle in
AFTER = 6  # periods to watch it stay

ROUGH = Costs(jitter=0.5)  # costs that stray, so that nothing settles by luck


def settled_rate(periods: Sequence[Period]) -> float:
    """Rows per second after the first ten periods."""
    after = [period.rows_per_second for period in periods[TEN:]]
    return sum(after) / len(after)


def setting(cores: int, costs: Costs = ROUGH) -> Setting:
    """Fewer cores do fewer rows in a second, so they get longer periods."""
    return Setting(cores, costs=costs, period_ns=min(1_500, max(200, 4_000 // cores)) * MS)


@pytest.mark.slow
def test_a_chain_on_four_cores_settles_near_the_ceiling_and_stays() -> None:
    periods = adapt(build_chain(), setting(4), TEN + AFTER)
    assert settled_rate(periods) >= 0.95 * throughput_limit(build_chain(), 4)
    assert not any(period.decisions for period in periods[TEN:])
    assert periods[-1].threads == 4


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2, 16, *(pytest.param(n, marks=pytest.mark.nightly) for n in (7, 64))])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_settles_near_the_best_within_ten_periods_and_stays(name: str, cores: int) -> None:
    topology = TOPOLOGIES[name]()
    periods = adapt(topology, setting(cores), TEN + AFTER)
    assert settled_rate(periods) >= 0.95 * throughput_limit(topology, cores)
    assert not any(period.decisions for period in periods[TEN:])


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", [name for name in schedulers.names() if "-" in name])
def test_it_settles_with_every_scheduler(scheduler: str) -> None:
    topology, of_scheduler = build_reverse_tree(depth=4), replace(setting(8), scheduler=scheduler)
    periods = adapt(topology, of_scheduler, TEN + AFTER)
    assert settled_rate(periods) >= 0.95 * throughput_limit(topology, 8)
    assert sum(bool(period.decisions) for period in periods[TEN:]) <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("chain", "tree") else pytest.param(name, marks=pytest.mark.nightly)
        for name in TOPOLOGIES
    ],
)
def test_when_something_else_than_threads_is_short_it_settles_near_the_best_too(name: str) -> None:
    # Waiting for what only one can have comes in bursts: what a change brought shows in a longer period.
    contended = replace(setting(16, Costs(shared=0.1, jitter=0.5)), period_ns=500 * MS)
    topology = TOPOLOGIES[name]()
    periods = adapt(topology, contended, TEN + AFTER)
    assert settled_rate(periods) >= 0.95 * search_best_fixed(topology, contended).rows_per_second
    assert sum(bool(period.decisions) for period in periods[TEN:]) <= 4  # at most two trials, each taken back


def test_too_many_threads_are_taken_away_when_rows_come_slowly() -> None:
    def load(machine: Machine, period: int) -> None:
        machine.rate = 2_000  # 1.2 ms of work each: 2.4 threads

    periods = adapt(build_chain(), setting(16), 6, threads=16, load=load)
    assert periods[0].threads == 16
    assert periods[-1].threads == 3
    assert periods[-1].rows_per_second == pytest.approx(2_000, rel=0.01)


@pytest.mark.slow
def test_it_follows_a_load_that_comes_goes_and_changes_its_nature() -> None:
    #  0-11: 5,000 rows/s   12-23: as many as go   24-35: 3,000 rows/s   36-47: one step four times as dear
    def load(machine: Machine, period: int) -> None:
        machine.rate = {0: 5_000.0, 24: 3_000.0, 36: None, 12: None}.get(period, machine.rate)
        if period == 36:
            machine.operators["busy-5"].cost_ns = 400 * US

    periods = adapt(build_chain(), setting(16), 48, load=load)
    means = [sum(p.rows_per_second for p in periods[i : i + 2]) / 2 for i in (10, 22, 34, 46)]
    free, dear = throughput_limit(build_chain(), 16), 16 * 1e9 / (1_502 * US)
    assert means[0] >= 0.95 * 5_000
    assert means[1] >= 0.95 * free
    assert means[2] >= 0.95 * 3_000
    assert means[3] >= 0.95 * dear
    assert [periods[i].threads for i in (11, 23, 35, 47)] == [7, 16, 4, 16]
    assert periods[47].replicas["busy-5"] > periods[47].replicas["busy-4"]
    settled_by = [*range(10, 12), *range(22, 24), *range(34, 36), *range(46, 48)]
    assert not any(periods[i].decisions for i in settled_by)


def test_a_step_that_cannot_be_replicated_limits_the_pool_too() -> None:
    periods = adapt(build_data_parallel(n=4, merge_us=50), setting(16), 5)
    assert periods[-1].threads < 8  # the merge does 20,000 rows/s, for which four busy threads are enough
    assert periods[-1].rows_per_second >= 0.95 * 20_000


def test_one_seed_gives_one_run() -> None:
    one, two = (adapt(build_chain(n=3), setting(4), 4) for _ in range(2))
    assert one == two


@pytest.mark.slow
def test_the_best_fixed_configuration_is_near_the_ceiling_where_nothing_else_is_short() -> None:
    topology, on_four_cores = build_chain(n=3), setting(4, Costs())
    best = search_best_fixed(topology, on_four_cores)
    assert best.rows_per_second >= 0.97 * throughput_limit(topology, 4)
    assert best.rows_per_second >= run_fixed(topology, on_four_cores, 1, {"busy-0": 1})
