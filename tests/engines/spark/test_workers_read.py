"""Files that workers read give the rows, late rows, errors and accounts of the reference engine.

Without Spark: the fragments are carried in this process, as its workers would.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.engines.spark.jvm import pipeline as native_chain
from penstock.engines.spark.worker.files import FileReadPlan, FileSplit
from penstock.stages.rows.batch import Batch
from penstock.testing.assertions import difference
from tests.engines.spark.feeds import Build, columns, run, write_files
from tests.engines.spark.here import InProcessSparkEngine

FALLIBLE = (col("big") // col("small")) * 2
STEPS = {
    "filter": lambda pipe: pipe.filter(col("small") > -50),
    "another filter": lambda pipe: pipe.filter(col("x") > -150.0),
    "map": lambda pipe: pipe.with_columns(x=col("x") * 0.5, y=col("f") + 1.0),
    "function": lambda pipe: pipe.filter(lambda row: row.flag is not False),
    "fallible": lambda pipe: pipe.with_columns(q=FALLIBLE, on_error="skip"),
}
AGGREGATES = {
    "n": ps.count(),
    "sum_big": ps.sum("big"),
    "mean_f": ps.mean("f"),
    "least_day": ps.min("day"),
    "doubled": ps.sum(col("x") * 2.0),
    "latest": ps.event_time_max(),
}
WINDOWS = [
    ps.tumbling("1 s"),
    ps.sliding("2 s", every="500 ms"),
    ps.sliding("1 s", every="1700 ms"),
    ps.count_window(7),
    ps.session("100 ms"),
]


@pytest.fixture(autouse=True, scope="module")
def small_batches_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_chain, "LEAST_ROWS", 100)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path, [columns(600, seed, 10 * seed) for seed in range(3)], row_group_size=250)


def read(graph: ps.PipeGraph, folder: Path, **options: Any) -> ps.MultiPipe:
    return graph.source(ps.read.parquet(folder), time="t", **{"delay": "1 s", **options})


def same(build: Build, engine: InProcessSparkEngine) -> None:
    expected, wanted = run("reference", build)
    found, got = run(engine, build)
    for ours, theirs in zip(found, expected, strict=True):
        wrong = difference(ours, theirs)
        assert wrong is None, wrong
    assert got.accounts == wanted.accounts


@pytest.mark.slow
@given(
    st.integers(0, 1000),
    st.lists(st.sampled_from(sorted(STEPS)), unique=True, max_size=3),
    st.sampled_from([(), ("key",), ("key", "flag")]),
    st.sampled_from(WINDOWS),
    st.booleans(),
    st.sampled_from([50, 300, 1_000]),
)
@settings(deadline=None, max_examples=25)
def test_windows_of_files_that_workers_read_are_those_of_the_reference_engine(
    seed: int, steps: list[str], key: tuple[str, ...], window: Any, with_late: bool, group: int
) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        pipe: Any = read(graph, files, delay="0 s")
        for name in steps:
            pipe = STEPS[name](pipe)
        keyed = pipe.key_by(*key) if key else pipe
        views = keyed.window(window, name="w").aggregate(**AGGREGATES)
        return (views, views.late) if with_late else (views,)

    with tempfile.TemporaryDirectory() as path:
        tables = [columns(700, seed + i, 10 * i) for i in range(3)]
        files = write_files(Path(path), tables, row_group_size=group)
        same(build, InProcessSparkEngine(seed=seed, alone=lambda job: seed % 2 == 0))


def test_workers_are_asked_to_read_and_the_driver_reads_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    reads = FileReadPlan.read

    def read_and_told(form: FileReadPlan, piece: FileSplit) -> Iterator[Batch]:
        pieces.append(piece.n_rows)
        return reads(form, piece)

    monkeypatch.setattr(FileReadPlan, "read", read_and_told)

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        return [read(graph, folder).window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())]

    same(build, InProcessSparkEngine())
    assert sum(pieces) == 3 * 600


@pytest.mark.slow
def test_rows_of_two_sources_and_of_one_that_is_read_twice_keep_their_order(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        one, other = read(graph, folder), read(graph, folder, name="other")
        merged = one.merge(other).key_by("key")
        first = merged.window(ps.count_window(5), name="c").aggregate(
            first=ps.first("big"), last=ps.last("x")
        )
        return first, one.filter(lambda row: row.flag)

    same(build, InProcessSparkEngine())


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_rows_that_fail_follow_the_policy_of_their_step(folder: Path, policy: str) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        made = read(graph, folder).with_columns(q=FALLIBLE, on_error=policy, name="m")
        views = made.key_by("key").window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count(), q=ps.max("q"))
        return (views, graph["m"].errors) if policy == "dead_letter" else (views,)

    same(build, InProcessSparkEngine())


def test_a_row_that_fails_stops_the_run_with_all_its_columns_in_hand(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        return [read(graph, folder).window(ps.tumbling("1 s"), name="w").aggregate(q=ps.sum(FALLIBLE))]

    with pytest.raises(ps.FunctionError) as expected:
        run("reference", build)
    with pytest.raises(ps.FunctionError) as got:
        run(InProcessSparkEngine(), build)
    assert (got.value.fact, got.value.step) == (expected.value.fact, "w")
    assert "key=" in (got.value.detail or "")
    assert "day=" in (got.value.detail or "")


def test_a_damaged_file_stops_the_run_by_its_name_after_the_batches_before_it(folder: Path) -> None:
    data = bytearray((folder / "001.parquet").read_bytes())
    data[4:2_000] = b"\xff" * 1_996
    times = (folder / "002.parquet").stat().st_mtime_ns
    (folder / "001.parquet").write_bytes(bytes(data))
    os.utime(folder / "001.parquet", ns=(times + 1, times + 1))  # it comes last
    kept = ps.write.memory()
    graph = ps.PipeGraph("damaged")
    read(graph, folder, name="s").window(ps.tumbling("1 s")).aggregate(n=ps.count(), x=ps.sum("x")).sink(kept)
    with pytest.raises(ps.ConnectorError, match=r"001\.parquet.*cannot be read") as told:
        graph.run(InProcessSparkEngine(), clock=ps.ManualClock())
    assert told.value.step == "s"
    assert kept.table().num_rows > 10


def test_a_run_goes_on_where_another_stopped_whoever_reads(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        made = read(graph, folder, name="s").filter(col("small") > -90)
        windows = made.key_by("key").window(ps.sliding("4 s", every="1 s"), name="w")
        return [windows.aggregate(n=ps.count(), big=ps.sum("big"), x=ps.mean("x"), least=ps.min("f"))]

    expected, _ = run("reference", build)
    before, _ = run(InProcessSparkEngine(), build, checkpoint=checkpoint, until=1, drain=False)
    monkeypatch.setattr(native_chain, "LEAST_ROWS", 10_000)  # the driver reads
    between, _ = run(InProcessSparkEngine(n_partitions=2), build, checkpoint=checkpoint, until=1, drain=False)
    monkeypatch.setattr(native_chain, "LEAST_ROWS", 100)
    after, _ = run(InProcessSparkEngine(), build, checkpoint=checkpoint)
    assert difference(pa.concat_tables([before[0], between[0], after[0]]), expected[0]) is None
