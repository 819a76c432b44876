"""Early results when a run goes on elsewhere: what has been shown is not shown again unless it has changed.

The reference engine, which never stops, is the judge. The clock moves on whenever somebody looks at it, so
that open windows are shown at the end of every round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engines.spark.fragments import JobTask
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": "int64", "k": "int64", "v": "int64"}
BATCHES = [[{"t": 2 * i + j, "k": (i * j) % 4, "v": i + j} for j in range(2)] for i in range(9)]
ENGINES: dict[str, Callable[[], Any]] = {"local": lambda: "local", "fragments": InProcessSparkEngine}
KINDS: dict[str, Any] = {
    "tumbling": ps.tumbling("8 s"),
    "sliding": ps.sliding("8 s", every="3 s"),
    "session": ps.session("3 s"),
    "count": ps.count_window(3, every=2),
}
MAKES: dict[str, Callable[[Any], ps.MultiPipe]] = {
    "sum": lambda w: w.aggregate(s=ps.sum("v"), n=ps.count()),
    "rows": lambda w: w.aggregate(s=ps.sum("v"), all=ps.collect("v")),
    "sketch": lambda w: w.aggregate(s=ps.sum("v"), different=ps.approx_distinct("v")),
}


class Restless:
    """A clock that is a second further whenever it is looked at."""

    def __init__(self, start: int = 0) -> None:
        self._seconds = count(start)

    def now(self) -> int:
        """The time now."""
        return next(self._seconds) * 1_000_000


class WatchedRuns:
    """Runs of one graph, and the rows that they gave, early ones too."""

    def __init__(self, make: str, kind: str, *, key: bool = True) -> None:
        self._make, self._kind, self._key = make, kind, key
        self.seen: Counter[str] = Counter()

    def run(
        self, engine: Any, degree: int = 1, pattern: Any = "auto", early: str = "1 us", **options: Any
    ) -> None:
        graph = ps.PipeGraph("early")
        reader = ps.read.batches(BATCHES, schema=SCHEMA)
        rows = graph.source(reader, time="t", time_unit="s", delay="1 s", name="r")
        rows = rows.key_by("k") if self._key else rows
        kind = KINDS[self._kind]
        windows = rows.window(kind, name="w", early=early, parallelism=degree, pattern=pattern)
        MAKES[self._make](windows).sink(ps.write.callback(self._take), name="out")
        graph.run(engine, drain=True, **{"clock": Restless(), **options})

    def _take(self, batch: pa.RecordBatch) -> None:
        self.seen.update(map(str, batch.to_pylist()))


def judge(make: str, kind: str, **options: Any) -> Counter[str]:
    """What a run gives that never stops."""
    watched = WatchedRuns(make, kind, **options)
    watched.run("reference")
    assert any("'final': False" in row for row in watched.seen)
    return watched.seen


def options(who: str, folder: Path) -> dict[str, Any]:
    local = ps.LocalOptions(save_every="0 s", queue_size=2, seed=5)
    return {"checkpoint": str(folder / "checkpoint"), **({"options": local} if who == "local" else {})}


@pytest.mark.slow
@pytest.mark.parametrize("who", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_repeats_nothing(tmp_path: Path, kind: str, who: str) -> None:
    for make in MAKES:
        watched, degrees = WatchedRuns(make, kind), (2, 3, 1)
        for part, (degree, until) in enumerate(zip(degrees, (3, 4, None), strict=True)):
            more = options(who, tmp_path / make)
            watched.run(ENGINES[who](), degree, until=until, clock=Restless(1000 * part), **more)
        assert watched.seen == judge(make, kind), make


@pytest.mark.parametrize("patterns", [("paned", "auto"), ("parallel", "auto"), ("map_reduce", "map_reduce")])
@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_a_run_that_goes_on_in_another_pattern_repeats_nothing(
    tmp_path: Path, kind: str, patterns: tuple[str, str]
) -> None:
    watched = WatchedRuns("sum", kind, key=False)
    for part, (pattern, until) in enumerate(zip((*patterns, patterns[0]), (3, 4, None), strict=True)):
        clock, more = Restless(1000 * part), options("local", tmp_path)
        watched.run("local", 1 + part % 2, pattern, until=until, clock=clock, **more)
    assert watched.seen == judge("sum", kind, key=False)


@pytest.mark.parametrize("who", ENGINES)
def test_the_time_between_two_runs_counts_and_a_clock_put_back_does_not_stop_results(
    tmp_path: Path, who: str
) -> None:
    watched = WatchedRuns("sum", "tumbling")
    for start, until in ((1000, 3), (0, 4), (9000, None)):
        clock = Restless(start)
        watched.run(ENGINES[who](), early="1 s", until=until, clock=clock, **options(who, tmp_path))
    assert watched.seen == judge("sum", "tumbling")


@pytest.mark.parametrize("who", ENGINES)
def test_nothing_is_shown_before_it_is_time_for_the_first_time(who: str) -> None:
    watched = WatchedRuns("sum", "tumbling")
    watched.run(ENGINES[who](), early="1 s", clock=ps.ManualClock(60_000_000))
    assert not any("'final': False" in row for row in watched.seen)


def new_worker(*args: Any) -> JobTask:
    return replace(JobTask(*args), after="a job that there never was")


def from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no worker have state at hand, as if every task came to a new one."""
    monkeypatch.setattr("penstock.engines.spark.driver.loop.JobTask", new_worker)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", MAKES)
def test_parts_that_come_to_another_worker_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch, make: str, kind: str
) -> None:
    from_files(monkeypatch)
    monkeypatch.setattr("penstock.engines.spark.driver.rounds.MAX_ROUNDS", 1)
    watched = WatchedRuns(make, kind)
    watched.run(InProcessSparkEngine())
    assert watched.seen == judge(make, kind)


@pytest.mark.slow
def test_parts_that_come_to_another_worker_of_spark_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from_files(monkeypatch)
    monkeypatch.setattr("penstock.engines.spark.driver.rounds.MAX_ROUNDS", 1)
    for make, kind in (("sum", "sliding"), ("rows", "tumbling")):
        watched = WatchedRuns(make, kind)
        watched.run("spark")
        assert watched.seen == judge(make, kind)
