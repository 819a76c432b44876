"""The whole workload: the experiments of each size, and the claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.workload import Case, Cell, Claim, Size, Workload, expected_of
from bench.workloads.join import band, handshake, latency, layouts, spark_joins, virtual_time
from bench.workloads.join.layouts import CORE_ERROR, ERROR
from bench.workloads.join.stage import check_pairs, forget_windows
from bench.workloads.join.streams import Shape, draw_streams
from bench.workloads.join.virtual_time import VirtualRun

PAPER_LATENCY = 0.95e-3
"""The paper's average latency of a square layout (Fig. 8a), on sixteen cores."""


def workload(size: Size) -> Workload:
    """Build the workload: DP-Join's experiments, on this machine and in virtual time, and joins on Spark."""
    full = size == "full"
    layout_cases = [layouts.build_case(shape) for shape in _layout_shapes(full=full)]
    virtual_cases = virtual_time.build_cases(full=full)
    paced = latency.build_case(Shape((2_500, 2_500), 300, 5_000 * (5 if full else 2), 1))
    meeting = handshake.build_case(Shape((2_000, 2_000), 20, 80_000, 1))
    return Workload(
        name="join",
        about="the band join of DP-Join: scans, index, layouts, latency, simulated workers, joins on Spark",
        cases=(
            *band.build_cases(full=full),
            *layout_cases,
            paced,
            meeting,
            *virtual_cases,
            *spark_joins.build_cases(full=full),
        ),
        ways=(
            *band.build_ways(),
            *layouts.build_ways([case.name for case in layout_cases]),
            *latency.build_ways([paced.name]),
            *handshake.build_ways(meeting.name),
            *virtual_time.build_ways(virtual_cases),
            *spark_joins.build_ways(),
        ),
        oracle=_expected_answer,
        check=_check,
        claims=(
            *band.build_claims(full=full),
            *_layout_claims(layout_cases),
            *latency.build_claims(paced.name, PAPER_LATENCY),
            *handshake.build_claims(meeting.name),
            *virtual_time.build_claims(virtual_cases),
            *spark_joins.build_claims(),
        ),
        charts=(
            band.build_chart(),
            *layouts.build_charts([case.name for case in layout_cases]),
            *virtual_time.build_charts(full=full),
        ),
        counts=_count_results,
        rounds=3 if full else 2,
        forget=_forget,
    )


def _layout_shapes(*, full: bool) -> list[Shape]:
    """Return the rate of Fig. 6; the whole also has windows of 900 s, at a rate that makes them as large."""
    shapes = [Shape((2_100, 2_100), 300, 4_000, 2)]
    return [*shapes, Shape((700, 700), 900, 4_000, 2)] if full else shapes


def _layout_claims(cases: list[Case]) -> list[Claim]:
    return [
        *(
            Claim(
                f"{case.name}, {layouts.way_name(layout)}: {error} is less than 5 %",
                Cell(case.name, layouts.way_name(layout)),
                0.05,
                note=error,
                both_sides=True,
            )
            for case in cases
            for layout in layouts.LAYOUTS
            for error in (ERROR, CORE_ERROR)
        ),
        *(
            Claim(
                f"{case.name}: two threads take at most 0.6 of the time of one",
                Cell(case.name, layouts.way_name((1, 2))),
                0.6,
                Cell(case.name, layouts.way_name((1, 1))),
            )
            for case in cases
        ),
    ]


def _expected_answer(data: Any) -> Any:
    return None if isinstance(data, virtual_time.VirtualJoin) else expected_of(data)


def _check(expected: Any, answer: Any) -> str | None:
    if isinstance(answer, VirtualRun):
        return virtual_time.check_run(answer)
    if isinstance(expected, int):
        return None if expected == answer else f"expected {expected:,} hits, got {answer:,}"
    return check_pairs(expected, answer.answer if hasattr(answer, "answer") else answer)


def _count_results(expected: Any) -> Mapping[str, int]:
    return {"results": len(expected)} if isinstance(expected, np.ndarray) else {}


def _forget() -> None:
    forget_windows()
    draw_streams.cache_clear()
