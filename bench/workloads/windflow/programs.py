"""An application as the data of a case: its rows in memory, what must come out, and a run that is checked.

The forms are those whose operators the paper has (Table 3 counts their blocks); where there is a form by
columns, it is measured beside it. Settings are such that something comes out: fewer customers, devices and
vehicles than in the suites, because runs last less than a second and not five minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as ps
from bench.workload import Case, Cell, Chart, Claim, Line, Outcome, Point, Way
from penstock.apps import APPLICATIONS, Application


class Figure(NamedTuple):
    """What an experiment adds to the workload."""

    cases: list[Case]
    ways: list[Way]
    claims: list[Claim]
    charts: list[Chart]


@dataclass(frozen=True, slots=True)
class Program:
    """An application in one of its forms: rows of a quick run, and settings of its own.

    growth  how many times as many rows a full run has
    """

    label: str
    name: str
    form: str
    rows: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    growth: int = 5

    @property
    def application(self) -> Application:
        """Return the application."""
        return APPLICATIONS[self.name]

    def make_case(self, group: str, n_rows: int, **settings: Any) -> Case:
        """Return the case with that many rows, in a group."""
        return Case(
            self.case_name(group),
            lambda seed: Data.generate(self, rows=n_rows, seed=seed, **settings),
            units={"rows": n_rows},
            group=group,
        )

    def case_name(self, group: str) -> str:
        """Return the name of its case in a group."""
        return f"{self.label}, {group}"

    def n_rows(self, *, quick: bool) -> int:
        """Return the number of rows of a run."""
        return self.rows if quick else self.rows * self.growth


SUITE = (
    Program("FD", "fraud-detection", "rows", 20_000, {"keys": 500, "batch": 1_000}),
    Program("SD", "spike-detection", "rows", 20_000, {"keys": 10, "batch": 1_000}),
    Program("TM", "traffic-monitoring", "rows", 4_000, {"batch": 500}),
    Program("WC", "word-count", "rows", 3_000, {"batch": 250}),
    Program("YB", "yahoo", "columns", 1_000_000, {"rate": 100_000.0, "batch": 1 << 15}),
    Program("LR", "linear-road", "benchmark", 9_000, {"batch": 1_000}),
    Program("VS", "voip-stream", "rows", 3_000, {"batch": 500}),
)
"""The seven applications with the operators of the paper."""
BY_COLUMNS = (
    Program("FD by columns", "fraud-detection", "columns", 100_000, {"keys": 500, "batch": 1 << 14}),
    Program("SD by columns", "spike-detection", "columns", 50_000, {"keys": 10, "batch": 1 << 13}),
    Program("TM by columns", "traffic-monitoring", "columns", 10_000, {"batch": 1 << 11}),
    Program("WC by columns", "word-count", "columns", 30_000, {"rate": 2_000.0, "batch": 1 << 12}),
    Program("LR with tolls", "linear-road", "columns", 15_000, {"rate": 100.0, "cars": 5, "batch": 1 << 12}),
)
"""What users would write where the paper has functions that are called row by row; LinearRoad with tolls."""


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The rows of a program and its options."""

    program: Program
    options: Mapping[str, Any]
    tables: Mapping[str, pa.Table]

    @classmethod
    def generate(cls, program: Program, **settings: Any) -> Data:
        """Return the rows of a program, from its generator."""
        options = {**program.settings, "form": program.form, **settings}
        application = program.application
        return cls(program, options, application.generate(application.make_options(**options)))

    def expected_answer(self) -> pa.Table:
        """Return what the application's recount in plain Python says, in order."""
        application = self.program.application
        rows = application.recount(self.tables, application.make_options(**self.options))
        assert rows, f"nothing comes out of {self.program.label}, so nothing would be checked"
        return sort_rows(pa.Table.from_pylist(rows))

    def build(self, read: Callable[[pa.Table, int], Any], **settings: Any) -> tuple[ps.PipeGraph, Any]:
        """Return the graph and the writer that its answer goes to."""
        options = self.program.application.make_options(**{**self.options, **settings})
        out = ps.write.memory()
        readers = {name: read(rows, options.batch) for name, rows in self.tables.items()}
        return self.program.application.build(readers, out, options), out


def read_table(rows: pa.Table, batch: int) -> Any:
    """Return a reader of rows in memory."""
    return ps.read.table(rows, batch=batch)


def run_program(
    data: Data, options: ps.LocalOptions | None = None, *, rate: float | None = None, **settings: Any
) -> Outcome:
    """Run a program in process and return its answer; if it is measured, notes say where the time went.

    rate      rows per second that arrive, one by one; None for as fast as they are taken
    settings  what differs from the program's own options, such as `parallelism`
    """
    read = read_table if rate is None else partial(read_paced, rate)
    graph, out = data.build(read, **settings)
    result = graph.run(engine="local", options=options)
    if options is None or not options.measure:
        return Outcome(out.table)
    n_rows = sum(rows.num_rows for rows in data.tables.values())
    return Outcome(
        out.table, break_down(result.measurements, [step.name for step in graph.plan().sources], n_rows)
    )


def read_paced(rate: float, rows: pa.Table, batch: int) -> Any:
    """Return a reader of single rows, each at the moment at which it is due."""
    return ps.read.generator(partial(generate_paced, rows, rate), schema=rows.schema, bounded=False)


def generate_paced(rows: pa.Table, rate: float) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table one by one."""
    started = time.monotonic()
    for i in range(rows.num_rows):
        time.sleep(max(0.0, started + i / rate - time.monotonic()))
        yield rows.slice(i, 1).combine_chunks().to_batches()[0]


USER, SYSTEM, MEDIAN = "user (s)", "system (s)", "p50 (s)"


def break_down(measured: Any, sources: Sequence[str], n_rows: int) -> dict[str, float]:
    """Return the time of a run per row that was read: of all operators, and of each by name.

    The user time of sources is left out: it is how long they wait until a row is due.
    """
    user = {step: us for step, us in measured.user_us.items() if step not in sources}
    notes = {
        USER: sum(user.values()) / 1e6 / n_rows,
        SYSTEM: sum(measured.system_us.values()) / 1e6 / n_rows,
        MEDIAN: max((one.p50_us for one in measured.latency.values()), default=0) / 1e6,
    }
    notes |= {f"{step}: {USER}": us / 1e6 / n_rows for step, us in user.items()}
    return notes | {f"{step}: {SYSTEM}": us / 1e6 / n_rows for step, us in measured.system_us.items()}


def sort_rows(rows: pa.Table) -> pa.Table:
    """Return rows in one order: by all columns, floats last because they may differ in the last digits."""
    names = sorted(rows.column_names, key=lambda name: (is_float(rows, name), name))
    return rows.select(names).sort_by([(name, "ascending") for name in names])


def is_float(rows: pa.Table, name: str) -> bool:
    """Return whether a column has floats."""
    return bool(pa.types.is_floating(rows.schema.field(name).type))


def explain_rows(expected: pa.Table, answer: pa.Table) -> str | None:
    """Return how an answer differs from the expected rows, or None; floats may differ by rounding."""
    if answer.num_rows != expected.num_rows:
        return f"expected {expected.num_rows} rows, got {answer.num_rows}"
    if set(answer.column_names) != set(expected.column_names):
        return f"expected the columns {expected.column_names}, got {answer.column_names}"
    ordered = sort_rows(answer).cast(expected.schema)
    for name in expected.column_names:
        right, actual = expected.column(name), ordered.column(name)
        if is_float(expected, name):
            differs = ~np.isclose(actual.to_numpy(), right.to_numpy(), rtol=1e-9, atol=1e-12, equal_nan=True)
        else:
            differs = np.asarray(pc.not_equal(actual, right).to_numpy())
        if differs.any():
            at = int(differs.argmax())
            return f"expected {name} {right[at]} in row {at}, got {actual[at]}"
    return None


def make_bars(
    title: str, caption: str, programs: Sequence[Program], group: str, ways: Sequence[str]
) -> Chart:
    """Return a chart with a bar for each program and way."""
    cells = [
        (f"{program.label}, {way}", Cell(program.case_name(group), way))
        for program in programs
        for way in ways
    ]
    points = tuple(Point(at, label, cell) for at, (label, cell) in enumerate(cells))
    return Chart(title, caption, "", (Line(title, points),), spacing="even", form="bars")
