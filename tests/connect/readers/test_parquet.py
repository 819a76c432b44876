"""Parquet files, and what all file readers share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock.read as read
from penstock.connect.protocol import Delivery, Reader
from penstock.errors import ConnectorError
from tests.support.reader_contents import cuts_of, rows_of, seq_of


def save(file: Path, at: int = 0, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), file)
    os.utime(file, (at, at))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "b.parquet", 1, a=[1, 2])
    save(tmp_path / "a.parquet", 2, a=[3])
    save(tmp_path / "c.parquet", 2, a=pa.array([], pa.int64()))
    return tmp_path


def test_one_file_is_one_batch_and_rows_are_numbered_through(folder: Path) -> None:
    reader = read.parquet(folder)
    assert cuts_of(reader) == [[{"a": 1}, {"a": 2}], [{"a": 3}], []]
    assert seq_of(reader) == [0, 1, 2]
    assert reader.describe() == f"parquet {folder} (3 files)"
    assert isinstance(reader, Reader)
    assert (reader.bounded, reader.delivery, reader.keeps_raw) == (True, Delivery.EXACTLY_ONCE, False)


def test_cuts_by_files_and_by_rows(folder: Path) -> None:
    assert cuts_of(read.parquet(folder, files=2)) == [[{"a": 1}, {"a": 2}, {"a": 3}], []]
    assert cuts_of(read.parquet(folder, batch=1)) == [[{"a": 1}], [{"a": 2}], [{"a": 3}]]
    assert cuts_of(read.parquet(folder, batch=2)) == [[{"a": 1}, {"a": 2}], [{"a": 3}]]


def test_every_run_lists_again_and_reads_from_the_beginning(folder: Path) -> None:
    reader = read.parquet(folder)
    assert rows_of(reader) == rows_of(reader)
    save(folder / "d.parquet", 3, a=[9])
    assert rows_of(reader)[-1] == {"a": 9}


def test_a_schema_reads_only_its_columns_and_casts_exactly(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", a=pa.array([1], pa.int32()), b=["x"], c=pa.array([2**63], pa.uint64()))
    assert rows_of(read.parquet(tmp_path, schema={"b": str, "a": int})) == [{"b": "x", "a": 1}]


def test_an_empty_folder_can_be_read_when_the_schema_is_declared(tmp_path: Path) -> None:
    assert rows_of(read.parquet(tmp_path, schema={"a": int})) == []
    with pytest.raises(ConnectorError, match="holds no rows to take a schema from"):
        read.parquet(tmp_path)


def test_columns_may_stand_in_another_order(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", 1, a=[1], b=["x"])
    save(tmp_path / "b.parquet", 2, b=["y"], a=[2])
    assert rows_of(read.parquet(tmp_path)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize(
    ("columns", "detail"),
    [
        ({"b": [1]}, 'it has no column "a"; its columns are b'),
        ({"a": ["x"]}, 'its column "a" is string, not int64'),
    ],
)
def test_files_of_differing_columns_are_refused_naming_both(
    tmp_path: Path, columns: dict[str, Any], detail: str
) -> None:
    first, second = save(tmp_path / "a.parquet", 1, a=[1]), save(tmp_path / "b.parquet", 2, **columns)
    with pytest.raises(ConnectorError) as caught:
        read.parquet(tmp_path).check_files()
    assert caught.value.fact == f'"{second}" does not fit "{first}"'
    assert caught.value.detail == detail


def test_a_file_that_comes_between_building_and_running_must_fit_too(folder: Path) -> None:
    reader = read.parquet(folder)
    save(folder / "d.parquet", 3, a=["x"])
    with pytest.raises(ConnectorError, match=r"d\.parquet"):
        rows_of(reader)


def test_a_file_without_a_declared_column_is_refused(folder: Path) -> None:
    with pytest.raises(ConnectorError, match="does not fit the declared schema"):
        read.parquet(folder, schema={"b": int}).check_files()


def test_a_value_that_the_declared_type_cannot_hold_names_the_file(tmp_path: Path) -> None:
    file = save(tmp_path / "a.parquet", a=[1.5])
    with pytest.raises(ConnectorError, match=f'"{file}": column "a" of type double cannot be read as int64'):
        rows_of(read.parquet(file, schema={"a": int}))


def test_a_column_that_rows_cannot_hold_names_the_file(tmp_path: Path) -> None:
    file = save(tmp_path / "a.parquet", a=pa.array([1], pa.uint64()))
    with pytest.raises(ConnectorError, match=f'"{file}": column "a" has type uint64'):
        read.parquet(file)


def test_a_damaged_file_is_named(folder: Path) -> None:
    reader = read.parquet(folder)
    file = folder / "a.parquet"
    whole = file.read_bytes()
    file.write_bytes(b"PAR1 and then rubbish")
    with pytest.raises(ConnectorError, match=f'"{file}" cannot be read'):
        rows_of(reader)
    file.write_bytes(whole.replace(whole[4:40], b"\xff" * 36, 1))
    with pytest.raises(ConnectorError, match=f'"{file}" cannot be read'):
        rows_of(reader)


def test_a_file_that_vanished_is_named(folder: Path) -> None:
    reader = read.parquet(folder / "a.parquet")
    (folder / "a.parquet").unlink()
    with pytest.raises(ConnectorError, match=r"a\.parquet"):
        rows_of(reader)


def test_two_ways_to_cut_at_once_are_refused(folder: Path) -> None:
    with pytest.raises(ConnectorError, match="batch=1 and files=1 both cut batches"):
        read.parquet(folder, batch=1, files=1)
    with pytest.raises(ConnectorError, match="files=0 is not a number of rows or files"):
        read.parquet(folder, files=0)
