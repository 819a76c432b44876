"""The controller on this machine, beside its judgement in virtual time: busy operators and real cores.

One busy operator, and two in a row (C-Stream, Figs. 9 and 10), begin with one replica each. What is
reported is the time of the whole run, the climb included, beside runs whose replicas do not change, and what
the controller had come to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import penstock as ps
from bench.cell import Cell
from bench.chart import Chart, Line, Point
from bench.workload import Case, Way
from bench.workloads.cstream.busy import Busy
from bench.workloads.cstream.shapes import numbers
from bench.workloads.runtime.told import Told, notes_of
from penstock.events import Event, ScaleDecided

COST_US = 100.0
PERIOD = "300 ms"
MOST = 4
FIXED = (1, 2)
ELASTIC = f"adapting, 1 to {MOST} replicas"
REPLICAS, DECISIONS = "replicas", "decisions"


@dataclass(frozen=True, slots=True)
class InARow:
    """So many busy operators in a row, and so many rows."""

    n_busy: int
    n_rows: int

    def right(self) -> int:
        """Return all rows arrive."""
        return self.n_rows


def named(n_busy: int) -> str:
    """Return the case with so many busy operators."""
    return "one busy operator" if n_busy == 1 else f"{n_busy} busy operators in a row"


def fixed(n: int) -> str:
    """Return the way with so many replicas."""
    return f"{n} {'replica' if n == 1 else 'replicas'} of each"


def cases(n_rows: int) -> list[Case]:
    """Return one operator, and two."""
    return [Case(named(n), partial(_line, n, n_rows), {"rows": n_rows}, group="adapting") for n in (1, 2)]


def _line(n_busy: int, n_rows: int, seed: int) -> InARow:
    return InARow(n_busy, n_rows)


def ways() -> list[Way]:
    """Replicas that stay, and those that follow the load."""
    only = tuple(named(n) for n in (1, 2))
    found = [Way(fixed(n), partial(run, least=n, most=n), notes=notes_of, only=only) for n in FIXED]
    return [*found, Way(ELASTIC, partial(run, least=1, most=MOST), notes=notes_of, only=only)]


def run(task: InARow, *, least: int, most: int) -> Told:
    """Return the whole run; what its replicas were in the end."""
    graph, busy = ps.PipeGraph("adapting", chaining=False), Busy(COST_US)
    pipe = graph.source(numbers(task.n_rows), name="source")
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
    return Told(lambda: n_rows, notes)


def chart() -> Chart:
    """Throughput with replicas that stay and with those that follow."""
    lines = tuple(
        Line(named(n), tuple(Point(at, way, Cell(named(n), way)) for at, way in enumerate(_names())))
        for n in (1, 2)
    )
    return Chart(
        "adaptation on this machine",
        f"Busy operators of {COST_US:.0f} us, a look every {PERIOD}, the climb from one replica included.",
        "",
        lines,
        spacing="even",
    )


def _names() -> list[str]:
    return [*map(fixed, FIXED), ELASTIC]
