"""Where the time of the applications goes (WindFlow, Fig. 19), and the blocks they are made of (Table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import penstock as ps
from bench.workload import Case, Cell, Chart, Line, Outcome, Point, Way, outcome_notes
from bench.workloads.windflow.programs import SUITE, SYSTEM, USER, Figure, Program, run_program
from penstock import blocks

GROUP, WAY = "breakdown", "one by one"
RATES = {True: 100.0, False: 20.0}
"""Rows per second of a quick run and of a full one: so few that no row waits for another (WindFlow, 5.4)."""
SECONDS = {True: 2, False: 10}

BLOCKS, DERIVE = "blocks", "derive"
TABLE_3 = {
    "FD": (4, 1, 2, 2, 1),
    "SD": (5, 1, 2, 2, 1),
    "TM": (5, 1, 2, 2, 1),
    "WC": (5, 1, 2, 2, 1),
    "YB": (6, 1, 2, 2, 1),
    "LR": (16, 5, 5, 4, 2),
    "VS": (32, 13, 13, 14, 8),
}
"""Seqs, combiners, pipes, containers, all-to-alls; docs/table3.md says how VS differs from the paper."""
KINDS = ("Seqs", "combiners", "pipes", "containers", "all-to-alls")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # With so few rows, something shall come out.
    "FD": {"keys": 5},
    "SD": {"keys": 2, "window": 20, "threshold": 0.03},
    "YB": {"rate": 5.0},
}


def break_down_time(*, quick: bool) -> Figure:
    """Figure 19: user and system time of a row, for every operator and in all, at a low rate.

    The figure has LR and VS; here are all seven. Notes named after an operator have its share.
    """
    n_rows = int(SECONDS[quick] * RATES[quick])
    cases = [program.make_case(GROUP, n_rows, **SETTINGS.get(program.label, {})) for program in SUITE]
    options = ps.LocalOptions(measure=True, scheduler="latency")
    way = Way(
        WAY,
        partial(run_program, options=options, rate=RATES[quick]),
        notes=outcome_notes,
        only=tuple(case.name for case in cases),
    )
    charts = [
        Chart(
            f"Time of a row: {note.removesuffix(' (s)')}",
            f"{RATES[quick]:.0f} rows/s, one by one, all operators together (WindFlow, Fig. 19).",
            "application",
            (Line(note, tuple(_points(cases, WAY))),),
            up=note,
            spacing="even",
            form="bars",
        )
        for note in (USER, SYSTEM)
    ]
    return Figure(cases, [way], [], charts)


def count_blocks() -> Figure:
    """Table 3: the blocks of the applications with one replica and no chaining, derived from their graphs."""
    cases = [
        Case(program.case_name(BLOCKS), partial(_BlockCount, program), group=BLOCKS) for program in SUITE
    ]
    names = tuple(case.name for case in cases)
    way = Way(DERIVE, _BlockCount.run, notes=outcome_notes, only=names)
    chart = Chart(
        "Building blocks: Seqs",
        "One replica, no chaining (WindFlow, Table 3); the other kinds are in the notes.",
        "application",
        (Line("Seqs", tuple(_points(cases, DERIVE))),),
        up=KINDS[0],
        spacing="even",
        form="bars",
    )
    return Figure(cases, [way], [], [chart])


class _BlockCount:
    """An application whose blocks are counted; it knows its row of the table."""

    def __init__(self, program: Program, seed: int) -> None:
        self._label = program.label
        application = program.application
        options = application.make_options(rows=20, form=program.form, chaining=False, seed=seed)
        self._graph = application.graph(options)

    def expected_answer(self) -> tuple[int, ...]:
        """Return the row of Table 3."""
        return TABLE_3[self._label]

    def run(self) -> Outcome:
        """Derive the graph's term and count its blocks."""
        counts = tuple(blocks.count(self._graph.blocks()))
        return Outcome(lambda: counts, dict(zip(KINDS, map(float, counts), strict=True)))


def _points(cases: list[Case], way: str) -> list[Point]:
    return [Point(at, case.name.partition(",")[0], Cell(case.name, way)) for at, case in enumerate(cases)]
