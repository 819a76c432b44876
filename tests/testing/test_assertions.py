"""assert_engines_agree: says nothing when engines agree, and shows the row when one is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.clock import Clock
from penstock.engines.protocol import Engine, EngineHarness, Gap, Run, RunOptions, RunResult, find_engine
from penstock.events import EventSink
from penstock.plan.plan import Plan
from penstock.testing import assert_engines_agree

ROWS = [{"t": t, "user": "ab"[t % 2], "price": t / 7} for t in range(20)]


class EngineWrapper:
    """The reference engine under another name, with its result changed on the way out."""

    name = "wrapped"

    def __init__(self) -> None:
        self._inner: Engine = find_engine("reference")

    def change(self, result: RunResult) -> RunResult:
        return result

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        return self._inner.gaps(plan)

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> Run:
        return WrappedRun(self._inner.start(plan, clock=clock, events=events, options=options), self)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        return self._inner.open_harness(plan, clock=clock, events=events, options=options)

    def explain(self, plan: Plan) -> Sequence[str]:
        return ()


class WrappedRun:
    def __init__(self, run: Run, engine: EngineWrapper) -> None:
        self._run, self._engine = run, engine

    def wait(self, timeout: float | None = None) -> RunResult:
        return self._engine.change(self._run.wait(timeout))

    def stop(self, *, drain: bool = False) -> None:
        self._run.stop(drain=drain)

    def metrics(self) -> Any:
        return self._run.metrics()

    def status(self) -> Any:
        return self._run.status()

    def statistics(self) -> Any:
        return self._run.statistics()

    def measurements(self) -> Any:
        return self._run.measurements()

    async def finished(self) -> RunResult:
        return self._engine.change(await self._run.finished())


class Forgetful(EngineWrapper):
    """Loses the last row of every table."""

    def change(self, result: RunResult) -> RunResult:
        cut = {ref: table.slice(0, max(table.num_rows - 1, 0)) for ref, table in result.collected.items()}
        return replace(result, collected=cut)


class Inexact(EngineWrapper):
    """Adds to every revenue."""

    by = 0.0

    def change(self, result: RunResult) -> RunResult:
        return replace(
            result, collected={ref: self._move_value(table) for ref, table in result.collected.items()}
        )

    def _move_value(self, table: pa.Table) -> pa.Table:
        moved = pa.array([value + self.by for value in table["revenue"].to_pylist()])
        return table.set_column(table.schema.get_field_index("revenue"), "revenue", moved)


class Miscounter(EngineWrapper):
    """Says that a row more was late."""

    def change(self, result: RunResult) -> RunResult:
        counts = {step: replace(account, late=account.late + 1) for step, account in result.accounts.items()}
        return replace(result, accounts=counts)


def revenue() -> ps.PipeGraph:
    """Revenue per user and ten seconds."""
    graph = ps.PipeGraph("shop")
    rows = graph.source(ps.read.rows(ROWS, batch=6), time="t", time_unit="s", delay="1 s")
    windows = rows.filter(col("price") > 0).key_by("user").window(ps.tumbling("10 s"), name="views")
    results = windows.aggregate(revenue=ps.sum("price"))
    results.sink(ps.write.memory())
    return graph


def test_an_engine_agrees_with_itself() -> None:
    assert_engines_agree(revenue(), ["reference", "reference"])
    assert_engines_agree(revenue(), ["reference", EngineWrapper(), EngineWrapper()])


def test_a_lost_row_is_shown() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_engines_agree(revenue(), ["reference", Forgetful()])
    text = str(caught.value)
    assert text.startswith("views: reference / wrapped: 4 rows / 3 rows\n{'user': ")
    assert "/ no such row" in text


def test_a_wrong_value_is_shown_on_both_sides() -> None:
    wrong = Inexact()
    wrong.by = 0.5
    with pytest.raises(AssertionError) as caught:
        assert_engines_agree(revenue(), ["reference", wrong])
    assert str(caught.value).count("'revenue': ") == 2


def test_rounding_is_no_difference() -> None:
    wrong = Inexact()
    wrong.by = 1e-13
    assert_engines_agree(revenue(), ["reference", wrong])


def test_accounts_must_agree_too_unless_told_otherwise() -> None:
    with pytest.raises(AssertionError, match='accounts of step "source": reference / wrapped'):
        assert_engines_agree(revenue(), ["reference", Miscounter()])
    assert_engines_agree(revenue(), ["reference", Miscounter()], accounts=False)


def test_nothing_is_written() -> None:
    graph = revenue()
    out = ps.write.memory()
    graph["views"].sink(out, name="out")
    assert_engines_agree(graph, ["reference", "reference"])
    assert out.batches() == []


def test_side_outputs_are_compared_as_well() -> None:
    graph = ps.PipeGraph("shop")
    rows = graph.source(ps.read.rows([*ROWS, *ROWS], batch=20), time="t", time_unit="s", delay="0 s")
    counts = rows.window(ps.tumbling("5 s"), name="counts").aggregate(n=ps.count())
    counts.late.sink(ps.write.memory())
    assert_engines_agree(graph, ["reference", "reference"])
    with pytest.raises(AssertionError, match=r"counts\.late: reference / wrapped"):
        assert_engines_agree(graph, ["reference", Forgetful()])


class AsRowsCome(EngineWrapper):
    """The engine in process, which loses a row unless it is asked to go round by round."""

    name = "local"

    def __init__(self) -> None:
        self._inner = find_engine("local")
        self.modes: list[bool] = []

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> Run:
        asked: Any = options.engine
        self.modes.append(asked.deterministic)
        run = self._inner.start(plan, clock=clock, events=events, options=options)
        return run if asked.deterministic else WrappedRun(run, Forgetful())


def test_the_mode_that_users_run_is_compared_too() -> None:
    engine = AsRowsCome()
    with pytest.raises(AssertionError, match=r"views: reference / local, not deterministic: 4 rows / 3 rows"):
        assert_engines_agree(revenue(), ["reference", engine])
    assert engine.modes == [True, False]


def test_what_several_sources_make_together_is_compared_round_by_round_only() -> None:
    graph = revenue()
    rows = graph.source(ps.read.rows(ROWS, batch=6), time="t", time_unit="s", delay="1 s", name="more")
    windows = graph["filter"].merge(rows).window(ps.tumbling("10 s"), name="all")
    windows.aggregate(n=ps.count()).sink(ps.write.memory())
    engine = AsRowsCome()
    with pytest.raises(AssertionError, match=r"^views: reference / local, not deterministic"):
        assert_engines_agree(graph, ["reference", engine])
    del graph.steps["sink"]  # of the windows of one source
    assert_engines_agree(graph, ["reference", engine], accounts=False)
