"""Operators with a driver loop of their own: waits, several ports, control ports and feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import LOOPS, never

FEATURE = "Own driver loops"
pytestmark = never("spark", reason=LOOPS)


class Barrier(ps.ProcessOperator):
    """One row of each input makes one row (C-Stream, Listing 2)."""

    inputs = ("a", "b")
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"a": "int64", "b": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while not ctx.shutdown_requested and await ctx.wait_for_all({"a": 1, "b": 1}):
            a, b = ctx.inputs["a"].pop(), ctx.inputs["b"].pop()
            await ctx.outputs["out"].push({"a": a["v"], "b": b["v"]})


def two(case: Case, a: list[list[int]], b: list[list[int]]) -> list[ps.MultiPipe]:
    """Two sources of single values."""
    return [
        case.untimed_source("v", *([(v,) for v in batch] for batch in batches), name=name)
        for name, batches in (("a", a), ("b", b))
    ]


def test_a_barrier_pairs_rows_in_order(case: Case) -> None:
    (out,) = case.graph.operator(Barrier(), inputs=two(case, [[1, 2], [3]], [[10], [20, 30]]))
    case.gives(out, "a b", (1, 10), (2, 20), (3, 30))


def test_a_barrier_ends_when_one_input_can_bring_no_more(case: Case) -> None:
    pipes = two(case, [[1, 2, 3], [4]], [[10], [], [20]])
    (out,) = case.graph.operator(Barrier(), inputs=pipes, name="barrier")
    outcome = case.gives(out, "a b", (1, 10), (2, 20))
    account = outcome.account("barrier")
    assert (account.rows_in, account.passed, account.unrouted) == (6, 4, 2)


class Either(ps.ProcessOperator):
    """Takes from whichever input has rows, and says which."""

    inputs = ("a", "b")
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"port": "string", "v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_any({"a": 1, "b": 1}):
            for name, port in ctx.inputs.items():
                while len(port):
                    await ctx.outputs["out"].push({"port": name, "v": port.pop()["v"]})


def test_waiting_for_any_goes_on_until_all_inputs_are_over(case: Case) -> None:
    (out,) = case.graph.operator(Either(), inputs=two(case, [[1]], [[], [10], [], [20]]))
    case.gives(out, "port v", ("a", 1), ("b", 10), ("b", 20))


class Sorter(ps.ProcessOperator):
    """Two outputs: rows below ten, and the rest two at a time, as a batch."""

    outputs: ClassVar[Mapping[str, Any]] = {"small": {"v": "int64"}, "pairs": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        port, held = ctx.inputs["in"], []
        while await ctx.wait_for_all({"in": 1}):
            value = port.peek()["v"]
            assert port.pop()["v"] == value
            if int(str(value)) < 10:
                await ctx.outputs["small"].push({"v": value})
                continue
            held.append(value)
            if len(held) == 2:
                await ctx.outputs["pairs"].push(pa.RecordBatch.from_arrays([pa.array(held)], names=["v"]))
                held.clear()


def test_an_operator_may_have_several_outputs_and_push_batches(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (20,)], [(30,), (2,), (40,)])
    small, pairs = case.graph.operator(Sorter(), inputs=[rows])
    outcome = case.run(small, pairs)
    assert (outcome.bag("v", 0), outcome.bag("v", 1)) == ([1, 2], [20, 30])


class Several(ps.ProcessOperator):
    """Sums three rows at a time; what is left at the end is one smaller sum."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"s": "int64", "n": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        port, over = ctx.inputs["in"], False
        while not over:
            over = not await ctx.wait_for_all({"in": 3})
            values = [int(str(port.pop()["v"])) for _ in range(min(3, len(port)))]
            if values:
                await ctx.outputs["out"].push({"s": sum(values), "n": len(values)})


def test_rows_that_are_too_few_for_a_wait_can_still_be_taken_when_it_is_over(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (2,)], [(3,), (4,)], [(5,)])
    outcome = case.run(rows.process(Several(), name="several"))
    same_rows(outcome.tables[0], "s n", (6, 3), (9, 2))
    assert outcome.account("several").passed == 5


class Limiter(ps.ProcessOperator):
    """Passes values up to a limit that a control port sets."""

    control = ("limit",)
    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}

    def __init__(self) -> None:
        self.limit = 100

    def on_control(self, port: str, row: ps.Row) -> None:
        assert port == "limit"
        self.limit = int(str(row["v"]))

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            row = ctx.inputs["in"].pop()
            if int(str(row["v"])) <= self.limit:
                await ctx.outputs["out"].push(row)


def test_a_control_port_changes_what_the_loop_does(case: Case) -> None:
    rows, limits = two(case, [[5, 50], [5, 50], [5]], [[], [10], [1]])
    (out,) = case.graph.operator(Limiter(), inputs=[rows], control=[limits])
    assert case.run(out).bag("v") == [5, 5, 50]


def test_feedback_reaches_a_control_port_a_round_later(case: Case) -> None:
    rows = case.untimed_source("v", [(5,)], [(7,), (3,)], [(4,)], [(2,)])
    (out,) = case.graph.operator(Limiter(), inputs=[rows], name="limiter")
    out.feed_back("limiter", "limit")
    assert case.run(out).bag("v") == [2, 3, 5]


def test_each_run_works_on_its_own_copy_of_the_operator(case: Case) -> None:
    limiter = Limiter()
    rows = case.untimed_source("v", [(5,)], [(7,), (3,)])
    (out,) = case.graph.operator(limiter, inputs=[rows], name="limiter")
    out.feed_back("limiter", "limit")
    memory = ps.write.memory()
    out.sink(memory)
    # In process only rounds say when what flows back arrives.
    options = ps.LocalOptions(deterministic=True) if case.engine == "local" else None
    for _ in range(2):
        case.graph.run(case.engine, options=options)
        assert sorted(row["v"] for row in memory.rows()) == [3, 5]
    assert limiter.limit == 100


class First(ps.ProcessOperator):
    """Gives the first rows only, then returns; its columns are those of its input."""

    def __init__(self, n: int) -> None:
        self.n = n

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, Any]:
        return {"out": inputs["in"]}

    async def process(self, ctx: ps.Context) -> None:
        for _ in range(self.n):
            if not await ctx.wait_for_all({"in": 1}):
                return
            await ctx.outputs["out"].push(ctx.inputs["in"].pop())


def test_rows_for_an_operator_that_has_ended_are_counted_as_unrouted(case: Case) -> None:
    rows = case.untimed_source("key v", [("a", 1), ("b", 2)], [("c", 3)], [("d", 4)])
    outcome = case.run(rows.process(First(2), name="first"))
    same_rows(outcome.tables[0], "key v", ("a", 1), ("b", 2))
    assert (outcome.account("first").passed, outcome.account("first").unrouted) == (2, 2)


def test_a_pushed_row_has_the_greatest_time_taken_so_far(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (2, 2)], [(12, 3)], [(25, 4), (26, 5)])
    sums = rows.process(Several()).window(ps.tumbling(10), name="w").aggregate(s=ps.sum("s"))
    outcome = case.gives(sums, "window_start window_end s", (10, 20, 6), (20, 30, 9))
    assert outcome.account("w").late == 0


class Lag(ps.ProcessOperator):
    """Keeps the two latest rows back until the end."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        port = ctx.inputs["in"]
        while await ctx.wait_for_all({"in": 3}):
            await ctx.outputs["out"].push({"v": port.pop()["v"]})
        while len(port):
            await ctx.outputs["out"].push({"v": port.pop()["v"]})


def test_a_row_that_waits_in_a_loop_holds_the_watermark_behind_it_back(case: Case) -> None:
    #  1 waits while the source goes on to 20: it is still in time for its window when it is pushed
    rows = case.timed_source("t v", [(1, 1), (20, 2)], [(30, 3)], [(40, 4)])
    sums = rows.process(Lag()).window(ps.tumbling(10), name="w").aggregate(s=ps.sum("v"))
    outcome = case.gives(sums, "window_start window_end s", (0, 10, 1), (20, 30, 2), (30, 40, 3), (40, 50, 4))
    assert outcome.account("w").late == 0


def test_rows_wait_for_an_own_loop_in_order_of_time(case: Case) -> None:
    rows = case.timed_source("t v", [(3, 30), (1, 10), (2, 20)], delay=10)
    assert case.run(rows.process(First(2)).select("v")).bag("v") == [10, 20]


class Broken(First):
    """Fails on its second row."""

    async def process(self, ctx: ps.Context) -> None:
        await ctx.wait_for_all({"in": 2})
        raise ValueError("broken on purpose")


def test_an_error_in_a_loop_stops_the_run_and_names_the_operator(case: Case) -> None:
    with pytest.raises(ps.FunctionError) as failure:
        case.run(case.untimed_source("v", [(1,), (2,)]).process(Broken(1), name="broken"))
    assert failure.value.step == "broken"
    assert "Broken" in str(failure.value)
    assert "broken on purpose" in str(failure.value)


class Wrong(First):
    """Pushes what is not a row of its port."""

    async def process(self, ctx: ps.Context) -> None:
        await ctx.outputs["out"].push({"nonsense": 1})


def test_a_pushed_row_must_fit_its_port(case: Case) -> None:
    with pytest.raises(ps.FunctionError, match="nonsense"):
        case.run(case.untimed_source("v", [(1,)]).process(Wrong(1)))


def test_steps_go_on_after_an_own_loop(case: Case) -> None:
    (out,) = case.graph.operator(Barrier(), inputs=two(case, [[1, 2]], [[10, 20]]))
    case.gives(out.with_columns(s=col("a") + col("b")).filter(col("s") > 11), "a b s", (2, 20, 22))
