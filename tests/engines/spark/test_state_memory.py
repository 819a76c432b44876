"""State that does not stay in memory: it is dropped, read again bucket by bucket, and saved as changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.engines.checkpoint import state_files
from penstock.engines.checkpoint.state_files import StateFiles, StateHandle
from penstock.engines.protocol import RunResult
from penstock.engines.spark import tasks
from penstock.engines.spark.driver import jobs, rounds
from penstock.stages.stage import SavedBytes
from penstock.testing.assertions import difference
from tests.support.parquet_feeds import run, same_as_reference, write_files
from tests.support.spark_in_process import InProcessSparkEngine

N_KEYS = 40
Pieces = list[tuple[int, int]]


def feed(n_files: int) -> list[pa.Table]:
    """Files of few keys each, of which some come again, and times up to three seconds out of order."""
    tables = []
    for number in range(n_files):
        rng = np.random.default_rng(number)
        times = number * 2_000_000 + rng.integers(0, 2_000_000, 30) - rng.integers(0, 3_000_000, 30)
        keys = rng.integers(0, N_KEYS, 6)[rng.integers(0, 6, 30)]
        columns = {"t": pa.array(times, pa.timestamp("us", "UTC")), "key": keys, "v": rng.integers(0, 9, 30)}
        tables.append(pa.table(columns))
    return tables


def remember(row: Any, seen: list[int]) -> dict[str, Any]:
    """Return how much a key has had so far, and how often."""
    seen.append(row.v)
    return {"key": row.key, "total": sum(seen), "rows": len(seen)}


def build(graph: ps.PipeGraph, folder: Path) -> list[ps.MultiPipe]:
    timed = graph.source(ps.read.parquet(folder), time="t", delay="1 s", name="timed").key_by("key")
    untimed = graph.source(ps.read.parquet(folder), name="untimed").key_by("key")
    return [
        timed.map(remember, state=list, schema={"key": int, "total": int, "rows": int}, name="remember"),
        untimed.accumulate(lambda row, n: n + row.v, 0, schema={"n": int}, name="add"),
        timed.window(ps.tumbling("5 s"), name="windows").aggregate(n=ps.count()),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    return write_files(tmp_path / "input", feed(12))


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    """Nothing stays warm, and every bucket is worth changes; (bucket, pieces) of what was read again."""
    monkeypatch.setattr(tasks, "WARM_BYTES", 0)
    monkeypatch.setattr(tasks, "_WARM", {})
    monkeypatch.setattr(state_files, "_MIN_WHOLE_NBYTES", 0)
    monkeypatch.setattr(rounds, "MAX_ROUNDS", 1)
    seen: Pieces = []
    real = StateFiles.read

    def read(files: StateFiles, handles: Mapping[int, StateHandle], step: str) -> dict[int, SavedBytes]:
        seen.extend((bucket, len(handle.pieces)) for bucket, handle in handles.items())
        return real(files, handles, step)

    monkeypatch.setattr(StateFiles, "read", read)
    return seen


@pytest.mark.parametrize("seed", [0, 1])
def test_state_that_is_dropped_after_every_job_gives_what_the_reference_gives(
    folder: Path, pieces: Pieces, seed: int
) -> None:
    same_as_reference(lambda graph: build(graph, folder), InProcessSparkEngine(3, seed))
    assert max(n for _, n in pieces) > 1
    assert not any(work.n_saved for of_run in tasks._WARM.values() for work, _ in of_run.values())


def test_only_buckets_that_rows_come_for_are_read_again(folder: Path, pieces: Pieces) -> None:
    same_as_reference(lambda graph: build(graph, folder)[1:2], InProcessSparkEngine(256))
    assert len(pieces) <= 6 * 11  # a file has six keys at most, and the first finds nothing


def test_a_bucket_becomes_one_piece_again_and_not_all_in_one_micro_batch(
    folder: Path, pieces: Pieces
) -> None:
    same_as_reference(lambda graph: build(graph, folder), InProcessSparkEngine(1))
    whole = {bucket for bucket, n in pieces if n == 1}
    assert all(n <= state_files._MAX_PIECES + 1 for _, n in pieces)
    assert {bucket for bucket, n in pieces if n > 1} <= whole
    same, other = StateHandle("f", 0, 100, before=(StateHandle("f", 0, 100),)), StateHandle("f", 0, 99)
    assert other.takes_changes(0) is True
    assert same.takes_changes(0) is False
    assert [same._replace(nbytes=70).takes_changes(bucket) for bucket in (0, 255)] == [False, True]


@pytest.mark.parametrize("second", ["local", "spark"])
def test_a_run_goes_on_from_changes_on_either_engine(
    folder: Path, pieces: Pieces, tmp_path: Path, second: str
) -> None:
    def run_stopped(engine: Any, **options: Any) -> RunResult:
        graph = ps.PipeGraph("stopped")
        for number, pipe in enumerate(build(graph, folder)):
            pipe.sink(ps.write.parquet(tmp_path / f"out-{number}"), name=f"out {number}")
        return graph.run(
            engine,
            checkpoint=str(tmp_path / "checkpoint"),
            clock=ps.ManualClock(),
            **{"drain": True, **options},
        )

    run_stopped(InProcessSparkEngine(2), until=8)
    last = sorted((tmp_path / "checkpoint" / "commits").glob("*.json"))[-1]
    assert any(handle.before for handle in handles_of(last))
    run_stopped("local" if second == "local" else InProcessSparkEngine(3))
    expected, _ = run("reference", lambda graph: build(graph, folder))
    for number, table in enumerate(expected):
        files = [path for path in (tmp_path / f"out-{number}").glob("*.parquet") if path.name[0] not in "._"]
        written = pa.concat_tables([pq.read_table(file) for file in files])
        assert difference(written, table) is None


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True], ids=["jobs", "a query"])
def test_spark_gives_the_same_with_more_partitions_than_cores(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    for file in sorted(folder.iterdir())[5:]:  # these have micro-batches enough
        file.unlink()
    monkeypatch.setattr(jobs, "PARTITION_ROWS", 20)
    monkeypatch.setattr(jobs, "SMALL_INPUT", 0)
    monkeypatch.setattr(rounds, "MAX_ROWS", 100)
    options: Any = {"checkpoint": str(tmp_path / "checkpoint"), "drain": True} if streams else {}
    expected, _ = run("reference", lambda graph: build(graph, folder))
    actual, _ = run("spark", lambda graph: build(graph, folder), **options)
    assert [difference(*pair) for pair in zip(actual, expected, strict=True)] == [None] * 3


def handles_of(manifest: Path) -> list[StateHandle]:
    state = json.loads(manifest.read_text())["body"]["state"]
    return [StateHandle.of(handle) for handles in state.values() for handle in handles.values()]
