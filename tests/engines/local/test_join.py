"""Joins in process: as rows come and in rounds, on threads, with other layouts after a stop, after a kill."""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import crash_points
from penstock.accounts import Accounts, JoinAccounts
from penstock.engines.frontiers import Frontier
from penstock.engines.local.channels import Channel, EndOfRound
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.engines.local.tasks.join import CellThreads, JoinTask
from penstock.stages.rows.batch import Batch, RowBatch
from tests.support import crashing_graph as dying
from tests.support import joining_graph as joining

EVERY_ROUND: dict[str, Any] = {"save_every": "0 s", "queue_size": 2}
LAYOUTS = ["1x1", "2x3", "4x1"]


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    yield
    crash_points.listener = None


class Died(Exception):
    """What stands for a crash."""


def die() -> None:
    raise Died


@pytest.mark.slow
@pytest.mark.parametrize("every", [43, pytest.param(13, marks=pytest.mark.nightly)])
def test_a_join_that_failed_at_any_point_goes_on_and_writes_every_row_once(
    tmp_path: Path, every: int
) -> None:
    expected = joining.expected_sinks(tmp_path / "whole")
    points = 0
    for number in range(1, 400, every):
        folder = tmp_path / str(number)
        options = ps.LocalOptions(seed=number, **EVERY_ROUND)
        crash_points.listener = dying.dying_at(number, die)
        try:
            joining.run(folder, (1, 2), options=options)
        except (Died, ps.PenstockError):
            points += 1
        else:
            break
        crash_points.listener = None
        if not any((folder / "checkpoint" / "commits").glob("*-end.json")):
            joining.run(folder, (2, 1), options=options)
        assert joining.read_sinks(folder) == expected, f"after point {number}"
    assert points > 120 // every


@pytest.mark.slow
@pytest.mark.parametrize("until", [1, 5, 11])
@pytest.mark.parametrize("layouts", [((1, 1), (2, 3)), ((3, 2), (1, 1)), ((2, 2), "auto")])
def test_any_layout_takes_up_what_another_left(tmp_path: Path, until: int, layouts: tuple[Any, Any]) -> None:
    first, second = layouts
    stopped = joining.run(tmp_path, first, until=until)
    assert (stopped.outcome, stopped.batches) == ("stopped", until)
    assert joining.run(tmp_path, second, options=ps.LocalOptions(**EVERY_ROUND)).outcome == "drained"
    assert joining.read_sinks(tmp_path) == joining.expected_sinks(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_program_of_joins_killed_at_moments_that_chance_decides_writes_every_row_once(
    tmp_path: Path, seed: int
) -> None:
    chance, kills = random.Random(seed), 0
    for _ in range(4):
        with dying.program("tests.support.joining_graph", tmp_path, chance.choice(LAYOUTS)) as run:
            assert run.stdout is not None
            for _ in range(chance.randint(1, 40)):
                run.stdout.readline()
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                kills += 1
    if not any((tmp_path / "checkpoint" / "commits").glob("*-end.json")):
        joining.run(tmp_path, (2, 2))
    assert kills
    assert joining.read_sinks(tmp_path) == joining.expected_sinks(tmp_path / "whole")


@pytest.mark.slow
def test_a_checkpoint_of_a_join_refuses_another_predicate(tmp_path: Path) -> None:
    def run(width: int, **options: Any) -> None:
        graph = ps.PipeGraph("band")
        left, right = joining.sources(graph, "band")
        pairs = left.join(right, on=ps.band("v", width), within="9 s", name="band", suffix="_right")
        pairs.sink(ps.write.jsonl(tmp_path / "pairs"), name="pairs")
        graph.run("local", checkpoint=str(tmp_path / "checkpoint"), **{"drain": True, **options})

    run(5, until=2)
    with pytest.raises(ps.CheckpointError, match="its predicate differs") as refusal:
        run(6)
    assert refusal.value.step == "band"
    run(5)


def rows_of(n: int, shift: int) -> list[list[dict[str, Any]]]:
    chance = random.Random(shift)
    batches = [[{"t": 10 * b + i % 10, "v": chance.randint(0, 300)} for i in range(50)] for b in range(n)]
    return [[{**row, "n": 1000 * b + i} for i, row in enumerate(batch)] for b, batch in enumerate(batches)]


def band_pairs(engine: str, **options: Any) -> set[tuple[int, int]]:
    """The pairs of a band of two streams that are never late."""
    layout = options.pop("layout", "auto")
    graph = ps.PipeGraph("band")
    schema = {"t": "int64", "v": "int64", "n": "int64"}
    left, right = (
        graph.source(
            ps.read.batches(rows_of(12, shift), schema=schema),
            time="t",
            time_unit="s",
            delay="1 h",
            name=name,
        )
        for shift, name in ((1, "left"), (2, "right"))
    )
    pairs = left.join(right, on=ps.band("v", 4), within="15 s", suffix="_right", layout=layout)
    rows = pairs.collect(engine=engine, **options).to_pylist()
    result = {(row["n"], row["n_right"]) for row in rows}
    assert len(result) == len(rows), "no pair leaves twice"
    return result


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["auto", (1, 2), (3, 2), (1, 8), "centralised", "handshake"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_rows_that_are_not_late_give_the_same_pairs_as_they_come(layout: Any, threads: int) -> None:
    expected = band_pairs("reference")
    assert len(expected) > 1000
    for seed in (None, 1, 2):
        options = ps.LocalOptions(threads=threads, seed=seed, queue_size=2)
        assert band_pairs("local", layout=layout, options=options) == expected


@pytest.mark.slow
def test_a_layout_that_is_chosen_by_itself_may_change_while_rows_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from penstock.engines.local.tasks import join as task
    from penstock.stages.join.model import JoinLoad

    asked: list[tuple[int, int]] = []
    layouts = [(1, 2), (2, 2), (1, 1), (2, 1)]

    def choose(load: JoinLoad, max_cells: int) -> tuple[int, int]:
        asked.append(layouts[len(asked) % 4])
        return asked[-1]

    monkeypatch.setattr(task, "REVIEW_SECONDS", 0.0)
    monkeypatch.setattr(JoinLoad, "choose_layout", choose)
    monkeypatch.setattr(JoinLoad, "is_worth", lambda *_: True)
    assert band_pairs("local", options=ps.LocalOptions(threads=4)) == band_pairs("reference")
    assert len(asked) > 4


def test_threads_of_cells_give_results_in_order_and_raise_what_a_cell_raises() -> None:
    threads = CellThreads("join", 3)
    assert threads.delay is None
    assert list(threads.run([lambda n=n: n for n in range(10)])) == list(range(10))  # type: ignore[misc]
    assert (threads.delay or 0) > 0
    with pytest.raises(ZeroDivisionError):
        threads.run([lambda: 1, lambda: 1 // 0])
    threads.close()


def test_a_thread_takes_the_searches_that_wait_while_another_is_busy_with_one() -> None:
    threads, others_are_done = CellThreads("join", 2), Event()
    n_done = count(1)

    def search(number: int) -> int:
        if number == 0:
            assert others_are_done.wait(60), "the other thread has taken all others"
        elif next(n_done) == 4:
            others_are_done.set()
        return number

    assert list(threads.run([partial(search, number) for number in range(5)])) == [0, 1, 2, 3, 4]
    threads.close()


def test_explain_says_how_partners_are_found_and_what_is_predicted() -> None:
    graph = ps.PipeGraph("explained")

    def join(name: str, **options: Any) -> None:
        left, right = joining.sources(graph, name)
        left.join(right, suffix="_right", name=name, **options).sink(ps.write.memory())

    join("keys", on="v", within="5 min")
    join("band", on=ps.band("v", 1), within="5 min", layout=(2, 2))
    join("any", on=lambda x, y: x.v < y.v, window=ps.tumbling(10))
    join("pipeline", on=ps.band("v", 1), within="5 min", layout="handshake", rates=(200, 2_500))
    join("shared", on=ps.band("v", 1), within="5 min", layout="centralised")
    text = graph.explain("local")
    assert "pipeline: handshake pipeline: both sides flow through its cells" in text
    assert "pipeline: rows wait to meet, up to 75 s on average" in text
    assert "pipeline: predicted for a scan at 200 and 2,500 rows/s, with 60,000 and 750,000 rows" in text
    assert "shared: centralised: workers share one cell; partners" in text
    assert "keys: layout auto: begins with one cell; partners are found by a hash of the keys" in text
    assert "band: 2 x 2 cells; partners are found by a grid of the bands" in text
    assert "any: layout auto: begins with one cell; partners are found by comparing all rows" in text
    # 2 x 1000 x 1000 x 300 comparisons a second of 0.3 ns; 300,000 x 0.3 ns / 4 and half a hop of 20 us
    assumed = "1,000 and 1,000 rows/s (assumed: say rates=(left, right))"
    assert f"predicted for a scan at {assumed}, with 300,000 and 300,000 rows stored" in text
    assert "2 x 2 keeps up: about 0.0325 ms" in text


@pytest.mark.parametrize("layout", [(2, 1), "auto"])
def test_metrics_show_the_cells_of_a_join_and_what_was_measured(layout: Any) -> None:
    graph = ps.PipeGraph("measured")
    left, right = joining.sources(graph, "band")
    left.join(right, on=ps.band("v", 5), within="9 s", suffix="_r", name="band", layout=layout).sink(
        ps.write.memory()
    )
    run = graph.start("local")
    result = run.wait()
    metrics = run.metrics()["band"]
    assert isinstance(metrics, JoinAccounts)
    assert metrics.layout == ("1 x 1 cells" if layout == "auto" else "2 x 1 cells")
    assert min(metrics.rates) > 0
    assert metrics.measured_ms > 0
    assert metrics.rows_in == result.accounts["band"].rows_in == 168
    assert type(result.accounts["band"]) is Accounts


def test_metrics_of_a_handshake_pipeline_show_how_long_rows_waited_to_meet() -> None:
    graph = ps.PipeGraph("pipeline")
    left, right = joining.sources(graph, "band")
    options: dict[str, Any] = {"layout": "handshake", "parallelism": 3}
    left.join(right, on=ps.band("v", 5), within="9 s", suffix="_r", name="band", **options).sink(
        ps.write.memory()
    )
    run = graph.start("local")
    run.wait()
    metrics = run.metrics()["band"]
    assert isinstance(metrics, JoinAccounts)
    assert metrics.layout == "handshake pipeline of 3 cells"
    assert metrics.predicted_ms == pytest.approx(9_000 / 4 * (1 - 1 / 3))
    assert metrics.measured_ms > 100


def test_a_checkpoint_of_a_handshake_pipeline_refuses_other_layouts(tmp_path: Path) -> None:
    # Some pairs of stored rows have not met yet there, and elsewhere all have.
    def run(layout: Any, **more: Any) -> None:
        graph = ps.PipeGraph("pipeline")
        left, right = joining.sources(graph, "band")
        pairs = left.join(right, on=ps.band("v", 5), within="9 s", suffix="_r", name="band", layout=layout)
        pairs.sink(ps.write.jsonl(tmp_path / "out"))
        graph.run("local", checkpoint=str(tmp_path / "checkpoint"), **more)

    run("handshake", until=2)
    with pytest.raises(ps.CheckpointError, match="its meeting differs"):
        run("auto")
    run("handshake")


class RecordingTask(JoinTask):
    """A join's task that only notes what it would process."""

    def __init__(self) -> None:
        self._in_rounds, self._merges, self.log = False, {}, list[tuple[str, Any]]()
        self.progress: Any = SimpleNamespace(is_observed=False)

    def on_rows(self, channel: Channel, batch: Batch) -> None:
        self.log.append(("rows", [row["t"] for row in batch.plain or ()]))

    def on_end_of_round(self, channel: Channel, round_group: int) -> None:
        self.log.append(("end", channel.reached[round_group]))


def build_channel() -> Channel:
    """Build a channel to the left port of a join."""
    channel = Channel(SimpleNamespace(now=lambda: 0), 64, 64, "left")  # type: ignore[arg-type]
    channel.writer = SimpleNamespace(statistics=TaskStatistics("left"))  # type: ignore[assignment]
    channel.reader = channel.writer
    channel.schema = pa.schema([("t", pa.int64())])
    return channel


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1, 2, 3], [("rows", [1, 2, 3]), ("end", 2)]),
        # The second row is late after the round of the first, so that round ends before it.
        ([5, 4, 5, 6], [("rows", [5]), ("end", 0), ("rows", [4, 5, 6]), ("end", 3)]),
        ([1, None, 2], [("rows", [1]), ("end", 0), ("end", 1), ("rows", [2]), ("end", 2)]),
    ],
)
def test_single_rows_that_wait_are_joined_together_and_judged_one_by_one(
    times: list[int | None], expected: list[Any]
) -> None:
    channel = build_channel()
    watermark = -math.inf
    for number, time in enumerate(times):
        watermark = watermark if time is None else max(watermark, time)
        values = None if time is None else {"t": time}
        channel.items.append((values, number, time or 0, 0, (0, None), Frontier(watermark), 0))
    task = RecordingTask()
    while channel.items:
        task.take(channel, channel.pop())
    assert task.log == expected


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([[1, 2], [2], [], [3, 4]], [("rows", [1, 2, 2, 3, 4]), ("end", 3)]),
        # A row of the second is late after the round of the first, so that round ends before it.
        ([[5], [6, 4], [6]], [("rows", [5]), ("end", 0), ("rows", [6, 4, 6]), ("end", 2)]),
        ([[1] * 40, [2] * 40], [("rows", [1] * 40), ("end", 0), ("rows", [2] * 40), ("end", 1)]),
    ],
)
def test_small_batches_that_wait_are_joined_together_and_judged_one_by_one(
    rounds: list[list[int]], expected: list[Any]
) -> None:
    channel, watermark = build_channel(), -math.inf
    assert channel.schema is not None
    for number, times in enumerate(rounds):
        rows, places = [{"t": time} for time in times], tuple(range(len(times)))
        channel.push(RowBatch(rows, channel.schema, tuple(times), ((number,) * len(times), places)))
        watermark = max([watermark, *times])
        channel.push(EndOfRound(0, number, Frontier(watermark)))
    task = RecordingTask()
    while channel.items:
        task.take(channel, channel.pop())
    assert task.log == expected
