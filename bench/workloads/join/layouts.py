"""Layouts on the cores of this machine: scans by one worker and by several, and the model beside them.

Before and after every run the model's constant is measured anew, with a window of another length and as many
comparisons: so a machine that others use too slows down both. T_on is what a comparison takes on a core while
its neighbours work too, for they share caches and memory: it is measured with as many threads at work as the
layout has, each with a join of its own, so that none of them waits for another.

Bandwidth is results per second at saturation, as in Fig. 6. The rate that can be sustained (Fig. 7b) follows
from how long the probes of a second take, because the work grows with the square of the rate (expression 3).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np

from bench.workload import Case, Cell, Chart, Line, Point, Way
from bench.workloads.join.stage import (
    FilledStage,
    JoinOutput,
    fill_for_scans,
    run_probes,
    run_scans,
    scan_only,
)
from bench.workloads.join.streams import HIT_RATE, Ints, Shape, Streams, draw_streams
from penstock.stages.join.model import JoinLoad, Layout

BANDWIDTH, ERROR, RATE = "results/s at saturation", "model's error", "sustained rows/s per stream"
CORE_ERROR, COMPARE = "model's error by core time", "one comparison in ns"
CALIBRATION = Shape((2_100, 2_100), 100, 6_000, 3)
N_CORES = min(2, os.cpu_count() or 1)
LAYOUTS: tuple[Layout, ...] = ((1, 1), (1, 2), (2, 1), (2, 2))


def case_name(shape: Shape) -> str:
    """Return the name of the case."""
    return f"layouts: {shape.rates[0]:,} rows/s, {shape.window_s} s"


def way_name(layout: Layout) -> str:
    """Return the name of the way with that layout."""
    return f"{layout[0]} x {layout[1]} cells, {count_threads(layout)} threads"


def count_threads(layout: Layout) -> int:
    """Return on how many threads a layout runs."""
    return min(layout[0] * layout[1], N_CORES)


@dataclass(frozen=True, slots=True)
class ScanTime:
    """How long scans took, and how long on all cores together; of one comparison or of a run."""

    seconds: float
    core_s: float

    def mean(self, other: ScanTime) -> ScanTime:
        """Return the mean of two."""
        return ScanTime((self.seconds + other.seconds) / 2, (self.core_s + other.core_s) / 2)


@dataclass(frozen=True, slots=True)
class LayoutTrial:
    """A filled stage, and what one comparison took just before."""

    filled: FilledStage
    comparison: ScanTime
    n_threads: int


@dataclass(frozen=True, slots=True)
class LayoutRun:
    """The pairs of a run, how long it took, and what the model needs to predict it."""

    joined: JoinOutput
    took: ScanTime
    comparison: ScanTime
    n_threads: int

    def __call__(self) -> Ints:
        """Return the pairs in order."""
        return self.joined()


def build_case(shape: Shape) -> Case:
    """Build the case of one rate and window."""
    units = {"rows": shape.n_probes, "comparisons": shape.n_compared}
    return Case(case_name(shape), partial(draw_streams, shape), units, group="layouts")


def build_ways(cases: Sequence[str]) -> list[Way]:
    """Build the ways: one for each layout."""
    return [
        Way(
            way_name(layout),
            run_layout,
            partial(fill_layout, layout=layout),
            notes=layout_notes,
            only=tuple(cases),
        )
        for layout in LAYOUTS
    ]


def measure_comparison(n_threads: int = 1, seed: int = 1) -> ScanTime:
    """Return the time of one comparison of a worker while as many are at work, on average: T_on."""
    streams = draw_streams(CALIBRATION, seed)
    stages = [fill_for_scans(streams) for _ in range(n_threads)]
    with scan_only(), ThreadPoolExecutor(n_threads) as pool:
        joined = list(pool.map(run_probes, stages))
    n_compared = CALIBRATION.n_compared * n_threads
    return ScanTime(
        sum(one.seconds for one in joined) / n_compared, sum(one.core_s for one in joined) / n_compared
    )


def _time_scans(filled: FilledStage) -> tuple[JoinOutput, ScanTime]:
    started, core_started = time.perf_counter(), time.process_time()
    joined = run_scans(filled)
    return joined, ScanTime(time.perf_counter() - started, time.process_time() - core_started)


def fill_layout(streams: Streams, layout: Layout) -> LayoutTrial:
    """Fill a stage of that layout, and then measure what one comparison takes."""
    n_threads = count_threads(layout)
    filled = fill_for_scans(streams, layout, n_threads)
    return LayoutTrial(filled, measure_comparison(n_threads), n_threads)


def run_layout(trial: LayoutTrial) -> LayoutRun:
    """Run the probes by scans."""
    joined, took = _time_scans(trial.filled)
    return LayoutRun(joined, took, trial.comparison, trial.n_threads)


def layout_notes(run: LayoutRun) -> Mapping[str, float]:
    """Return the bandwidth, the error of the model's, and the rate that could be sustained.

    By core time the bandwidth is results per second of one core: what a layout costs besides its comparisons.
    """
    shape = run.joined.streams.shape
    comparison = run.comparison.mean(measure_comparison(run.n_threads))
    n_results = sum(batch.num_rows for batch in run.joined.batches)
    bandwidth, per_core = n_results / run.took.seconds, n_results / run.took.core_s
    return {
        BANDWIDTH: bandwidth,
        ERROR: bandwidth / _predict(shape, comparison.seconds, run.n_threads) - 1,
        CORE_ERROR: per_core / _predict(shape, comparison.core_s, 1) - 1,
        RATE: shape.rates[0] / sqrt(run.took.seconds / shape.probe_s),
        COMPARE: comparison.core_s * 1e9,
    }


def _predict(shape: Shape, compare_s: float, n_workers: int) -> float:
    """Return the model's bandwidth at saturation, where the streams are not the bound."""
    return JoinLoad((np.inf, np.inf), shape.window_rows, compare_s, HIT_RATE).bandwidth((1, n_workers))


def build_charts(cases: Sequence[str]) -> list[Chart]:
    """Build the charts of bandwidth and sustained rate by layout."""
    labels = [f"{m} x {n}" for m, n in LAYOUTS]
    return [
        Chart(
            f"layouts on this machine: {measure}",
            f"Scans alone, cells on at most {N_CORES} threads ({figure}).",
            "",
            tuple(
                Line(
                    case,
                    tuple(
                        Point(at, labels[at], Cell(case, way_name(layout)))
                        for at, layout in enumerate(LAYOUTS)
                    ),
                )
                for case in cases
            ),
            up=measure,
            spacing="even",
        )
        for measure, figure in ((BANDWIDTH, "DP-Join, Fig. 6"), (RATE, "DP-Join, Fig. 7b"))
    ]
