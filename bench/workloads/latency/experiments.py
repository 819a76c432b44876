"""The whole workload: five applications at 10,000 rows a second, the claims, and WindFlow's figure 16."""

from __future__ import annotations

from functools import partial

from bench.peers.peer import FLINK_LIVE
from bench.workload import (
    Case,
    Cell,
    Chart,
    Claim,
    Line,
    Point,
    Size,
    Way,
    Workload,
    check_outcome,
    expected_of,
    outcome_notes,
)
from bench.workloads.latency.programs import FlinkRun, run_in_process
from bench.workloads.latency.rows import RATE, SUBJECTS, build_stream

OURS, P99, TIMES = "penstock", "p99 (s)", 8
IN_FLINK = tuple(subject for subject in SUBJECTS if subject.write_line)


def workload(size: Size) -> Workload:
    """Build the workload."""
    n_rows = RATE * (2 if size == "quick" else 30)
    return Workload(
        name="latency",
        about="latency of FD, SD, WC, LR and VS at 10,000 rows a second, beside Flink SQL",
        cases=tuple(
            Case(subject.label, partial(build_stream, subject, n_rows), {"rows": n_rows}, group=subject.label)
            for subject in SUBJECTS
        ),
        ways=(
            Way(OURS, run_in_process, notes=outcome_notes),
            Way(
                FLINK_LIVE.name,
                FlinkRun(),
                notes=outcome_notes,
                only=tuple(subject.label for subject in IN_FLINK),
            ),
        ),
        oracle=expected_of,
        check=check_outcome,
        claims=tuple(
            Claim(
                f"{subject.label}: p99 at least {TIMES}x below Flink's",
                Cell(subject.label, OURS),
                1 / TIMES,
                Cell(subject.label, FLINK_LIVE.name),
                note=P99,
            )
            for subject in IN_FLINK
        ),
        charts=(_chart(),),
        rounds=3 if size == "quick" else 5,
        warm_up=1,
        remarks=("Flink SQL, VS: filters that decay need functions of rows, which SQL does not have",),
    )


def _chart() -> Chart:
    lines = [
        Line(way, tuple(Point(0, one.label, Cell(one.label, way)) for one in subjects))
        for way, subjects in ((OURS, SUBJECTS), (FLINK_LIVE.name, IN_FLINK))
    ]
    caption = (
        "WindFlow, fig. 16: boxes from the 25th to the 75th of 100 results, whiskers from the 5th to the "
        "95th, a mark at the 99th. From the moment at which a row was due until the sink has its result."
    )
    title = "Latency at 10,000 rows a second"
    return Chart(title, caption, "application", tuple(lines), "latency (s)", "even", "boxes")
