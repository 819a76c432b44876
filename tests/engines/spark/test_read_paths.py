"""Files that workers or the JVM read give the rows, late rows, errors and accounts of the reference engine.

The same cases for both ways of reading: workers without Spark, in this process; the JVM on Spark itself.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.engines.protocol import Engine
from penstock.engines.spark import read_placement
from penstock.engines.spark.file_splits import FileReadPlan, FileSplit
from penstock.plan.plan import Plan, Step
from penstock.stages.rows.batch import Batch
from penstock.testing.assertions import difference
from tests.support.parquet_feeds import Build, columns, run, same_as_reference, write_files
from tests.support.spark_in_process import InProcessSparkEngine

TABLE = [{"key": "a", "rank": 1}, {"key": "b", "rank": 2}, {"key": "żółć", "rank": None}]
FALLIBLE = (col("big") // col("small")) * 2
STEPS = {
    "filter": lambda pipe: pipe.filter(col("small") > -50),
    "another filter": lambda pipe: pipe.filter(col("x") > -150.0),
    "columns": lambda pipe: pipe.with_columns(x=col("x") * 0.5, y=col("f") + 1.0),
    "inner": lambda pipe: pipe.join_table(ps.read.rows(TABLE), on="key"),
    "left": lambda pipe: pipe.join_table(ps.read.rows(TABLE), on="key", how="left"),
    "function": lambda pipe: pipe.filter(lambda row: row.flag is not False),
    "fallible": lambda pipe: pipe.with_columns(q=FALLIBLE, on_error="skip"),
}
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
KEYS = [(), ("key",), ("f",), ("key", "flag"), ("day",)]
WINDOWS = [
    ps.tumbling("1 s"),
    ps.sliding("2 s", every="500 ms"),
    ps.sliding("1 s", every="1700 ms"),
    ps.sliding("3 s", every="1001 ms"),
    ps.count_window(7),
    ps.session("100 ms"),
]


def read(graph: ps.PipeGraph, folder: Path, **options: Any) -> ps.MultiPipe:
    return graph.source(ps.read.parquet(folder), time="t", **{"delay": "1 s", **options})


TIMES: list[tuple[str, pa.DataType, str | None]] = [
    ("nanoseconds", pa.int64(), "ns"),
    ("milliseconds", pa.int64(), "ms"),
    ("days", pa.date32(), None),
    ("timestamps", pa.timestamp("us"), None),
]


def read_times(graph: ps.PipeGraph, folder: Path, name: str, unit: str | None) -> ps.MultiPipe:
    """Windows over a folder of one kind of time."""
    source = read(graph, folder / name, name=name, **({"time_unit": unit} if unit else {}))
    windows = ps.sliding("48 h", every="24 h") if unit is None else ps.sliding("2 s", every="1 s")
    return source.window(windows, name=f"windows of {name}").aggregate(n=ps.count(), v=ps.sum("v"))


class ReadingCases:
    """What holds whoever reads."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return write_files(tmp_path, [columns(600, seed, 10 * seed) for seed in range(3)], row_group_size=250)

    def engine(self, seed: int = 0) -> str | Engine:
        raise NotImplementedError

    def same(self, build: Build, seed: int = 0) -> Any:
        return same_as_reference(build, self.engine(seed))

    def check_windows(
        self, seed: int, steps: list[str], key: tuple[str, ...], window: Any, lateness: str, ports: str
    ) -> None:
        """Compares windows of random rows behind random steps with those of the reference engine."""

        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            pipe: Any = read(graph, files, delay="0 s")
            for name in steps:
                pipe = STEPS[name](pipe)
            keyed = pipe.key_by(*key) if key else pipe
            views = keyed.window(window, lateness=lateness, name="w").aggregate(**AGGREGATES)
            return (views, views.late) if ports == "late" else (views,)

        with tempfile.TemporaryDirectory() as path:
            tables = [columns(350, seed + i, 10 * i) for i in range(3)]
            files = write_files(Path(path), tables, row_group_size=(50, 150, 1_000)[seed % 3])
            self.same(build, seed)

    def test_only_rows_that_reach_windows_can_be_late(self, folder: Path) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            filtered = read(graph, folder, delay="0 s").filter(col("small") > 0).filter(col("x") > 0.0)
            views = filtered.window(ps.sliding("2 s", every="1 s"), name="w").aggregate(n=ps.count())
            return views, views.late

        accounts = self.same(build).accounts["w"]
        assert accounts.late_by_window
        assert accounts.late

    def test_rows_are_those_of_the_reference_engine(self, folder: Path) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            filtered = read(graph, folder).filter(col("small") > 0).with_columns(y=col("x") * 2.0)
            long = filtered.filter(lambda row: row.key == "a")
            counted = (
                filtered.key_by("key").window(ps.count_window(7), name="c").aggregate(last=ps.last("big"))
            )
            return filtered, long, counted

        self.same(build)

    def test_rows_of_functions_are_aggregated_before_the_exchange_with_the_same_answer(
        self, folder: Path
    ) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            rows = read(graph, folder).map(
                lambda row: {"key": row.key, "v": (row.big or 0) % 1000},
                schema={"key": "string", "v": "int64"},
            )
            windows = rows.key_by("key").window(ps.sliding("2 s", every="1 s"), name="w")
            views = windows.aggregate(n=ps.count(), v=ps.sum("v"), most=ps.max_count("v"))
            return views, views.late

        self.same(build)

    def test_rows_that_fail_follow_the_policy_of_their_step(self, folder: Path) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            pipes: list[ps.MultiPipe] = []
            for policy in ("skip", "dead_letter"):
                source = read(graph, folder, name=f"rows to {policy}")
                rows = source.with_columns(q=FALLIBLE, on_error=policy, name=policy)
                windows = rows.key_by("key").window(ps.tumbling("1 s"), name=f"windows of {policy}")
                pipes.append(windows.aggregate(n=ps.count(), q=ps.max("q")))
            return *pipes, graph["dead_letter"].errors

        accounts = self.same(build).accounts
        assert accounts["skip"].errors == accounts["dead_letter"].errors > 0

    def test_an_aggregated_expression_that_fails_follows_the_policy_of_the_windows(
        self, folder: Path
    ) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            windows = read(graph, folder).window(ps.tumbling("1 s"), name="w", on_error="dead_letter")
            return windows.aggregate(q=ps.sum(FALLIBLE)), graph["w"].errors

        self.same(build)

    def test_a_row_that_fails_stops_the_run_with_all_its_columns_in_hand(self, folder: Path) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            odd = read(graph, folder).filter(FALLIBLE > 1, name="odd")
            return [odd.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())]

        with pytest.raises(ps.FunctionError) as expected:
            run("reference", build)
        with pytest.raises(ps.FunctionError) as got:
            run(self.engine(), build)
        assert (got.value.fact, got.value.step) == (expected.value.fact, "odd")
        assert "key=" in (got.value.detail or "")
        assert "day=" in (got.value.detail or "")

    def test_a_damaged_file_stops_the_run_by_its_name_after_the_batches_before_it(self, folder: Path) -> None:
        data = bytearray((folder / "001.parquet").read_bytes())
        data[4:2_000] = b"\xff" * 1_996
        times = (folder / "002.parquet").stat().st_mtime_ns
        (folder / "001.parquet").write_bytes(bytes(data))
        os.utime(folder / "001.parquet", ns=(times + 1, times + 1))  # it comes last
        sink = ps.write.memory()
        graph = ps.PipeGraph("damaged")
        windows = read(graph, folder, name="s").window(ps.tumbling("1 s"))
        windows.aggregate(n=ps.count(), x=ps.sum("x")).sink(sink)
        with pytest.raises(ps.ConnectorError, match=r"001\.parquet.*cannot be read") as caught:
            graph.run(self.engine(), clock=ps.ManualClock())
        assert caught.value.step == "s"
        assert sink.table().num_rows > 10

    def test_every_kind_of_time_column_is_read_alike(self, tmp_path: Path) -> None:
        raw = columns(500, 3)["t"].cast(pa.int64())
        days = pa.array([int(us) % 20 - 10 for us in raw.to_pylist()], pa.int32())
        for name, type_, _ in TIMES:
            times = days.cast(type_) if type_ == pa.date32() else raw.cast(type_)
            (tmp_path / name).mkdir()
            write_files(tmp_path / name, [pa.table({"t": times, "v": raw})])

        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            return [read_times(graph, tmp_path, name, unit) for name, _, unit in TIMES]

        self.same(build)

    @pytest.mark.slow
    def test_rows_of_two_sources_and_of_one_that_is_read_twice_keep_their_order(self, folder: Path) -> None:
        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            one, other = read(graph, folder), read(graph, folder, name="other")
            merged = one.merge(other).key_by("key")
            firsts = merged.window(ps.count_window(5), name="c").aggregate(
                first=ps.first("big"), last=ps.last("x")
            )
            return firsts, one.filter(lambda row: row.flag)

        self.same(build)

    @contextmanager
    def others_read(self) -> Iterator[None]:
        """Let the other way of reading be taken."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(read_placement, "why_look_at_rows", lambda step: "that is tried here")
            yield

    def test_a_run_goes_on_where_another_stopped_whoever_reads(
        self, folder: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        checkpoint = str(tmp_path_factory.mktemp("checkpoint"))

        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            filtered = read(graph, folder, name="s").filter(col("small") > -90)
            windows = filtered.key_by("key").window(ps.sliding("4 s", every="1 s"), name="w")
            return [windows.aggregate(n=ps.count(), big=ps.sum("big"), x=ps.mean("x"), least=ps.min("f"))]

        expected, _ = run("reference", build)
        before, _ = run(self.engine(), build, checkpoint=checkpoint, until=1, drain=False)
        with self.others_read():
            between, _ = run(self.engine(), build, checkpoint=checkpoint, until=1, drain=False)
        after, _ = run(self.engine(), build, checkpoint=checkpoint, drain=True)
        assert difference(pa.concat_tables([before[0], between[0], after[0]]), expected[0]) is None


CASES = (
    st.integers(0, 1000),
    st.lists(st.sampled_from(sorted(STEPS)), unique=True, max_size=4).filter(
        lambda names: not {"inner", "left"} <= set(names)
    ),
    st.sampled_from(KEYS),
    st.sampled_from(WINDOWS),
    st.sampled_from(["0 s", "700 ms"]),
    st.sampled_from(["late", "results"]),
)


class TestWorkersRead(ReadingCases):
    """Python workers read row groups, in this process."""

    def engine(self, seed: int = 0) -> str | Engine:
        return InProcessSparkEngine(seed=seed, alone=lambda job: seed % 2 == 0)

    @pytest.mark.slow
    @given(*CASES)
    @settings(deadline=None, max_examples=15)
    def test_windows_are_those_of_the_reference_engine(
        self, seed: int, steps: list[str], key: tuple[str, ...], window: Any, lateness: str, ports: str
    ) -> None:
        self.check_windows(seed, steps, key, window, lateness, ports)

    def test_the_driver_reads_nothing(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        splits: list[int] = []
        real = FileReadPlan.read

        def read_and_count(plan: FileReadPlan, split: FileSplit) -> Iterator[Batch]:
            splits.append(split.n_rows)
            return real(plan, split)

        monkeypatch.setattr(FileReadPlan, "read", read_and_count)

        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            joined = read(graph, folder).join_table(ps.read.rows(TABLE), on="key")
            return [joined.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())]

        self.same(build)
        assert sum(splits) == 3 * 600


choose_reader = read_placement._pipeline


def read_in_jvm(plan: Plan, source: Step) -> read_placement.SourcePipeline:
    steps, stop = read_placement._follow(plan, source, joins=False)
    return read_placement.SourcePipeline(source, tuple(steps), stop, "that is tried here")


@pytest.mark.slow
@pytest.mark.usefixtures("spark_session")
class TestJvmReads(ReadingCases):
    """The JVM reads, as it does where Spark's own SQL follows, and hands rows over."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def in_the_jvm(cls) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(read_placement, "_pipeline", read_in_jvm)
            yield

    def engine(self, seed: int = 0) -> str | Engine:
        return "spark"

    @contextmanager
    def others_read(self) -> Iterator[None]:
        """Let workers read."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(read_placement, "_pipeline", choose_reader)
            yield

    @given(*CASES)
    @settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.differing_executors])
    def test_windows_are_those_of_the_reference_engine(
        self, seed: int, steps: list[str], key: tuple[str, ...], window: Any, lateness: str, ports: str
    ) -> None:
        self.check_windows(seed, steps, key, window, lateness, ports)

    def test_times_without_statistics_are_looked_up_by_a_job(self, tmp_path: Path) -> None:
        write_files(tmp_path, [columns(500, i, 10 * i) for i in range(2)], write_statistics=False)

        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            views = read(graph, tmp_path).window(ps.tumbling("1 s")).aggregate(n=ps.count())
            return views, views.late

        self.same(build)

    def test_rows_without_a_time_are_row_errors(self, tmp_path: Path) -> None:
        table = columns(500, 1)
        times = pa.array([None, *table["t"].to_pylist()[1:]], table["t"].type)
        write_files(tmp_path, [columns(500, 0), table.set_column(0, "t", times)])

        def build(graph: ps.PipeGraph) -> Sequence[ps.MultiPipe]:
            source = read(graph, tmp_path, on_error="dead_letter", name="s")
            return source.window(ps.tumbling("1 s")).aggregate(n=ps.count()), graph["s"].errors

        self.same(build)
