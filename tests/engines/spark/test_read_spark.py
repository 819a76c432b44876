"""`ps.read.spark`: a DataFrame as a source, in the JVM on Spark and by Arrow everywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.types import to_spark
from tests.support.parquet_feeds import columns, run, same_as_reference

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_session")]


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.createDataFrame(to_spark(columns(2_000, 5)))


def test_windows_over_a_dataframe_are_those_of_the_reference_engine(frame: Any) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        source = graph.source(ps.read.spark(frame), time="t", delay="1 s")
        keyed = source.filter(col("small") > 0).key_by("key")
        views = keyed.window(ps.sliding("2 s", every="1 s")).aggregate(n=ps.count(), big=ps.sum("big"))
        return [views]

    same_as_reference(build, "spark")


def test_rows_of_a_dataframe_are_those_of_the_reference_engine(frame: Any) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        filtered = graph.source(ps.read.spark(frame), time="t", delay="1 s").filter(col("x") > 0.0)
        counted = filtered.key_by("key").window(ps.count_window(7)).aggregate(big=ps.sum("big"))
        return filtered, counted

    same_as_reference(build, "spark")


def test_a_dataframe_without_time_and_one_of_another_time_zone_are_read_alike(spark: Any) -> None:
    user = spark.newSession()
    user.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = user.createDataFrame(to_spark(columns(300, 9)))

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        untimed = graph.source(ps.read.spark(frame)).with_columns(hour=col("t").dt.hour())
        return [untimed.select("t", "hour")]

    same_as_reference(build, "spark")


def test_what_is_no_dataframe_is_refused() -> None:
    with pytest.raises(ps.ConnectorError, match="list is not a Spark DataFrame"):
        ps.read.spark([1])


def test_a_dataframe_that_cannot_be_computed_names_the_source(spark: Any) -> None:
    from pyspark.sql import functions as F

    broken = spark.range(200).select(F.raise_error(F.lit("no such luck")).cast("long").alias("v"))

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        return [graph.source(ps.read.spark(broken), name="broken").filter(col("v") > 0)]

    with pytest.raises(ps.ConnectorError, match="could not be computed") as failure:
        run("reference", build)
    assert failure.value.step == "broken"
