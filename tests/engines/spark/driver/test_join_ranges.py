"""A band join that goes from a grid to ranges of its attribute while it runs, with Spark and without it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.accounts import JoinAccounts
from penstock.engines.spark.driver import join_planner
from penstock.engines.spark.driver import rounds as ahead
from penstock.engines.spark.driver.join_planner import JoinPlanner
from penstock.engines.spark.session.session import RunSession
from penstock.stages.join.cell_places import RangeLayout
from tests.support.crashing_graph import read_rows
from tests.support.spark_in_process import InProcessJobs, InProcessSparkEngine

pytestmark = pytest.mark.slow
SCHEMA = {"t": "int64", "v": "int64", "id": "int64"}


def batches(seed: int, n_batches: int = 6) -> list[list[dict[str, int]]]:
    """Batches whose values move, so that ranges have to follow."""
    return [
        [{"t": 100 * n + k, "v": (k * seed) % 997 + 400 * n, "id": 1000 * n + k} for k in range(100)]
        for n in range(n_batches)
    ]


def graph_of(folder: Path, how: Any) -> ps.PipeGraph:
    graph = ps.PipeGraph("ranges")
    left, right = (
        graph.source(
            ps.read.batches(batches(seed), schema=SCHEMA), time="t", time_unit="s", delay="9 s", name=name
        )
        for seed, name in ((31, "left"), (57, "right"))
    )
    near = left.join(right, on=ps.band("v", 9), within="150 s", suffix="_r", how=how, name="near")
    near.sink(ps.write.jsonl(folder / "pairs"))
    return graph


@pytest.fixture(autouse=True)
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lets every job have one round, and collects the layouts of jobs."""
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 1)
    collected: list[Any] = []
    choose = JoinPlanner.choose

    def listen(planner: JoinPlanner, *arguments: Any) -> Any:
        collected.append(choose(planner, *arguments))
        return collected[-1]

    monkeypatch.setattr(JoinPlanner, "choose", listen)
    return collected


def count_ranges(layouts: list[Any]) -> int:
    return sum(isinstance(layout, RangeLayout) for layout, _ in layouts)


def run(folder: Path, how: str, engine: Any, **options: Any) -> Any:
    run = graph_of(folder, how).start(
        engine, checkpoint=str(folder / "checkpoint"), **{"drain": True, **options}
    )
    run.wait()
    return run.metrics()["near"]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_join_goes_over_to_ranges_and_gives_what_the_reference_gives(
    tmp_path: Path, how: str, layouts: list[Any]
) -> None:
    graph_of(tmp_path / "judge", how).run("reference")
    metrics = run(tmp_path, how, InProcessSparkEngine(3, mixes=False))
    assert read_rows(tmp_path / "pairs") == read_rows(tmp_path / "judge" / "pairs")
    assert isinstance(metrics, JoinAccounts)
    assert metrics.layout
    assert count_ranges(layouts) > 1


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_run_that_is_stopped_in_ranges_goes_on_with_other_partitions_and_in_process(
    tmp_path: Path, how: str, layouts: list[Any]
) -> None:
    graph_of(tmp_path / "judge", how).run("reference")
    run(tmp_path, how, InProcessSparkEngine(4, mixes=False), until=3)
    assert count_ranges(layouts)
    run(tmp_path, how, InProcessSparkEngine(2, mixes=False), until=1)
    run(tmp_path, how, InProcessSparkEngine(5, seed=3, mixes=False), until=1)
    run(tmp_path, how, "local")
    assert read_rows(tmp_path / "pairs") == read_rows(tmp_path / "judge" / "pairs")


def test_in_ranges_a_row_is_sent_about_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent: list[float] = []
    learn = InProcessJobs.learn

    def listen(jobs: InProcessJobs, result: Any) -> None:
        received = sum(cell[1] for report in result.joins for cell in report["cells"])
        rows = sum(part[2] for report in result.joins for part in report["sent"])
        sent.extend([received / rows] if rows else [])
        learn(jobs, result)

    monkeypatch.setattr(InProcessJobs, "learn", listen)
    run(tmp_path, "inner", InProcessSparkEngine(8, mixes=False))
    assert sent[0] >= 3, "a grid of 8 cells or 16"
    assert min(sent) < 1.3


def test_on_spark_a_join_goes_over_to_ranges_and_is_stopped_and_goes_on(
    spark_session: RunSession, tmp_path: Path, layouts: list[Any]
) -> None:
    graph_of(tmp_path / "judge", "full").run("reference")
    options = ps.SparkOptions(partitions=3)
    run(tmp_path, "full", "spark", until=4, options=options)
    assert count_ranges(layouts)
    last = run(tmp_path, "full", "spark", options=options)
    assert read_rows(tmp_path / "pairs") == read_rows(tmp_path / "judge" / "pairs")
    assert last.measured_ms > 0
    assert sum(last.stored) >= 0


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_run_of_one_job_has_ranges_if_its_files_have_many_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: Any, layouts: list[Any]
) -> None:
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 100)
    monkeypatch.setattr(join_planner, "SAMPLE_FROM", 1_000)
    graph = graph_of_files(tmp_path, how)
    run = graph.start(InProcessSparkEngine(4, mixes=False))
    run.wait()
    assert [type(layout) for layout, _ in layouts[:1]] == [RangeLayout]
    assert count_ranges(layouts) == len(layouts)
    pairs = read_rows(tmp_path / "pairs")
    shutil.rmtree(tmp_path / "pairs")
    graph_of_files(tmp_path, how).run("reference")
    assert pairs == read_rows(tmp_path / "pairs")
    assert len(pairs) > 100


def test_few_rows_are_not_looked_at_twice(tmp_path: Path, layouts: list[Any]) -> None:
    graph_of_files(tmp_path, "inner").start(InProcessSparkEngine(4, mixes=False)).wait()
    assert not isinstance(layouts[0][0], RangeLayout)


def graph_of_files(folder: Path, how: Any) -> ps.PipeGraph:
    """A band join of 2,000 rows a side in files; of the left one in two goes into it, at twice its value."""
    graph = ps.PipeGraph("files")
    for seed, name in ((31, "left"), (57, "right")):
        (folder / name).mkdir(exist_ok=True)
        rows = [row for batch in batches(seed, 20) for row in batch]
        for number in range(4):
            part = pa.Table.from_pylist(rows[500 * number : 500 * (number + 1)])
            pq.write_table(part, folder / name / f"{number}.parquet", row_group_size=100)
    left, right = (
        graph.source(ps.read.parquet(folder / name), time="t", time_unit="s", delay="9 s", name=name)
        for name in ("left", "right")
    )
    left = left.filter(ps.col("id") % 2 == 0).with_columns(v=ps.col("v") * 2)
    near = left.join(right, on=ps.band("v", 40), within="150 s", suffix="_r", how=how, name="near")
    near.sink(ps.write.jsonl(folder / "pairs"))
    return graph


def test_on_spark_tasks_look_at_files_before_the_first_job(
    spark_session: RunSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, layouts: list[Any]
) -> None:
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 100)
    monkeypatch.setattr(join_planner, "SAMPLE_FROM", 1_000)
    graph_of_files(tmp_path, "inner").run("spark", options=ps.SparkOptions(partitions=3))
    assert isinstance(layouts[0][0], RangeLayout)
    pairs = read_rows(tmp_path / "pairs")
    shutil.rmtree(tmp_path / "pairs")
    graph_of_files(tmp_path, "inner").run("reference")
    assert pairs == read_rows(tmp_path / "pairs")
