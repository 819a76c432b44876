"""`ps.read.spark` of a streaming DataFrame: the batches that Spark cuts, each once, also after a restart."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import CheckpointError, ConnectorError, col, crash_points

pytestmark = pytest.mark.slow
SCHEMA = "t bigint, key string, v bigint"


def put(folder: Path, number: int, *rows: tuple[int, str, int]) -> None:
    """One more file of the stream."""
    folder.mkdir(exist_ok=True)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("t", "key", "v"))}
    pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def stream_of(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    put(folder, 1, (1, "a", 1), (2, "b", 2))
    put(folder, 2, (12, "a", 4))
    return folder


def sums(spark: Any, files: Path, **options: Any) -> ps.MultiPipe:
    reader = ps.read.spark(stream_of(spark, files), follow=False)
    rows = ps.PipeGraph("sums").source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    windows = rows.filter(col("v") > 0).key_by("key").window(ps.tumbling("10 s"), name="w", **options)
    return windows.aggregate(s=ps.sum("v")).select("key", "s")


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("on", ["spark", "reference"])
def test_what_a_stream_has_now_is_read_to_its_end(spark: Any, files: Path, on: str) -> None:
    assert bag(sums(spark, files).collect(on)) == {("a", 1): 1, ("b", 2): 1, ("a", 4): 1}


def test_a_stream_is_followed_until_it_is_stopped(spark: Any, files: Path) -> None:
    reader = ps.read.spark(stream_of(spark, files))
    rows = ps.PipeGraph("followed").source(reader, name="rows")
    seen: list[int] = []

    def take(batch: pa.RecordBatch) -> None:
        seen.extend(batch["v"].to_pylist())
        if sum(seen) == 7:
            put(files, 3, (20, "c", 100))
        if sum(seen) == 107:
            followed.stop()

    rows.with_columns(v=col("v") * 1).sink(ps.write.callback(take))
    followed = rows.graph.start("spark")
    assert followed.wait(120).outcome == "stopped"
    assert Counter(seen) == Counter([1, 2, 4, 100])


def read_output(folder: Path) -> Counter[tuple[Any, ...]]:
    rows = ps.read.jsonl(folder, schema={"key": str, "s": int})
    return Counter(tuple(row.values()) for batch in rows.batches() for row in batch.rows.to_pylist())


def run(spark: Any, files: Path, folder: Path, **options: Any) -> Any:
    pipe = sums(spark, files)
    pipe.sink(ps.write.jsonl(folder / "out"), name="out")
    return pipe.graph.run("spark", checkpoint=str(folder / "checkpoint"), **{"drain": True, **options})


class Died(BaseException):
    """The run ends here."""


def die_at(point: str, reached: str) -> None:
    if reached == point:
        raise Died


def test_a_run_over_a_stream_that_dies_again_and_again_goes_on_with_every_row_once(
    spark: Any, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Counter({("a", 1): 1, ("b", 2): 1, ("a", 4): 1})
    for number, point in enumerate(crash_points.POINTS, 3):
        with monkeypatch.context() as patch:
            patch.setattr(crash_points, "listener", partial(die_at, point))
            with pytest.raises(Died):
                run(spark, files, tmp_path, drain=False)
        # Another window for the next run, so that there is something to do at every point.
        put(files, number, (10 * number + 1, "b", 8 * number))
        expected["b", 8 * number] += 1
    result = run(spark, files, tmp_path)
    assert read_output(tmp_path / "out") == expected
    assert result.accounts["rows"].rows_in == 3 + len(crash_points.POINTS)


def test_a_checkpoint_without_sparks_own_is_refused(spark: Any, files: Path, tmp_path: Path) -> None:
    run(spark, files, tmp_path, drain=False)
    shutil.rmtree(tmp_path / "checkpoint" / "stream-0")
    with pytest.raises(CheckpointError, match='Spark\'s own checkpoint of source "rows" is gone'):
        run(spark, files, tmp_path)


def test_a_stream_that_cannot_be_computed_names_the_source(spark: Any, files: Path) -> None:
    from pyspark.sql import functions as F

    broken = stream_of(spark, files).select(F.raise_error(F.lit("no such luck")).cast("long").alias("v"))
    rows = ps.PipeGraph("broken").source(ps.read.spark(broken, follow=False), name="broken")
    with pytest.raises(ConnectorError, match="could not be computed") as failure:
        rows.with_columns(v=col("v") + 1).collect("spark")
    assert failure.value.step == "broken"
    assert "no such luck" in str(failure.value.detail)


def test_a_stream_that_spark_refuses_is_refused_with_its_reason(spark: Any, files: Path) -> None:
    unbounded = stream_of(spark, files).groupBy("key").count()  # in append mode, without a watermark
    rows = ps.PipeGraph("refused").source(ps.read.spark(unbounded, follow=False), name="refused")
    with pytest.raises(ConnectorError, match="the stream could not be started") as failure:
        rows.with_columns(n=col("count") + 1).collect("spark")
    assert failure.value.step == "refused"
