"""Which batches Spark reads, and what footers prove of them; no Spark is needed to know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.engines.spark.driver.read_ahead import ReadBatch, ReadRows, merge_reports
from penstock.engines.spark.driver.sources import RemoteSourceReader, SequenceSourceReader, time_range_of
from penstock.engines.spark.file_splits import RemoteBatch, SourceFile, UnreadBatch
from penstock.engines.spark.jvm_source import TimeRange
from penstock.engines.spark.source_task import SourceReport, SourceSplit
from penstock.operators.ends import Source
from penstock.plan.plan import Plan
from tests.support.parquet_feeds import SECOND, columns, write_files


def open_source(
    folder: Any, look: Any = None, accounts: Accounts | None = None, **options: Any
) -> RemoteSourceReader:
    graph = ps.PipeGraph("read")
    cuts = {"files": options.pop("files", None), "schema": options.pop("schema", None)}
    pipe = graph.source(ps.read.parquet(folder, **cuts), **{"time": "t", "delay": "1 s", **options})
    pipe.sink(ps.write.memory())
    plan = Plan("read", tuple(graph.steps.values()))
    remote: Any = SimpleNamespace(
        by_workers=look is None, rows_as_one=1, scan_times=look or fail_if_asked
    )  # what it asks of a RemoteSource
    jobs: Any = SimpleNamespace(remote={plan.sources[0].name: remote})
    clock = ManualClock()
    return RemoteSourceReader(
        plan, plan.sources[0], clock, accounts or Accounts(), jobs, Path(folder), clock.now
    )


def fail_if_asked(files: Sequence[SourceFile]) -> TimeRange:
    raise AssertionError("the footers tell the times")


def test_a_batch_is_the_files_that_the_reader_says_numbered_through(tmp_path: Path) -> None:
    tables = [columns(n, n) for n in (200, 300, 400)]
    source = open_source(write_files(tmp_path, tables), files=2)
    first, second = source.next(), source.next()
    assert [file.start for file in first.files] == [0, 200]
    assert [Path(file.path).name for file in first.files] == ["000.parquet", "001.parquet"]
    assert (first.n_rows, second.n_rows) == (500, 400)
    assert [file.start for file in second.files] == [500]
    assert source.next() is None


def test_the_least_and_greatest_time_come_from_footers(tmp_path: Path) -> None:
    table = columns(500, 7)
    source = open_source(write_files(tmp_path, [table]))
    batch = source.next()
    times = table["t"].cast(pa.int64()).to_pylist()
    assert (batch.least, batch.greatest) == (min(times), max(times))


def test_a_batch_that_spark_reads_is_counted_and_moves_the_watermark(tmp_path: Path) -> None:
    accounts = Accounts()
    source = open_source(write_files(tmp_path, [columns(500, 7)]), accounts=accounts)
    batch = source.next()
    assert source.rows(batch) == []
    assert source.watermark == batch.greatest - SECOND
    assert accounts == Accounts(rows_in=500, passed=500, rows_out=500)


def test_small_batches_are_not_read_on_the_driver_either(tmp_path: Path) -> None:
    source = open_source(write_files(tmp_path, [columns(1, 1), columns(100, 2)]))
    first, second = source.next(), source.next()
    assert isinstance(first, RemoteBatch)
    assert isinstance(second, RemoteBatch)
    assert second.files[0].start == 1


def test_a_batch_that_was_read_ahead_is_counted_and_moves_the_watermark_as_reported(tmp_path: Path) -> None:
    accounts = Accounts()
    source = open_source(write_files(tmp_path, [columns(500, 7)]), accounts=accounts)
    counts = Accounts(rows_in=5, passed=4, rows_out=4, errors=1).to_dict()
    report = SourceReport("source", 0, 0, 77, counts, reason="too odd")
    assert source.rows(ReadBatch(0, report, ReadRows(None, [report]))) == []
    assert source.watermark == 77
    assert accounts == Accounts(rows_in=5, passed=4, rows_out=4, errors=1)
    assert source.reasons == ["too odd"]


def test_files_that_are_cut_by_rows_have_whole_paths_because_workers_know_no_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"v": 1}\n')
    graph = ps.PipeGraph("read")
    graph.source(ps.read.jsonl("in/", schema={"v": int}, batch=2)).sink(ps.write.memory())
    plan = Plan("read", tuple(graph.steps.values()))
    asked: list[SourceSplit] = []

    def read(splits: Sequence[SourceSplit]) -> ReadRows:
        asked.extend(splits)
        return ReadRows(None, [SourceReport("source", 0, ended=True)])

    clock = ManualClock()
    jobs: Any = SimpleNamespace(read=read)
    source = SequenceSourceReader(plan, plan.sources[0], clock, Accounts(), jobs, tmp_path, clock.now)
    assert source.next() is None
    ((_, _, path, *_),) = asked[0].files
    assert path == str(tmp_path / "in" / "a.jsonl")


def test_reports_of_the_parts_of_a_batch_are_one_and_the_first_failure_counts() -> None:
    one = Accounts(rows_in=2, passed=2, rows_out=2).to_dict()
    failures = [{"error": "ConnectorError", "fact": fact} for fact in ("first", "second")]
    merged = merge_reports(
        [
            SourceReport("s", 3, 900, 10, one, failure=failures[1]),
            SourceReport("s", 3, 100, 30, one, reason="odd", failure=failures[0]),
            SourceReport("s", 4, 0, None, one),
        ]
    )
    assert merged["s", 3].watermark == 30
    assert merged["s", 3].failure == failures[0]
    assert merged["s", 3].reason == "odd"
    assert (merged["s", 3].accounts or {})["rows_in"] == 4
    assert merged["s", 4].watermark is None


def test_a_batch_with_a_time_that_is_null_or_too_far_ahead_is_looked_at(tmp_path: Path) -> None:
    table = columns(500, 7)
    times = pa.array([None, *table["t"].to_pylist()[1:]], table["t"].type)
    write_files(tmp_path, [table.set_column(0, "t", times), table])
    source = open_source(tmp_path, max_future="1 s")
    assert isinstance(source.next(), UnreadBatch)
    assert isinstance(source.next(), UnreadBatch)


def test_a_batch_with_a_time_out_of_range_is_looked_at(tmp_path: Path) -> None:
    write_files(tmp_path, [pa.table({"t": [2**61] * 200})])
    assert isinstance(open_source(tmp_path, time_unit="s").next(), UnreadBatch)


def test_columns_that_are_cast_while_they_are_read_are_looked_at(tmp_path: Path) -> None:
    write_files(tmp_path, [columns(200, 1)])
    schema = {"t": pa.timestamp("us", "UTC"), "small": "int64"}
    assert isinstance(open_source(tmp_path, schema=schema).next(), UnreadBatch)


@pytest.mark.parametrize("name", ["_half.parquet", "k=1/a.parquet", "a[1].parquet", "a%20.parquet"])
def test_paths_that_spark_would_read_otherwise_are_looked_at(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    pq.write_table(columns(200, 1), tmp_path / name)
    assert isinstance(open_source(tmp_path / name).next(), RemoteBatch)  # Arrow reads it by its name
    assert isinstance(open_source(tmp_path / name, fail_if_asked).next(), UnreadBatch)


@pytest.mark.parametrize(
    ("type_", "unit"),
    [(pa.timestamp("us"), None), (pa.date32(), None), (pa.int64(), "ms"), (pa.int64(), "ns")],
)
def test_statistics_are_in_the_unit_of_the_column(tmp_path: Path, type_: Any, unit: str | None) -> None:
    values = pa.array([-5, 3, 9], pa.int32() if type_ == pa.date32() else pa.int64())
    pq.write_table(pa.table({"t": values.cast(type_)}), tmp_path / "a.parquet", row_group_size=2)
    op = Source(ps.read.parquet(tmp_path), time="t", time_unit=unit, delay="0 s")
    time = op.resolve()
    assert time is not None
    assert time_range_of([pq.read_metadata(tmp_path / "a.parquet")], time) == TimeRange(-5, 9, 0, 3)


def test_files_without_statistics_prove_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, [columns(200, 1)], write_statistics=False)
    seen: list[Sequence[SourceFile]] = []

    def look(files: Sequence[SourceFile]) -> TimeRange:
        seen.append(files)
        return TimeRange(1, 2, 0, 200)

    assert isinstance(open_source(tmp_path).next(), UnreadBatch)
    batch = open_source(tmp_path, look).next()  # the JVM reads it
    assert (batch.least, batch.greatest) == (1, 2)
    assert len(seen) == 1
