"""Micro-batches handed to a function as DataFrames of Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import penstock as ps
import penstock.write as write
from penstock.connect.protocol import Delivery, DurableOutput, StagedOutput, StagingWriter, Writer
from penstock.connect.writers.spark import SparkFunctionWriter
from penstock.connect.writers.staged_files import StagedFile
from penstock.errors import ConnectorError, FunctionError, SchemaError

SCHEMA = pa.schema([("a", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


def ignore(df: Any, batch_id: int) -> None:
    pass


def stage(writer: SparkFunctionWriter, batch: pa.RecordBatch, tag: str) -> list[StagedFile]:
    """Stage rows as a task does, by what travels there."""
    sent: StagingWriter = cloudpickle.loads(cloudpickle.dumps(writer))
    part = sent.stage(batch.schema, tag)
    part.write(batch)
    return part.close()


def test_what_travels_to_tasks_has_not_the_function(tmp_path: Path) -> None:
    lock = (tmp_path / "lock").open("w")  # which cannot travel
    writer = write.spark(lambda df, batch_id: lock.write(str(batch_id))).in_folder(str(tmp_path / "out"))
    [file] = stage(writer, rows(1, 2), "task")
    assert (file.path, file.n_rows) == ("task-0.parquet", 2)
    sent = cloudpickle.loads(cloudpickle.dumps(writer))
    assert sent.folder == str(tmp_path / "out")
    with pytest.raises(AssertionError, match="tasks stage rows"):
        sent.function(None, 0)
    lock.close()


def test_an_engine_without_dataframes_is_refused() -> None:
    graph = ps.PipeGraph("rows")
    graph.source(ps.read.rows([{"a": 1}])).sink(write.spark(ignore), name="out")
    with pytest.raises(ConnectorError, match="and this engine has none") as caught:
        graph.run("local")
    assert 'engine="spark"' in str(caught.value.hint)
    with pytest.raises(ConnectorError, match="and this engine has none"):
        write.spark(ignore).stage(SCHEMA, "task")


def test_what_cannot_be_called_with_both_is_refused() -> None:
    with pytest.raises(ConnectorError, match="5 cannot be called") as caught:
        write.spark(5)  # type: ignore[arg-type]  # the mistake under test
    assert "ps.write.spark(save_batch)" in str(caught.value.hint)
    one: Callable[..., None] = lambda df: None
    named: Callable[..., None] = lambda df, *, batch_id: None
    three: Callable[..., None] = lambda df, batch_id, table: None
    for function in (one, named, three):
        with pytest.raises(ConnectorError, match="cannot be called with a DataFrame and") as caught:
            write.spark(function)
        assert "test_spark_function.py" in str(caught.value.where)
    for accepted in (functools.partial(three, table="t"), lambda *both: None, ignore, max):
        write.spark(accepted)


def test_columns_that_spark_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(SchemaError, match='columns "a" and "A" are one for Spark') as caught:
        write.spark(ignore).check_schema(pa.schema([("a", pa.int64()), ("A", pa.int64())]))
    assert caught.value.hint == "rename one of them before the sink"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match="cannot be written: Not a directory"):
        write.spark(ignore).in_folder(str(tmp_path / "file" / "out"))


def test_what_an_earlier_run_has_left_is_removed(tmp_path: Path) -> None:
    writer = write.spark(ignore).in_folder(str(tmp_path))
    stage(writer, rows(1), "died")
    out = writer.open(SCHEMA, "sink", resume=True)
    assert list((tmp_path / "_penstock" / "staged").iterdir()) == []
    out.close()


def test_a_writer_for_spark_says_what_it_is(tmp_path: Path) -> None:
    writer = write.spark(ignore)
    assert isinstance(writer, Writer)
    assert isinstance(writer, StagingWriter)
    assert (writer.delivery, writer.accepts_updates) == (Delivery.AT_LEAST_ONCE, True)
    assert writer.describe() == "spark ignore"
    out = writer.in_folder(str(tmp_path)).open(SCHEMA, "sink")
    assert isinstance(out, StagedOutput)
    assert not isinstance(out, DurableOutput)  # it cannot tell what an earlier run has written
    out.close()


# With a session.


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("test")
    opened = (
        builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
    )
    yield opened
    opened.stop()


Calls = list[tuple[int, list[dict[str, Any]]]]


def record_into(calls: Calls) -> Callable[[Any, int], None]:
    return lambda df, batch_id: calls.append((batch_id, [row.asDict(True) for row in df.collect()]))


@pytest.mark.slow
def test_the_function_gets_the_rows_of_all_tasks_once_and_their_files_go(
    session: Any, tmp_path: Path
) -> None:
    calls: Calls = []
    folder = tmp_path / "a [b]{c}*?=1 %20"  # characters that paths of Spark have meanings for
    writer = write.spark(record_into(calls)).in_folder(str(folder))
    out = writer.open(SCHEMA, "sink")
    out.publish(0, [*stage(writer, rows(1, 2), "task-0"), *stage(writer, rows(3), "task-1")])
    out.publish(0, stage(writer, rows(1, 2), "again"))
    out.publish(1, [])
    out.write(2, rows(4))
    out.commit(2)
    assert [(number, sorted(row["a"] for row in got)) for number, got in calls] == [(0, [1, 2, 3]), (2, [4])]
    assert list((folder / "_penstock" / "staged").iterdir()) == []
    out.write(3, rows(5))
    out.close()
    assert (len(calls), list((folder / "_penstock" / "staged").iterdir())) == (2, [])


@pytest.mark.slow
def test_columns_have_their_names_their_order_and_their_types(session: Any, tmp_path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, 0, 0, 1)
    columns: dict[str, tuple[pa.DataType, str, Any]] = {
        "small": (pa.int8(), "tinyint", -1),
        "single": (pa.float32(), "float", 0.5),
        "flag": (pa.bool_(), "boolean", True),
        "a.b c": (pa.string(), "string", "x"),
        "raw": (pa.binary(), "binary", b"\0"),
        "day": (pa.date32(), "date", date(1, 1, 1)),
        "naive": (pa.timestamp("us"), "timestamp_ntz", noon),
        "zoned": (pa.timestamp("us", "Europe/Berlin"), "timestamp", noon.replace(tzinfo=UTC)),
        "money": (pa.decimal128(20, 2), "decimal(20,2)", Decimal("1.50")),
        "list": (
            pa.list_(pa.struct([("t", pa.timestamp("us"))])),
            "array<struct<t:timestamp_ntz>>",
            [{"t": noon}],
        ),
        "null": (pa.int64(), "bigint", None),
    }
    schema = pa.schema([(name, type_) for name, (type_, _, _) in columns.items()])
    batch = pa.RecordBatch.from_pylist([{name: c[2] for name, c in columns.items()}], schema=schema)
    seen: list[tuple[Any, pa.Table]] = []
    writer = write.spark(lambda df, batch_id: seen.append((df.dtypes, df.toArrow()))).in_folder(str(tmp_path))
    out = writer.open(schema, "sink")
    out.publish(0, stage(writer, batch, "task"))
    out.close()
    [(types, table)] = seen
    assert types == [(name, spark_type) for name, (_, spark_type, _) in columns.items()]
    assert table.to_pylist() == batch.to_pylist()


@pytest.mark.slow
def test_what_the_function_raises_names_it_and_its_line_and_it_is_called_again(
    session: Any, tmp_path: Path
) -> None:
    calls: Calls = []

    def refuse_once(df: Any, batch_id: int) -> None:
        record_into(calls)(df, batch_id)
        if len(calls) == 1:
            raise KeyError("nobody home")

    writer = write.spark(refuse_once).in_folder(str(tmp_path))
    out = writer.open(SCHEMA, "sink")
    files = stage(writer, rows(1, 2), "task")
    with pytest.raises(FunctionError) as caught:
        out.publish(7, files)
    assert caught.value.fact.endswith("refuse_once raised KeyError: 'nobody home'")
    assert caught.value.detail == "it got micro-batch 7: 2 rows of a"
    assert "test_spark_function.py" in str(caught.value.where)
    assert "under this number" in str(caught.value.hint)
    out.publish(7, files)
    out.close()
    assert calls == [(7, [{"a": 1}, {"a": 2}])] * 2
