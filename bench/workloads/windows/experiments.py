"""The whole workload: which experiments are done, in which size, and what is claimed.

Quick has the cases of the claims and two of the sweeps; full has all of SPRINGALD's experiments (section VI)
that CPU threads can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bench.cell import Cell
from bench.workload import Case, Claim, Size, Way, Workload
from bench.workloads.windows import arriving, keyed, sliding
from bench.workloads.windows.answer import Answer, right, wrong
from bench.workloads.windows.experiment import Experiment
from bench.workloads.windows.keyed import ONE_RATE, PER_CELL, ZIPF
from bench.workloads.windows.shape import Shape, flow, forget_columns
from bench.workloads.windows.sliding import COPIES, FOLD, PLAIN
from bench.workloads.windows.ways import BUCKETS, OURS, PANDAS, POLARS, READING, all_ways

N_ROWS = 1 << 22
"""Rows of a sweep: two columns of them are twice what the caches of today's machines hold."""


NARROW = 1.2
"""Claims below this are within what single rounds differ by on a machine that others use too."""


def workload(size: Size) -> Workload:
    """Windows at the speed of memory, and what they cost when they slide, scatter or multiply."""
    experiments = _quick() if size == "quick" else _full()
    return Workload(
        name="windows",
        about="sliding windows over out-of-order rows, against reading them, copying them, pandas and Polars",
        cases=tuple(_cases(experiments)),
        ways=tuple(_ways(experiments)),
        oracle=right,
        wrong=wrong,
        claims=tuple(_claims(_shapes(experiments))),
        charts=tuple(chart for experiment in experiments for chart in experiment.charts),
        counts=n_results,
        forget=forget_columns,
        # All experiments fifteen times over would take half an hour.
        rounds=9,
    )


def n_results(expected: Any) -> Mapping[str, int]:
    """Return the windows that leave, as units of work."""
    assert isinstance(expected, Answer), "the oracle of the workload gives windows"
    return {"results": len(expected.starts)}


def _quick() -> list[Experiment]:
    return [
        sliding.plain(2 * N_ROWS),
        sliding.slides(N_ROWS, ("100 ms", "1 ms", "10 us")),
        keyed.keys(N_ROWS, (1, 500), peers=False),
        arriving.delays(2 * N_ROWS, ("in order", "1 s"), ("10 ms",)),
        sliding.parts(N_ROWS, n_keys=0),
    ]


def _full() -> list[Experiment]:
    return [
        sliding.plain(4 * N_ROWS),
        sliding.slides(N_ROWS),
        sliding.batches(N_ROWS),
        sliding.at_a_time(N_ROWS // 8),
        keyed.by_threads(N_ROWS),
        keyed.keys(N_ROWS),
        keyed.many_keys(N_ROWS // 2),
        sliding.functions(N_ROWS),
        # Twice the rows: rings grow while the first delayed rows come, which is not what is compared.
        arriving.delays(2 * N_ROWS),
        sliding.tree_or_none(N_ROWS // 2),
        sliding.parts(N_ROWS, n_keys=0),
        sliding.parts(N_ROWS, n_keys=500),
        arriving.latency(N_ROWS),
        arriving.counts(N_ROWS // 4),
        arriving.minutes(N_ROWS),
        keyed.campaigns(N_ROWS),
    ]


def _shapes(experiments: list[Experiment]) -> dict[str, Shape]:
    return {case: shape for each in experiments for one in each.tried for case, shape in one.shapes.items()}


def _cases(experiments: list[Experiment]) -> list[Case]:
    groups = {case: each.group for each in experiments for one in each.tried for case in one.shapes}
    return [
        Case(name, make=partial(flow, shape), units=_units(shape), group=groups[name])
        for name, shape in _shapes(experiments).items()
    ]


def _units(shape: Shape) -> dict[str, int]:
    units = {"rows": shape.n_rows}
    if not shape.counted:
        units["rows per slice and key"] = round(shape.per_cell)
    return units


def _ways(experiments: list[Experiment]) -> list[Way]:
    """Return the ways that some experiment tries, each on its cases only."""
    only: dict[str, dict[str, None]] = {}
    for each in experiments:
        for one in each.tried:
            only.setdefault(one.way, {}).update(dict.fromkeys(one.shapes))
    return [replace(way, only=tuple(only[way.name])) for way in all_ways() if way.name in only]


def _claims(shapes: Mapping[str, Shape]) -> list[Claim]:
    plain, fold = Cell(PLAIN, OURS), Cell(FOLD, OURS)
    at_least = "{}: at least {} million rows/s"
    return [
        Claim(f"{PLAIN}: at least 0.25 of the rate of reading", plain, 4, Cell(PLAIN, READING), "rows"),
        Claim(at_least.format(PLAIN, 150), plain, shapes[PLAIN].n_rows / 150e6, speed="rows"),
        _ratio("a slide of 10 us for 100 ms, equal rows per slice", "slide: 10 us", 1.5, "slide: 100 ms"),
        # The same stream with more keys is drawn and listed, not claimed: it has 500 times the results.
        _ratio("500 keys for 1, equal rows per slice and key", f"{PER_CELL}: 500", 1.5, f"{PER_CELL}: 1"),
        _ratio("1 s of mean delay for in order", "delay: 10 ms, 1 s", 1.1, "delay: 10 ms, in order"),
        *(
            _ratio(f"Zipf for uniform, 500 {group}", f"{group}: {ZIPF}, 500", 1.05, f"{group}: 500")
            for group in (ONE_RATE, PER_CELL)
        ),
        Claim(at_least.format(FOLD, 60), fold, shapes[FOLD].n_rows / 60e6, speed="rows"),
        _faster("a bucket per window at 100 windows per row is beaten 50x", COPIES, 50, BUCKETS),
        _faster("pandas is beaten", PLAIN, 1, PANDAS),
        _faster("Polars is beaten", PLAIN, 1, POLARS),
    ]


def _ratio(what: str, case: str, at_most: float, over: str) -> Claim:
    narrow = at_most < NARROW
    return Claim(
        f"{what}, costs at most {at_most:g}x", Cell(case, OURS), at_most, Cell(over, OURS), narrow=narrow
    )


def _faster(says: str, case: str, times: float, than: str) -> Claim:
    return Claim(says, Cell(case, OURS), 1 / times, Cell(case, than), "rows")
