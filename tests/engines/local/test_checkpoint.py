"""Runs that go on from a checkpoint: after a stop, after a failure at any point, with other degrees."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col, crash_points
from penstock.events import Event, StateSaved
from tests.support import crashing_graph as dying

EVERY_ROUND: dict[str, Any] = {"save_every": "0 s", "queue_size": 2}


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    yield
    crash_points.listener = None


class Died(Exception):
    """What stands for a crash."""


def die() -> None:
    """Crash."""
    raise Died


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_run_that_failed_at_any_point_goes_on_and_writes_every_row_once(tmp_path: Path, every: int) -> None:
    expected = dying.expected_sinks(tmp_path / "whole")
    points = 0
    for number in range(1, 100, every):
        folder = tmp_path / str(number)
        crash_points.listener = dying.dying_at(number, die)
        try:
            dying.run(folder, "local", options=ps.LocalOptions(seed=number, **EVERY_ROUND))
        except (Died, ps.PenstockError):
            points += 1
        else:
            break
        crash_points.listener = None
        if not any((folder / "checkpoint" / "commits").glob("*-end.json")):
            dying.run(folder, "local", options=ps.LocalOptions(seed=number + 1, **EVERY_ROUND))
        assert dying.read_sinks(folder) == expected, f"after point {number}"
    assert points > 20 // every


def sums(folder: Path, degree: int, pattern: Any = "keyed") -> ps.PipeGraph:
    """Windows and state per key in a number of replicas."""
    graph = ps.PipeGraph("sums")
    batches = [[{"t": 3 * i + j, "k": (i + j) % 5, "v": i * j} for j in range(3)] for i in range(10)]
    schema = {"t": "int64", "k": "int64", "v": "int64"}
    reader = ps.read.batches(batches, schema=schema)
    rows = graph.source(reader, time="t", time_unit="s", delay="2 s", name="r")
    sliding = ps.sliding("8 s", every="4 s")
    windows = rows.key_by("k").window(sliding, name="w", parallelism=degree, pattern=pattern)
    windows.aggregate(s=ps.sum("v"), n=ps.count()).sink(ps.write.jsonl(folder / "totals"), name="totals")
    counted = rows.key_by("k").accumulate(
        lambda row, n: n + row.v, 0, schema={"value": int}, name="so far", parallelism=degree
    )
    counted.sink(ps.write.jsonl(folder / "great"), name="great")
    rows.filter(col("v") > 9).sink(ps.write.jsonl(folder / "late"), name="late")
    return graph


def run(graph: ps.PipeGraph, folder: Path, **options: Any) -> Any:
    """Begin, or go on."""
    return graph.run("local", checkpoint=str(folder / "checkpoint"), **{"drain": True, **options})


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [(1, 3), (3, 2), (4, 1)])
@pytest.mark.parametrize("pattern", ["keyed", "parallel", "paned", "map_reduce"])
def test_any_number_of_replicas_takes_up_what_others_left(
    tmp_path: Path, degrees: tuple[int, int], pattern: str
) -> None:
    first, second = degrees
    sums(tmp_path / "whole", 1).run("reference")
    for until in (1, 4, 9):
        folder = tmp_path / str(until)
        stopped = run(sums(folder, first, pattern), folder, until=until)
        assert (stopped.outcome, stopped.batches) == ("stopped", until)
        ended = run(sums(folder, second, pattern), folder, options=ps.LocalOptions(**EVERY_ROUND))
        assert (ended.outcome, ended.batches) == ("drained", 10 - until)
        assert dying.read_sinks(folder) == dying.read_sinks(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("until", [1, 2, 3, 4, 5])
def test_a_run_that_saves_every_round_can_be_stopped_and_goes_on(tmp_path: Path, until: int) -> None:
    sums(tmp_path / "whole", 1).run("reference")
    for seed in (None, 1, 2, 3):
        folder, options = tmp_path / str(seed), ps.LocalOptions(seed=seed, **EVERY_ROUND)
        assert run(sums(folder, 2), folder, until=until, options=options).batches == until
        assert run(sums(folder, 2), folder, options=options).outcome == "drained"
        assert dying.read_sinks(folder) == dying.read_sinks(tmp_path / "whole")


def unequal(folder: Path) -> ps.PipeGraph:
    """A source of two batches, one of eight, each with windows and a sink of its own."""
    graph = ps.PipeGraph("unequal")
    for name, n in (("short", 2), ("long", 8)):
        batches = [[{"t": 5 * i + j, "v": i * j} for j in range(4)] for i in range(n)]
        reader = ps.read.batches(batches, schema={"t": "int64", "v": "int64"})
        rows = graph.source(reader, time="t", time_unit="s", delay="1 s", name=name)
        sums = rows.window(ps.sliding("6 s", every="3 s"), name=f"{name} windows").aggregate(s=ps.sum("v"))
        sums.sink(ps.write.jsonl(folder / name), name=f"{name} sink")
    return graph


@pytest.mark.parametrize("until", [1, 2, 3, 5])
def test_a_source_that_ends_before_others_is_not_read_again(tmp_path: Path, until: int) -> None:
    unequal(tmp_path / "whole").run("reference")
    for seed in (None, 1, 2, 3):
        folder, options = tmp_path / str(seed), ps.LocalOptions(seed=seed, **EVERY_ROUND)
        run(unequal(folder), folder, until=until, options=options)
        run(unequal(folder), folder, options=options)
        for name in ("short", "long"):
            result, wanted = (
                Counter(line for f in (item / name).glob("*.jsonl") for line in f.read_text().splitlines())
                for item in (folder, tmp_path / "whole")
            )
            assert result == wanted, name


def test_what_is_saved_is_told_and_a_drained_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    events: list[Event] = []
    run(sums(tmp_path, 2), tmp_path, events=events.append, options=ps.LocalOptions(**EVERY_ROUND))
    saved = [event.batch for event in events if isinstance(event, StateSaved)]
    assert saved == sorted(saved)
    assert saved[-1] == 10
    again = run(sums(tmp_path, 2), tmp_path)
    assert (again.outcome, again.batches) == ("drained", 0)


def test_without_draining_windows_stay_open_for_the_next_run(tmp_path: Path) -> None:
    sums(tmp_path / "whole", 1).run("reference")
    assert run(sums(tmp_path, 2), tmp_path, drain=False).outcome == "ended"
    assert run(sums(tmp_path, 2), tmp_path).batches == 0
    assert dying.read_sinks(tmp_path) == dying.read_sinks(tmp_path / "whole")


def test_a_failed_run_goes_on_where_the_last_snapshot_was(tmp_path: Path) -> None:
    def graph(limit: int) -> ps.PipeGraph:
        graph = ps.PipeGraph("fails")
        rows = graph.source(ps.read.batches([[{"v": i}] for i in range(20)], schema={"v": "int64"}), name="r")
        checked = rows.filter(lambda row: bool(1 // (limit - row.v)) or True, name="f")
        checked.sink(ps.write.jsonl(tmp_path / "out"), name="out")
        return graph

    with pytest.raises(ps.FunctionError, match="ZeroDivisionError"):
        run(graph(7), tmp_path, options=ps.LocalOptions(**EVERY_ROUND))
    run(graph(100), tmp_path)
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert Counter(lines) == Counter(f'{{"v":{i}}}' for i in range(20))


class Loop(ps.ProcessOperator):
    """An own loop."""

    outputs: ClassVar[dict[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        await ctx.wait_for_all({"in": 1})


def with_loop(graph: ps.PipeGraph) -> ps.MultiPipe:
    """A graph whose state cannot be saved."""
    rows = graph.source(ps.read.batches([[{"v": 1}]], schema={"v": "int64"}), name="r")
    return rows.process(Loop(), name="loop")


def test_an_own_loop_and_a_checkpoint_do_not_go_together(tmp_path: Path) -> None:
    graph = ps.PipeGraph("loop")
    with_loop(graph).sink(ps.write.memory(), name="out")
    with pytest.raises(
        ps.NotSupported, match="the state of Loop, which has its own loop, cannot be saved"
    ) as no:
        run(graph, tmp_path)
    assert no.value.step == "loop"


Refused = Callable[[Path], None]


def damage_state(folder: Path) -> None:
    """Bytes of a state file change."""
    file = next((folder / "checkpoint" / "state").glob("*.state"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def foreign(folder: Path) -> None:
    """A manifest that is none."""
    for file in (folder / "checkpoint" / "commits").glob("*.json"):
        file.write_text('{"check": "0", "body": "{}"}')


@pytest.mark.parametrize(
    ("hurt", "fact"), [(damage_state, "saved state of step"), (foreign, "the checkpoint is damaged")]
)
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path, hurt: Refused, fact: str) -> None:
    run(sums(tmp_path, 1), tmp_path, until=5)
    hurt(tmp_path)
    with pytest.raises(ps.CheckpointError, match=fact):
        run(sums(tmp_path, 1), tmp_path)


def copy_graph(folder: Path) -> ps.PipeGraph:
    graph = ps.PipeGraph("copying")
    rows = graph.source(ps.read.parquet(folder / "files"), name="rows")
    rows.sink(ps.write.jsonl(folder / "out"), name="out")
    return graph


def test_files_that_are_done_are_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for i in range(3):
        pq.write_table(pa.table({"a": [i] * 100}), tmp_path / "files" / f"{i}.parquet")
    checkpoint = str(tmp_path / "checkpoint")
    copy_graph(tmp_path).run("local", checkpoint=checkpoint, until=1, drain=False)
    (tmp_path / "files" / "0.parquet").unlink()
    copy_graph(tmp_path).run("local", checkpoint=checkpoint)
    assert read_sink(tmp_path) == [0] * 100 + [1] * 100 + [2] * 100


def test_a_file_that_was_replaced_by_one_of_the_same_size_and_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for i in range(3):
        pq.write_table(pa.table({"a": [i] * 100}), tmp_path / "files" / f"{i}.parquet")
    checkpoint = str(tmp_path / "checkpoint")
    copy_graph(tmp_path).run("local", checkpoint=checkpoint, until=1, drain=False)
    first = tmp_path / "files" / "0.parquet"
    before = first.stat()
    first.write_bytes(b"PAR1" + bytes(20) + first.read_bytes()[24:])  # its footer is whole
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ps.ConnectorError, match=r'0.parquet" changed after it was read') as refused:
        copy_graph(tmp_path).run("local", checkpoint=checkpoint)
    assert refused.value.hint


def read_sink(folder: Path) -> list[int]:
    lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["a"] for line in lines)


@pytest.fixture
def half_run(tmp_path: Path) -> Path:
    """Two of three files have been read."""
    (tmp_path / "files").mkdir()
    for i in range(3):
        put(tmp_path, f"{i}.parquet", i, at=i + 1)
    copy_graph(tmp_path).run("local", checkpoint=str(tmp_path / "checkpoint"), until=2, drain=False)
    return tmp_path


def put(folder: Path, name: str, value: int, at: int) -> None:
    file = folder / "files" / name
    pq.write_table(pa.table({"a": [value]}), file)
    os.utime(file, (at, at))


def test_a_file_that_comes_later_is_read_whatever_its_name_and_time(half_run: Path) -> None:
    put(half_run, "0-and-a-half.parquet", 7, at=1)
    copy_graph(half_run).run("local", checkpoint=str(half_run / "checkpoint"), drain=True)
    assert read_sink(half_run) == [0, 1, 2, 7]


def test_files_that_were_read_may_be_taken_away(half_run: Path) -> None:
    (half_run / "files" / "0.parquet").unlink()
    copy_graph(half_run).run("local", checkpoint=str(half_run / "checkpoint"), drain=True)
    assert read_sink(half_run) == [0, 1, 2]


def test_a_file_that_changed_after_it_was_read_is_refused(half_run: Path) -> None:
    put(half_run, "0.parquet", 9, at=50)  # so that another order would have the same numbers of rows
    with pytest.raises(ps.ConnectorError, match=r'0.parquet" changed after it was read'):
        copy_graph(half_run).run("local", checkpoint=str(half_run / "checkpoint"), drain=True)


def test_a_checkpoint_that_does_not_know_its_files_any_more_is_refused(half_run: Path) -> None:
    (half_run / "checkpoint" / "files" / "rows.jsonl").unlink()
    with pytest.raises(ps.CheckpointError, match=r"damaged: rows.jsonl is gone"):
        copy_graph(half_run).run("local", checkpoint=str(half_run / "checkpoint"), drain=True)


def test_of_states_by_key_a_checkpoint_holds_only_what_has_changed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def keep(row: Any, state: list[Any]) -> dict[str, Any]:
        state += [os.urandom(1000).hex()] if not state else []
        return {"k": row.k, "noise": state[0]}

    def run_once(number: int, n_keys: int) -> StateSaved:
        pq.write_table(pa.table({"k": list(range(n_keys))}), tmp_path / "in" / f"{number}.parquet")
        graph = ps.PipeGraph("noise")
        rows = graph.source(ps.read.parquet(tmp_path / "in"), name="rows")
        results = rows.key_by("k").map(keep, state=list, schema={"k": int, "noise": str}, name="kept")
        results.sink(ps.write.jsonl(tmp_path / "out"), name="out")
        saved: list[StateSaved] = []
        graph.run(
            "local",
            checkpoint=tmp_path / "checkpoint",
            events=lambda event: saved.append(event) if isinstance(event, StateSaved) else None,
        )
        return saved[-1]

    n_keys = 256 * 64
    whole, changes = run_once(0, n_keys), run_once(1, 8)
    assert whole.nbytes > n_keys * 900
    assert 0 < changes.nbytes < 100_000
    assert run_once(2, n_keys).nbytes > n_keys * 900
    rows = [
        json.loads(line)
        for path in (tmp_path / "out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(rows) == 2 * n_keys + 8
    assert len({(row["k"], row["noise"]) for row in rows}) == n_keys
