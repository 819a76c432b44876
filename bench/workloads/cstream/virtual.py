"""The controller in virtual time, on 1 to 64 simulated cores (C-Stream 5.2, and further).

A run is judged by its own answer: after ten adaptation periods it must do at least 0.95 of what the best
configuration that does not change does, and stay there. Where nothing but cores is short, the best is taken
to be the ceiling that no configuration can exceed; where a tenth of the work needs something that only one
worker can have, the best is searched for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.cell import Cell
from bench.chart import Chart, Line, Point
from bench.simulation.adaptation import Period, Setting, adapt
from bench.simulation.best_fixed import best_fixed, ceiling
from bench.simulation.machine import MS, Costs
from bench.simulation.topology import TOPOLOGIES, chain
from bench.workload import Case, Way

SETTLED, WATCHED = 10, 6
LEAST = 0.95
ADAPTING = "adapting"
SHARE, THREADS, REPLICAS = "share of the best", "threads", "replicas"


@dataclass(frozen=True, slots=True)
class Judged:
    """A topology on so many cores, and the best rows per second there."""

    topology: str
    setting: Setting
    best: float


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a run: share of the best, threads and replicas in the end, changes after ten periods."""

    share: float
    threads: int
    replicas: int
    changes: int


def judged(topology: str, cores: int, seed: int, *, shared: float = 0.0) -> Judged:
    """Return the case, its best searched for if it must be."""
    costs = Costs(jitter=0.5, shared=shared)
    setting = Setting(cores, seed=seed, costs=costs, period_ns=min(2_000, max(400, 5_000 // cores)) * MS)
    made = TOPOLOGIES[topology]()
    best = best_fixed(made, setting).rows_per_second if shared else ceiling(made, cores)
    return Judged(topology, setting, best)


def settle(case: Judged) -> Settled:
    """Let the controller work, from one thread and one replica of everything."""
    periods = adapt(TOPOLOGIES[case.topology](), case.setting, SETTLED + WATCHED)
    after = periods[SETTLED:]
    share = sum(period.rows_per_second for period in after) / len(after) / case.best
    changes = sum(bool(period.decisions) for period in after)
    return Settled(share, after[-1].threads, sum(after[-1].replicas.values()), changes)


def unsettled(answer: Settled) -> str | None:
    """What is wrong with a run; a trial that is taken back is two changes, and there may be two of them."""
    if answer.share < LEAST:
        return f"after {SETTLED} periods it does {answer.share:.3f} of the best, less than {LEAST}"
    if answer.changes > 4:
        return f"it still changed something in {answer.changes} of the {WATCHED} periods after {SETTLED}"
    return None


def way(cases: Sequence[str]) -> Way:
    """Return the controller."""
    return Way(ADAPTING, settle, oracle=lambda case: None, only=tuple(cases), notes=_notes)


def _notes(answer: Settled) -> Mapping[str, float]:
    return {SHARE: answer.share, THREADS: answer.threads, REPLICAS: answer.replicas}


def named(topology: str, cores: int, *, shared: bool = False) -> str:
    """Such as `chain on 16 simulated cores`."""
    return f"{topology} on {cores} simulated cores{', a tenth of the work shared' if shared else ''}"


def case(topology: str, cores: int, *, shared: bool = False) -> Case:
    """Return one topology on so many simulated cores."""
    return Case(
        named(topology, cores, shared=shared),
        lambda seed: judged(topology, cores, seed, shared=0.1 if shared else 0.0),
        group=f"virtual {topology}",
    )


def charts(cores: Sequence[int]) -> tuple[Chart, ...]:
    """Return what the controller reaches, and with how many threads, by cores."""
    return tuple(
        Chart(
            f"adaptation in virtual time: {what}",
            f"After {SETTLED} adaptation periods, from one thread and one replica of everything.",
            "simulated cores",
            tuple(
                Line(name, tuple(Point(n, str(n), Cell(named(name, n), ADAPTING)) for n in cores))
                for name in TOPOLOGIES
            ),
            up=what,
        )
        for what in (SHARE, THREADS)
    )


TWO_BUSY = "two busy operators of 60 us on 12 simulated cores"
PERIOD = "period by period"


def series_case(number: int) -> Case:
    """C-Stream's Fig. 10 (b): the run up to the end of one period."""
    return Case(f"{TWO_BUSY}: period {number + 1}", lambda seed: (number, seed), group="virtual series")


def series(n_periods: int) -> tuple[Way, Chart]:
    """Return the way that goes through the periods, and how threads follow."""
    names = [series_case(number).name for number in range(n_periods)]
    points = tuple(Point(i + 1, str(i + 1), Cell(name, PERIOD)) for i, name in enumerate(names))
    chart = Chart(
        "adaptation in virtual time: two busy operators",
        "Threads over the adaptation periods (C-Stream, Fig. 10, which takes about twenty for as much).",
        "period",
        (Line("threads", points),),
        up=THREADS,
        spacing="linear",
    )
    return Way(PERIOD, _period, oracle=lambda case: None, only=tuple(names), notes=_period_notes), chart


def _period(case: tuple[int, int]) -> Period:
    number, seed = case
    return adapt(chain(n=2, cost_us=60), Setting(12, seed=seed), number + 1)[-1]


def _period_notes(period: Period) -> Mapping[str, float]:
    busy = sum(n for name, n in period.replicas.items() if name.startswith("busy"))
    return {THREADS: period.threads, REPLICAS: busy}
