"""The whole workload: which experiments are done, in which size, and what is claimed."""

from __future__ import annotations

from bench.cell import Cell
from bench.simulation.topology import TOPOLOGIES
from bench.workload import Claim, Size, Workload
from bench.workloads.cstream import adapting, real, virtual
from bench.workloads.cstream.busy import Busy
from bench.workloads.cstream.real import COST_US, SCHEDULERS, Task
from bench.workloads.cstream.shapes import SHAPES
from bench.workloads.cstream.virtual import Settled
from bench.workloads.runtime.told import Told

N_PERIODS = 5
SWEEPS = (real.costs, real.sizes, real.selectivities)


def workload(size: Size) -> Workload:
    """Schedulers and threads on this machine, and the controller on simulated ones."""
    full = size == "full"
    cores = (1, 2, 4, 8, 16, 32, 64) if full else (2, 16)
    threads = (1, 2, 4) if full else (1, 2)
    schedulers = SCHEDULERS if full else SCHEDULERS[:2]
    there = [real.case(Task(shape, 3_840 if full else 1_280, Busy(COST_US))) for shape in SHAPES]
    sweeps = [sweep(3_840, 2, SCHEDULERS) for sweep in SWEEPS] if full else []
    there += [case for sweep in sweeps for case in sweep.cases]
    climbing = adapting.cases(40_000 if full else 8_000)
    simulated = [virtual.case(name, n) for name in TOPOLOGIES for n in cores]
    if full:
        simulated += [virtual.case(name, 16, shared=True) for name in TOPOLOGIES]
    periods = [virtual.series_case(number) for number in range(N_PERIODS)]
    through, series = virtual.series(N_PERIODS)
    return Workload(
        name="cstream",
        about="busy operators in four topologies by scheduler and threads; elasticity on simulated cores",
        cases=(*there, *climbing, *simulated, *periods),
        ways=(
            *real.ways(2, threads, schedulers, [case.name for case in there], list(SHAPES)),
            *adapting.ways(),
            virtual.way([case.name for case in simulated]),
            through,
        ),
        oracle=_right,
        wrong=_wrong,
        claims=tuple(_claims()),
        charts=(
            *(real.threads_chart(shape, threads, schedulers) for shape in SHAPES),
            *(sweep.chart for sweep in sweeps),
            adapting.chart(),
            *virtual.charts(cores),
            series,
        ),
        rounds=3 if full else 2,
    )


def _claims() -> list[Claim]:
    """Return a second thread is of use on every topology; a machine with one core bears that out for none."""
    return [
        Claim(
            f"{shape}: two threads take at most 0.7 of the time of one",
            Cell(shape, real.named("random", 2)),
            at_most=0.7,
            over=Cell(shape, real.named("random", 1)),
        )
        for shape in SHAPES
    ]


def _right(case: object) -> object:
    if isinstance(case, adapting.InARow):
        return case.right()
    return real.n_finished(case) if isinstance(case, Task) else None


def _wrong(expected: object, answer: object) -> str | None:
    if isinstance(answer, Settled):
        return virtual.unsettled(answer)
    if isinstance(answer, Told):
        answer = answer.answer()
    if expected is None or expected == answer:
        return None
    return f"{expected} rows should come to the end, and {answer} did"
