"""Wrong calls are refused where they are made, before Spark plans anything."""

from __future__ import annotations

import threading
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import penstock as ps
from penstock import (
    EngineError,
    FunctionError,
    GraphError,
    NotSupported,
    PenstockError,
    SchemaError,
    TimeError,
)
from penstock.engines.spark.dataframes.window_plan import ROCKSDB
from penstock.spark import window_aggregate
from tests.support.dataframes import rows

pytestmark = pytest.mark.slow  # they need a Spark to make frames with


def call(df: Any, **asked: Any) -> Any:
    arguments = {
        "keys": ["page"],
        "time": "ts",
        "window": ps.tumbling("10 s"),
        "aggregates": {"n": ps.count()},
    }
    return window_aggregate(df, **{**arguments, **asked})


@pytest.fixture(scope="module")
def frame(users: Any) -> Any:
    return users.createDataFrame(rows(5))


@pytest.fixture(scope="module")
def stream(users: Any) -> Any:
    return users.readStream.format("rate").load().withColumnRenamed("timestamp", "ts")


FRAME_MISTAKES: list[tuple[dict[str, Any], type[PenstockError], str]] = [
    ({"keys": ["pagee"]}, SchemaError, r'there is no column "pagee"[\s\S]*did you mean "page"\?'),
    ({"keys": ["page", "page"]}, SchemaError, "a key names a column twice"),
    ({"keys": [1]}, SchemaError, "1 is not the name of a column"),
    ({"keys": 5}, SchemaError, "keys=5 is not a list of columns"),
    ({"time": "tss"}, SchemaError, 'there is no column "tss"'),
    (
        {"time": "n"},
        TimeError,
        r'time column "n" is of type bigint, not a timestamp[\s\S]*F.timestamp_millis',
    ),
    ({"time": "page"}, TimeError, 'time column "page" is of type string'),
    ({"window": "10 s"}, TimeError, "'10 s' is not a window"),
    ({"window": {"a": ps.tumbling("1 s"), "b": "10 s"}}, TimeError, "is not a window"),
    ({"window": ps.tumbling("0 s")}, TimeError, "is not longer than zero"),
    ({"lateness": 5}, TimeError, "lateness 5 has no unit"),
    ({"lateness": timedelta(seconds=-1)}, TimeError, "lateness -1 s is negative"),
    ({"aggregates": {}}, GraphError, "aggregates={} names no results"),
    ({"aggregates": [ps.count()]}, GraphError, "names no results"),
    ({"aggregates": {"n": ps.count}}, GraphError, r'"n" is given ps.count, not an aggregate'),
    ({"aggregates": {"n": ps.sum("prize")}}, SchemaError, r'there is no column "prize"[\s\S]*"price"'),
    ({"aggregates": {"n": ps.sum("page")}}, SchemaError, "sum cannot take"),
    ({"aggregates": {"page": ps.count()}}, SchemaError, 'column "page" comes twice'),
    (
        {"aggregates": {"n": ps.sum(ps.spark_expr("ascii(page)", "int64"))}},
        NotSupported,
        r"Spark's own SQL[\s\S]*df.withColumn",
    ),
]


@pytest.mark.parametrize(
    ("asked", "error", "message"), FRAME_MISTAKES, ids=[item[2] for item in FRAME_MISTAKES]
)
def test_a_wrong_call_is_refused_at_its_line(
    frame: Any, asked: dict[str, Any], error: type[PenstockError], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        call(frame, **asked)
    assert raised.value.where is not None
    assert raised.value.where.file == "tests/engines/spark/dataframes/test_mistakes.py"
    assert raised.value.hint


def test_a_window_of_sparks_is_refused_with_the_one_to_use(frame: Any) -> None:
    sliding = F.window("ts", "10 seconds", "1 second")
    for window in (sliding, {"a": ps.tumbling("1 s"), "b": sliding}):
        with pytest.raises(TimeError, match="is a column of Spark's, not a window") as raised:
            call(frame, window=window)
        assert 'ps.sliding("10 s", "1 s")' in str(raised.value.hint)
        assert raised.value.where is not None
        assert raised.value.where.file == "tests/engines/spark/dataframes/test_mistakes.py"


def test_a_fold_that_cannot_be_sent_to_workers_is_refused(frame: Any) -> None:
    lock = threading.Lock()

    def lift(row: Any) -> float:
        with lock:
            return float(row.n)

    total = ps.fold(lift, lambda a, b: a + b, 0.0, columns="n", type="float64")
    with pytest.raises(
        FunctionError, match=r"aggregate total=fold\(.*\) cannot be sent to the workers of Spark"
    ) as raised:
        call(frame, aggregates={"total": total})
    assert raised.value.where is not None
    assert raised.value.where.line == lift.__code__.co_firstlineno
    assert 'lift holds "lock", a _thread.lock' in str(raised.value.detail)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_results_leave_in_append_mode_only(stream: Any, mode: str) -> None:
    windows = call(stream, keys=[], delay="1 s")
    for start in (windows.writeStream.outputMode, lambda mode: windows.writeStream.start(outputMode=mode)):
        with pytest.raises(NotSupported, match=f"output mode '{mode}' is not one of") as raised:
            start(mode)
        assert raised.value.where is not None
        assert raised.value.where.file.endswith(".py")
        assert 'outputMode("append")' in str(raised.value.hint)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_spark_refuses_other_modes_of_what_is_derived_from_results(
    stream: Any, tmp_path: Path, mode: str
) -> None:
    derived = call(stream, keys=[], delay="1 s").where("n > 1")
    writer = derived.writeStream.format("noop").outputMode(mode)
    with pytest.raises(AnalysisException):
        writer.option("checkpointLocation", str(tmp_path)).start()


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(SchemaError, match="is not a DataFrame of Spark"):
        call([1, 2])


def test_a_frame_of_spark_connect_is_refused() -> None:
    class Remote:
        __module__ = "pyspark.sql.connect.dataframe"

    with pytest.raises(NotSupported, match="a frame of Spark Connect cannot be used here"):
        call(Remote())


def test_columns_that_spark_takes_for_one_another_are_refused(frame: Any) -> None:
    with pytest.raises(SchemaError, match='2 columns that Spark takes for "page"'):
        call(frame.select("*", F.lit(1).alias("Page")))


def test_columns_of_types_without_a_name_here_matter_only_when_they_are_asked_for(frame: Any) -> None:
    odd = frame.select(
        "*", F.create_map(F.lit("a"), F.lit(1)).alias("map"), F.expr("interval 1 day").alias("i")
    )
    assert call(odd, aggregates={"first": ps.first("n")}).columns == [
        "page",
        "window_start",
        "window_end",
        "first",
    ]
    with pytest.raises(SchemaError, match='column "map" has type map'):
        call(odd, aggregates={"n": ps.count("map")})
    with pytest.raises(SchemaError, match='column "i" has type'):
        call(odd, aggregates={"n": ps.count("i")})
    with pytest.raises(SchemaError, match=r'column "list" of type list.* cannot be a key'):
        call(frame.select("*", F.array(F.lit(1)).alias("list")), keys=["list"])


def test_a_stream_needs_one_watermark_on_its_time(stream: Any) -> None:
    with pytest.raises(TimeError, match=r'a streaming frame needs a watermark[\s\S]*delay="2 s"'):
        call(stream, keys=[])
    with pytest.raises(TimeError, match="delay 1500 us is not a number of milliseconds"):
        call(stream, keys=[], delay="1500 us")
    with pytest.raises(TimeError, match=r"both delay='2 s' and a watermark on \"ts\" of 5 s are given"):
        call(stream.withWatermark("ts", "5 seconds"), keys=[], delay="2 s")
    other = stream.withColumn("at", F.col("ts")).withWatermark("at", "1 second")
    with pytest.raises(
        TimeError, match=r'has a watermark on "at", and none on its time "ts"[\s\S]*time="at"'
    ):
        call(other, keys=[])
    gone = stream.withWatermark("ts", "1 second").withColumn("ts", F.date_trunc("hour", "ts"))
    with pytest.raises(TimeError, match=r"on a column that is gone[\s\S]*withWatermark\(\"ts\", ...\) last"):
        call(gone, keys=[], delay="2 s")


def test_a_stream_needs_a_session_with_rocksdb(users: Any) -> None:
    other = users.newSession()
    stream = other.readStream.format("rate").load()
    with pytest.raises(EngineError, match=r"keep their state in RocksDB[\s\S]*spark.conf.set") as raised:
        call(stream, keys=[], time="timestamp", delay="1 s")
    assert ROCKSDB in str(raised.value)


def test_a_stream_needs_the_libraries_of_sparks_state_operator(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "3.0.1" if name == "pandas" else "4.3.0")
    with pytest.raises(NotSupported, match=r"need protobuf, and pandas before 3[\s\S]*pip install") as raised:
        call(stream, keys=[], delay="1 s")
    assert raised.value.detail == "protobuf 4 is installed, pandas 3 is installed"


def test_a_stream_needs_protobuf(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name == "protobuf":
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(NotSupported, match="protobuf is not installed, pandas 2 is installed"):
        call(stream, keys=[], delay="1 s")


def test_a_frame_with_its_own_watermark_needs_no_delay(stream: Any) -> None:
    output = call(stream.withWatermark("ts", "5 seconds"), keys=[])
    assert output.isStreaming
    assert [field.name for field in output.schema] == ["window_start", "window_end", "n"]


def test_the_zone_of_times_is_kept(frame: Any) -> None:
    local = frame.withColumn("ts", F.col("ts").cast("timestamp_ntz"))
    assert call(frame).schema["window_start"].dataType.simpleString() == "timestamp"
    assert call(local).schema["window_start"].dataType.simpleString() == "timestamp_ntz"
