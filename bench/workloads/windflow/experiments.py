"""The whole workload: WindFlow's figures one after the other, then AIR's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bench.workload import Outcome, Size, Workload, expected_of
from bench.workloads.windflow import breakdown, cluster, figures
from bench.workloads.windflow.programs import explain_rows


def workload(size: Size) -> Workload:
    """Build the workload."""
    quick = size == "quick"
    parts = [
        breakdown.count_blocks(),
        figures.compare_degrees(quick=quick),
        figures.compare_chaining(quick=quick),
        figures.compare_batches(quick=quick),
        figures.compare_waiting(quick=quick),
        figures.compare_pinning(quick=quick),
        figures.compare_rules(quick=quick),
        breakdown.break_down_time(quick=quick),
        figures.compare_cores(quick=quick),
        cluster.compare_modes(quick=quick),
    ]
    return Workload(
        name="windflow",
        about="WindFlow's tables and figures on its seven applications in process, and AIR's on a cluster",
        cases=tuple(case for part in parts for case in part.cases),
        ways=tuple(way for part in parts for way in part.ways),
        oracle=expected_of,
        check=check_answer,
        claims=tuple(claim for part in parts for claim in part.claims),
        charts=tuple(chart for part in parts for chart in part.charts),
        collector=True,  # rows of plain Python make garbage, as they do for users
        rounds=3 if quick else 7,
    )


def check_answer(expected: Any, outcome: Outcome) -> str | None:
    """Return what is wrong with an answer, or None: rows, or counts of blocks."""
    answer = outcome.answer()
    if isinstance(expected, pa.Table):
        return explain_rows(expected, answer)
    return None if answer == expected else f"expected {expected}, got {answer}"
