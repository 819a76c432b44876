"""Stages: how rows become files, and what becomes of these."""

from __future__ import annotations

import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock.write as write
from penstock.connect.writers import staged_files
from penstock.connect.writers.folder import FolderOutput, FolderWriter
from penstock.errors import ConnectorError

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.int64())])


def rows(*keys: int, start: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": range(start, start + len(keys)), "k": keys}, schema=SCHEMA)


def open_folder(folder: Path, **options: Any) -> tuple[FolderWriter, FolderOutput]:
    writer = write.jsonl(folder, **options)
    return writer, writer.open(SCHEMA, "sink")


def list_staged(folder: Path) -> list[str]:
    return sorted(entry.name for entry in (folder / "_penstock" / "staged").iterdir())


def test_a_stage_says_what_it_wrote_in_plain_values(tmp_path: Path) -> None:
    writer, out = open_folder(tmp_path, partition_by="k")
    stage = writer.stage(SCHEMA, "run-7-0")
    stage.write(rows(5, 5, 6))
    stage.write(rows())
    files = stage.close()
    assert [asdict(file) for file in files] == [
        {"path": "run-7-0-0.jsonl", "folder": "k=5", "n_rows": 2, "n_bytes": 16},
        {"path": "run-7-0-1.jsonl", "folder": "k=6", "n_rows": 1, "n_bytes": 8},
    ]
    assert list_staged(tmp_path) == [file.path for file in files]
    assert pickle.loads(pickle.dumps(files)) == files  # as Spark brings them back
    out.close()


def test_a_stage_without_rows_has_no_file(tmp_path: Path) -> None:
    writer, out = open_folder(tmp_path)
    stage = writer.stage(SCHEMA, "task")
    stage.write(rows())
    assert (stage.close(), list_staged(tmp_path)) == ([], [])
    out.close()


@pytest.mark.parametrize(
    ("max_rows", "sizes"), [(1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (8, [7]), (None, [7])]
)
def test_a_file_has_at_most_so_many_rows_and_none_is_empty(
    tmp_path: Path, max_rows: int | None, sizes: list[int]
) -> None:
    writer, out = open_folder(tmp_path, max_rows_per_file=max_rows)
    stage = writer.stage(SCHEMA, "task")
    stage.write(rows(0, 0))
    stage.write(rows(0, 0, 0, 0, 0, start=2))
    files = stage.close()
    assert [file.n_rows for file in files] == sizes
    lines = [(tmp_path / "_penstock" / "staged" / file.path).read_text().splitlines() for file in files]
    assert [len(part) for part in lines] == sizes
    assert [line for part in lines for line in part] == [f'{{"n":{n},"k":0}}' for n in range(7)]
    out.close()


@pytest.mark.parametrize("max_rows", [0, -1, 1.5, True, "1"])
def test_a_file_of_no_number_of_rows_is_refused(max_rows: Any) -> None:
    with pytest.raises(ConnectorError, match=r"max_rows_per_file=.* is not a number of rows"):
        write.parquet("out", max_rows_per_file=max_rows)


def test_few_files_are_open_at_once_and_those_without_rows_for_longest_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_files, "MAX_OPEN_FILES", 2)
    writer, out = open_folder(tmp_path, partition_by="k")
    stage = writer.stage(SCHEMA, "task")
    before = n_open_files()
    for key in (1, 2, 1, 3, 1, 2):
        stage.write(rows(key))
        assert n_open_files() - before <= 2
    assert [(file.folder, file.n_rows) for file in stage.close()] == [
        ("k=1", 3),
        ("k=2", 1),
        ("k=3", 1),
        ("k=2", 1),
    ]
    assert n_open_files() == before
    out.close()


def n_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_aborted_stage_leaves_nothing_whether_it_was_closed_or_not(tmp_path: Path) -> None:
    writer, out = open_folder(tmp_path, max_rows_per_file=2)
    for ends in (False, True):
        stage, before = writer.stage(SCHEMA, "task"), n_open_files()
        stage.write(rows(0, 0, 0))
        assert len(list_staged(tmp_path)) == 2
        if ends:
            stage.close()
        stage.abort()
        stage.abort()
        assert (list_staged(tmp_path), n_open_files()) == ([], before)
    out.close()


def test_a_stage_is_aborted_after_the_disk_refused_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, out = open_folder(tmp_path)
    stage = writer.stage(SCHEMA, "task")
    stage.write(rows(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(ConnectorError, match="cannot be written: No space left on device"):
            stage.close()
    stage.abort()
    assert list_staged(tmp_path) == []
    out.close()


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["parquet", "csv", "jsonl"])
def test_a_writer_can_be_sent_to_another_process(tmp_path: Path, name: str) -> None:
    writer: FolderWriter = getattr(write, name)(tmp_path, partition_by="k")
    out = writer.open(SCHEMA, "sink")
    stage = pickle.loads(pickle.dumps(writer)).stage(SCHEMA, "task")  # as Spark sends it
    stage.write(rows(4))
    out.publish(0, stage.close())
    assert (tmp_path / "k=4" / f"part-00000000-00000.{name}").exists()
    out.close()


def test_a_folder_that_an_executor_does_not_reach_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write.jsonl(tmp_path)
    with pytest.raises(ConnectorError) as caught:
        writer.stage(SCHEMA, "task")
    host = os.uname().nodename
    assert caught.value.fact == (
        f'"{tmp_path}" cannot be written: "_penstock/staged" does not exist on {host}'
    )
    assert "every executor must reach the folder under this path" in str(caught.value.hint)
    out = writer.open(SCHEMA, "sink")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ConnectorError, match=f'"{tmp_path}" cannot be written: Permission denied on {host}'):
        writer.stage(SCHEMA, "task")
    out.close()


def test_a_folder_that_an_executor_loses_is_named(tmp_path: Path) -> None:
    writer, out = open_folder(tmp_path / "out")
    stage = writer.stage(SCHEMA, "task")
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(ConnectorError, match="cannot be written: No such file") as caught:
        stage.write(rows(1))
    assert "every executor must reach the folder under this path" in str(caught.value.hint)
    out.close()
