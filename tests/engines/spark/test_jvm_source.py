"""The JVM's part of a source: the plan that one would write by hand, and DataFrames that it aggregates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.engines.spark import jvm_source, read_placement
from penstock.engines.spark.file_splits import SourceFile
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.jvm_source import TIME, RemoteSource
from penstock.engines.spark.types import to_spark
from penstock.plan.plan import Plan
from tests.engines.spark.test_read_paths import AGGREGATES, FALLIBLE, KEYS, WINDOWS
from tests.support.parquet_feeds import columns, same_as_reference, write_files

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_session")]


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.createDataFrame(to_spark(columns(600, 5)))


@given(
    steps=st.lists(st.sampled_from(["filter", "another", "columns"]), unique=True, max_size=3),
    key=st.sampled_from(KEYS),
    window=st.sampled_from(WINDOWS[:4]),
    several=st.booleans(),
)
@settings(max_examples=4, deadline=None)
def test_windows_of_a_dataframe_are_those_of_the_reference_engine(
    frame: Any, steps: list[str], key: tuple[str, ...], window: Any, several: bool
) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        pipe: Any = graph.source(ps.read.spark(frame), time="t", delay="0 s")
        for name in steps:
            if name == "columns":
                pipe = pipe.with_columns(x=col("x") * 0.5)
            else:
                pipe = pipe.filter(col("small") > -50 if name == "filter" else col("x") > -150.0)
        keyed = pipe.key_by(*key) if key else pipe
        windows = {"one": window, "other": ps.tumbling("1 s")} if several else {"one": window}
        return [keyed.window(**windows, name="w").aggregate(**AGGREGATES)]

    same_as_reference(build, "spark")


def test_a_dataframe_straight_before_windows_is_grouped_by_spark(
    frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped: list[str] = []
    real = RemoteSource._group

    def group_and_note(self: RemoteSource, *args: Any) -> Any:
        grouped.append(self.pipeline.source.name)
        return real(self, *args)

    monkeypatch.setattr(RemoteSource, "_group", group_and_note)

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        filtered = graph.source(ps.read.spark(frame), time="t", delay="0 s").filter(col("small") > 0)
        return [filtered.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())]

    same_as_reference(build, "spark")
    assert len(grouped) == 1


@pytest.mark.parametrize("where", ["step", "aggregate"])
def test_rows_of_a_dataframe_that_fail_follow_the_policy_of_their_step(frame: Any, where: str) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        rows = graph.source(ps.read.spark(frame), time="t", delay="0 s")
        if where == "step":
            rows = rows.with_columns(big=FALLIBLE, on_error="skip")
        windows = rows.window(ps.tumbling("1 s"), name="w", on_error="dead_letter")
        value = col("big") if where == "step" else FALLIBLE
        return windows.aggregate(q=ps.sum(value)), graph["w"].errors

    same_as_reference(build, "spark")


def test_steps_that_cannot_fail_have_the_plan_of_hand_written_spark(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    folder = write_files(tmp_path, [columns(200, seed) for seed in range(2)])
    graph = ps.PipeGraph("plans")
    rows = graph.source(ps.read.parquet(folder), time="t", delay="1 s")
    pipe = rows.filter(col("small") > 3).with_columns(y=col("x") * 2.0).select("key", "y")
    pipe.sink(ps.write.memory())
    plan = Plan(graph.name, tuple(graph.steps.values()))
    (pipeline,) = read_placement.source_pipelines(plan)
    files = [SourceFile(str(file), 0) for file in sorted(folder.iterdir())]
    source = RemoteSource(spark, plan, pipeline, split_into_fragments(plan))
    ours = source.frame(files, numbered=False).drop(TIME)
    by_hand = spark.read.parquet(*(file.path for file in files)).where(F.col("small") > 3)
    assert _physical(ours) == _physical(by_hand.select("key", (F.col("x") * 2.0).alias("y")))


def test_a_dataframe_is_not_grouped_where_rows_could_not_be_counted(frame: Any) -> None:
    def windows_of(pipe: ps.MultiPipe, window: Any) -> Any:
        counts = pipe.window(window, name="w").aggregate(n=ps.count())
        counts.sink(ps.write.memory())
        plan = Plan("counts", tuple(pipe.graph.steps.values()))
        (pipeline,) = read_placement.source_pipelines(plan)
        return RemoteSource(None, plan, pipeline, split_into_fragments(plan))._windows

    def source() -> ps.MultiPipe:
        return ps.PipeGraph("counts").source(ps.read.spark(frame), time="t", delay="0 s")

    assert windows_of(source().filter(col("small") > 0), ps.tumbling("1 s")) is not None
    assert windows_of(source().filter(col("small") > 0).filter(col("flag")), ps.tumbling("1 s")) is None
    assert windows_of(source(), ps.sliding("1 s", every="2 s")) is None
    assert windows_of(source(), ps.count_window(7)) is None


def _physical(frame: Any) -> str:
    """The plan as text, without the numbers of columns and where the files are."""
    text = frame._jdf.queryExecution().executedPlan().toString()
    return re.sub(r"#\d+L?|Location: [^,]*\.\.\.|\[[^]]*file:[^]]*\]", "", text)


def test_outcomes_are_counted_and_only_rows_that_are_alive_go_on() -> None:
    import pyarrow as pa

    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    rows = jvm_source.HandedOverRows(schema, ("b",), 3, numbered=True, with_outcomes=True)
    columns_ = [pa.array(["x", "y", "z"]), pa.array([7, 8, 9]), pa.array([0, 1, 2]), pa.array([0, 2, 0])]
    batch, outcomes = rows.to_batch(pa.RecordBatch.from_arrays(columns_, ["0", "1", "2", "3"]))
    assert batch.rows.to_pylist() == [{"a": None, "b": "x"}, {"a": None, "b": "z"}]
    assert (batch.times.tolist(), [column.tolist() for column in batch.order]) == ([7, 9], [[3, 3], [0, 2]])
    assert outcomes == {0: 2, 2: 1}
