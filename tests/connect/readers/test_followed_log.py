"""Logs that grow, are rotated, or are copied and cut: every line once."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connect.protocol import SourceBatch
from penstock.connect.readers import files as file_readers
from penstock.errors import ConnectorError


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def lines(batches: Iterator[SourceBatch]) -> list[Any]:
    """What there is to read now: all batches up to one without rows."""
    read: list[Any] = []
    while (batch := next(batches)).num_rows:
        read += batch.rows.column(0).to_pylist()
    return read


def follow(path: object) -> Iterator[SourceBatch]:
    return ps.read.text(str(path), follow=True).batches()


PLACES = pytest.mark.parametrize("place", ["app.log", "", "*.log*"])
"""One file, its folder, and a glob."""


@PLACES
def test_lines_that_are_put_behind_others_are_read_on(tmp_path: Path, log: Path, place: str) -> None:
    append(log, "one\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["one"]
    append(log, "two\nthree\n")
    assert lines(batches) == ["two", "three"]
    assert lines(batches) == []


def test_rows_of_a_file_that_grows_are_numbered_on_and_bad_ones_have_their_line(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("v\n1\n")
    batches = ps.read.csv(file, schema={"v": int}, follow=True).batches()
    first = next(batches)
    append(file, "x\n3\n")
    second = next(batches)
    assert first.seq is not None
    assert second.seq is not None
    assert (first.seq.to_pylist(), second.seq.to_pylist()) == ([0], [2])
    assert [bad.place for bad in second.bad] == [f"{file}:3"]


@pytest.mark.parametrize("format", ["text", "csv"])
def test_a_line_that_is_not_whole_waits_for_its_end(tmp_path: Path, format: str) -> None:
    file = tmp_path / "rows"
    file.write_text("v\none\ntw" if format == "csv" else "one\ntw")
    reader = ps.read.text if format == "text" else ps.read.csv
    batches = reader(file, follow=True).batches()
    assert lines(batches) == ["one"]
    append(file, "o\r\nthr")
    assert lines(batches) == ["two"]
    append(file, "ee\n")
    assert lines(batches) + lines(batches) == [
        "three"
    ]  # the first batch may be what the packed file has more


def test_a_value_in_quotes_that_spans_lines_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('v,w\n"a",1\n"b\n')
    batches = ps.read.csv(file, schema={"v": str, "w": int}, follow=True).batches()
    assert lines(batches) == ["a"]
    append(file, 'c",2\n"d",3\n')
    assert lines(batches) == ["b\nc", "d"]


def test_a_whole_object_needs_no_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}')
    batches = ps.read.jsonl(file, follow=True).batches()
    assert lines(batches) == [1, 2]
    append(file, '\n{"a": ')
    assert lines(batches) == []
    append(file, "3}\n")
    assert lines(batches) == [3]


def age(log: Path, seconds: float) -> None:
    """Let the file look as if nobody had written to it for so long."""
    os.utime(log, (time.time() - seconds, time.time() - seconds))


def test_a_line_without_its_end_waits_for_it_however_slow_its_writer_is(log: Path) -> None:
    append(log, "one\ntw")
    batches = follow(log)
    assert lines(batches) == ["one"]
    age(log, 86_400)
    assert lines(batches) == []
    append(log, "o")
    age(log, 3_600)
    assert lines(batches) == []
    append(log, "\nthree\n")
    assert lines(batches) == ["two", "three"]


def test_a_line_that_is_never_ended_is_read_by_a_reader_that_does_not_follow(log: Path) -> None:
    append(log, "one\ntwo")
    age(log, 86_400)
    assert lines(follow(log)) == ["one"]
    assert next(ps.read.text(str(log)).batches()).rows.column(0).to_pylist() == ["one", "two"]


def test_a_line_without_its_end_is_taken_when_the_file_has_been_quiet_for_as_long_as_the_user_says(
    log: Path,
) -> None:
    append(log, "one\ntwo")
    batches = ps.read.text(str(log), follow=True, quiet="1 min").batches()
    assert lines(batches) == ["one"]
    age(log, 61)
    assert lines(batches) == ["two"]
    append(log, "\nthree\n")
    assert lines(batches) + lines(batches) == [
        "three"
    ]  # the first batch may be what the packed file has more


def test_a_line_that_goes_on_after_it_was_taken_for_whole_is_refused(log: Path) -> None:
    append(log, "one\ntw")
    age(log, 61)
    batches = ps.read.text(str(log), follow=True, quiet="1 min").batches()
    assert lines(batches) == ["one", "tw"]
    append(log, "o\n")
    with pytest.raises(ConnectorError, match=r'app.log" grew in the middle of a line') as refused:
        lines(batches)
    assert "without quiet= wait for the ends of lines" in str(refused.value.hint)


@pytest.mark.parametrize("format", ["text", "jsonl", "csv"])
def test_a_reader_that_is_to_end_takes_what_is_there_and_a_last_line_without_its_end(
    tmp_path: Path, format: str
) -> None:
    file, form = tmp_path / "rows", {"text": "{}", "jsonl": '{{"v": "{}"}}', "csv": "{}"}[format]
    head = "v\n" if format == "csv" else ""
    file.write_text(head + form.format("one") + "\n" + form.format("two")[:-1])
    read: Any = getattr(ps.read, format)
    schema = {} if format == "text" else {"schema": {"v": str}}
    reader = read(file, follow=True, **schema).watch()
    batches = reader.batches()
    assert lines(batches) == ["one"]
    append(file, form.format("two")[-1] + "\n" + form.format("three"))
    reader.finish()
    assert [row for batch in batches for row in batch.rows.column(0).to_pylist()] == ["two", "three"]


def test_a_reader_that_is_to_end_reads_the_files_that_wait_before(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"{name}\nhalf {name}")
    reader = ps.read.text(tmp_path, follow=True).watch()
    batches = reader.batches()
    assert next(batches).rows.column(0).to_pylist() == ["a"]
    reader.finish()
    rest = [row for batch in batches for row in batch.rows.column(0).to_pylist()]
    assert rest == ["b", "c", "half a", "half b", "half c"]


def test_a_quiet_that_is_no_time_or_for_files_that_are_not_followed_is_refused(log: Path) -> None:
    append(log, "one\n")
    with pytest.raises(ConnectorError, match="quiet='0 s' is not a length of time") as refused:
        ps.read.text(str(log), follow=True, quiet="0 s")
    assert refused.value.hint == 'give a duration above zero: quiet="1 min"'
    with pytest.raises(ConnectorError, match="quiet='1 min' is for files that are followed"):
        ps.read.csv(str(log), quiet="1 min")


@PLACES
def test_a_log_that_is_rotated_is_read_to_its_end_and_the_new_one_from_its_beginning(
    tmp_path: Path, log: Path, place: str
) -> None:
    append(log, "one\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["one"]
    append(log, "two\n")
    log.rename(tmp_path / "app.log.1")
    append(tmp_path / "app.log.1", "three\n")  # the program has it still open
    append(log, "four\n")
    assert lines(batches) == ["two", "three", "four"]
    append(tmp_path / "app.log.1", "five\n")
    append(log, "six\n")
    assert sorted(lines(batches)) == ["five", "six"]


@PLACES
def test_a_log_that_is_not_there_for_a_while_is_waited_for(tmp_path: Path, log: Path, place: str) -> None:
    append(log, "one\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["one"]
    log.rename(tmp_path / "app.log.1")
    assert lines(batches) == []
    append(log, "two\n")
    assert lines(batches) == ["two"]
    append(tmp_path / "app.log.1", "late\n")
    assert lines(batches) == ["late"]


@PLACES
def test_a_log_that_was_rotated_twice_loses_no_line(tmp_path: Path, log: Path, place: str) -> None:
    append(log, "one\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["one"]
    append(log, "two\n")
    log.rename(tmp_path / "app.log.2")
    os.utime(tmp_path / "app.log.2", (1_000, 1_000))
    append(tmp_path / "app.log.1", "three\n")
    os.utime(tmp_path / "app.log.1", (2_000, 2_000))
    append(log, "four\n")
    assert lines(batches) == ["two", "three", "four"]


@PLACES
def test_a_log_that_is_copied_and_cut_is_read_on_in_its_copy(tmp_path: Path, log: Path, place: str) -> None:
    append(log, "one\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["one"]
    append(log, "two\n")
    shutil.copy(log, tmp_path / "app.log.1")
    log.write_text("")
    append(log, "three\n")
    assert lines(batches) == ["two", "three"]
    append(log, "four\n")
    assert lines(batches) == ["four"]


def test_a_log_that_is_packed_when_it_is_rotated_is_read_to_its_end(tmp_path: Path, log: Path) -> None:
    append(log, "one\n")
    batches = follow(log)
    assert lines(batches) == ["one"]
    append(log, "two\n")
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, "three\n")
    assert lines(batches) == ["two", "three"]


def test_a_log_that_is_cut_without_a_copy_is_refused(log: Path) -> None:
    append(log, "one\ntwo\n")
    batches = follow(log)
    assert lines(batches) == ["one", "two"]
    log.write_text("x\n")
    with pytest.raises(ConnectorError, match=r'app.log" changed after it was read') as refused:
        lines(batches)
    assert "its copy stays beside it" in str(refused.value.hint)
    assert "it had 8 bytes and has 2" in str(refused.value.detail)


def test_two_files_with_the_same_lines_are_two_files(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one\n")
    append(tmp_path / "b.log", "one\n")
    batches = follow(tmp_path)
    assert lines(batches) == ["one", "one"]
    append(tmp_path / "c.log", "one\n")
    assert lines(batches) == ["one"]
    assert lines(batches) == []


def test_a_file_that_was_touched_or_copied_over_itself_is_the_same(tmp_path: Path, log: Path) -> None:
    append(log, "one\n")
    batches = follow(tmp_path)
    assert lines(batches) == ["one"]
    os.utime(log, (5, 5))
    shutil.copy(log, tmp_path / ".copy")
    (tmp_path / ".copy").rename(log)
    assert lines(batches) == []


def test_what_grows_in_parquet_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    batches = ps.read.parquet(tmp_path, follow=True).batches()
    next(batches)
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(ConnectorError, match=r'a.parquet" changed after it was read'):
        next(batches)


def rotate(log: Path, keep: int) -> None:
    """Give a log and its older generations the next names, and drop the oldest, as log handlers do."""
    names = [log, *(log.with_name(f"{log.name}.{number}") for number in range(1, keep + 1))]
    names[-1].unlink(missing_ok=True)
    for old, new in reversed(list(pairwise(names))):
        if old.exists():
            old.rename(new)


@PLACES
@pytest.mark.parametrize("keep", [2, 50])
@pytest.mark.parametrize("steps", ["lrlrrllr", "lrlrlrlr", "larlarrlal", "lrrlrrlrl", "lrllarrlarl"])
def test_a_log_that_is_rotated_again_and_again_loses_and_doubles_no_line(
    tmp_path: Path, log: Path, place: str, keep: int, steps: str
) -> None:
    append(log, "0\n")
    batches, read = follow(tmp_path / place), list[str]()
    n_lines = 1
    for step in [*steps, "l"]:
        if step == "l":
            read += lines(batches)
            continue
        if step == "r":
            rotate(log, keep)
        append(log, f"{n_lines}\n")
        n_lines += 1
    assert sorted(map(int, read)) == list(range(n_lines))


@PLACES
def test_a_rotated_log_of_which_only_the_same_first_line_was_read_loses_no_line(
    tmp_path: Path, log: Path, place: str
) -> None:
    append(log, "started\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["started"]
    append(log, "one\n")
    rotate(log, 3)
    append(log, "started\ntwo\n")
    assert lines(batches) == ["one", "started", "two"]


def test_a_copied_and_cut_log_of_which_only_its_header_was_read_loses_no_row(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    append(table, "v\n1\n")
    batches = ps.read.csv(str(table), follow=True).batches()
    assert lines(batches) == [1]
    append(table, "2\n")
    shutil.copy(table, tmp_path / "a.csv.1")
    table.write_text("v\n1\n3\n")
    assert lines(batches) == [2, 1, 3]


def test_a_copy_of_a_log_that_goes_on_is_not_read(log: Path) -> None:
    append(log, "one\n")
    batches = follow(log)
    assert lines(batches) == ["one"]
    append(log, "two\n")
    shutil.copy(log, log.with_name("app.log.bak"))
    append(log, "three\n")
    assert lines(batches) == ["two", "three"]


def test_a_log_that_was_empty_when_it_was_rotated_after_a_line_loses_none(log: Path) -> None:
    log.touch()
    batches = follow(log)
    assert lines(batches) == []
    append(log, "one\n")
    rotate(log, 3)
    append(log, "two\n")
    assert lines(batches) == ["one", "two"]


@pytest.mark.parametrize("place", ["", "*.log*"])
def test_a_log_that_is_packed_after_it_was_read_is_not_read_again(
    tmp_path: Path, log: Path, place: str
) -> None:
    append(log, "one\n")
    batches = follow(tmp_path / place)
    assert lines(batches) == ["one"]
    old = tmp_path / "app.log.1"
    log.rename(old)
    append(log, "two\n")
    assert lines(batches) == ["two"]
    with gzip.open(f"{old}.gz", "wb") as packed:
        packed.write(old.read_bytes())
    old.unlink()
    append(log, "three\n")
    assert lines(batches) + lines(batches) == [
        "three"
    ]  # the first batch may be what the packed file has more


def test_a_new_file_with_the_bytes_and_the_inode_of_one_that_is_gone_is_new(tmp_path: Path) -> None:
    first = tmp_path / "a.txt"
    first.write_text("same\n")
    batches = follow(tmp_path)
    assert lines(batches) == ["same"]
    # Why a rename: a file system may or may not give the inode of a removed file to the next one.
    second = first.rename(tmp_path / "b.txt")
    os.utime(second, (2_000_000_000, 2_000_000_000))
    assert lines(batches) == ["same"]
