"""Operators with a loop of their own that await things of asyncio's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Generator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock.engines.asyncio_routine import AsyncioRoutine
from penstock.errors import FunctionError
from penstock.testing import Harness

ROWS = [{"n": n} for n in range(5)]


class Operator(ps.ProcessOperator):
    """Pushes what `answer` says to every row."""

    outputs: ClassVar[dict[str, Any]] = {"out": {"n": int}}

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            row = ctx.inputs["in"].pop()
            await ctx.outputs["out"].push({"n": await self.answer(row.n)})

    async def answer(self, n: int) -> int:
        raise NotImplementedError


class Sleeper(Operator):
    async def answer(self, n: int) -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return n


class Client(Operator):
    """Asks a server over a real connection, which it keeps."""

    async def process(self, ctx: ps.Context) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while line := await reader.readline():
                    writer.write(b"%d\n" % (int(line) ** 2))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            self.reader, self.writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await super().process(ctx)
            self.writer.close()
            await self.writer.wait_closed()

    async def answer(self, n: int) -> int:
        self.writer.write(b"%d\n" % n)
        return int(await self.reader.readline())


class Gatherer(Operator):
    """Starts tasks, waits for all of them, with a time limit around each."""

    async def answer(self, n: int) -> int:
        async def add(m: int) -> int:
            async with asyncio.timeout(60):
                await asyncio.sleep(0.0001 * m)
            return m

        return sum(await asyncio.gather(*(add(m) for m in range(n + 1))))


class Impatient(Operator):
    """Gives up what takes too long."""

    async def answer(self, n: int) -> int:
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(3600), 0.001)
        return n


class ThreadCaller(Operator):
    async def answer(self, n: int) -> int:
        return await asyncio.to_thread(lambda: n + 1)


def collect(operator: ps.ProcessOperator, engine: str, **options: Any) -> list[int]:
    graph = ps.PipeGraph("asyncio")
    (out,) = graph.operator(operator, inputs=[graph.source(ps.read.rows(ROWS, batch=2))])
    numbers: list[int] = out.collect(engine, **options).column("n").to_pylist()
    return numbers


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (Sleeper(), [0, 1, 2, 3, 4]),
        (Client(), [0, 1, 4, 9, 16]),
        (Gatherer(), [0, 1, 3, 6, 10]),
        (Impatient(), [0, 1, 2, 3, 4]),
        (ThreadCaller(), [1, 2, 3, 4, 5]),
    ],
    ids=["sleep", "client", "gather", "wait_for", "to_thread"],
)
@pytest.mark.parametrize("runs_on", ["reference", "local", "local in rounds"])
def test_what_asyncio_can_wait_for_an_operator_can_await(
    operator: ps.ProcessOperator, expected: list[int], runs_on: str
) -> None:
    if runs_on == "local in rounds":
        assert collect(operator, "local", options=ps.LocalOptions(deterministic=True)) == expected
    else:
        assert collect(operator, runs_on) == expected


class Background(Operator):
    """Leaves a task behind, and notes that it was cancelled."""

    cancelled: ClassVar[list[bool]] = []

    async def process(self, ctx: ps.Context) -> None:
        async def tick() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled.append(True)
                raise

        self.ticker = asyncio.create_task(tick())
        await super().process(ctx)

    async def answer(self, n: int) -> int:
        await asyncio.sleep(0)
        return n


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_tasks_that_an_operator_leaves_behind_are_cancelled(runs_on: str) -> None:
    Background.cancelled.clear()
    assert collect(Background(), runs_on) == [0, 1, 2, 3, 4]
    assert Background.cancelled == [True]


class Tidy(Operator):
    """Waits for more rows than there are, and cleans up with an await when it is closed."""

    log: ClassVar[list[str]] = []

    async def process(self, ctx: ps.Context) -> None:
        try:
            while True:
                await ctx.wait_for_all({"in": 100})
        finally:
            await asyncio.sleep(0.001)
            self.log.append("cleaned up")


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_an_operator_that_is_closed_may_await_while_it_cleans_up(runs_on: str) -> None:
    Tidy.log.clear()
    assert collect(Tidy(), runs_on) == []
    assert Tidy.log == ["cleaned up"]


class Stubborn(Operator):
    async def process(self, ctx: ps.Context) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await ctx.wait_for_all({"in": 100})


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_an_operator_that_does_not_let_itself_be_closed_is_an_error(runs_on: str) -> None:
    with pytest.raises(FunctionError, match="that was being closed went on to wait for rows"):
        collect(Stubborn(), runs_on)


class Fails(Operator):
    async def answer(self, n: int) -> int:
        await asyncio.sleep(0)
        return 1 // n


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_a_failure_behind_an_await_is_that_of_the_operator(runs_on: str) -> None:
    with pytest.raises(FunctionError, match=r"Fails\.process failed") as caught:
        collect(Fails(), runs_on)
    assert "ZeroDivisionError" in str(caught.value.detail)


def test_a_harness_runs_such_an_operator_inside_of_a_test_that_is_asynchronous() -> None:
    async def main() -> list[dict[str, Any]]:
        graph = ps.PipeGraph("asyncio")
        source = graph.source(ps.read.rows([], schema={"n": int}))
        (out,) = graph.operator(Plain(), inputs=[source])
        harness = Harness(out, engine="local")
        harness.push([{"n": 1}, {"n": 2}])
        await asyncio.sleep(0)
        harness.end()
        return harness.take()

    assert asyncio.run(main()) == [{"n": 1}, {"n": 2}]


class Plain(Operator):
    async def answer(self, n: int) -> int:
        return n


variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")


class Remembers(Operator):
    """A context variable belongs to the operator, over all its waits."""

    async def answer(self, n: int) -> int:
        total = variable.get(0) + n
        variable.set(total)
        await asyncio.sleep(0)
        return total


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_context_variables_of_an_operator_stay_its_own(runs_on: str) -> None:
    assert collect(Remembers(), runs_on) == [0, 1, 3, 6, 10]
    with pytest.raises(LookupError):
        variable.get()


class Pause:
    """Suspends for the engine, once."""

    def __init__(self, routine: list[AsyncioRoutine]) -> None:
        self._routine = routine

    def __await__(self) -> Generator[None, None, None]:
        self._routine[0].park()
        yield


def test_a_routine_that_is_just_let_go_warns_of_nothing(
    recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    async def wait() -> None:
        await Pause(routines)
        raise AssertionError("nobody resumes it")

    routines: list[AsyncioRoutine] = []
    routines.append(AsyncioRoutine(wait()))
    routines[0].send(None)
    routines.clear()
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
    assert caplog.records == []
