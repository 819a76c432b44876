"""The controller in virtual time, on 1 to 64 simulated cores (C-Stream 5.2, and further).

A run checks itself: after ten adaptation periods it must reach at least 0.95 of the throughput of the best
fixed configuration, and stay there. If only cores are scarce, the best is taken to be the limit that no
configuration can exceed; if a tenth of the work needs a resource that only one worker can hold, the best is
searched for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.simulation.adaptation import Period, Setting, adapt
from bench.simulation.best_fixed import search_best_fixed, throughput_limit
from bench.simulation.machine import MS, Costs
from bench.simulation.topology import TOPOLOGIES, build_chain
from bench.workload import Case, Cell, Chart, Line, Point, Way

N_SETTLING, N_OBSERVED = 10, 6
LEAST = 0.95
ADAPTING = "adapting"
SHARE, THREADS, REPLICAS = "share of the best", "threads", "replicas"


@dataclass(frozen=True, slots=True)
class SimulatedCase:
    """A topology on simulated cores, and the best rows per second there."""

    topology: str
    setting: Setting
    best: float


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The end of a run: share of the best, threads, replicas, and changes after the tenth period."""

    share: float
    threads: int
    replicas: int
    changes: int


def build_simulation(topology: str, cores: int, seed: int, *, shared: float = 0.0) -> SimulatedCase:
    """Build the case; search for its best configuration if part of the work is shared."""
    costs = Costs(jitter=0.5, shared=shared)
    setting = Setting(cores, seed=seed, costs=costs, period_ns=min(2_000, max(400, 5_000 // cores)) * MS)
    graph = TOPOLOGIES[topology]()
    best = search_best_fixed(graph, setting).rows_per_second if shared else throughput_limit(graph, cores)
    return SimulatedCase(topology, setting, best)


def settle(case: SimulatedCase) -> SteadyState:
    """Run the controller from one thread and one replica of every operator."""
    periods = adapt(TOPOLOGIES[case.topology](), case.setting, N_SETTLING + N_OBSERVED)
    after = periods[N_SETTLING:]
    share = sum(period.rows_per_second for period in after) / len(after) / case.best
    changes = sum(bool(period.decisions) for period in after)
    return SteadyState(share, after[-1].threads, sum(after[-1].replicas.values()), changes)


def check_steady_state(answer: SteadyState) -> str | None:
    """Return what is wrong with a run, or None. Two trials that are undone make four changes."""
    if answer.share < LEAST:
        return f"after {N_SETTLING} periods it does {answer.share:.3f} of the best, less than {LEAST}"
    if answer.changes > 4:
        return (
            f"it still changed something in {answer.changes} of the {N_OBSERVED} periods after {N_SETTLING}"
        )
    return None


def build_way(cases: Sequence[str]) -> Way:
    """Build the way that runs the controller."""
    return Way(ADAPTING, settle, oracle=lambda case: None, only=tuple(cases), notes=_notes)


def _notes(answer: SteadyState) -> Mapping[str, float]:
    return {SHARE: answer.share, THREADS: answer.threads, REPLICAS: answer.replicas}


def case_name(topology: str, cores: int, *, shared: bool = False) -> str:
    """Return the name of the case, such as `chain on 16 simulated cores`."""
    return f"{topology} on {cores} simulated cores{', a tenth of the work shared' if shared else ''}"


def build_case(topology: str, cores: int, *, shared: bool = False) -> Case:
    """Build the case of one topology on simulated cores."""
    return Case(
        case_name(topology, cores, shared=shared),
        lambda seed: build_simulation(topology, cores, seed, shared=0.1 if shared else 0.0),
        group=f"virtual {topology}",
    )


def build_charts(cores: Sequence[int]) -> tuple[Chart, ...]:
    """Build the charts of the share of the best and of the threads, by cores."""
    return tuple(
        Chart(
            f"adaptation in virtual time: {measure}",
            f"After {N_SETTLING} adaptation periods, from one thread and one replica of everything.",
            "simulated cores",
            tuple(
                Line(name, tuple(Point(n, str(n), Cell(case_name(name, n), ADAPTING)) for n in cores))
                for name in TOPOLOGIES
            ),
            up=measure,
        )
        for measure in (SHARE, THREADS)
    )


TWO_BUSY = "two busy operators of 60 us on 12 simulated cores"
PERIOD = "period by period"


def build_period_case(number: int) -> Case:
    """Build the case that ends with one period of C-Stream's Fig. 10 (b)."""
    return Case(f"{TWO_BUSY}: period {number + 1}", lambda seed: (number, seed), group="virtual series")


def build_series(n_periods: int) -> tuple[Way, Chart]:
    """Build the way that runs period by period, and the chart of its threads."""
    names = [build_period_case(number).name for number in range(n_periods)]
    points = tuple(Point(i + 1, str(i + 1), Cell(name, PERIOD)) for i, name in enumerate(names))
    chart = Chart(
        "adaptation in virtual time: two busy operators",
        "Threads over the adaptation periods (C-Stream, Fig. 10, which takes about twenty for as much).",
        "period",
        (Line("threads", points),),
        up=THREADS,
        spacing="linear",
    )
    return Way(
        PERIOD, _run_to_period, oracle=lambda case: None, only=tuple(names), notes=_period_notes
    ), chart


def _run_to_period(case: tuple[int, int]) -> Period:
    number, seed = case
    return adapt(build_chain(n=2, cost_us=60), Setting(12, seed=seed), number + 1)[-1]


def _period_notes(period: Period) -> Mapping[str, float]:
    busy = sum(n for name, n in period.replicas.items() if name.startswith("busy"))
    return {THREADS: period.threads, REPLICAS: busy}
