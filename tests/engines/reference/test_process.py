"""Operators with their own driver loop."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.errors import FunctionError
from penstock.operators.aggregates import count
from penstock.operators.process import Context, Process, ProcessOperator
from penstock.operators.windows import KeyedWindows
from penstock.plan.plan import Ref
from penstock.timing.windows import tumbling
from tests.support.plans import KTV, PlanBuilder, PlanRun, batch


class Doubler(ProcessOperator):
    outputs: ClassVar[dict[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_any({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            await ctx.outputs["out"].push({"v": row.v * 2})


class Barrier(ProcessOperator):
    inputs: ClassVar[tuple[str, ...]] = ("a", "b")
    outputs: ClassVar[dict[str, Any]] = {"out": {"x": "int64", "y": "int64"}}

    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_all({"a": 1, "b": 1}):
            left: Any = ctx.inputs["a"].pop()
            right: Any = ctx.inputs["b"].pop()
            await ctx.outputs["out"].push({"x": left.v, "y": right.v})


def run(operator: ProcessOperator, *batches: Any) -> PlanRun:
    builder = PlanBuilder()
    builder.add(Process(operator=operator, name="p"), builder.source(*batches))
    ran = builder.run()
    assert ran.result.accounts["p"].is_balanced
    return ran


def test_an_operator_takes_rows_in_order_and_pushes_rows() -> None:
    ran = run(Doubler(), [("a", 2, 2), ("a", 1, 1)], [("a", 3, 3)])
    assert ran.rows(Ref("p")) == [(2,), (4,), (6,)]


def test_a_barrier_waits_for_both_ports_and_ends_when_one_can_bring_no_more() -> None:
    builder = PlanBuilder()
    a = builder.source([("a", 1, 1), ("a", 2, 2)], [("a", 3, 3)])
    b = builder.source([("b", 1, 10)], [("b", 2, 20)])
    out = builder.add(Process(operator=Barrier()), a, b)
    ran = builder.run()
    assert ran.rows(out) == [(1, 10), (2, 20)]
    assert (ran.account(out).passed, ran.account(out).unrouted) == (4, 1)
    assert ran.account(out).is_balanced


class Threes(Barrier):
    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_all({"a": 3, "b": 3}):
            for _ in range(3):
                left: Any = ctx.inputs["a"].pop()
                right: Any = ctx.inputs["b"].peek()
                await ctx.outputs["out"].push({"x": left.v, "y": right.v})
            for _ in range(3):
                ctx.inputs["b"].pop()


def test_the_forwarded_watermark_waits_for_the_oldest_row_in_a_queue() -> None:
    # W in is 30 after the second round, but the row at 1 still waits, so [0, 10) stays open for it
    builder = PlanBuilder()
    a = builder.source([("a", 1, 1)], [("a", 30, 3)], [("a", 40, 4)])
    b = builder.source([("b", 50, 5)], [("b", 60, 6)], [("b", 70, 7)])
    both = builder.add(Process(operator=Threes()), a, b)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), both)
    ran = builder.run()
    assert ran.rows(out) == [(0, 10, 1), (30, 40, 1), (40, 50, 1)]
    assert ran.account(out).late == 0


class Holder(Doubler):
    async def process(self, ctx: Context) -> None:
        held: list[Any] = []
        while await ctx.wait_for_any({"in": 1}):
            held.append(ctx.inputs["in"].pop())
        for row in held[:1]:
            await ctx.outputs["out"].push({"v": row.v})


def test_a_row_pushed_long_after_it_was_taken_is_not_late() -> None:
    # the promised watermark, 50, is beyond the only row taken, at 1: the pushed row is of 50
    builder = PlanBuilder()
    rows = builder.source(name="s")
    held = builder.add(Process(operator=Holder()), rows)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), held)
    harness = builder.open_harness()
    harness.push({"s": batch([("a", 1, 1)])})
    harness.promise(50)
    harness.end()
    assert harness.take(out).to_pylist() == [{"window_start": 50, "window_end": 60, "n": 1}]


class Farewell(Barrier):
    async def process(self, ctx: Context) -> None:
        assert not await ctx.wait_for_all({"a": 5, "b": 1})
        await ctx.outputs["out"].push({"x": len(ctx.inputs["a"]), "y": len(ctx.inputs["b"])})


def test_a_wait_for_all_is_over_as_soon_as_one_port_has_closed_short() -> None:
    builder = PlanBuilder()
    a = builder.source([("a", 1, 1)])
    b = builder.source([("b", 1, 1)], [("b", 2, 2)])
    out = builder.add(Process(operator=Farewell()), a, b)
    assert builder.run().rows(out) == [(1, 2)]


class Either(Barrier):
    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_any({"a": 1, "b": 1}):
            for port in ("a", "b"):
                while ctx.inputs[port]:
                    row: Any = ctx.inputs[port].pop()
                    await ctx.outputs["out"].push({"x": row.t, "y": row.v})


def test_a_wait_for_any_is_over_only_when_no_port_can_bring_more() -> None:
    builder = PlanBuilder()
    a = builder.source([("a", 1, 1)])
    b = builder.source([], [], [("b", 2, 2)])
    out = builder.add(Process(operator=Either()), a, b)
    assert builder.run().rows(out) == [(1, 1), (2, 2)]


class Once(Doubler):
    async def process(self, ctx: Context) -> None:
        await ctx.wait_for_any({"in": 1})
        ctx.inputs["in"].pop()


def test_rows_for_an_operator_that_has_ended_are_unrouted() -> None:
    ran = run(Once(), [("a", 1, 1), ("a", 2, 2)], [("a", 3, 3)])
    account = ran.result.accounts["p"]
    assert (account.passed, account.unrouted) == (1, 2)


class Deaf(Doubler):
    async def process(self, ctx: Context) -> None:
        while True:
            await ctx.wait_for_all({"in": 5})


def test_an_operator_that_waits_on_after_everything_is_over_is_closed() -> None:
    assert run(Deaf(), [("a", 1, 1)]).result.outcome == "drained"


class InBatches(Doubler):
    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_all({"in": 2}):
            rows: list[Any] = [ctx.inputs["in"].pop(), ctx.inputs["in"].pop()]
            await ctx.outputs["out"].push(pa.RecordBatch.from_pydict({"v": [row.v for row in rows]}))


def test_a_batch_may_be_pushed_as_well() -> None:
    assert run(InBatches(), [("a", 1, 1)], [("a", 2, 2)]).rows(Ref("p")) == [(1,), (2,)]


class Pusher(Doubler):
    def __init__(self, value: Any) -> None:
        self.given = value

    async def process(self, ctx: Context) -> None:
        await ctx.wait_for_any({"in": 1})
        ctx.inputs["in"].pop()
        await ctx.outputs["out"].push(self.given)


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ({"w": 1}, 'what was pushed to port "out" is not a row of it'),
        (
            pa.RecordBatch.from_pydict({"w": [1]}),
            'a batch pushed to port "out" has other columns than the port',
        ),
    ],
)
def test_what_is_pushed_must_fit_the_port(value: Any, fact: str) -> None:
    with pytest.raises(FunctionError) as failure:
        run(Pusher(value), [("a", 1, 1)])
    assert failure.value.fact == fact
    assert failure.value.step == "p"


class Hasty(Doubler):
    async def process(self, ctx: Context) -> None:
        await ctx.outputs["out"].push({"v": 1})


def test_a_row_pushed_before_any_came_in_has_no_time() -> None:
    with pytest.raises(FunctionError, match="before any row came in"):
        run(Hasty(), [], [("a", 1, 1)])


class Raiser(Doubler):
    async def process(self, ctx: Context) -> None:
        ctx.inputs["in"].pop()


def test_an_exception_in_the_loop_stops_the_run_naming_class_and_line() -> None:
    with pytest.raises(FunctionError, match=r"Raiser\.process failed") as failure:
        run(Raiser(), [], [("a", 1, 1)])
    assert failure.value.detail == 'IndexError: no row waits on port "in": await ctx.wait_for_all(...) first'
    assert "test_process.py" in str(failure.value.where)


class Elsewhere:
    def __await__(self) -> Any:
        yield "a reply"


class Waiter(Doubler):
    async def process(self, ctx: Context) -> None:
        await Elsewhere()


def test_waiting_for_anything_but_rows_stops_the_run() -> None:
    with pytest.raises(FunctionError, match="waits for 'a reply', which no row can bring") as failure:
        run(Waiter(), [("a", 1, 1)])
    assert "ctx.wait_for_all" in str(failure.value.hint)


class Forgetful(Doubler):
    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            ctx.inputs["in"].pop()
            ctx.outputs["out"].push({"v": 1})  # the mistake


class ForgetfulAtLast(Doubler):
    async def process(self, ctx: Context) -> None:
        await ctx.wait_for_all({"in": 1})
        ctx.outputs["out"].push({"v": 1})


@pytest.mark.parametrize("operator", [Forgetful(), ForgetfulAtLast()])
def test_a_push_that_nobody_awaits_stops_the_run(operator: ProcessOperator) -> None:
    with pytest.raises(
        FunctionError, match='a row was pushed to port "out", and nobody awaited it'
    ) as failure:
        run(operator, [("a", 1, 1)], [("a", 2, 2)])
    assert failure.value.hint == 'write: await ctx.outputs["out"].push(row)'
    assert "test_process.py" in str(failure.value.where)


class Plain(Doubler):
    def process(self, ctx: Context) -> Any:
        return None


def test_a_loop_that_is_not_a_coroutine_is_refused() -> None:
    with pytest.raises(FunctionError, match=r"Plain\.process is not a co-routine"):
        run(Plain(), [("a", 1, 1)])


class SteeredLoop(ProcessOperator):
    outputs: ClassVar[dict[str, Any]] = {"out": {"v": "int64"}}
    control: ClassVar[tuple[str, ...]] = ("feedback",)

    def __init__(self) -> None:
        self.added = 0

    async def process(self, ctx: Context) -> None:
        while await ctx.wait_for_any({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            await ctx.outputs["out"].push({"v": row.v + self.added})

    def on_control(self, port: str, row: Any) -> None:
        if row.v < 0:
            raise ValueError("negative")
        self.added += row.v


def test_rows_that_flow_back_into_a_control_port_come_in_the_next_round() -> None:
    operator = SteeredLoop()
    builder = PlanBuilder()
    rows = builder.source([("a", 1, 1)], [("a", 2, 1)], [("a", 3, 1)])
    schema = pa.schema([("v", pa.int64())])
    out = builder.add(
        Process(operator=operator, name="p"), rows, control={"feedback": [Ref("p")]}, control_schema=schema
    )
    ran = builder.run()
    assert ran.rows(out) == [(1,), (2,), (4,)]
    assert ran.account(out).is_balanced
    assert operator.added == 0, "the run works on a copy"


def test_an_exception_in_on_control_stops_the_run() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 1, -1)], [("a", 2, 1)])
    builder.add(Process(operator=SteeredLoop()), rows, control={"feedback": [rows]}, control_schema=KTV)
    with pytest.raises(FunctionError, match=r"SteeredLoop\.on_control failed"):
        builder.run()


class LostWait(ProcessOperator):
    outputs: ClassVar[dict[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: Context) -> None:
        await ctx.wait_for_all({"nowhere": 1})


def test_waiting_for_a_port_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(FunctionError, match="there is no input port 'nowhere' to wait for") as failure:
        run(LostWait(), [("a", 1, 1)])
    assert (failure.value.step, failure.value.detail) == ("p", "the input ports are in")


class LockHolder(Doubler):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_an_operator_that_cannot_be_copied_is_refused_by_name() -> None:
    with pytest.raises(FunctionError, match="LockHolder cannot be copied") as failure:
        run(LockHolder(), [("a", 1, 1)])
    assert failure.value.step == "p"
