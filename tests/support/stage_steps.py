"""One step twice, by its stage and by the reference engine, which is the judge.

Rows are compared with their times and their places, as multisets; so are the accounts, and errors by their
whole text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.connect.protocol import SourceBatch
from penstock.engines.reference.rounds import Interpreter
from penstock.errors import PenstockError, Where
from penstock.events import ignore_event
from penstock.operators.ends import Source
from penstock.operators.op import IN, Op, Stream
from penstock.plan.plan import Ref, Step
from penstock.stages.build import build_stage
from penstock.stages.functions.calls import plain_rows_of
from penstock.stages.patterns.pattern import KeyPartitioner
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.stages.rows.order import NO_ORDER
from penstock.stages.source import SourceStage
from penstock.stages.stage import Stage, StageContext
from tests.support.plans import PlanBuilder, batch
from tests.support.window_cases import FLOATS

WIDE = pa.schema(
    [
        ("k", pa.string()),
        ("t", pa.int64()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("word", pa.string()),
        ("items", pa.list_(pa.int64())),
    ]
)
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.integers(-20, 20),
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63)])),
        FLOATS,
        st.sampled_from(["", "7", "two", None, "é é"]),
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-2, 2)), max_size=3)),
    ),
    max_size=20,
)


@dataclass
class Case:
    """Batches of rows for one step; the column "t" is the time in microseconds, unless there is no time.

    plain  whether the stage gets plain rows
    """

    op: Op
    batches: list[SourceBatch]
    key: tuple[str, ...] = ()
    delay: int = 0
    timed: bool = True
    schema: pa.Schema = field(default_factory=lambda: WIDE)
    read: tuple[str, ...] | None = None
    plain: bool = False
    builder: PlanBuilder = field(default_factory=PlanBuilder)

    def __post_init__(self) -> None:
        options: dict[str, Any] = {"delay": self.delay} if self.timed else {"time": None}
        self.source = self.builder.source(*self.batches, schema=self.schema, **options)
        self.builder.add(self.op, self.source, key=self.key)

    @property
    def step(self) -> Step:
        return self.builder.steps[-1]

    @property
    def reads(self) -> Source:
        op = self.builder.steps[0].op
        assert isinstance(op, Source)
        return op


@dataclass
class StageResult:
    """What came out, by port: (values, time, place) as text in any order, the accounts, and the error."""

    rows: dict[str, list[str]]
    accounts: Accounts
    error: str | None = None


def by_reference(case: Case) -> StageResult:
    step = case.step
    ports = [port for port in step.outputs if case.read is None or port in case.read]
    plan = case.builder.plan(*(Ref(step.name, port) for port in ports), case.source)
    judge = Interpreter(plan, clock=ManualClock(), events=ignore_event)
    error = None
    try:
        judge.open()
        for batch in case.batches:
            judge.round({case.source.step: batch})
        judge.drain()
    except PenstockError as problem:
        error = describe_error(problem)
    collected = {port: judge.collected[Ref(step.name, port)] for port in ports}
    tables = {
        port: sorted(_row_text(row.values, row.time or 0, row.order) for row in part)
        for port, part in collected.items()
    }
    return StageResult(tables, judge.accounts[step.name], error)


class Driven:
    """Replicas of a stage driven as an engine would: a batch is judged by the watermark of those before."""

    def __init__(self, case: Case) -> None:
        self.case, self.clock = case, ManualClock()
        self.accounts = Accounts()
        self.out: dict[str, list[Batch]] = {port: [] for port in case.step.outputs}
        site = StageContext(case.source.step, case.builder.steps[0].where, Accounts(), self.clock)
        self.source = SourceStage(case.reads, site)
        self.resize(1)

    def resize(self, degree: int) -> None:
        self.deal = KeyPartitioner(self.case.schema, self.case.key, degree)
        self.stages = [self.new_stage() for _ in range(degree)]

    def new_stage(self) -> Stage:
        read = None if self.case.read is None else frozenset(self.case.read)
        site = StageContext(self.case.step.name, self.case.step.where, self.accounts, self.clock, read)
        return build_stage(self.case.step.op, self.case.step.up, site)

    def push(self, source: SourceBatch) -> None:
        before = self.source.watermark
        for _, rows in list(self.source.on_read(source)):
            for number, part in self.deal(rows):
                fed = make_plain(part) if self.case.plain else part
                self._keep(self.stages[number].on_batch(fed, before))
        for stage in self.stages:
            self._keep(stage.on_watermark(self.source.watermark))

    def end(self) -> StageResult:
        for stage in self.stages:
            self._keep(stage.drain())
        return self.result()

    def result(self, error: str | None = None) -> StageResult:
        ports = [port for port in self.out if self.case.read is None or port in self.case.read]
        return StageResult({port: sorted(row_texts(self.out[port])) for port in ports}, self.accounts, error)

    def _keep(self, outputs: Iterable[tuple[str, Batch]]) -> None:
        for port, rows in outputs:
            assert rows.num_rows == len(rows.times) > 0
            assert rows.rows.schema == self.case.step.outputs[port].schema
            rows.rows.validate(full=True)
            self.out[port].append(rows)


def make_plain(batch: Batch) -> RowBatch:
    """The same rows as plain values, with times and places that are numbers of Python."""
    places = tuple(column.tolist() for column in batch.order)
    return RowBatch(plain_rows_of(batch.rows), batch.schema, batch.times.tolist(), places)


def by_stage(case: Case) -> StageResult:
    driven = Driven(case)
    try:
        for batch in case.batches:
            driven.push(batch)
        return driven.end()
    except PenstockError as problem:
        return driven.result(describe_error(problem))


def describe_error(problem: PenstockError) -> str:
    return f"{type(problem).__name__}: {problem}"


def row_texts(batches: Sequence[Batch]) -> list[str]:
    """Rows with their times and places."""
    return [
        _row_text(values, int(batch.times[i]), tuple(int(column[i]) for column in batch.order))
        for batch in batches
        for i, values in enumerate(plain_rows_of(batch.rows))
    ]


def _row_text(values: Any, time: int, order: tuple[int, ...]) -> str:
    return repr((dict(values), time, tuple(number for number in order if number != NO_ORDER)))


def agree(case: Case) -> None:
    """Raise unless the stage and the reference engine give the same rows, times, places and accounts."""
    ours, judged = by_stage(case), by_reference(case)
    assert ours.error == judged.error
    if judged.error is None:
        assert ours.rows == judged.rows
        assert ours.accounts == judged.accounts
        assert ours.accounts.is_balanced


def cut(
    values: Sequence[Any], places: Sequence[int], *, seq: bool, schema: pa.Schema = WIDE
) -> list[SourceBatch]:
    """Rows in batches; with `seq` the reader numbers them as they come."""
    ends = sorted({*(min(place, len(values)) for place in places), len(values)})
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    return [batch(values[a:b], schema, seq=range(a, b) if seq else None) for a, b in spans]


@st.composite
def cases(draw: st.DrawFn, /, op: Op, *, key: tuple[str, ...] = (), **options: Any) -> Case:
    """A step and a stream cut into batches."""
    places = draw(st.lists(st.integers(0, 20), max_size=5))
    rounds = cut(draw(rows), places, seq=draw(st.booleans()))
    options.setdefault("plain", draw(st.booleans()))
    return Case(op, rounds, key, draw(st.integers(0, 10)), draw(st.booleans()), **options)


def case(op: Op, *batches: Sequence[tuple[Any, ...]], **options: Any) -> Case:
    """A step and batches of rows written by hand, of the columns of WIDE or the first of them."""
    filled = [[(*row, *[None] * (len(WIDE) - len(row))) for row in rows] for rows in batches]
    return Case(op, [batch(rows, WIDE) for rows in filled], **options)


HERE = Where("program.py", 1)
UP = Stream(WIDE)


def outputs(op: Op, up: Stream = UP) -> dict[str, Stream]:
    return op.outputs({IN: up})
