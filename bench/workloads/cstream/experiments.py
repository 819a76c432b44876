"""The whole workload: the experiments of each size, and the claims."""

from __future__ import annotations

from bench.simulation.topology import TOPOLOGIES
from bench.workload import Cell, Claim, Outcome, Size, Workload
from bench.workloads.cstream import elastic, schedulers, virtual_time
from bench.workloads.cstream.schedulers import COST_US, SCHEDULERS, Task
from bench.workloads.cstream.virtual_time import SteadyState
from penstock.apps.busy_operators import SHAPES, Busy

N_PERIODS = 5
SWEEPS = (schedulers.sweep_costs, schedulers.sweep_sizes, schedulers.sweep_selectivities)


def workload(size: Size) -> Workload:
    """Build the workload: schedulers and threads on this machine, the controller on simulated cores."""
    full = size == "full"
    cores = (1, 2, 4, 8, 16, 32, 64) if full else (2, 16)
    threads = (1, 2, 4) if full else (1, 2)
    policies = SCHEDULERS if full else SCHEDULERS[:2]
    there = [schedulers.build_case(Task(shape, 3_840 if full else 1_280, Busy(COST_US))) for shape in SHAPES]
    sweeps = [sweep(3_840, 2, SCHEDULERS) for sweep in SWEEPS] if full else []
    there += [case for sweep in sweeps for case in sweep.cases]
    climbing = elastic.build_cases(40_000 if full else 8_000)
    virtual_cases = [virtual_time.build_case(name, n) for name in TOPOLOGIES for n in cores]
    if full:
        virtual_cases += [virtual_time.build_case(name, 16, shared=True) for name in TOPOLOGIES]
    periods = [virtual_time.build_period_case(number) for number in range(N_PERIODS)]
    through, series = virtual_time.build_series(N_PERIODS)
    return Workload(
        name="cstream",
        about="busy operators in four topologies by scheduler and threads; elasticity on simulated cores",
        cases=(*there, *climbing, *virtual_cases, *periods),
        ways=(
            *schedulers.build_ways(2, threads, policies, [case.name for case in there], list(SHAPES)),
            *elastic.build_ways(),
            virtual_time.build_way([case.name for case in virtual_cases]),
            through,
        ),
        oracle=_expected_answer,
        check=_check,
        claims=tuple(_claims()),
        charts=(
            *(schedulers.build_threads_chart(shape, threads, policies) for shape in SHAPES),
            *(sweep.chart for sweep in sweeps),
            elastic.build_chart(),
            *virtual_time.build_charts(cores),
            series,
        ),
        rounds=3 if full else 2,
    )


def _claims() -> list[Claim]:
    """Return the claims that a second thread helps on every topology, which one core cannot bear out."""
    return [
        Claim(
            f"{shape}: two threads take at most 0.7 of the time of one",
            Cell(shape, schedulers.way_name("random", 2)),
            at_most=0.7,
            over=Cell(shape, schedulers.way_name("random", 1)),
        )
        for shape in SHAPES
    ]


def _expected_answer(case: object) -> object:
    if isinstance(case, elastic.BusyChain):
        return case.expected_answer()
    return schedulers.count_finished(case) if isinstance(case, Task) else None


def _check(expected: object, answer: object) -> str | None:
    if isinstance(answer, SteadyState):
        return virtual_time.check_steady_state(answer)
    if isinstance(answer, Outcome):
        answer = answer.answer()
    if expected is None or expected == answer:
        return None
    return f"{expected} rows should come to the end, and {answer} did"
