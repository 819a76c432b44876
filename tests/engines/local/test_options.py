"""What `LocalOptions` may say, and what is told when they make no sense."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps
from penstock import EngineError, NotSupported
from penstock.engines.local.options import resolve_settings
from penstock.engines.protocol import RunOptions


def graph() -> ps.PipeGraph:
    """A small program."""
    graph = ps.PipeGraph("small")
    rows = graph.source(ps.read.rows([{"v": 1}], schema={"v": "int64"}), name="rows")
    rows.filter(ps.col("v") > 0, name="kept").sink(ps.write.memory(), name="out")
    return graph


@pytest.mark.parametrize(
    ("asked", "fact", "hint"),
    [
        ({"threads": 0}, "threads=0 is not a number of threads", 'threads="per-task"'),
        ({"threads": "all"}, "threads='all' is not a number of threads", "threads=4"),
        ({"threads": True}, "threads=True is not a number of threads", "threads=4"),
        ({"queue_size": 0}, "queue_size=0 is not a number of batches", "queue_size=64"),
        ({"measure": "no"}, "measure='no' is neither True nor False", "use measure=True"),
        ({"preaggregate": 3}, "preaggregate=3 is neither True nor False", "use preaggregate=True"),
        ({"deterministic": "x"}, "deterministic='x' is neither True nor False", "use deterministic=True"),
        ({"pinning": None}, "pinning=None is neither True nor False", "use pinning=True"),
        ({"queue_size": 1.5}, "queue_size=1.5 is not a number of batches", "use 1 or more"),
        ({"quantum": "50"}, "quantum='50' is not a length of time", 'quantum="50 ms"'),
        ({"quantum": "0 s"}, "quantum='0 s' leaves no time to run", 'quantum="50 ms"'),
        ({"save_every": 3}, "save_every=3 is not a length of time", 'save_every="50 ms"'),
        ({"watchdog": "soon"}, "watchdog='soon' is not a length of time", 'watchdog="50 ms"'),
        ({"scheduler": "throughputs"}, "scheduler='throughputs' is unknown", 'scheduler="throughput"'),
        ({"channels": "spinnin"}, "channels='spinnin' is unknown", 'channels="spinning"'),
        ({"composition": "central"}, "composition='central' is unknown", 'composition="centralised"'),
        ({"dedicated": ("keep",)}, "dedicated='keep' is unknown", 'dedicated="kept"'),
        ({"dedicated": "keep"}, "dedicated='keep' is unknown", 'dedicated="kept"'),
        ({"dedicated": True}, "dedicated=True names no steps", 'dedicated=("slow",)'),
        ({"seed": "7"}, "seed='7' is not a whole number", "use seed=7"),
        ({"seed": True}, "seed=True is not a whole number", "use seed=7"),
        ({"elastic": True}, "elastic=True does not say when to change what", "elastic=ps.Elastic()"),
        ({"queue_size": "none"}, "queue_size='none' is not a number of batches", '"unbounded"'),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(asked: dict[str, Any], fact: str, hint: str) -> None:
    with pytest.raises(EngineError) as refusal:
        graph().run("local", options=ps.LocalOptions(**asked))
    assert refusal.value.fact == fact
    assert hint in str(refusal.value.hint)


def test_options_of_another_engine_are_refused() -> None:
    with pytest.raises(EngineError, match="takes LocalOptions, and got SparkOptions"):
        graph().run("local", options=ps.SparkOptions())


def test_a_master_is_refused() -> None:
    with pytest.raises(NotSupported, match='was given master="spark://host:7077"'):
        graph().run("local", master="spark://host:7077")


def test_a_session_keeps_no_checkpoint() -> None:
    from penstock.engines.local.engine import LocalEngine
    from penstock.engines.protocol import RunOptions

    plan = graph().plan()
    with pytest.raises(NotSupported, match="fed by hand keeps no checkpoint"):
        LocalEngine().open_harness(
            plan, clock=ps.ManualClock(), events=lambda event: None, options=RunOptions(checkpoint="state/")
        )


def test_a_preset_decides_what_was_left_open() -> None:
    plan = graph().plan()
    latency, throughput = (
        resolve_settings(RunOptions(engine=ps.LocalOptions(scheduler=name)), plan)
        for name in ("latency", "throughput")
    )
    assert latency.quantum_ns < throughput.quantum_ns
    assert latency.queue_size < throughput.queue_size
    assert (
        resolve_settings(
            RunOptions(engine=ps.LocalOptions(scheduler="latency", queue_size=7)), plan
        ).queue_size
        == 7
    )
    assert resolve_settings(RunOptions(engine=ps.LocalOptions(threads="per-task")), plan).threads == 0


def test_one_step_with_a_thread_of_its_own_may_be_named_alone() -> None:
    assert resolve_settings(
        RunOptions(engine=ps.LocalOptions(dedicated="kept")), graph().plan()
    ).dedicated == ("kept",)


def test_an_unbounded_queue_lets_the_source_run_to_its_end_before_the_sink_has_begun() -> None:
    graph, all_read = ps.PipeGraph("ahead"), threading.Event()

    def numbers() -> Iterator[dict[str, int]]:
        for v in range(500):
            yield {"v": v}
        all_read.set()

    def write(rows: object) -> None:
        assert all_read.wait(60)

    rows = graph.source(ps.read.generator(numbers, schema={"v": int}, batch=1))
    rows.sink(ps.write.callback(write), name="slow", dedicated=True)
    options = ps.LocalOptions(queue_size="unbounded", threads=1)
    assert graph.run("local", options=options).accounts["slow"].rows_in == 500


def test_a_step_that_asks_for_it_has_a_thread_of_its_own() -> None:
    graph, names = ps.PipeGraph("own"), set[str]()

    def seen(row: Any) -> dict[str, int]:
        names.add(threading.current_thread().name)
        return {"v": row.v}

    rows = graph.source(ps.read.rows([{"v": v} for v in range(9)], batch=2))
    own = rows.map(seen, schema={"v": int}, name="own", dedicated=True)
    own.map(seen, schema={"v": int}, name="after").sink(ps.write.memory())
    graph.run("local", options=ps.LocalOptions(threads=1, workers="thread"))
    assert names == {"penstock-own-0", "penstock-0"}


def test_sources_windows_splits_and_table_joins_may_have_threads_of_their_own_too() -> None:
    graph, names = ps.PipeGraph("own"), dict[str, str]()

    def generate() -> Iterator[dict[str, int]]:
        names["source"] = threading.current_thread().name
        yield from ({"v": v} for v in range(9))

    def rest(row: Any) -> int:
        names["split"] = threading.current_thread().name
        return int(row.v % 2)

    def all_of(rows: Any) -> dict[str, int]:
        names["windows"] = threading.current_thread().name
        return {"n": len(rows)}

    reader = ps.read.generator(generate, schema={"v": int})
    rows = graph.source(reader, time="v", time_unit="s", delay="0 s", dedicated=True)
    even, odd = rows.split(rest, 2, name="halves", dedicated=True)
    table = [{"v": v, "w": v} for v in range(9)]
    even.join_table(table, on="v", name="table", dedicated=True).sink(ps.write.memory())
    windows = odd.window(ps.tumbling("4 s"), name="fours", dedicated=True)
    windows.apply(all_of, schema={"n": int}).sink(ps.write.memory())
    started = [thread.name for thread in _threads_of(graph)]
    assert names == {
        "source": "penstock-source-0", "split": "penstock-halves-0", "windows": "penstock-fours-0",
    }  # fmt: skip
    assert "penstock-table-0" in started


def _threads_of(graph: ps.PipeGraph) -> list[threading.Thread]:
    """Run it; the threads that were started for it."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", note)
        graph.run("local", options=ps.LocalOptions(threads=1, workers="thread"))
    return started
