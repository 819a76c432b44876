"""The simulated machine keeps its books: nothing is lost, no core does more than it can."""

from __future__ import annotations

import pytest

from bench.simulation.adaptation import Setting, build_machine, run_fixed
from bench.simulation.best_fixed import throughput_limit, work_per_row
from bench.simulation.machine import MS, Costs, Machine
from bench.simulation.topology import (
    TOPOLOGIES,
    US,
    build_chain,
    build_data_parallel,
    build_reverse_tree,
    build_tree,
)

SCHEDULERS = ["random", "max-queue-length", "min-latency", "least-recently-run", "max-running-time"]


def in_flight(machine: Machine) -> int:
    """Rows that wait in queues or were worked on and not delivered yet."""
    nodes = [replica for operator in machine.operators.values() for replica in operator.replicas]
    return sum(replica.port.waiting_rows + sum(rows for _, rows in replica.debts) for replica in nodes)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_rows_are_neither_lost_nor_made(name: str) -> None:
    machine = build_machine(TOPOLOGIES[name](), Setting(8), 8)
    machine.run_until(300 * MS)
    for operator in machine.operators.values():
        for replica in operator.replicas:
            if operator.targets and not operator.source:
                produced = replica.statistics.rows_out + sum(rows for _, rows in replica.debts)
                assert 0 <= replica.statistics.rows_in - produced <= machine.costs.chunk
    assert machine.n_finished > 0
    assert in_flight(machine) <= len(list(machine.task_statistics())) * 2 * (32 + 8)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_no_scheduler_gets_more_out_of_the_cores_than_there_is(scheduler: str) -> None:
    topology = build_chain(n=4)
    rows = run_fixed(topology, Setting(2, scheduler=scheduler, period_ns=2_000 * MS), 2, {})
    assert 0.8 * throughput_limit(topology, 2) <= rows <= 1.02 * throughput_limit(topology, 2)


def test_utilisation_is_what_the_offered_rows_cost() -> None:
    machine = build_machine(build_chain(n=5), Setting(4), 4)
    machine.rate = 2_000
    machine.run_until(2_000 * MS)
    running = sum(replica.running_until(machine.now) for replica in machine.task_statistics())
    assert running == pytest.approx(2_000 * 2 * (5 * 100 + 2) * US, rel=0.02)
    assert machine.n_finished == pytest.approx(4_000, rel=0.02)


def test_a_larger_pool_is_used_and_a_smaller_one_kept_to() -> None:
    machine = build_machine(build_chain(), Setting(8), 1)
    rates = []
    for threads in (1, 8, 2):
        machine.set_threads(threads)
        machine.run_until(machine.now + 500 * MS)
        before = sum(replica.running_until(machine.now) for replica in machine.task_statistics())
        machine.run_until(machine.now + 1_000 * MS)
        after = sum(replica.running_until(machine.now) for replica in machine.task_statistics())
        rates.append((after - before) / (1_000 * MS))
    assert rates == pytest.approx([1, 8, 2], rel=0.03)


def test_replicas_that_go_finish_what_they_hold() -> None:
    machine = build_machine(build_chain(n=1, cost_us=200), Setting(8), 8)
    machine.resize({"busy-0": 4})
    machine.run_until(500 * MS)
    going = machine.operators["busy-0"].replicas[1:]
    machine.resize({"busy-0": 1})
    machine.run_until(1_500 * MS)
    assert [replica.port.waiting_rows for replica in going] == [0, 0, 0]
    assert all(not replica.debts for replica in going)


def test_work_per_row_follows_the_rows_through_the_graph() -> None:
    assert work_per_row(build_chain(n=2, selectivity=0.5))["busy-1"] == 50 * US
    assert work_per_row(build_data_parallel(n=4))["busy-3"] == 25 * US
    assert work_per_row(build_tree())["busy-5-31"] == 100 * US / 32
    assert work_per_row(build_reverse_tree())["busy-0-0"] == 100 * US


def test_what_only_one_worker_can_do_limits_all_of_them() -> None:
    rows = run_fixed(build_chain(n=4), Setting(8, costs=Costs(shared=0.5, handover_ns=0)), 8, {})
    assert rows == pytest.approx(1e9 / (0.5 * 402 * US), rel=0.03)


def test_the_topologies_have_the_sizes_of_the_paper() -> None:
    busy = {
        name: sum(op.name.startswith("busy") for op in make().operators) for name, make in TOPOLOGIES.items()
    }
    assert busy == {"chain": 12, "data parallel": 12, "tree": 63, "reverse tree": 63}
