"""A watched folder: what is there, then what appears, each file whole and once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers import files as file_readers
from penstock.errors import ConnectorError, GraphError
from tests.support.reader_contents import raise_failures


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.0)


def put(folder: Path, name: str, text: str, at: int = 1) -> Path:
    """A file that appears whole."""
    hidden = folder / f".{name}"
    hidden.write_text(text)
    os.utime(hidden, (at, at))
    return hidden.rename(folder / name)


def numbers(batch: SourceBatch) -> list[int]:
    rows: list[int] = batch.rows.column("a").to_pylist()
    return rows


def test_files_that_are_there_come_first_then_those_that_appear(tmp_path: Path) -> None:
    put(tmp_path, "b.jsonl", '{"a": 2}\n', at=2)
    put(tmp_path, "c.jsonl", '{"a": 1}\n', at=1)
    batches = ps.read.jsonl(tmp_path, follow=True).batches()
    assert [numbers(next(batches)) for _ in range(2)] == [[1], [2]]
    assert numbers(next(batches)) == []  # nothing new: a round without rows
    put(tmp_path, "a.jsonl", '{"a": 3}\n{"a": 4}\n', at=1)  # older, but seen later
    assert numbers(next(batches)) == [3, 4]
    assert numbers(next(batches)) == []


def test_rows_are_numbered_through_all_files_with_bad_ones(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", '{"a": 1}\nnonsense\n')
    batches = ps.read.jsonl(tmp_path, schema={"a": int}, follow=True).batches()
    first = next(batches)
    put(tmp_path, "b.jsonl", '{"a": 2}\n')
    second = next(batches)
    assert first.seq is not None
    assert second.seq is not None
    assert (first.seq.to_pylist(), second.seq.to_pylist()) == ([0], [2])
    assert [bad.place for bad in first.bad] == [f"{tmp_path}/a.jsonl:2"]


def test_half_written_files_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / ".half.csv").write_text("a\n1\n")
    batches = ps.read.csv(tmp_path, schema={"a": int}, follow=True).batches()
    assert numbers(next(batches)) == []
    (tmp_path / ".half.csv").rename(tmp_path / "whole.csv")
    assert numbers(next(batches)) == [1]


def test_every_format_can_be_watched(tmp_path: Path) -> None:
    for name in ("parquet", "text"):
        (tmp_path / name).mkdir()
    pq.write_table(pa.table({"a": [5]}), tmp_path / "parquet" / "a.parquet")
    put(tmp_path / "text", "a.txt", "hello\n")
    assert numbers(next(ps.read.parquet(tmp_path / "parquet", follow=True).batches())) == [5]
    batch = next(ps.read.text(tmp_path / "text", follow=True).batches())
    assert batch.rows.to_pylist() == [{"line": "hello"}]


def test_several_files_may_make_a_batch(tmp_path: Path) -> None:
    for i in range(3):
        put(tmp_path, f"{i}.jsonl", f'{{"a": {i}}}\n')
    batches = ps.read.jsonl(tmp_path, files=2, follow=True).batches()
    assert [numbers(next(batches)) for _ in range(3)] == [[0, 1], [2], []]
    bounded = ps.read.jsonl(tmp_path, files=2).batches()
    assert [batch.seq.to_pylist() for batch in bounded if batch.seq is not None] == [[0, 1], [2]]


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_a_run_reads_on_until_it_has_had_enough(tmp_path: Path, runs_on: str) -> None:
    put(tmp_path, "a.jsonl", '{"a": 1}\n')
    put(tmp_path, "b.jsonl", '{"a": 2}\n')
    graph = ps.PipeGraph("watch")
    out = ps.write.memory()
    graph.source(ps.read.jsonl(tmp_path, follow=True)).sink(out)
    assert graph.run(engine=runs_on, until=4).batches == 4
    assert [row["a"] for row in out.rows()] == [1, 2]


def test_a_run_that_waits_for_files_can_be_stopped(tmp_path: Path) -> None:
    graph = ps.PipeGraph("watch")
    graph.source(ps.read.jsonl(tmp_path, schema={"a": int}, follow=True)).sink(ps.write.memory())
    run = graph.start(engine="local")
    run.stop()
    assert run.wait(30).outcome == "stopped"


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    reader = ps.read.jsonl(tmp_path, schema={"a": int}, follow=True)
    assert reader.describe() == f"jsonl {tmp_path} (followed)"
    assert (reader.bounded, reader.delivery, reader.keeps_raw) == (False, Delivery.EXACTLY_ONCE, True)


def test_a_file_that_changes_after_it_was_read_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", '{"a": 1}\n')
    batches = ps.read.jsonl(tmp_path, follow=True).batches()
    next(batches)
    file.write_text('{"a": 2}\n')
    with pytest.raises(ConnectorError, match=r'a.jsonl" changed after it was read') as caught:
        next(batches)
    assert "renamed when they are whole" in str(caught.value.hint)


def test_a_file_that_goes_away_after_it_was_read_is_nobodys_business(tmp_path: Path) -> None:
    file = put(tmp_path, "a.jsonl", '{"a": 1}\n')
    batches = ps.read.jsonl(tmp_path, follow=True).batches()
    next(batches)
    file.unlink()
    assert numbers(next(batches)) == []


def test_a_file_that_does_not_fit_is_refused_when_it_appears(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "a\n1\n")
    batches = ps.read.csv(tmp_path, follow=True).batches()
    next(batches)
    put(tmp_path, "b.csv", "z\n1\n")
    with pytest.raises(ConnectorError, match=r'b.csv" does not fit'):
        raise_failures(next(batches).bad)


@pytest.mark.parametrize("path", ["nowhere", "*.nothing"])
def test_what_is_to_be_followed_must_be_there_when_the_graph_is_built(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConnectorError, match=r"does not exist|no file matches"):
        ps.read.jsonl(str(tmp_path / path), follow=True)


def test_a_watched_folder_is_cut_by_files(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", '{"a": 1}\n')
    with pytest.raises(ConnectorError, match="batch=10 would hold rows of files that are followed back"):
        ps.read.jsonl(tmp_path, batch=10, follow=True)


def test_a_graph_cannot_write_into_the_folder_it_watches(tmp_path: Path) -> None:
    graph = ps.PipeGraph("loop")
    graph.source(ps.read.jsonl(tmp_path, schema={"a": int}, follow=True)).sink(ps.write.jsonl(tmp_path))
    with pytest.raises(GraphError, match=r"which step .* reads"):
        graph.run(engine="reference")


def test_the_thread_that_watches_a_folder_ends_with_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 3600.0)
    put(tmp_path, "a.jsonl", '{"a": 1}\n')
    before = set(threading.enumerate())

    def fail(row: dict[str, int]) -> dict[str, int]:
        raise ValueError("this one is wrong")

    graph = ps.PipeGraph("failing")
    reader = ps.read.jsonl(tmp_path, schema={"a": int}, follow=True, wait="1 h")
    graph.source(reader, name="files").map(fail, schema={"a": int}, dedicated=True).sink(ps.write.memory())
    with pytest.raises(ps.FunctionError, match="this one is wrong"):
        graph.run("local")
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()
