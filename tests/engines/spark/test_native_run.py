"""Programs of expressions alone: which they are, and that Spark runs them without Python, all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import col
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.native_run import native_sink
from penstock.engines.spark.read_placement import source_pipelines
from penstock.engines.spark.session.session import RunSession
from penstock.engines.spark.wire import WireRow
from tests.support.parquet_feeds import columns, write_files

Verbs = Callable[[ps.MultiPipe], ps.MultiPipe]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_files(tmp_path / "in", [columns(600, seed, 10 * seed) for seed in range(3)])


def build(files: Path, verbs: Verbs, sink: Any) -> ps.PipeGraph:
    graph = ps.PipeGraph("etl")
    verbs(graph.source(ps.read.parquet(files), time="t", delay="1 s", name="rows")).sink(sink, name="out")
    return graph


def is_native(graph: ps.PipeGraph) -> bool:
    plan = graph.plan()
    return all(
        native_sink(plan, pipeline, split_into_fragments(plan)) is not None
        for pipeline in source_pipelines(plan)
    )


def choose(pipe: ps.MultiPipe) -> ps.MultiPipe:
    chosen = pipe.filter(col("small") > -50, name="small").with_columns(y=col("x") * 2.0, name="y")
    return chosen.filter(col("y") > 0.0, name="positive").select("t", "key", "y", "small", "day", "flag")


def divide(pipe: ps.MultiPipe) -> ps.MultiPipe:
    return pipe.with_columns(q=col("big") // col("small"), on_error="skip", name="q").select("q", "key")


def test_filters_and_columns_between_parquet_files_are_native(files: Path, tmp_path: Path) -> None:
    assert is_native(build(files, choose, ps.write.parquet(tmp_path / "out")))
    assert is_native(build(files, lambda pipe: pipe, ps.write.parquet(tmp_path / "out")))


@pytest.mark.parametrize(
    ("verbs", "sink"),
    [
        (choose, ps.write.csv),
        (choose, lambda folder: ps.write.parquet(folder, partition_by="key")),
        (choose, lambda folder: ps.write.memory()),
        (lambda pipe: pipe.filter(lambda row: row.flag), ps.write.parquet),
        (
            lambda pipe: pipe.join_table(ps.read.rows([{"key": "a", "n": 1}]), on="key"),
            ps.write.parquet,
        ),
    ],
    ids=["csv", "partitions", "memory", "function", "table"],
)
def test_everything_else_runs_in_our_stages(files: Path, tmp_path: Path, verbs: Verbs, sink: Any) -> None:
    assert not is_native(build(files, verbs, sink(tmp_path / "out")))


def test_times_without_a_zone_are_written_by_arrow(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("us"))}), tmp_path / "a.parquet")
    assert not is_native(build(tmp_path, lambda pipe: pipe, ps.write.parquet(tmp_path / "out")))


def read_rows(folder: Path) -> list[str]:
    return sorted(str(row) for row in pq.read_table(folder).to_pylist())


@pytest.mark.slow
@pytest.mark.usefixtures("spark_session")
class TestOnSpark:
    """With a real session."""

    def run_both(self, files: Path, folder: Path, verbs: Verbs) -> None:
        wanted = build(files, verbs, ps.write.parquet(folder / "reference")).run("reference")
        result = build(files, verbs, ps.write.parquet(folder / "spark")).run("spark")
        assert read_rows(folder / "spark") == read_rows(folder / "reference")
        assert result.accounts == wanted.accounts
        schemas = [pq.read_schema(next((folder / name).glob("*.parquet"))) for name in ("reference", "spark")]
        assert schemas[1].remove_metadata() == schemas[0].remove_metadata()

    def test_such_a_program_gives_the_same_and_never_meets_python(
        self, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(self: SparkJobs, slots: Sequence[Sequence[WireRow]]) -> Any:
            raise AssertionError("rows were sent to Python workers")

        monkeypatch.setattr(SparkJobs, "_slots_frame", fail)
        self.run_both(files, tmp_path, choose)

    def test_a_row_that_fails_follows_the_policy_of_its_step(self, files: Path, tmp_path: Path) -> None:
        self.run_both(files, tmp_path, divide)


@pytest.mark.slow
def test_jobs_and_stages_carry_the_names_of_the_program(
    spark_session: RunSession, files: Path, tmp_path: Path
) -> None:
    def look(row: Any) -> bool:
        return bool(row.flag)

    graph = build(files, lambda pipe: pipe.filter(look, name="flags"), ps.write.parquet(tmp_path / "out"))
    graph.run("spark")
    context: Any = spark_session.spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    texts = {jobs.apply(place).description().toString() for place in range(jobs.size())}
    assert any("etl: rounds 0 to 3: rows, flags, out" in text for text in texts), texts
