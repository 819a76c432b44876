"""Chains in the JVM give the rows, late rows, errors and accounts of the reference engine, and its plans."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.jvm import carry as native
from penstock.engines.spark.jvm import pipeline as native_chain
from penstock.engines.spark.jvm.frames import TIME, JvmFrames
from penstock.engines.spark.jvm.source import SourceFile
from penstock.plan.plan import Plan
from penstock.testing.assertions import difference
from tests.engines.spark.feeds import columns, run, same_as_reference, write_files

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("opened")]
TABLE = [{"key": "a", "rank": 1}, {"key": "b", "rank": 2}, {"key": "żółć", "rank": None}]
FALLIBLE = (col("big") // col("small")) * 2


@pytest.fixture(autouse=True, scope="module")
def small_batches_too() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_chain, "LEAST_ROWS", 100)
        patch.setattr(native, "why_in_the_jvm", lambda plan, chain: "that is what is tried here")
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path, [columns(2_000, seed, 10 * seed) for seed in range(3)])


def read(graph: ps.PipeGraph, folder: Path, **options: Any) -> ps.MultiPipe:
    return graph.source(ps.read.parquet(folder), time="t", **{"delay": "1 s", **options})


AGGREGATES = {
    "n": ps.count(),
    "present": ps.count("small"),
    "sum_big": ps.sum("big"),
    "sum_small": ps.sum("small"),
    "sum_x": ps.sum("x"),
    "mean_f": ps.mean("f"),
    "least_f": ps.min("f"),
    "most_f": ps.max("f"),
    "least_big": ps.min("big"),
    "most_day": ps.max("day"),
    "least_flag": ps.min("flag"),
    "latest": ps.event_time_max(),
    "spread": ps.std("x"),
    "doubled": ps.sum(col("x") * 2.0),
}
STEPS = {
    "filter": lambda pipe: pipe.filter(col("small") > -50),
    "another filter": lambda pipe: pipe.filter(col("x") > -150.0),
    "map": lambda pipe: pipe.with_columns(x=col("x") * 0.5, y=col("f") + 1.0),
    "inner": lambda pipe: pipe.join_table(ps.read.rows(TABLE), on="key"),
    "left": lambda pipe: pipe.join_table(ps.read.rows(TABLE), on="key", how="left"),
}
KEYS = [(), ("key",), ("f",), ("key", "flag"), ("day",)]
WINDOWS = [
    ps.tumbling("1 s"),
    ps.sliding("2 s", every="500 ms"),
    ps.sliding("1 s", every="1700 ms"),
    ps.sliding("3 s", every="1001 ms"),
]


@given(
    st.integers(0, 1000),
    st.lists(st.sampled_from(sorted(STEPS)), unique=True, max_size=4).filter(
        lambda names: not {"inner", "left"} <= set(names)
    ),
    st.sampled_from(KEYS),
    st.sampled_from(WINDOWS),
    st.sampled_from(["0 s", "700 ms"]),
    st.booleans(),
)
@settings(max_examples=6, deadline=None)
def test_a_chain_that_ends_in_windows_gives_what_the_reference_engine_gives(
    seed: int, steps: list[str], key: tuple[str, ...], window: Any, lateness: str, several: bool
) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        pipe: Any = read(graph, files, delay="0 s")
        for name in steps:
            pipe = STEPS[name](pipe)
        keyed = pipe.key_by(*key) if key else pipe
        windows = {"one": window, "other": ps.tumbling("1 s")} if several else {"one": window}
        views = keyed.window(**windows, lateness=lateness, name="w").aggregate(**AGGREGATES)
        return views, views.late

    with tempfile.TemporaryDirectory() as path:
        files = write_files(Path(path), [columns(700, seed + i, 10 * i) for i in range(3)])
        same_as_reference(build)


def test_only_rows_that_come_to_windows_miss_some(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        kept = read(graph, folder, delay="0 s").filter(col("small") > 0).filter(col("x") > 0.0)
        views = kept.window(ps.sliding("2 s", every="1 s"), name="w").aggregate(n=ps.count())
        return views, views.late

    accounts = same_as_reference(build).accounts["w"]
    assert accounts.late_by_window
    assert accounts.late


def test_a_chain_that_ends_in_rows_gives_what_the_reference_engine_gives(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        kept = read(graph, folder).filter(col("small") > 0).with_columns(y=col("x") * 2.0)
        long = kept.filter(lambda row: row.key == "a")
        counted = kept.key_by("key").window(ps.count_window(7), name="c").aggregate(last=ps.last("big"))
        return kept, long, counted

    same_as_reference(build)


def test_rows_that_python_made_go_over_the_exchange_in_parts_with_the_same_answer(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        made = read(graph, folder).map(
            lambda row: {"key": row.key, "v": (row.big or 0) % 1000}, schema={"key": "string", "v": "int64"}
        )
        views = made.key_by("key").window(ps.sliding("2 s", every="1 s"), name="w")
        given = views.aggregate(n=ps.count(), v=ps.sum("v"), most=ps.max_count("v"))
        return given, given.late

    same_as_reference(build)


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_rows_that_fail_in_the_jvm_follow_the_policy_of_their_step(folder: Path, policy: str) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        made = read(graph, folder).with_columns(q=FALLIBLE, on_error=policy, name="m")
        views = made.key_by("key").window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count(), q=ps.max("q"))
        return (views, graph["m"].errors) if policy == "dead_letter" else (views,)

    same_as_reference(build)


def test_a_row_that_fails_in_the_jvm_stops_the_run_with_the_row_in_hand(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        return [read(graph, folder).filter(FALLIBLE > 1, name="odd")]

    with pytest.raises(ps.FunctionError) as expected:
        run("reference", build)
    with pytest.raises(ps.FunctionError) as got:
        run("spark", build)
    assert (got.value.fact, got.value.step) == (expected.value.fact, "odd")
    assert "the row is" in (got.value.detail or "")


def test_a_damaged_file_stops_the_run_by_its_name_after_the_batches_before_it(folder: Path) -> None:
    data = bytearray((folder / "001.parquet").read_bytes())
    data[4:2_000] = b"\xff" * 1_996
    times = (folder / "002.parquet").stat().st_mtime_ns
    (folder / "001.parquet").write_bytes(bytes(data))
    os.utime(folder / "001.parquet", ns=(times + 1, times + 1))  # it comes last
    kept = ps.write.memory()
    graph = ps.PipeGraph("damaged")
    read(graph, folder, name="s").window(ps.tumbling("1 s")).aggregate(n=ps.count()).sink(kept)
    with pytest.raises(ps.ConnectorError, match=r"001\.parquet.*cannot be read") as told:
        graph.run("spark", clock=ps.ManualClock())
    assert told.value.step == "s"
    assert kept.table().num_rows > 10


def test_an_aggregated_expression_that_fails_follows_the_policy_of_the_windows(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        windows = read(graph, folder).window(ps.tumbling("1 s"), name="w", on_error="dead_letter")
        views = windows.aggregate(q=ps.sum(FALLIBLE))
        return views, graph["w"].errors

    same_as_reference(build)


def test_rows_without_a_time_are_row_errors_whoever_reads_them(tmp_path: Path) -> None:
    table = columns(500, 1)
    times = pa.array([None, *table["t"].to_pylist()[1:]], table["t"].type)
    write_files(tmp_path, [columns(500, 0), table.set_column(0, "t", times)])

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        source = read(graph, tmp_path, on_error="dead_letter", name="s")
        return source.window(ps.tumbling("1 s")).aggregate(n=ps.count()), graph["s"].errors

    same_as_reference(build)


def test_times_without_statistics_are_looked_up_by_a_job(tmp_path: Path) -> None:
    write_files(tmp_path, [columns(500, i, 10 * i) for i in range(2)], write_statistics=False)

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        views = read(graph, tmp_path).window(ps.tumbling("1 s")).aggregate(n=ps.count())
        return views, views.late

    same_as_reference(build)


@pytest.mark.parametrize(
    ("type_", "unit"),
    [(pa.int64(), "ns"), (pa.int64(), "ms"), (pa.date32(), None), (pa.timestamp("us"), None)],
)
def test_every_kind_of_time_column_is_read_alike(tmp_path: Path, type_: Any, unit: str | None) -> None:
    raw = columns(500, 3)["t"].cast(pa.int64())
    days = pa.array([int(us) % 20 - 10 for us in raw.to_pylist()], pa.int32())
    times = days.cast(type_) if type_ == pa.date32() else raw.cast(type_)
    write_files(tmp_path, [pa.table({"t": times, "v": raw})])

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        source = read(graph, tmp_path, **({"time_unit": unit} if unit else {}))
        windows = ps.sliding("48 h", every="24 h") if unit is None else ps.sliding("2 s", every="1 s")
        return [source.window(windows).aggregate(n=ps.count(), v=ps.sum("v"))]

    same_as_reference(build)


def test_rows_of_two_sources_keep_their_order(folder: Path) -> None:
    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        one, other = read(graph, folder), read(graph, folder, name="other")
        merged = one.merge(other).key_by("key")
        return [merged.window(ps.count_window(5)).aggregate(first=ps.first("big"), last=ps.last("x"))]

    same_as_reference(build)


def test_a_run_goes_on_where_another_stopped_with_parts_from_spark_or_from_python(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = str(tmp_path_factory.mktemp("checkpoint"))

    def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
        made = read(graph, folder, name="s").filter(col("small") > -90)
        windows = made.key_by("key").window(ps.sliding("4 s", every="1 s"), name="w")
        return [windows.aggregate(n=ps.count(), big=ps.sum("big"), x=ps.mean("x"), least=ps.min("f"))]

    expected, _ = run("reference", build)
    before, _ = run("spark", build, checkpoint=checkpoint, until=1, drain=False)
    monkeypatch.setattr(native_chain, "LEAST_ROWS", 10_000)  # from here on the driver reads
    after, _ = run("spark", build, checkpoint=checkpoint)
    assert difference(pa.concat_tables([before[0], after[0]]), expected[0]) is None


def test_a_filter_and_a_map_that_cannot_fail_have_the_plan_of_hand_written_spark(
    spark: Any, folder: Path
) -> None:
    from pyspark.sql import functions as F

    graph = ps.PipeGraph("plans")
    pipe = read(graph, folder).filter(col("small") > 3).with_columns(y=col("x") * 2.0).select("key", "y")
    pipe.sink(ps.write.memory())
    plan = Plan(graph.name, tuple(graph.steps))
    (chain,) = native_chain.source_pipelines(plan, split_into_fragments(plan))
    files = [SourceFile(str(file), 0) for file in sorted(folder.iterdir())]
    ours = JvmFrames(spark, chain).frame(files, numbered=False).drop(TIME)
    rows = spark.read.parquet(*(file.path for file in files))
    hand = rows.where(F.col("small") > 3).select("key", (F.col("x") * 2.0).alias("y"))
    assert _physical(ours) == _physical(hand)


def _physical(frame: Any) -> str:
    """The plan as text, without the numbers of columns and where the files are."""
    text = frame._jdf.queryExecution().executedPlan().toString()
    return re.sub(r"#\d+L?|Location: [^,]*\.\.\.|\[[^]]*file:[^]]*\]", "", text)
