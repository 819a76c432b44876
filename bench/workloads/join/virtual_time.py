"""More workers than this machine has cores, in virtual time: DP-Join's figures 6 to 9 and its table.

The costs are those of this machine: one comparison, a row besides its comparisons, and passing a row on to
another thread, each measured once in a process. The paper's rates are scaled by the square root of how much
cheaper a comparison is here than it was there, so that the same number of workers has the same load; at the
paper's own rates two workers would do what seven did.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import sqrt

import numpy as np

from bench.simulation.join_workers import (
    JoinCosts,
    JoinSetting,
    SimulatedJoin,
    search_sustainable_rate,
    simulate_handshake,
    simulate_join,
)
from bench.workload import Case, Cell, Chart, Claim, Line, Point, Way
from bench.workloads.join.layouts import measure_comparison
from bench.workloads.join.streams import HIT_RATE
from penstock.engines.local.tasks.join import CellThreads
from penstock.kernels.join.boxes import scan_boxes
from penstock.stages.join.model import JoinLoad, Layout

WORKERS, HANDSHAKE, SEARCH = "active workers", "handshake pipeline", "active workers, searched"
BANDWIDTH, LATENCY, SCALES, RATE = "results/s", "average latency (s)", "times one worker", "rows/s sustained"
ERROR, LATENCY_ERROR = "bandwidth: model's error", "latency: model's error"
PAPER_COMPARE_S = 2 * 3.6e-6 / 3_100
"""The paper's T_on: two workers in a row offered 3,100 results a second (Fig. 6), by expression 6."""
OFFERED, SCALED, SYMMETRIC, FEW, ASYMMETRIC = (
    (2_100, 2_100),
    (6_000, 6_000),
    (2_500, 2_500),
    (1_000, 1_000),
    (1_000, 3_000),
)
"""The paper's rates: of Fig. 6, of Fig. 7a and the table, of Fig. 8a, 8b and 9."""


@dataclass(frozen=True, slots=True)
class VirtualJoin:
    """A layout at scaled rates."""

    setting: JoinSetting
    layout: Layout

    @property
    def load(self) -> JoinLoad:
        """Return the load as the model has it."""
        setting, costs = self.setting, self.setting.costs
        return JoinLoad.of_streams(
            setting.rates,
            (setting.window_s, setting.window_s),
            comparison=costs.compare_s,
            hit_rate=setting.hit_rate,
            cell_delay=costs.cell_delay_s,
        )


@dataclass(frozen=True, slots=True)
class VirtualRun:
    """What came out of a simulation, beside what the model says; `alone` is one worker's bandwidth."""

    case: VirtualJoin
    join: SimulatedJoin
    alone: float
    rate: float = 0.0


@cache
def measure_costs() -> JoinCosts:
    """Measure what the workers of a simulation are charged; the least of some tries each."""
    return JoinCosts(
        min(measure_comparison().core_s for _ in range(5)),
        _least_time(_scan_nothing, 200),
        _least_time(_hand_over(), 200) / 2,
    )


def _least_time(call: object, n_calls: int) -> float:
    assert callable(call), "something to be timed"
    took = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(n_calls):
            call()
        took.append((time.perf_counter() - started) / n_calls)
    return min(took)


_ONE = np.zeros(1, np.int64)
_SCAN_ARGUMENTS = (*[_ONE] * 6, _ONE, _ONE, np.zeros(1, np.int64), np.zeros(1, np.int64))


def _scan_nothing() -> None:
    scan_boxes.version(True)(*_SCAN_ARGUMENTS)


def _hand_over() -> object:
    """Return a call that gives work to another thread and waits for it: there and back."""
    threads = CellThreads("hop", 2)
    return partial(threads.run, [lambda: None, lambda: None])


def scale_rates(rates: tuple[int, int], costs: JoinCosts, window_s: float = 300) -> tuple[float, float]:
    """Return the paper's rates at the speed of this machine."""
    factor = sqrt(PAPER_COMPARE_S / costs.compare_s)
    return rates[0] * factor, rates[1] * factor


def case_name(figure: str, layout: Layout) -> str:
    """Return the name of the case, such as `fig. 6: 2 x 4 simulated workers`."""
    return f"{figure}: {layout[0]} x {layout[1]} simulated workers"


def build_case(
    figure: str, rates: tuple[int, int], layout: Layout, *, window_s: int = 300, seconds: float = 4.0
) -> Case:
    """Build the case of one layout at the paper's rates, scaled."""

    def make(seed: int) -> VirtualJoin:
        costs = measure_costs()
        setting = JoinSetting(scale_rates(rates, costs), window_s, seconds, HIT_RATE, costs, seed)
        return VirtualJoin(setting, layout)

    return Case(case_name(figure, layout), make, group="virtual")


def run_workers(case: VirtualJoin) -> VirtualRun:
    """Simulate the layout, and one worker for scalability."""
    return VirtualRun(
        case, simulate_join(case.setting, case.layout), simulate_join(case.setting, (1, 1)).bandwidth
    )


def run_handshake(case: VirtualJoin) -> VirtualRun:
    """Simulate a handshake pipeline of as many workers."""
    return VirtualRun(case, simulate_handshake(case.setting, case.layout[0] * case.layout[1]), 0.0)


def search_rate(case: VirtualJoin) -> VirtualRun:
    """Search for the rate that the layout sustains."""
    rate = search_sustainable_rate(case.setting, case.layout)
    return VirtualRun(case, simulate_join(case.setting, case.layout), 0.0, rate)


def check_run(run: VirtualRun) -> str | None:
    """Return what is wrong with a simulation, or None: its results must be as many as there should be."""
    expected = run.case.load.max_bandwidth * run.case.setting.seconds
    off = abs(run.join.n_results / expected - 1)
    # Arrivals vary with the square root of the rows, results with that of the results.
    return None if off < 0.05 else f"{run.join.n_results:,} results, and there should be {expected:,.0f}"


def run_notes(run: VirtualRun) -> Mapping[str, float]:
    """Return what the figures show, and the errors of the model."""
    load, layout = run.case.load, run.case.layout
    if run.rate:
        # What a layout offers (6) is what the streams ask for (4), which grows with the square of their rate.
        predicted = sqrt(layout[0] * layout[1] / (2 * run.case.setting.window_s * load.comparison))
        return {RATE: run.rate, ERROR: abs(run.rate / predicted - 1)}
    notes = {BANDWIDTH: run.join.bandwidth, LATENCY: run.join.latency_s}
    if run.alone:
        notes |= {
            SCALES: run.join.bandwidth / run.alone,
            ERROR: abs(run.join.bandwidth / load.bandwidth(layout) - 1),
            LATENCY_ERROR: abs(run.join.latency_s / load.latency(layout) - 1),
        }
    return notes


LINEAR, SQUARE, RECTANGULAR = "linear", "square", "rectangular"


def linear(degrees: Sequence[int]) -> list[Layout]:
    """Return the layouts with all workers in one row."""
    return [(1, degree) for degree in degrees]


FIG_6 = {
    LINEAR: linear((1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
    SQUARE: [(1, 1), (2, 2), (3, 3)],
    RECTANGULAR: [(1, 2), (2, 3), (2, 4), (2, 5)],
}
FIG_7A = linear((1, 2, 4, 8, 12, 16))
TABLE_1 = {LINEAR: linear((6, 9, 16)), SQUARE: [(3, 3), (4, 4)], RECTANGULAR: [(2, 3), (2, 8)]}
FIG_8A = [(4, 4), (2, 8), (1, 16)]
FIG_8B = [(2, 2), (1, 4), (2, 4), (1, 8), (3, 3), (1, 9), (3, 4), (2, 6), (1, 12), (4, 4), (2, 8), (1, 16)]
FIG_9 = [(4, 4), (3, 5), (2, 8), (8, 2), (1, 8), (1, 15), (1, 16)]
FIG_7B = linear((1, 2, 4, 8, 16, 32))


def build_cases(*, full: bool) -> list[Case]:
    """Build the cases of all figures; quick has the ends of each."""
    windows = (300, 900) if full else (300,)
    figures = [
        ("fig. 6", OFFERED, _distinct(FIG_6.values())),
        ("fig. 7a", SCALED, FIG_7A),
        ("table 1", SCALED, _distinct(TABLE_1.values())),
        ("fig. 8a", SYMMETRIC, FIG_8A),
        ("fig. 8b", FEW, FIG_8B if full else FIG_8B[:2]),
        ("fig. 9", ASYMMETRIC, FIG_9 if full else FIG_9[:3]),
    ]
    cases = [build_case(name, rates, layout) for name, rates, layouts in figures for layout in layouts]
    return cases + [
        build_case(search_figure(window_s), OFFERED, layout, window_s=window_s, seconds=2.0)
        for window_s in windows
        for layout in (FIG_7B if full else FIG_7B[:3])
    ]


def _distinct(groups: object) -> list[Layout]:
    assert hasattr(groups, "__iter__"), "lists of layouts"
    return list(dict.fromkeys(layout for group in groups for layout in group))


def search_figure(window_s: int) -> str:
    """Return the name of Fig. 7b at one length of the windows."""
    return f"fig. 7b, {window_s} s"


def build_ways(cases: Sequence[Case]) -> list[Way]:
    """Build the ways: active workers, a handshake pipeline, and the search for a rate."""
    names = [case.name for case in cases]
    searched = tuple(name for name in names if name.startswith("fig. 7b"))
    late = tuple(name for name in names if name.startswith(("fig. 8", "fig. 9")))
    plain = tuple(name for name in names if name not in searched)
    return [
        Way(WORKERS, run_workers, oracle=lambda case: None, only=plain, notes=run_notes),
        Way(HANDSHAKE, run_handshake, oracle=lambda case: None, only=late, notes=run_notes),
        Way(SEARCH, search_rate, oracle=lambda case: None, only=searched, notes=run_notes),
    ]


def build_claims(cases: Sequence[Case]) -> list[Claim]:
    """Build the claims: the model's error, and which layout is the best."""
    bandwidths = [c.name for c in cases if c.name.startswith(("fig. 6", "fig. 7a", "table 1"))]
    square, wide, line = (Cell(case_name("fig. 8a", layout), WORKERS) for layout in FIG_8A)
    uneven, even = (Cell(case_name("fig. 9", layout), WORKERS) for layout in ((3, 5), (4, 4)))
    return [
        *(
            Claim(
                f"{name}: the model's bandwidth is off by less than 5 %",
                Cell(name, WORKERS),
                0.05,
                note=ERROR,
            )
            for name in bandwidths
        ),
        Claim("equal rates: a square has less latency than a rectangle", square, 1, wide, note=LATENCY),
        Claim(
            "equal rates: a square has at most half the latency of a line", square, 0.5, line, note=LATENCY
        ),
        Claim("rates 1 to 3: 3 x 5 has less latency than 4 x 4", uneven, 1, even, note=LATENCY),
        Claim(
            "a handshake pipeline's latency is 10,000 times as high",
            square,
            1e-4,
            Cell(square.case, HANDSHAKE),
            note=LATENCY,
        ),
    ]


def build_charts(*, full: bool) -> list[Chart]:
    """Build the charts of the paper's figures."""
    charts = [
        _chart("fig. 6", "Bandwidth by degree", FIG_6, BANDWIDTH),
        _chart("fig. 7a", "Scalability", {LINEAR: FIG_7A}, SCALES),
        _chart("table 1", "Bandwidth of layouts", TABLE_1, BANDWIDTH),
        _bars("fig. 8a", "Latency of layouts, equal rates", FIG_8A),
    ]
    if not full:
        return charts
    lines = {
        f"{window_s} s": tuple(
            Point(m * n, str(m * n), Cell(case_name(search_figure(window_s), (m, n)), SEARCH))
            for m, n in FIG_7B
        )
        for window_s in (300, 900)
    }
    return [
        *charts,
        _bars("fig. 8b", "Latency by degree, equal rates", FIG_8B),
        _bars("fig. 9", "Latency of layouts, rates 1 to 3", FIG_9),
        Chart(
            "fig. 7b: sustainable rate",
            "The greatest rate of both streams at which no simulated worker falls behind.",
            "workers",
            tuple(Line(name, points) for name, points in lines.items()),
            up=RATE,
        ),
    ]


def _chart(figure: str, title: str, groups: Mapping[str, Sequence[Layout]], up: str) -> Chart:
    lines = tuple(
        Line(
            name,
            tuple(Point(m * n, str(m * n), Cell(case_name(figure, (m, n)), WORKERS)) for m, n in layouts),
        )
        for name, layouts in groups.items()
    )
    caption = "Simulated workers at the paper's load, costs of this machine (DP-Join)."
    return Chart(f"{figure}: {title}", caption, "workers", lines, up=up, spacing="linear")


def _bars(figure: str, title: str, layouts: Sequence[Layout]) -> Chart:
    points = tuple(
        Point(at, f"{m} x {n}", Cell(case_name(figure, (m, n)), WORKERS)) for at, (m, n) in enumerate(layouts)
    )
    caption = "Simulated workers at the paper's load, costs of this machine (DP-Join)."
    return Chart(f"{figure}: {title}", caption, "", (Line(WORKERS, points),), LATENCY, "even", "bars")
