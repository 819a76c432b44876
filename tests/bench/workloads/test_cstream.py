"""The C-Stream workload: graphs of the right size, rows that all arrive, runs that are judged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bench import load_workload
from bench.workloads.cstream import elastic, schedulers, virtual_time
from bench.workloads.cstream.experiments import _check, _expected_answer
from bench.workloads.cstream.schedulers import Task
from bench.workloads.cstream.virtual_time import SimulatedCase, SteadyState
from penstock.apps.busy_operators import PRIME, SHAPES, Busy, bytes_per_us

IDLE = Busy(0)


@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_workload_can_be_built_in_both_sizes(size: str) -> None:
    workload = load_workload("cstream", "quick" if size == "quick" else "full")
    assert all(workload.cells_of(group) for group in workload.groups)
    assert {chart.title for chart in workload.charts} >= {
        f"{shape}: threads and schedulers" for shape in SHAPES
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_graphs_have_as_many_busy_operators_as_in_the_paper(shape: str) -> None:
    steps = SHAPES[shape](64, IDLE).steps.values()
    busy = sum(step.name.startswith("busy") for step in steps)
    assert busy == {"chain": 12, "data parallel": 12, "tree": 63, "reverse tree": 63}[shape]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_comes_to_the_end(shape: str) -> None:
    task = Task(shape, 64, IDLE)
    n_finished = schedulers.run(task, scheduler="min-latency", threads=2)
    assert n_finished == schedulers.count_finished(task) == 64


def test_a_busy_operator_lets_its_share_of_the_rows_pass() -> None:
    rows = pa.RecordBatch.from_pydict({"id": list(range(PRIME))})
    assert sum(Busy(0, selectivity=0.25)(rows).to_pylist()) == 253
    assert Busy(0.01)(rows).to_pylist() == [True] * PRIME


def test_operators_of_a_chain_let_different_rows_pass() -> None:
    task = Task("chain", 1_000, Busy(0, selectivity=0.5), n_busy=3)
    assert 75 < schedulers.count_finished(task) < 175
    assert schedulers.run(task, scheduler="random", threads=1) == schedulers.count_finished(task)


@pytest.mark.parametrize(
    "sweep", [schedulers.sweep_costs, schedulers.sweep_sizes, schedulers.sweep_selectivities]
)
def test_a_sweep_has_a_case_for_every_place_of_its_chart(sweep: Any) -> None:
    cases, chart = sweep(32, 2, ["random"])
    assert {case.name for case in cases} == {point.cell.case for point in chart.points}
    assert {point.cell.way for point in chart.points} == {"random, 2 threads"}


def test_work_is_measured_in_bytes_hashed() -> None:
    assert bytes_per_us() > 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (SteadyState(0.96, 4, 14, 4), None),
        (SteadyState(0.94, 4, 14, 0), "after 10 periods it does 0.940 of the best, less than 0.95"),
        (SteadyState(0.99, 4, 14, 5), "it still changed something in 5 of the 6 periods after 10"),
    ],
)
def test_a_run_that_does_not_settle_is_a_wrong_answer(answer: SteadyState, says: str | None) -> None:
    assert _check(None, answer) == says


def test_rows_that_do_not_arrive_are_a_wrong_answer() -> None:
    assert _expected_answer(Task("chain", 8, IDLE)) == 8
    assert _check(8, 8) is None
    assert _check(8, 7) == "8 rows should come to the end, and 7 did"


def test_the_best_is_searched_for_where_the_ceiling_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "throughput_limit", lambda topology, cores: 123.0)
    case = virtual_time.build_simulation("chain", 4, 1)
    assert isinstance(case, SimulatedCase)
    assert case.best == 123.0


def test_the_periods_of_a_run_are_noted_one_by_one() -> None:
    way, chart = virtual_time.build_series(2)
    assert way.notes is not None
    notes = [way.notes(way.run(virtual_time.build_period_case(number).make(1))) for number in range(2)]
    assert [note["threads"] for note in notes] == [1, 12]
    assert len(chart.lines[0].points) == 2


@pytest.mark.parametrize(("least", "most"), [(1, 1), (2, 2), (1, 4)])
def test_a_run_that_adapts_itself_brings_every_row_to_the_end(least: int, most: int) -> None:
    task = elastic.BusyChain(2, 512)
    outcome = elastic.run(task, least=least, most=most)
    assert _check(_expected_answer(task), outcome) is None
    assert outcome.notes[elastic.REPLICAS] >= 2 * least
    assert _check(511, outcome) == "511 rows should come to the end, and 512 did"
