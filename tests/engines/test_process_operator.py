"""What an operator with its own loop sees: ports that know their least time, and waits that end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engines.process_operator import InputQueue
from penstock.engines.rows import TimedRow

V = pa.schema([("v", "int64")])


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=5))))
@settings(deadline=None)
def test_a_port_knows_the_least_time_of_the_rows_that_wait(script: list[list[int | None] | None]) -> None:
    port, waiting = InputQueue("in", V, lambda row: None), list[int | None]()
    for times in script:
        if times is not None:
            port.put([TimedRow({"v": 0}, time, ()) for time in times])
            waiting += times
        elif waiting:
            port.pop()
            waiting.pop(0)
        assert len(port) == len(waiting)
        assert (port.minima[0] if port.minima else None) == min(
            (time for time in waiting if time is not None), default=None
        )


class Loop(ps.ProcessOperator):
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}


class NeverTakes(Loop):
    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_any({"in": 1}):
            pass


class TakesTooSoon(Loop):
    async def process(self, ctx: ps.Context) -> None:
        await ctx.wait_for_all({"in": 1})
        ctx.inputs["in"].pop()
        ctx.inputs["in"].peek()


def failure(loop: ps.ProcessOperator, engine: str) -> str:
    graph = ps.PipeGraph("loop")
    (out,) = graph.operator(loop, inputs=[graph.source(ps.read.rows([{"v": 1}]))], name="mine")
    with pytest.raises(ps.FunctionError) as raised:
        out.collect(engine=engine)
    assert raised.value.step == "mine"
    return str(raised.value)


@pytest.mark.parametrize("on", ["reference", "local"])
def test_a_loop_that_asks_for_rows_and_never_takes_them_is_stopped(on: str) -> None:
    error = failure(NeverTakes(), on)
    assert "rows were waited for 100001 times, were there, and none was taken" in error
    assert 'port "in" has 1' in error
    assert 'take a row after a wait that is true: ctx.inputs["in"].pop()' in error


@pytest.mark.parametrize("on", ["reference", "local"])
def test_taking_from_an_empty_port_says_what_to_do(on: str) -> None:
    assert 'no row waits on port "in": await ctx.wait_for_all(...) first' in failure(TakesTooSoon(), on)


class LooksForTheEnd(Loop):
    begun: ClassVar[threading.Event]

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_any({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            self.begun.set()
            while not ctx.shutdown_requested:
                pass
            await ctx.outputs["out"].push({"v": row.v})


def test_a_loop_sees_that_the_run_is_asked_to_stop_while_it_is_at_work() -> None:
    graph, LooksForTheEnd.begun = ps.PipeGraph("loop"), threading.Event()

    def endless() -> Iterator[dict[str, int]]:
        while True:
            yield {"v": 1}

    source = graph.source(ps.read.generator(endless, schema={"v": int}, batch=1, bounded=False))
    (out,) = graph.operator(LooksForTheEnd(), inputs=[source], name="mine")
    out.sink(ps.write.memory())
    run = graph.start("local", options=ps.LocalOptions(queue_size=2))
    assert LooksForTheEnd.begun.wait(60)
    run.stop()
    result = run.wait(60)
    assert result.outcome == "stopped"
    assert result.accounts["mine"].is_balanced


def test_a_loop_that_only_asks_ends_when_another_step_has_failed() -> None:
    graph, LooksForTheEnd.begun = ps.PipeGraph("loop"), threading.Event()

    def fails(row: Any) -> dict[str, int]:
        assert LooksForTheEnd.begun.wait(60)
        raise ValueError("no such luck")

    source = graph.source(ps.read.rows([{"v": v} for v in range(4)], batch=1))
    (out,) = graph.operator(LooksForTheEnd(), inputs=[source], name="mine")
    out.sink(ps.write.memory())
    source.map(fails, schema={"v": int}, name="other", dedicated=True).sink(ps.write.memory())
    with pytest.raises(ps.FunctionError, match="no such luck"):
        graph.run("local", options=ps.LocalOptions(threads=2))
