"""The whole workload: the experiments of each size, and the claims.

Quick has the cases of the claims and two of the sweeps; full has all of SPRINGALD's experiments (section VI)
that apply to CPU threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bench.workload import Case, Cell, Claim, Size, Way, Workload
from bench.workloads.windows import arrival as arriving
from bench.workloads.windows import keyed, sliding
from bench.workloads.windows.answer import Answer, check_answer, compute_answer
from bench.workloads.windows.experiment import BUCKETS, OURS, PANDAS, POLARS, READING, Experiment, build_ways
from bench.workloads.windows.keyed import ONE_RATE, PER_CELL, ZIPF
from bench.workloads.windows.shape import Shape, build_flow, forget_columns
from bench.workloads.windows.sliding import COPIES, FOLD, PLAIN

N_ROWS = 1 << 22
"""Rows of a sweep: two columns of them are twice the size of the caches of today's machines."""


NARROW = 1.2
"""Claims below this ratio are narrow: single rounds differ by more on a shared machine."""


def workload(size: Size) -> Workload:
    """Build the workload: windows at memory speed, by slide, keys, delay, batch and function."""
    experiments = _quick_experiments() if size == "quick" else _full_experiments()
    return Workload(
        name="windows",
        about="sliding windows over out-of-order rows, against reading them, copying them, pandas and Polars",
        cases=tuple(_cases(experiments)),
        ways=tuple(_ways(experiments)),
        oracle=compute_answer,
        check=check_answer,
        claims=tuple(_claims(_shapes(experiments))),
        charts=tuple(chart for experiment in experiments for chart in experiment.charts),
        counts=count_results,
        forget=forget_columns,
        # Why: fifteen rounds of all experiments would take half an hour.
        rounds=9,
    )


def count_results(expected: Any) -> Mapping[str, int]:
    """Return the number of windows that close, as units of work."""
    assert isinstance(expected, Answer), "the oracle of the workload gives windows"
    return {"results": len(expected.starts)}


def _quick_experiments() -> list[Experiment]:
    return [
        sliding.build_plain(2 * N_ROWS),
        sliding.sweep_slides(N_ROWS, ("100 ms", "1 ms", "10 us")),
        keyed.sweep_keys(N_ROWS, (1, 500), peers=False),
        arriving.sweep_delays(2 * N_ROWS, ("in order", "1 s"), ("10 ms",)),
        sliding.break_down(N_ROWS, n_keys=0),
    ]


def _full_experiments() -> list[Experiment]:
    return [
        sliding.build_plain(4 * N_ROWS),
        sliding.sweep_slides(N_ROWS),
        sliding.sweep_batches(N_ROWS),
        sliding.sweep_windows_per_pass(N_ROWS // 8),
        keyed.sweep_threads(N_ROWS),
        keyed.sweep_keys(N_ROWS),
        keyed.sweep_many_keys(N_ROWS // 2),
        sliding.sweep_functions(N_ROWS),
        # Why twice the rows: rings grow during the first delayed rows, which is not to be compared.
        arriving.sweep_delays(2 * N_ROWS),
        sliding.compare_with_tree(N_ROWS // 2),
        sliding.break_down(N_ROWS, n_keys=0),
        sliding.break_down(N_ROWS, n_keys=500),
        arriving.sweep_latency(N_ROWS),
        arriving.sweep_count_slides(N_ROWS // 4),
        arriving.sweep_minute_slides(N_ROWS),
        keyed.build_campaigns(N_ROWS),
    ]


def _shapes(experiments: list[Experiment]) -> dict[str, Shape]:
    return {
        case: shape
        for experiment in experiments
        for one in experiment.trials
        for case, shape in one.shapes.items()
    }


def _cases(experiments: list[Experiment]) -> list[Case]:
    groups = {
        case: experiment.group
        for experiment in experiments
        for one in experiment.trials
        for case in one.shapes
    }
    return [
        Case(name, make=partial(build_flow, shape), units=_units(shape), group=groups[name])
        for name, shape in _shapes(experiments).items()
    ]


def _units(shape: Shape) -> dict[str, int]:
    units = {"rows": shape.n_rows}
    if not shape.counted:
        units["rows per slice and key"] = round(shape.per_cell)
    return units


def _ways(experiments: list[Experiment]) -> list[Way]:
    """Return the ways that some experiment tries, each restricted to its cases."""
    only: dict[str, dict[str, None]] = {}
    for experiment in experiments:
        for one in experiment.trials:
            only.setdefault(one.way, {}).update(dict.fromkeys(one.shapes))
    return [replace(way, only=tuple(only[way.name])) for way in build_ways() if way.name in only]


def _claims(shapes: Mapping[str, Shape]) -> list[Claim]:
    plain, fold = Cell(PLAIN, OURS), Cell(FOLD, OURS)
    at_least = "{}: at least {} million rows/s"
    return [
        Claim(f"{PLAIN}: at least 0.25 of the rate of reading", plain, 4, Cell(PLAIN, READING), "rows"),
        Claim(at_least.format(PLAIN, 150), plain, shapes[PLAIN].n_rows / 150e6, speed="rows"),
        _ratio_claim(
            "a slide of 10 us for 100 ms, equal rows per slice", "slide: 10 us", 1.5, "slide: 100 ms"
        ),
        # The same stream with more keys is drawn and listed, not claimed: it has 500 times the results.
        _ratio_claim(
            "500 keys for 1, equal rows per slice and key", f"{PER_CELL}: 500", 1.5, f"{PER_CELL}: 1"
        ),
        _ratio_claim("1 s of mean delay for in order", "delay: 10 ms, 1 s", 1.1, "delay: 10 ms, in order"),
        *(
            _ratio_claim(f"Zipf for uniform, 500 {group}", f"{group}: {ZIPF}, 500", 1.05, f"{group}: 500")
            for group in (ONE_RATE, PER_CELL)
        ),
        Claim(at_least.format(FOLD, 60), fold, shapes[FOLD].n_rows / 60e6, speed="rows"),
        _speed_claim("a bucket per window at 100 windows per row is beaten 50x", COPIES, 50, BUCKETS),
        _speed_claim("pandas is beaten", PLAIN, 1, PANDAS),
        _speed_claim("Polars is beaten", PLAIN, 1, POLARS),
    ]


def _ratio_claim(change: str, case: str, at_most: float, over: str) -> Claim:
    narrow = at_most < NARROW
    return Claim(
        f"{change}, costs at most {at_most:g}x", Cell(case, OURS), at_most, Cell(over, OURS), narrow=narrow
    )


def _speed_claim(says: str, case: str, times: float, than: str) -> Claim:
    return Claim(says, Cell(case, OURS), 1 / times, Cell(case, than), "rows")
