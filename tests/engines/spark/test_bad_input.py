"""Bad input and bad places on real Spark: a clear error or the chosen policy, and nothing lost."""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import CheckpointError, ConnectorError, FunctionError, PenstockError, col
from penstock.engines.spark.session.session import RunSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark_session")]
SCHEMA = {"key": str, "v": int}
CSV = "key,v\na,1\nb,two\nc,3,4\nd,4\n"
JSONL = '{"key": "a", "v": 1}\n{"key": "b", "v": "two"}\n{"key": "c", \n{"key": "d", "v": 4}\n'


def reader(tmp_path: Path, text: str) -> Any:
    """A file of the text, as JSON lines or as CSV."""
    kind = "jsonl" if text.startswith("{") else "csv"
    (tmp_path / f"rows.{kind}").write_text(text)
    return getattr(ps.read, kind)(tmp_path / f"rows.{kind}", schema=SCHEMA)


TEXTS = {"csv": CSV, "jsonl": JSONL}


class TestMalformedText:
    @pytest.mark.parametrize("kind", TEXTS)
    def test_the_first_bad_line_stops_the_run_with_its_place(self, tmp_path: Path, kind: str) -> None:
        rows = ps.PipeGraph("bad").source(reader(tmp_path, TEXTS[kind]), name="rows")
        with pytest.raises(PenstockError) as failure:
            rows.with_columns(v=col("v") + 1).collect("spark")
        assert failure.value.step == "rows"
        assert "rows." in str(failure.value.detail)

    def test_bad_lines_are_skipped_and_counted_or_are_dead_letters_with_the_raw_text(
        self, tmp_path: Path
    ) -> None:
        graph, tables, letters = ps.PipeGraph("bad"), {}, {}
        for kind, text in TEXTS.items():
            rows = graph.source(reader(tmp_path, text), name=kind, on_error="skip")
            rows.with_columns(v=col("v") + 1).sink(table := ps.write.memory())
            source = graph.source(reader(tmp_path, text), name=f"{kind} too", on_error="dead_letter")
            source.errors.sink(raw := ps.write.memory())
            tables[kind], letters[kind] = table, raw
        result = graph.run("spark")
        for kind, bad_lines in (("csv", (2, 3)), ("jsonl", (1, 2))):
            assert tables[kind].table().to_pylist() == [{"key": "a", "v": 2}, {"key": "d", "v": 5}]
            assert (result.accounts[kind].rows_in, result.accounts[kind].errors) == (4, 2)
            lines = TEXTS[kind].splitlines()
            assert letters[kind].table()["raw"].to_pylist() == [lines[i] for i in bad_lines]


def collect_values(source: Any) -> Any:
    rows = ps.PipeGraph("files").source(source, name="files")
    return rows.with_columns(v=col("v") + 0).collect("spark")["v"].to_pylist()


def test_an_empty_file_of_json_lines_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert collect_values(ps.read.jsonl(tmp_path / "empty.jsonl", schema=SCHEMA)) == []


def test_an_empty_csv_file_lacks_its_header(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ConnectorError, match=r'empty\.csv" has no header line'):
        collect_values(ps.read.csv(tmp_path / "empty.csv", schema=SCHEMA))


def test_an_empty_parquet_file_is_no_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "empty.parquet").write_bytes(b"")
    with pytest.raises(ConnectorError, match=r"empty\.parquet"):
        collect_values(ps.read.parquet(tmp_path / "empty.parquet", schema=SCHEMA))


def test_a_parquet_file_without_rows_has_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    assert collect_values(ps.read.parquet(tmp_path)) == []


@pytest.mark.parametrize("at", [10, -20], ids=["in the data", "in the footer"])
def test_a_corrupt_parquet_file_is_named(tmp_path: Path, at: int) -> None:
    pq.write_table(pa.table({"v": pa.array(range(1000))}), file := tmp_path / "corrupt.parquet")
    data = bytearray(file.read_bytes())
    data[at : at + 8 if at > 0 else None] = b"\xff" * len(data[at : at + 8 if at > 0 else None])
    source = ps.read.parquet(tmp_path, schema={"v": int})
    file.write_bytes(data)
    with pytest.raises(ConnectorError, match=r"corrupt\.parquet") as failure:
        collect_values(source)
    assert failure.value.step == "files"


def test_a_file_with_other_columns_is_named_with_what_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"w": [1]}), tmp_path / "2.parquet")
    with pytest.raises(PenstockError, match=r"2\.parquet") as failure:
        collect_values(ps.read.parquet(tmp_path))
    assert '"v"' in str(failure.value)


def test_a_file_with_another_type_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"v": ["one"]}), tmp_path / "2.parquet")
    with pytest.raises(PenstockError, match=r"2\.parquet"):
        collect_values(ps.read.parquet(tmp_path))


def test_a_file_that_came_to_fit_no_more_is_named_with_the_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "1.parquet")
    source = ps.read.parquet(tmp_path)
    pq.write_table(pa.table({"w": [1]}), tmp_path / "1.parquet")
    with pytest.raises(PenstockError, match=r"1\.parquet") as failure:
        collect_values(source)
    assert failure.value.step == "files"


def picky(row: Any) -> dict[str, int]:
    if row.v == 76_543:
        raise LookupError("no such thing")
    return {"v": row.v}


def many(on_error: Any) -> ps.MultiPipe:
    rows = ps.PipeGraph("many").source(ps.read.table(pa.table({"v": range(100_000)}), batch=25_000))
    return rows.map(picky, schema={"v": int}, on_error=on_error, name="picky")


def test_the_one_row_in_a_hundred_thousand_that_fails_is_in_the_error() -> None:
    with pytest.raises(FunctionError, match="picky failed on a row") as failure:
        many("fail").collect("spark")
    assert (failure.value.step, "v=76543" in str(failure.value.detail)) == ("picky", True)
    assert isinstance(failure.value.__cause__, LookupError)


def test_the_one_row_in_a_hundred_thousand_that_fails_can_be_told_apart() -> None:
    pipe = many("dead_letter")
    good, bad = pipe.graph.collect(pipe, pipe.errors, engine="spark")
    assert (good.num_rows, bad["v"].to_pylist()) == (99_999, [76_543])


def test_a_worker_that_dies_once_changes_nothing(tmp_path: Path) -> None:
    marker = str(tmp_path / "died")

    def dies_once(row: Any) -> dict[str, int]:
        if row.v == 2 and not os.path.exists(marker):  # noqa: PTH110 - shipped by value, so it imports nothing
            open(marker, "w").close()  # noqa: PTH123 - the same
            os._exit(1)
        return {"v": row.v}

    rows = ps.PipeGraph("once").source(ps.read.rows([{"key": "a", "v": v} for v in range(4)]))
    keyed = rows.map(dies_once, schema={"v": int}).key_by("v")
    output = keyed.accumulate(lambda row, n: n + row.v, 10, schema={"s": int}).collect("spark")
    assert sorted(output["s"].to_pylist()) == [10, 11, 12, 13]
    assert Path(marker).exists()


def run_counts(folder: Path, n_batches: int, **options: Any) -> Any:
    batches = [[{"key": key, "v": n} for key in "abcd"] for n in range(n_batches)]
    rows = ps.PipeGraph("counting").source(ps.read.batches(batches, schema=SCHEMA), name="rows")
    sums = rows.key_by("key").accumulate(lambda row, n: n + row.v, 0, schema={"s": int}, name="sums")
    sums.sink(ps.write.jsonl(folder / "out"), name="out")
    return rows.graph.run("spark", checkpoint=str(folder / "checkpoint"), **{"drain": True, **options})


def test_a_flipped_byte_of_saved_state_is_found(tmp_path: Path) -> None:
    run_counts(tmp_path, 2, drain=False)
    for file in (tmp_path / "checkpoint" / "state").iterdir():
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(CheckpointError, match='saved state of step "sums" cannot be read') as failure:
        run_counts(tmp_path, 3)
    assert "checksum" in str(failure.value.detail)


@contextmanager
def no_file_longer_than(nbytes: int) -> Iterator[None]:
    """As on a full disk, for this process, in which sinks and manifests are written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def run_copies(folder: Path, n_batches: int, limit: int | None = None, **options: Any) -> Any:
    def copy_row(row: Any) -> Iterator[dict[str, str]]:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most if limit is None else limit, most))  # of the worker
        return ({"key": f"{row.key}{row.v}{'x' * 10_000}"} for _ in range(50))

    batches = [[{"key": "a", "v": n}] for n in range(n_batches)]
    rows = ps.PipeGraph("copying").source(ps.read.batches(batches, schema=SCHEMA), name="rows")
    many = rows.flat_map(copy_row, schema={"key": str})
    many.sink(ps.write.jsonl(folder / "out"), name="out")
    return rows.graph.run("spark", checkpoint=str(folder / "checkpoint"), **{"drain": True, **options})


FULL_DISKS = [
    (4, None, r"the checkpoint cannot be written: .*too large"),  # the driver's
    (100_000, 100_000, r'/out" cannot be written: File too large'),  # an executor's
]


def test_a_disk_that_takes_no_more_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    run_copies(tmp_path, 2, drain=False)
    for here, there, text in FULL_DISKS:
        with no_file_longer_than(here), pytest.raises(PenstockError, match=text) as problem:
            run_copies(tmp_path, 4, there, drain=False)
        assert "space" in str(problem.value.hint) or "room" in str(problem.value.hint)
    run_copies(tmp_path, 4)
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    keys = Counter(json.loads(line)["key"][:2] for line in lines)
    assert keys == {"a0": 50, "a1": 50, "a2": 50, "a3": 50}


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user may write anywhere")
def test_an_output_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(ConnectorError, match="cannot be written: Permission denied") as failure:
        run_counts(tmp_path, 1)
    assert failure.value.step == "out"


def test_a_master_that_is_not_there_is_named(spark_session: RunSession) -> None:
    rows = ps.PipeGraph("far").source(ps.read.rows([{"v": 1}]))
    with pytest.raises(ps.EngineError, match="Spark already runs in this process"):
        rows.with_columns(v=col("v") + 1).collect("spark", master="spark://127.0.0.1:1")


def write_files(folder: Path, n_files: int) -> None:
    folder.mkdir()
    for number in range(n_files):
        pq.write_table(pa.table({"v": [number * 10, number * 10 + 1]}), folder / f"{number}.parquet")


def copy_files(folder: Path, by_expressions: bool = True, **options: Any) -> list[int]:
    """Copy rows from `in` to `out`, a file per micro-batch; return what is visible."""
    rows = ps.PipeGraph("copying").source(ps.read.parquet(folder / "in"), name="rows")
    passing = rows.filter(col("v") >= 0) if by_expressions else rows.filter(lambda row: row.v >= 0)
    passing.sink(ps.write.parquet(folder / "out"), name="out")
    limit = ps.SparkOptions(max_files_per_batch=1)
    rows.graph.run("spark", checkpoint=str(folder / "checkpoint"), options=limit, drain=False, **options)
    return sorted(v for part in (folder / "out").glob("part-*") for v in pq.read_table(part)["v"].to_pylist())


def test_a_run_goes_on_after_its_output_and_its_input_were_changed_and_mended(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 3)
    assert copy_files(tmp_path, until=1) == [0, 1]
    (tmp_path / "out" / "notes.txt").write_text("of somebody else")
    with pytest.raises(ConnectorError, match=r'holds "notes\.txt"') as foreign:
        copy_files(tmp_path)
    assert (foreign.value.step, foreign.value.hint) == ("out", "write to another folder, or empty this one")
    (tmp_path / "out" / "notes.txt").unlink()
    (tmp_path / "in" / "2.parquet").rename(tmp_path / "2.parquet")  # the first run has listed it
    with pytest.raises(ConnectorError, match=r'2\.parquet" cannot be read') as gone:
        copy_files(tmp_path)
    assert gone.value.step == "rows"
    (tmp_path / "2.parquet").rename(tmp_path / "in" / "2.parquet")
    assert copy_files(tmp_path) == [0, 1, 10, 11, 20, 21]


def test_an_output_that_is_taken_away_while_a_run_writes_is_named_and_can_be_brought_back(
    tmp_path: Path,
) -> None:
    def take_away(event: ps.events.Event) -> None:
        if isinstance(event, ps.events.BatchDone) and event.batch == 0:
            (tmp_path / "out").rename(tmp_path / "elsewhere")
            (tmp_path / "out").write_text("no folder, so nobody can write there")

    write_files(tmp_path / "in", 2)
    with pytest.raises(ConnectorError, match=r'/out" cannot be written') as failure:
        copy_files(tmp_path, by_expressions=False, events=take_away)
    assert (failure.value.step, failure.value.where is not None) == ("out", True)
    (tmp_path / "out").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "out")
    assert copy_files(tmp_path, by_expressions=False) == [0, 1, 10, 11]


def test_a_run_that_cannot_be_built_leaves_its_checkpoint_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "in", 1)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.engines.spark.driver.run.DriverLoop", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError) as failure:
            copy_files(tmp_path)
    assert copy_files(tmp_path) == [0, 1]
    del failure  # Why till here: its frames refer to the checkpoint, as they do in a notebook
