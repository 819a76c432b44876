"""The controller on this machine: busy operators and real cores.

One busy operator, and two in a row (C-Stream, Figs. 9 and 10), begin with one replica each. The figure is the
time of the whole run, including the climb, beside runs with a fixed number of replicas; the notes hold the
replicas at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import penstock as ps
from bench.workload import Case, Cell, Chart, Line, Outcome, Point, Way, outcome_notes
from penstock.apps.busy_operators import Busy, read_numbers
from penstock.events import Event, ScaleDecided

COST_US = 100.0
PERIOD = "300 ms"
MOST = 4
FIXED = (1, 2)
ELASTIC = f"adapting, 1 to {MOST} replicas"
REPLICAS, DECISIONS = "replicas", "decisions"


@dataclass(frozen=True, slots=True)
class BusyChain:
    """A chain of busy operators, and the number of rows that go through it."""

    n_busy: int
    n_rows: int

    def expected_answer(self) -> int:
        """Return the number of rows: all arrive."""
        return self.n_rows


def case_name(n_busy: int) -> str:
    """Return the name of the case with that many busy operators."""
    return "one busy operator" if n_busy == 1 else f"{n_busy} busy operators in a row"


def way_name(n: int) -> str:
    """Return the name of the way with that many replicas."""
    return f"{n} {'replica' if n == 1 else 'replicas'} of each"


def build_cases(n_rows: int) -> list[Case]:
    """Build the cases with one and with two busy operators."""
    return [
        Case(case_name(n), partial(_build_chain, n, n_rows), {"rows": n_rows}, group="adapting")
        for n in (1, 2)
    ]


def _build_chain(n_busy: int, n_rows: int, seed: int) -> BusyChain:
    return BusyChain(n_busy, n_rows)


def build_ways() -> list[Way]:
    """Build the ways: a fixed number of replicas, and one that follows the load."""
    only = tuple(case_name(n) for n in (1, 2))
    fixed = [Way(way_name(n), partial(run, least=n, most=n), notes=outcome_notes, only=only) for n in FIXED]
    return [*fixed, Way(ELASTIC, partial(run, least=1, most=MOST), notes=outcome_notes, only=only)]


def run(task: BusyChain, *, least: int, most: int) -> Outcome:
    """Run the whole graph and note the replicas at its end."""
    graph, busy = ps.PipeGraph("adapting", chaining=False), Busy(COST_US)
    pipe = graph.source(read_numbers(task.n_rows), name="source")
    for place in range(task.n_busy):
        pipe = pipe.filter(
            ps.batch(replace(busy, place=place)), name=f"busy-{place}", parallelism=(least, most)
        )
    pipe.sink(ps.write.memory(), name="sink")
    decided: list[ScaleDecided] = []

    def listen(event: Event) -> None:
        if isinstance(event, ScaleDecided):
            decided.append(event)

    elastic = ps.Elastic(period=PERIOD) if most > least else None
    result = graph.run(engine="local", options=ps.LocalOptions(elastic=elastic), events=listen)
    last = {event.step: event.replicas_after for event in decided}
    notes = {
        REPLICAS: float(sum(last.get(f"busy-{place}", least) for place in range(task.n_busy))),
        DECISIONS: float(len(decided)),
    }
    n_rows = result.accounts["sink"].rows_in
    return Outcome(lambda: n_rows, notes)


def build_chart() -> Chart:
    """Build the chart of the throughput with fixed and with elastic replicas."""
    lines = tuple(
        Line(
            case_name(n),
            tuple(Point(at, way, Cell(case_name(n), way)) for at, way in enumerate(_way_names())),
        )
        for n in (1, 2)
    )
    return Chart(
        "adaptation on this machine",
        f"Busy operators of {COST_US:.0f} us, a look every {PERIOD}, the climb from one replica included.",
        "",
        lines,
        spacing="even",
    )


def _way_names() -> list[str]:
    return [*map(way_name, FIXED), ELASTIC]
