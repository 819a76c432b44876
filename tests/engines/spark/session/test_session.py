"""Sessions: one Spark per process, one session per run, whose settings touch nobody else's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engines.spark import engine as installed
from penstock.engines.spark.session.java import Java
from penstock.engines.spark.session.session import RunSession, _variables, open_session, start_spark
from penstock.errors import EngineError, NotSupported
from tests.support.listeners import addresses_of, with_children

pytestmark = pytest.mark.slow


def test_a_run_has_utc_our_partitions_and_large_arrow_batches(spark_session: RunSession) -> None:
    conf = spark_session.spark.conf
    assert spark_session.spark.sparkContext.master == "local[*,4]"
    assert conf.get("spark.sql.session.timeZone") == "UTC"
    assert conf.get("spark.sql.shuffle.partitions") == str(spark_session.partitions)
    assert spark_session.partitions == spark_session.spark.sparkContext.defaultParallelism
    assert int(conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")) >= 100_000


def test_the_next_run_uses_the_same_spark_with_settings_of_its_own(spark_session: RunSession) -> None:
    options = ps.SparkOptions(partitions=7, conf={"spark.sql.ansi.enabled": "false"})
    other = open_session(options, checkpoint="s3a://bucket/x")
    assert other.spark.sparkContext is spark_session.spark.sparkContext
    assert other.spark.conf.get("spark.sql.shuffle.partitions") == "7"
    assert other.spark.conf.get("spark.sql.ansi.enabled") == "false"
    assert spark_session.spark.conf.get("spark.sql.shuffle.partitions") == str(spark_session.partitions)
    assert spark_session.spark.conf.get("spark.sql.ansi.enabled") == "true"


def test_a_misspelt_setting_is_refused_with_the_one_that_is_meant(spark_session: RunSession) -> None:
    with pytest.raises(EngineError, match=r"no setting spark\.sql\.shufle\.partitions") as failure:
        open_session(ps.SparkOptions(conf={"spark.sql.shufle.partitions": "3"}))
    assert "spark.sql.shuffle.partitions" in str(failure.value.hint)
    conf = {"spark.sql.catalog.mine": "no.such.Catalog", "spark.sql.plugin.of.somebody": "1"}
    assert open_session(ps.SparkOptions(conf=conf)).spark.conf.get("spark.sql.plugin.of.somebody") == "1"


def test_a_session_of_the_users_keeps_its_own_zone_and_name(spark: Any) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    before = theirs.sparkContext.appName
    ours = open_session(ps.SparkOptions(session=theirs), name="another").spark
    assert ours.sparkContext.appName == before != "another"
    assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
    assert theirs.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"


def test_workers_have_the_kernels_loaded_before_their_first_row(spark: Any) -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loaded = {"numba", "penstock.kernels.build", "penstock.stages.window.stage"} <= set(sys.modules)
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"loaded": [loaded] * batch.num_rows})

    rows = spark.range(4, numPartitions=2).mapInArrow(seen, "loaded boolean").toArrow()
    assert rows["loaded"].to_pylist() == [True] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_listens_beyond_loopback(spark: Any) -> None:
    spark.range(4, numPartitions=2).mapInArrow(lambda batches: batches, "id long").count()
    processes = with_children(spark.sparkContext._gateway.proc.pid)
    listening = {address for process in processes for address in addresses_of(process)}
    assert len(processes) > 1
    assert listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.parametrize(
    ("options", "master", "fact"),
    [
        (ps.SparkOptions(), "spark://ann:hidden@host:7077", 'already runs in this process at "local'),
        (ps.SparkOptions(conf={"spark.executor.memory": "3g"}), None, "spark.executor.memory cannot change"),
        (ps.SparkOptions(partitions=0), None, "partitions=0 is not a number of parts"),
        (ps.SparkOptions(session="mine"), None, "session='mine' is no SparkSession"),
        (ps.SparkOptions(conf={"memory": "1g"}), None, "'memory' is not a setting of Spark"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    spark: Any, options: ps.SparkOptions, master: str | None, fact: str
) -> None:
    with pytest.raises(EngineError, match=fact) as caught:
        open_session(options, master=master)
    assert caught.value.hint
    assert "hidden@" not in str(caught.value)


def test_a_secret_that_came_too_late_is_not_told(spark: Any) -> None:
    with pytest.raises(EngineError, match="cannot change while Spark runs") as caught:
        open_session(ps.SparkOptions(conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"}))
    assert "hunter2" not in str(caught.value)


def test_a_session_and_a_master_together_are_refused(spark: Any) -> None:
    with pytest.raises(EngineError, match='both session= and master="local"') as caught:
        open_session(ps.SparkOptions(session=spark), master="local")
    assert caught.value.hint == "leave one of them out"


def test_a_connect_session_is_refused_with_the_reason(spark: Any) -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(NotSupported, match="a Spark Connect session cannot run a graph") as caught:
        open_session(ps.SparkOptions(session=remote))
    assert "classic session" in str(caught.value.hint)


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with pytest.raises(EngineError, match="no Spark master answers at") as caught:
        start_spark("spark://ann:hidden@127.0.0.1:1", {})
    assert "hidden@" not in str(caught.value)
    assert caught.value.hint == "start it, or leave master= out to run on this machine"


def test_without_pyspark_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(NotSupported, match="needs pyspark, which is not installed") as caught:
        open_session(ps.SparkOptions())
    assert caught.value.hint == 'pip install "penstock[spark]"'


def test_another_pyspark_is_refused_with_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "SUPPORTED", (9, 9))
    with pytest.raises(NotSupported, match=r"is installed, and the Spark engine is made for 9\.9") as caught:
        open_session(ps.SparkOptions())
    assert caught.value.hint == 'pip install "penstock[spark]"'


def test_workers_import_pyspark_from_its_folder_and_not_from_an_archive(spark_session: RunSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"file": [str(pyspark.__file__)] * batch.num_rows})

    rows = spark_session.spark.range(2).mapInArrow(look, "file string").toArrow()
    assert not [file for file in rows["file"].to_pylist() if ".zip" in file]


@pytest.mark.parametrize(
    ("conf", "environment"),
    [({"spark.pyspark.python": "/other/python"}, {}), ({}, {"SPARK_HOME": "/opt/spark"})],
    ids=["another Python", "a home of the user's"],
)
def test_the_archives_stay_where_pyspark_may_come_from_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], environment: dict[str, str]
) -> None:
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    java = Java(Path("/java"), 17, "PATH")
    assert "SPARK_HOME" in _variables(java, "local[2]", {})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert "SPARK_HOME" not in _variables(java, "local[2]", conf)
