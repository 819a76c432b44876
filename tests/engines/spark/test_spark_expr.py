"""`spark_expr` on Spark: in the JVM however few rows there are, and refused where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import NotSupported, col

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_session")]
CODE = ps.spark_expr("soundex(name)", "string")


@pytest.fixture
def names(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"t": [1, 2, 3], "name": ["Robert", "Rupert", None]}), tmp_path / "1.parquet")
    return tmp_path


def test_few_rows_of_files_go_through_the_jvm(names: Path) -> None:
    rows = ps.PipeGraph("codes").source(ps.read.parquet(names))
    result = (
        rows.with_columns(code=CODE).filter(col("code").is_not_null()).select("name", "code").collect("spark")
    )
    assert result.to_pylist() == [{"name": "Robert", "code": "R163"}, {"name": "Rupert", "code": "R163"}]


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    empty = pa.table({"name": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "1.parquet")
    assert (
        ps.PipeGraph("none")
        .source(ps.read.parquet(tmp_path))
        .with_columns(code=CODE)
        .collect("spark")
        .num_rows
        == 0
    )


def test_few_rows_of_a_dataframe_are_aggregated_by_it(spark: Any) -> None:
    frame = spark.createDataFrame([("Robert", 1), ("Ann", 2)], "name string, t long")
    rows = ps.PipeGraph("sums").source(ps.read.spark(frame), time="t", time_unit="s", delay="0 s")
    sized = rows.with_columns(size=ps.spark_expr("bigint(length(name))", "int64"))
    counts = sized.window(ps.tumbling("10 s")).aggregate(n=ps.sum("size"))
    assert counts.select("n").collect("spark").to_pylist() == [{"n": 9}]


def refuse(pipe: ps.MultiPipe) -> NotSupported:
    with pytest.raises(NotSupported, match="runs in the JVM, and this step does not") as failure:
        pipe.collect("spark")
    assert "straight behind ps.read.parquet" in str(failure.value.hint)
    return failure.value


def test_a_source_that_the_driver_reads_is_refused() -> None:
    rows = ps.PipeGraph("rows").source(ps.read.rows([{"name": "Ann"}]))
    assert refuse(rows.with_columns(code=CODE, name="codes")).step == "codes"


def test_a_step_behind_a_function_is_refused(names: Path) -> None:
    rows = ps.PipeGraph("late").source(ps.read.parquet(names))
    pipe = rows.map(lambda row: {"name": row.name}, schema={"name": str})
    assert refuse(pipe.filter(CODE == "R163", name="kept")).step == "kept"


def test_an_aggregate_is_refused(names: Path) -> None:
    rows = ps.PipeGraph("sums").source(ps.read.parquet(names), time="t", time_unit="s", delay="0 s")
    windows = rows.window(ps.tumbling("10 s"), name="w")
    assert refuse(windows.aggregate(n=ps.sum(ps.spark_expr("t + 1", "int64")))).step == "w"


def test_a_batch_that_the_driver_must_read_is_an_error_and_never_a_wrong_answer(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1, None], "name": ["Ann", "Bob"]}), tmp_path / "1.parquet")
    source = ps.read.parquet(tmp_path)
    rows = ps.PipeGraph("null").source(source, time="t", time_unit="s", delay="0 s", on_error="skip")
    with pytest.raises(NotSupported, match="a batch had to be read outside of it") as failure:
        rows.with_columns(code=CODE, name="codes").collect("spark")
    assert failure.value.step == "codes"
