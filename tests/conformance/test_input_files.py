"""Files as they come in life: columns that differ, a file that cannot be read, a log that grows."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connect.readers import files as file_readers
from tests.conformance.case import Case

FEATURE = "Input files"
FORMATS = pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
TIMED = pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])


def save(folder: Path, format: str, number: int, rows: list[dict[str, Any]]) -> Path:
    """A file that comes after those with lower numbers."""
    file = folder / f"{number}.{format}"
    table = pa.Table.from_pylist(rows)
    if format == "parquet":
        pq.write_table(table, file)
    elif format == "csv":
        arrow_csv.write_csv(table, file)
    else:
        graph = ps.PipeGraph("write")
        graph.source(ps.read.rows(rows)).sink(ps.write.jsonl(folder / f"_{number}"))
        graph.run("reference")
        (part,) = (folder / f"_{number}").glob("*.jsonl")
        part.rename(file)
    os.utime(file, (number, number))
    return file


def source(case: Case, reader: Any, timed: bool, **options: Any) -> ps.MultiPipe:
    time: Any = {"time": "t", "time_unit": "s", "delay": "0 s"} if timed else {}
    return case.graph.source(reader, name="rows", **time, **options)


@FORMATS
@TIMED
def test_a_schema_says_what_is_wanted_of_files_that_differ(
    case: Case, tmp_path: Path, format: str, timed: bool
) -> None:
    save(tmp_path, format, 1, [{"t": 1, "v": 10, "w": 1.5}])
    save(tmp_path, format, 2, [{"more": "x", "w": 2.5, "v": 20, "t": 2}])
    save(tmp_path, format, 3, [{"v": 30, "t": 3}])
    schema = {"t": int, "w": float | None, "v": int}
    reader = getattr(ps.read, format)(tmp_path, schema=schema)
    case.gives(source(case, reader, timed), "t w v", (1, 1.5, 10), (2, 2.5, 20), (3, None, 30))


@FORMATS
@TIMED
def test_without_a_schema_the_first_file_decides_and_more_columns_are_left_out(
    case: Case, tmp_path: Path, format: str, timed: bool
) -> None:
    save(tmp_path, format, 1, [{"t": 1, "v": 10}])
    save(tmp_path, format, 2, [{"more": "x", "v": 20, "t": 2}])
    reader = getattr(ps.read, format)(tmp_path)
    case.gives(source(case, reader, timed), "t v", (1, 10), (2, 20))


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_file_without_a_column_that_is_needed_is_refused_by_name(
    case: Case, tmp_path: Path, format: str
) -> None:
    save(tmp_path, format, 1, [{"t": 1, "v": 10}])
    reader = getattr(ps.read, format)(tmp_path, schema={"t": int, "v": int})
    rows = source(case, reader, timed=True)
    file = save(tmp_path, format, 2, [{"t": 2}])
    with pytest.raises(ps.ConnectorError) as refused:
        case.run(rows)
    assert refused.value.fact == f'"{file}" does not fit the declared schema'
    assert refused.value.detail == 'it has no column "v"; its columns are t'
    assert refused.value.step == "rows"


@pytest.mark.parametrize("cut", [{}, {"batch": 2}], ids=["by files", "by rows"])
@TIMED
def test_files_that_cannot_be_read_are_skipped_and_counted_and_others_are_read(
    case: Case, tmp_path: Path, timed: bool, cut: dict[str, Any]
) -> None:
    save(tmp_path, "jsonl", 1, [{"t": 1, "v": 10}, {"t": 1, "v": 11}])
    (tmp_path / "2.jsonl.gz").write_bytes(b"no gzip at all")
    (tmp_path / "3.jsonl").write_bytes("{}".encode("utf-16"))
    save(tmp_path, "jsonl", 4, [{"t": 4, "v": 40}])
    reader = ps.read.jsonl(tmp_path, schema={"t": int, "v": int}, **cut)
    rows = source(case, reader, timed, on_error="skip")
    outcome = case.gives(rows, "t v", (1, 10), (1, 11), (4, 40))
    assert (outcome.account("rows").rows_in, outcome.account("rows").errors) == (5, 2)


@FORMATS
@TIMED
def test_a_file_that_cannot_be_read_is_a_dead_letter(
    case: Case, tmp_path: Path, format: str, timed: bool
) -> None:
    save(tmp_path, format, 1, [{"t": 1, "v": 10}])
    bad = tmp_path / f"2.{format}"
    bad.write_bytes(b"\xff\xfePAR1 and then rubbish")
    os.utime(bad, (2, 2))
    save(tmp_path, format, 3, [{"t": 3, "v": 30}])
    reader = getattr(ps.read, format)(tmp_path, schema={"t": int, "v": int})
    rows = source(case, reader, timed, on_error="dead_letter")
    outcome = case.run(rows, rows.errors)
    assert outcome.bag("v") == [10, 30]
    (letter,) = outcome.rows(1)
    assert str(letter["error"]).startswith(f"{bad}: ")
    assert letter.get("raw", str(bad)) == str(bad)


def test_a_file_that_cannot_be_read_stops_the_run_by_name(case: Case, tmp_path: Path) -> None:
    save(tmp_path, "jsonl", 1, [{"v": 10}])
    rows = source(case, ps.read.jsonl(tmp_path, schema={"v": int}), timed=False)
    (tmp_path / "2.jsonl.gz").write_bytes(gzip.compress(b"{}\n")[:-10])
    with pytest.raises(ps.ConnectorError, match=r'2.jsonl.gz" cannot be read') as failure:
        case.run(rows)
    assert failure.value.step == "rows"


@TIMED
def test_lines_that_are_put_behind_others_are_read_while_the_run_goes_on(
    case: Case, tmp_path: Path, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.1)
    log = tmp_path / "app.jsonl"
    log.write_text('{"t": 1, "v": 1}\n{"t": 2, "v": 2}\n{"t": 3, ')

    def grow(row: Any) -> dict[str, int]:
        """The writer goes on, and rotates its log, when the first lines have been read."""
        if not log.with_suffix(".1").exists() and row.v == 2:
            with log.open("a") as file:
                file.write('"v": 3}\n')
            log.rename(log.with_suffix(".1"))
            log.write_text('{"t": 4, "v": 4}\n')
        return {"v": row.v}

    reader = ps.read.jsonl(log, schema={"t": int, "v": int}, follow=True, wait="10 ms")
    rows = source(case, reader, timed).map(grow, schema={"v": int})
    outcome = case.run(rows, until=8, drain=False, balanced=False)
    assert outcome.bag("v") == [1, 2, 3, 4]
