"""Tasks read files of every format and write the files of sinks; the driver sees plans and reports only."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark import tasks
from penstock.engines.spark.driver import loop, read_ahead, rounds, sources
from penstock.engines.spark.driver.job_results import JobResult
from penstock.engines.spark.source_task import SourceReadPlan, SourceSplit
from tests.support.parquet_feeds import columns, same_as_reference, write_files
from tests.support.spark_in_process import InProcessJobs, InProcessSparkEngine

SCHEMA = {"t": "int64", "key": "string", "v": "int64"}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are cut into parts of some hundred bytes."""
    monkeypatch.setattr(read_ahead, "MIN_SPLIT_BYTES", 300)
    monkeypatch.setattr(read_ahead, "MAX_SPLIT_BYTES", 300)


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[SourceSplit]:
    """What source stages read."""
    seen: list[SourceSplit] = []
    real = SourceReadPlan.read

    def read(plan: SourceReadPlan, split: SourceSplit) -> Any:
        seen.append(split)
        return real(plan, split)

    monkeypatch.setattr(SourceReadPlan, "read", read)
    return seen


def line_jsonl(t: int, key: str, v: int) -> str:
    return json.dumps({"t": t, "key": key, "v": v})


def line_csv(t: int, key: str, v: int) -> str:
    return f"{t},{key},{v}"


def write_text(folder: Path, line: Callable[[int, str, int], str], suffix: str, header: str = "") -> Path:
    """Three files of rows that are up to 20 s out of order, with bad lines among them."""
    rng = np.random.default_rng(7)
    for number in range(3):
        lines = [header] if header else []
        for row in range(60):
            t = number * 100 + row + int(rng.integers(-20, 20))
            lines.append("not a row" if row % 17 == 5 else line(t, "abc"[row % 3], row))
        (folder / f"{number}.{suffix}").write_text("\n".join(lines) + "\n")
    return folder


def build_windows(reader: Any, **options: Any) -> Callable[[ps.PipeGraph], Sequence[ps.MultiPipe]]:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        rows = graph.source(
            reader, time="t", time_unit="s", delay="5 s", name="rows", on_error="dead_letter", **options
        )
        windows = rows.filter(col("v") > 3).key_by("key").window(ps.sliding("20 s", every="10 s"), name="w")
        views = windows.aggregate(n=ps.count(), v=ps.sum("v"), last=ps.last("v"))
        return views, views.late, graph["rows"].errors

    return build


@pytest.mark.usefixtures("small_parts")
def test_json_lines_are_read_in_parts_with_the_answer_of_the_reference_engine(
    tmp_path: Path, splits: list[SourceSplit]
) -> None:
    reader = ps.read.jsonl(write_text(tmp_path, line_jsonl, "jsonl"), schema=SCHEMA)
    same_as_reference(build_windows(reader), InProcessSparkEngine())
    assert len(splits) >= 15
    assert {split.batch for split in splits} == {0, 1, 2}


@pytest.mark.usefixtures("small_parts")
def test_csv_without_quotes_is_read_in_parts(tmp_path: Path, splits: list[SourceSplit]) -> None:
    reader = ps.read.csv(write_text(tmp_path, line_csv, "csv", "t,key,v"), schema=SCHEMA)
    same_as_reference(build_windows(reader), InProcessSparkEngine())
    assert len([split for split in splits if not split.scan]) >= 6
    assert len([split for split in splits if split.scan]) >= 6


@pytest.mark.usefixtures("small_parts")
def test_csv_with_quotes_is_read_whole(tmp_path: Path, splits: list[SourceSplit]) -> None:
    def write_quoted(t: int, key: str, v: int) -> str:
        return f'{t},"{key}\n{key}",{v}'

    reader = ps.read.csv(write_text(tmp_path, write_quoted, "csv", "t,key,v"), schema=SCHEMA)
    same_as_reference(build_windows(reader), InProcessSparkEngine())
    assert len([split for split in splits if not split.scan]) == 3


def test_batches_of_rows_are_read_ahead_by_one_worker(tmp_path: Path, splits: list[SourceSplit]) -> None:
    reader = ps.read.jsonl(write_text(tmp_path, line_jsonl, "jsonl"), schema=SCHEMA, batch=7)
    same_as_reference(build_windows(reader), InProcessSparkEngine())
    assert {split.n_batches for split in splits} == {sources.MAX_BATCHES}


def test_a_watermark_function_sees_whole_batches(tmp_path: Path, splits: list[SourceSplit]) -> None:
    def least(batch: pa.RecordBatch) -> int:
        return int(min(batch["t"].to_pylist())) - 3

    write_text(tmp_path, line_jsonl, "jsonl")
    same_as_reference(
        build_windows(ps.read.jsonl(tmp_path, schema=SCHEMA), watermark=least), InProcessSparkEngine()
    )
    assert len(splits) == 3


def test_a_bad_row_stops_the_run_with_its_place_after_the_batches_before_it(tmp_path: Path) -> None:
    write_text(tmp_path, line_jsonl, "jsonl")
    (tmp_path / "0.jsonl").write_text(line_jsonl(1, "a", 1) + "\n")
    os.utime(tmp_path / "0.jsonl", (1, 1))  # it comes first
    graph = ps.PipeGraph("bad")
    graph.source(ps.read.jsonl(tmp_path, schema=SCHEMA), name="rows").sink(sink := ps.write.memory())
    with pytest.raises(ps.ConnectorError, match=r"1\.jsonl:6") as failure:
        graph.run(InProcessSparkEngine())
    assert failure.value.step == "rows"
    assert sink.table().num_rows == 1


def test_rows_for_the_driver_that_are_many_go_through_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_SENT_BYTES", 1_000)
    received: list[JobResult] = []
    real = InProcessJobs.run

    def run(self: InProcessJobs, *arguments: Any) -> JobResult:
        received.append(real(self, *arguments))
        return received[-1]

    monkeypatch.setattr(InProcessJobs, "run", run)
    folder = write_files(tmp_path, [columns(600, seed, 10 * seed) for seed in range(3)])

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        rows = graph.source(ps.read.parquet(folder), time="t", delay="1 s")
        return [rows.filter(col("small") > 0), rows.with_columns(x=col("x") * 2.0)]

    same_as_reference(build, InProcessSparkEngine())
    assert any(result.files for result in received)


def write_partitions(folder: Path, engine: Any) -> Any:
    graph = ps.PipeGraph("partitions")
    rows = graph.source(ps.read.parquet(folder / "in"), name="rows").filter(col("small") > 0, name="few")
    sink = ps.write.parquet(folder / "out", partition_by="key", max_rows_per_file=20)
    rows.select("key", "small", "day").sink(sink, name="out")
    return graph.run(engine)


def test_tasks_write_partition_folders_and_roll_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = columns(600, 3)
    texts = pa.array([text or "none" for text in table["key"].to_pylist()])
    write_files(tmp_path / "in", [table.set_column(1, "key", texts)], row_group_size=100)
    result = write_partitions(tmp_path, InProcessSparkEngine())
    written = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    expected = [
        (key, small)
        for key, small in zip(texts.to_pylist(), table["small"].to_pylist(), strict=True)
        if small is not None and small > 0
    ]
    assert Counter(zip(written["key"].to_pylist(), written["small"].to_pylist(), strict=True)) == Counter(
        expected
    )
    assert result.accounts["out"].rows_in == len(expected)
    sizes = [pq.read_metadata(file).num_rows for file in (tmp_path / "out").rglob("part-*")]
    assert max(sizes) <= 20
    assert not list((tmp_path / "out" / "_penstock" / "staged").iterdir())


def count_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch, options: ps.SparkOptions) -> int:
    """The number of micro-batches that eight files make."""
    n_jobs = 0
    real = loop.DriverLoop._run_job

    def run(self: loop.DriverLoop, *arguments: Any) -> Any:
        nonlocal n_jobs
        n_jobs += 1
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop.DriverLoop, "_run_job", run)
        graph = ps.PipeGraph("limits")
        graph.source(ps.read.parquet(folder)).filter(col("v") >= 0).sink(memory := ps.write.memory())
        graph.run(InProcessSparkEngine(), options=options)
    assert sorted(memory.table()["v"].to_pylist()) == sorted([*range(10)] * 8)
    return n_jobs


def test_a_micro_batch_takes_no_more_than_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        pq.write_table(pa.table({"v": list(range(10))}), tmp_path / f"{number}.parquet")
    size = (tmp_path / "0.parquet").stat().st_size
    assert count_jobs(tmp_path, monkeypatch, ps.SparkOptions()) == 1
    assert count_jobs(tmp_path, monkeypatch, ps.SparkOptions(max_files_per_batch=2)) == 5
    assert count_jobs(tmp_path, monkeypatch, ps.SparkOptions(max_rows_per_batch=40)) == 3
    assert count_jobs(tmp_path, monkeypatch, ps.SparkOptions(max_bytes_per_batch=4 * size)) == 3


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "many"])
@pytest.mark.parametrize("name", ["max_rows_per_batch", "max_bytes_per_batch", "max_files_per_batch"])
def test_a_limit_that_is_no_number_is_refused_when_it_is_given(name: str, limit: Any) -> None:
    with pytest.raises(ps.GraphError, match=f"{name}=.* is not a limit of a micro-batch") as failure:
        ps.SparkOptions(**{name: limit})
    assert f"SparkOptions({name}=1000)" in str(failure.value.hint)


def test_a_micro_batch_that_died_is_done_again_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        pq.write_table(pa.table({"v": [number]}), tmp_path / "in" / f"{number}.parquet")
    numbers: list[tuple[int, ...]] = []
    real = InProcessJobs.run

    def run(self: InProcessJobs, rows: Any, task: Any, *arguments: Any) -> JobResult:
        numbers.append(tuple(round_.number for round_ in task.rounds))
        if len(numbers) == 1:
            raise KeyboardInterrupt
        return real(self, rows, task, *arguments)

    def start() -> Any:
        graph = ps.PipeGraph("again")
        rows = graph.source(ps.read.parquet(tmp_path / "in"), name="rows").filter(col("v") >= 0, name="all")
        rows.sink(ps.write.jsonl(tmp_path / "out"), name="out")
        return graph.run(InProcessSparkEngine(), checkpoint=str(tmp_path / "checkpoint"), drain=True)

    monkeypatch.setattr(InProcessJobs, "run", run)
    monkeypatch.setattr(rounds, "MAX_ROUNDS", 3)
    with pytest.raises(KeyboardInterrupt):
        start()
    monkeypatch.setattr(rounds, "MAX_ROUNDS", 512)
    start()
    assert numbers[:2] == [(0, 1, 2), (0, 1, 2)]
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(lines) == [f'{{"v":{number}}}' for number in range(4)]
