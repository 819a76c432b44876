"""Single rows become what they become as batches: the same rows, rounds, accounts, errors, events and state.

The twin of every run is the same run with a source that has no row path: then all rows go through the
chain as batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.local.progress import Progress
from penstock.engines.local.row_path import RowPipeline
from penstock.engines.local.tasks.source import SourceTask
from penstock.events import BatchDone, Event, RowsErrored, RowsLate, RunEnded, StateSaved, WatermarkMoved
from tests.support.examples import examples

SCHEMA = {"key": "int64", "value": "int64", "text": "string", "time": "int64"}
ARROW = pa.schema({"key": pa.int64(), "value": pa.int64(), "text": pa.string(), "time": pa.int64()})
GOOD = st.fixed_dictionaries(
    {
        "key": st.none() | st.integers(0, 3),
        "value": st.none() | st.integers(-3, 5),
        "text": st.none() | st.sampled_from(["a", "b", "ü"]),
        "time": st.integers(0, 30),
    }
)
ODD = st.sampled_from(
    [
        {"key": 1, "time": 3},
        {"time": 4, "value": 2, "key": 1, "text": "order"},
        {"key": "one", "time": 1},
        {"key": 1, "time": 2, "other": 3},
        {"key": 2**70, "value": 1, "text": "a", "time": 1},
        {"key": 1, "value": 1, "text": "a", "time": None},
        {"key": 1, "value": True, "text": "a", "time": 5},
        7,
    ]
)
ROWS = st.lists(st.one_of(GOOD, GOOD, GOOD, ODD), max_size=14)
POLICIES = st.sampled_from(["skip", "dead_letter"])
STEPS = st.lists(
    st.sampled_from(
        ["halved", "small", "text", "typed", "same", "positive", "divided", "chosen", "twice", "relay"]
    ),
    max_size=4,
)
FAILING = ("halved", "small", "typed", "positive", "divided")
TAILS = st.sampled_from(["sink", "count", "remembered", "fresh", "windows", "callback", "collected"])


@dataclass
class Typed:
    """A row as a dataclass, with whole numbers where others have floats."""

    key: int | None
    value: float | None
    text: str | None
    time: int


def halve(row: Any) -> dict[str, Any]:
    return {"key": row.key, "value": 10 // row.value, "text": row.text, "time": row["time"]}


def is_small(row: Any) -> Any:
    return row.value < 4 if row.value != 1 else "one"


def with_text(row: Any) -> dict[str, Any]:
    return {**row, "text": f"{row.text}{'é' if row.value == 2 else '!'}"}


def typed(row: Any) -> Typed:
    return Typed(row.key, row.value if row.value != 3 else 3.5, row.text, row.time)


def same(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(ARROW.names)


def twice(row: Any) -> list[dict[str, Any]]:
    return [dict(row), {**row, "value": 1}][: 1 + (row.key == 1)]


def count(row: Any, state: int) -> int:
    if row.value == 2:
        raise ValueError("two")
    return state + 1


def count_all(row: Any, state: int) -> int:
    return state + 1


def remember(row: Any, state: list[int]) -> dict[str, Any]:
    state.append(1)
    return {**row, "value": len(state) // (row.value or 0)}


def is_fresh(row: Any, state: list[int]) -> bool:
    state.append(1)
    return len(state) % 2 == 1


@dataclass
class Program:
    """A graph, and the sinks that show what it gave."""

    graph: ps.PipeGraph
    sinks: dict[str, Any] = field(default_factory=dict)
    called: list[list[dict[str, Any]]] = field(default_factory=list)

    def keep(self, pipe: Any, name: str) -> None:
        self.sinks[name] = ps.write.memory()
        pipe.sink(self.sinks[name], name=name)


def add(pipe: Any, kind: str, name: str, policy: str) -> Any:
    match kind:
        case "halved":
            return pipe.map(halve, schema=SCHEMA, on_error=policy, name=name)
        case "small":
            return pipe.filter(is_small, on_error=policy, name=name)
        case "text":
            return pipe.map(with_text, schema=SCHEMA, name=name)
        case "typed":
            return pipe.map(typed, schema=SCHEMA, on_error=policy, name=name)
        case "same":
            return pipe.map(ps.batch(same, schema=ARROW), name=name)
        case "positive":
            return pipe.filter(col("value") > 0, on_error=policy, name=name)
        case "divided":
            return pipe.with_columns(value=10 // col("value"), text=col("text"), on_error=policy, name=name)
        case "chosen":
            longer = ps.concat(col("text"), ps.lit("ß"))
            return pipe.select(time=col("time"), text=longer, value=col("value"), key=col("key"), name=name)
        case "twice":
            return pipe.flat_map(twice, schema=SCHEMA, name=name)
    return pipe.filter(lambda row: None if row.key is None else True, name=name)


def end(program: Program, pipe: Any, tail: str, policy: str, *, timed: bool) -> None:
    if tail == "count":
        pipe = pipe.key_by("key").accumulate(count, 0, schema={"n": "int64"}, on_error=policy, name="count")
    elif tail == "remembered":
        pipe = pipe.key_by("key", "text").map(
            remember, state=list, schema=SCHEMA, on_error=policy, name="remembered"
        )
    elif tail == "fresh":
        pipe = pipe.key_by("text").filter(is_fresh, state=list, name="fresh").map(with_text, schema=SCHEMA)
    elif tail == "windows" and timed:
        pipe = pipe.key_by("key").window(ps.tumbling("4 s"), name="windows").aggregate(n=ps.count())
        program.keep(pipe.late, "late")
    elif tail == "callback":
        pipe.sink(ps.write.callback(lambda rows: program.called.append(rows.to_pylist())), name="called")
    program.keep(pipe, "out")


def program_of(
    source: Any, steps: list[str], tail: str, policy: Any, *, timed: bool, chaining: bool
) -> Program:
    program = Program(ps.PipeGraph("rows", chaining=chaining))
    when: dict[str, Any] = {"time": "time", "time_unit": "s", "delay": "3 s"} if timed else {}
    pipe: Any = program.graph.source(source, name="source", on_error=policy, **when)
    for at, kind in enumerate(steps):
        pipe = add(pipe, kind, f"{kind}-{at}", policy)
    end(program, pipe, tail, policy, timed=timed)
    names = ["source", *(f"{kind}-{at}" for at, kind in enumerate(steps) if kind in FAILING), tail]
    for name in names if policy == "dead_letter" else ():
        if name in ("source", "count", "remembered") or "-" in name:
            program.keep(program.graph[name].errors, f"{name}-errors")
    return program


def observe(program: Program, **how: Any) -> dict[str, Any]:
    """Everything that can be seen of a run."""
    result = program.graph.run(engine="local", **how)
    totals: dict[str, Any] = {
        name: [batch.to_pylist() for batch in sink.batches()] for name, sink in program.sinks.items()
    }
    totals["rounds"] = {name: list(sink._committed) for name, sink in program.sinks.items()}
    totals["accounts"] = {name: account.to_dict() for name, account in result.accounts.items()}
    totals["batches"], totals["called"] = result.batches, list(program.called)
    if result.outcome == "drained":  # rows that wait for their turn have become nothing yet
        assert all(account.is_balanced for account in result.accounts.values())
    program.called.clear()
    return totals


def singly(rows: list[Any]) -> Any:
    return ps.read.iterable(rows, schema=SCHEMA, batch=1)


def mixed_reader(rows: list[Any]) -> Any:
    """Rows, lists of rows, columns, and promises in between."""

    def given_out() -> Iterator[Any]:
        for at, row in enumerate(rows):
            if at % 5 == 3:
                yield [row]
            elif at % 5 == 4:
                yield [row, {"key": 3, "value": at, "text": "c", "time": at}]
            elif at % 7 == 5:
                yield pa.RecordBatch.from_pylist([{"key": 2, "value": at, "text": "d", "time": at}], ARROW)
            else:
                yield row
            if at % 6 == 4:
                yield ps.Watermark(at)

    return ps.read.generator(given_out, schema=SCHEMA, batch=1)


def observe_batches(program: Program, **how: Any) -> dict[str, Any]:
    """Does what `observe` does, on the batch path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "is_only_source", lambda progress, round_group: False)
        return observe(program, **how)


def comparable(events: list[Event]) -> dict[str, list[Any]]:
    """Returns events without their times, by kind and step, in order."""
    result: dict[str, list[Any]] = {}
    for event in events:
        match event:
            case BatchDone():
                result.setdefault("done", []).append((event.batch, event.rows_in, event.rows_out))
            case WatermarkMoved():
                result.setdefault(f"watermark of {event.step}", []).append(event.watermark)
            case RowsLate():
                result.setdefault(f"late in {event.step}", []).append(event.rows)
            case RowsErrored():
                result.setdefault(f"errors of {event.step}", []).append((event.rows, event.policy))
            case RunEnded():
                result.setdefault("ended", []).append(event.outcome)
    return result


def read_checkpoint(program: Program, folder: Path) -> dict[str, Any]:
    """Returns what a checkpoint folder says, with the state itself in place of the files that hold it."""
    checkpoint = Checkpoint(str(folder), describe_graph(program.graph.plan()))
    try:
        manifest = checkpoint.latest_manifest()
        state = {step: checkpoint.files.read(handles, step) for step, handles in manifest.state.items()}
    finally:
        checkpoint.close()
    return {
        "rounds": manifest.rounds,
        "positions": dict(manifest.positions),
        "watermarks": (dict(manifest.source_watermarks), dict(manifest.step_watermarks)),
        "accounts": dict(manifest.accounts),
        "state": state,
    }


@pytest.fixture
def n_processed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the rounds that went down the row path of a source."""
    numbers: list[int] = []
    process = RowPipeline.process

    def note(pipeline: RowPipeline, row: Any, number: int) -> bool:
        numbers.append(number)
        return process(pipeline, row, number)

    monkeypatch.setattr(RowPipeline, "process", note)
    return numbers


def count_per_key(n_rows: int, *, chaining: bool = True) -> Program:
    rows = [{"key": n % 3, "value": n, "text": "a", "time": n} for n in range(n_rows)]
    program = Program(ps.PipeGraph("rows", chaining=chaining))
    pipe: Any = program.graph.source(singly(rows), name="source").map(with_text, schema=SCHEMA, name="text")
    pipe = pipe.key_by("key").accumulate(count_all, 0, schema={"n": "int64"}, name="count")
    program.keep(pipe, "out")
    return program


@pytest.mark.parametrize("chaining", [True, False])
def test_rows_take_the_row_path_although_somebody_listens(n_processed: list[int], chaining: bool) -> None:
    events: list[Event] = []
    observe(count_per_key(50, chaining=chaining), events=events.append)
    assert set(n_processed) == set(range(50))
    assert [event.batch for event in events if isinstance(event, BatchDone)][:50] == list(range(50))


@pytest.mark.parametrize("chaining", [True, False])
def test_rows_take_the_row_path_with_a_checkpoint_and_only_a_saved_round_is_a_batch(
    monkeypatch: pytest.MonkeyPatch, n_processed: list[int], tmp_path: Path, chaining: bool
) -> None:
    carried, carry = list[int](), SourceTask.carry

    def note(task: SourceTask, batch: Any, **how: Any) -> bool:
        carried.append(task.round)
        return carry(task, batch, **how)

    monkeypatch.setattr(SourceTask, "carry", note)
    clock, events = ps.ManualClock(), list[Event]()

    def tick() -> Iterator[dict[str, Any]]:
        for n in range(2_000):
            clock.advance(10_000)
            yield {"key": n % 3, "value": n, "text": "a", "time": n}

    program = Program(ps.PipeGraph("rows", chaining=chaining))
    reader = ps.read.generator(tick, schema=SCHEMA, batch=1)
    pipe: Any = program.graph.source(reader, name="source").map(with_text, schema=SCHEMA, name="text")
    program.keep(pipe.key_by("key").accumulate(count_all, 0, schema={"n": "int64"}, name="count"), "out")
    program.graph.run(
        engine="local",
        clock=clock,
        checkpoint=str(tmp_path),
        drain=True,
        events=events.append,
        options=ps.LocalOptions(save_every="1 s", threads=1),
    )
    saved_rounds = [event.batch for event in events if isinstance(event, StateSaved)]
    assert len(saved_rounds) > 1
    # A snapshot that is under way when the input ends becomes that of the end, in the round without rows.
    assert carried[-1] == 2_000
    assert saved_rounds[:-1] == carried[: len(saved_rounds) - 1]
    assert len(carried) <= len(saved_rounds) + 1
    assert set(range(2_000)) - set(n_processed) == set(carried[:-1])
    assert [row["n"] for row in program.sinks["out"].rows()][-3:] == [666, 667, 667]


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(20, nightly=60))
@given(ROWS, st.sampled_from([0, 1]), STEPS, TAILS, POLICIES, st.booleans(), st.booleans())
def test_a_listener_hears_the_same_events_on_both_paths(
    rows: list[Any], read: int, steps: list[str], tail: str, policy: str, timed: bool, chaining: bool
) -> None:
    program = program_of(
        (singly, mixed_reader)[read](rows), steps, tail, policy, timed=timed, chaining=chaining
    )
    options = ps.LocalOptions(threads=1)
    by_row, by_batch = list[Event](), list[Event]()
    quick = observe(program, options=options, events=by_row.append)
    assert quick == observe_batches(program, options=options, events=by_batch.append)
    assert comparable(by_row) == comparable(by_batch)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(15, nightly=40))
@given(st.lists(GOOD, max_size=14), STEPS, TAILS, st.booleans(), st.booleans(), st.integers(0, 14))
def test_snapshots_are_the_same_on_both_paths_and_either_goes_on_from_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Any],
    steps: list[str],
    tail: str,
    timed: bool,
    chaining: bool,
    until: int,
) -> None:
    folder = tmp_path_factory.mktemp("saved")
    how: dict[str, Any] = {"options": ps.LocalOptions(threads=1), "drain": False}

    def program() -> Program:
        return program_of(singly(rows), steps, tail, "skip", timed=timed, chaining=chaining)

    observe(program(), checkpoint=str(folder / "rows"), until=until, **how)
    observe_batches(program(), checkpoint=str(folder / "batches"), until=until, **how)
    assert read_checkpoint(program(), folder / "rows") == read_checkpoint(program(), folder / "batches")
    by_row = observe(program(), checkpoint=str(folder / "batches"), **how)
    by_batch = observe_batches(program(), checkpoint=str(folder / "rows"), **how)
    assert by_row == by_batch
    assert read_checkpoint(program(), folder / "rows") == read_checkpoint(program(), folder / "batches")


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40, nightly=120))
@given(
    ROWS,
    st.sampled_from([singly, mixed_reader]),
    STEPS,
    TAILS,
    POLICIES,
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, "per-task"]),
    st.sampled_from([1, 3, 64]),
)
def test_what_can_be_seen_of_a_run_is_the_same_as_when_rows_are_batches(
    rows: list[Any],
    read: Callable[[list[Any]], Any],
    steps: list[str],
    tail: str,
    policy: str,
    timed: bool,
    chaining: bool,
    threads: Any,
    queue_size: int,
) -> None:
    program = program_of(read(rows), steps, tail, policy, timed=timed, chaining=chaining)
    options = ps.LocalOptions(threads=threads, queue_size=queue_size)
    quick = observe(program, options=options)
    assert quick == observe_batches(program, options=options)


@settings(deadline=None, max_examples=40)
@given(ROWS, STEPS, TAILS, st.booleans(), st.integers(0, 2**16), st.integers(1, 9))
def test_it_is_so_for_any_interleaving_and_wherever_the_run_stops(
    rows: list[Any], steps: list[str], tail: str, timed: bool, seed: int, until: int
) -> None:
    program = program_of(singly(rows), steps, tail, "dead_letter", timed=timed, chaining=False)
    quick = observe(program, options=ps.LocalOptions(seed=seed, queue_size=2), until=until)
    assert quick == observe_batches(program, until=until)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(20, nightly=60))
@given(st.lists(GOOD, min_size=1, max_size=9), STEPS, TAILS, st.booleans(), st.booleans())
def test_the_row_that_stops_a_run_is_told_in_the_same_words_after_the_same_rows(
    rows: list[Any], steps: list[str], tail: str, timed: bool, chaining: bool
) -> None:
    def stop_run(observed: Callable[..., Any]) -> tuple[str, Any]:
        program = program_of(singly(rows), steps, tail, "fail", timed=timed, chaining=chaining)
        try:
            return "", observed(program, options=ps.LocalOptions(threads=1))
        except ps.PenstockError as failure:
            return str(failure), program.sinks["out"].rows()

    assert stop_run(observe) == stop_run(observe_batches)
