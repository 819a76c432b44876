"""Pieces of files: what a batch is cut into, and what a worker reads of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.engines.spark import file_splits as file_pieces
from penstock.engines.spark.file_splits import (
    FileChanged,
    FileReadPlan,
    FileSplit,
    RemoteBatch,
    SourceFile,
    split_files,
)
from penstock.operators.ends import Source
from penstock.plan.plan import Ref

TABLE = pa.table({"t": [5, 1, 9, 2, 7], "v": [0.5, None, 2.5, 3.5, 4.5], "name": list("abcde")})


def batch(*files: tuple[int, ...]) -> RemoteBatch:
    """Files with these row groups, numbered through."""
    result, start = [], 0
    for number, groups in enumerate(files):
        result.append(SourceFile(f"{number}.parquet", start, groups))
        start += sum(groups)
    return RemoteBatch(tuple(result), start, 0, 0, by_workers=True)


def cuts(batch: RemoteBatch, n_tasks: int) -> list[tuple[str, int, int, int, int]]:
    return [(p.path[0], p.first, p.last, p.start, p.n_rows) for p in split_files("s", 0, batch, n_tasks)]


def test_row_groups_are_dealt_to_all_tasks() -> None:
    assert cuts(batch((10, 10, 10, 10)), 2) == [("0", 0, 2, 0, 20), ("0", 2, 4, 20, 20)]


def test_a_piece_is_of_one_file_and_small_row_groups_are_read_together() -> None:
    assert cuts(batch((3, 3, 3), (4,)), 1) == [("0", 0, 3, 0, 9), ("1", 0, 1, 9, 4)]


def test_no_piece_is_larger_than_need_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pieces, "BATCH_ROWS", 5)
    assert cuts(batch((4, 4, 9, 1)), 1) == [
        ("0", 0, 1, 0, 4),
        ("0", 1, 2, 4, 4),
        ("0", 2, 3, 8, 9),
        ("0", 3, 4, 17, 1),
    ]


def test_files_without_rows_are_no_piece() -> None:
    assert cuts(batch((), (2,), (0,)), 3) == [("1", 0, 1, 0, 2)]


def test_a_piece_is_the_same_behind_the_wire() -> None:
    (piece,) = split_files("s", 0, batch((7,)), 1)
    assert FileSplit.from_bytes(piece.to_bytes()) == piece


def form(path: Path, **changes: Any) -> FileReadPlan:
    op = Source(ps.read.parquet(path), time="t", time_unit="s", delay="0 s")
    plan = FileReadPlan(Ref("s", "out"), op.reader.schema, ("t", "v"), op.resolve(), None)
    return replace(plan, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=2)
    return tmp_path / "a.parquet"


def piece(path: Path, first: int, last: int, n_rows: int) -> FileSplit:
    return FileSplit("s", 0, str(path), first, last, 100, n_rows)


def test_rows_come_with_times_and_numbers_and_columns_that_nobody_wants_are_nulls(path: Path) -> None:
    (rows,) = form(path).read(piece(path, 1, 3, 3))
    assert rows.times.tolist() == [9_000_000, 2_000_000, 7_000_000]
    assert [column.tolist() for column in rows.order] == [[100, 101, 102]]
    assert rows.rows.to_pydict() == {"t": [9, 2, 7], "v": [2.5, 3.5, 4.5], "name": [None] * 3}


def test_the_rank_of_a_source_is_before_the_numbers(path: Path) -> None:
    (rows,) = form(path, rank=1).read(piece(path, 0, 1, 2))
    assert [column.tolist() for column in rows.order] == [[1, 1], [100, 101]]


def test_a_large_row_group_is_carried_in_several_goes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pieces, "BATCH_ROWS", 2)
    result = list(form(path).read(piece(path, 0, 3, 5)))
    assert [batch.num_rows for batch in result] == [2, 2, 1]
    assert [batch.order[0].tolist() for batch in result] == [[100, 101], [102, 103], [104]]


def test_a_file_that_has_changed_is_not_taken_for_what_it_was(path: Path) -> None:
    with pytest.raises(FileChanged):
        list(form(path).read(piece(path, 0, 3, 6)))
    pq.write_table(TABLE.set_column(0, "t", pa.array([1, None, 2, 3, 4])), path)
    with pytest.raises(FileChanged, match="not within what the footer says"):
        list(form(path).read(piece(path, 0, 1, 5)))
