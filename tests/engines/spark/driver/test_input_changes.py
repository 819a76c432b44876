"""What happens to input files between two runs of a checkpoint, on Spark; the same as in process."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

import penstock as ps
from penstock.connect.readers import files as file_readers
from penstock.errors import CheckpointError
from tests.support.input_runs import append, read_output, rows_in, run, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize("cut", [{}, {"batch": 2}], ids=["by files", "by rows"])
def test_what_grew_or_was_rotated_is_read_on_and_what_changed_is_refused(
    tmp_path: Path, cut: dict[str, int]
) -> None:
    log = tmp_path / "in" / "app.log"
    write(log, 1, 2, 3)
    run(tmp_path, engine="spark", until=1, **cut)
    append(log, 4, 5)
    run(tmp_path, engine="spark", **cut)
    append(log, 6)
    shutil.copy(log, tmp_path / "in" / "app.log.1")
    write(log, 7, 8)
    run(tmp_path, engine="spark", **cut)
    assert read_output(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8]
    write(log, 7, 9)
    with pytest.raises(ps.ConnectorError, match=r'app.log" changed after it was read'):
        run(tmp_path, engine="spark", **cut)


@pytest.mark.parametrize("cut", [{}, {"batch": 2}], ids=["by files", "by rows"])
def test_a_file_that_could_not_be_read_may_be_mended_on_either_engine(
    tmp_path: Path, cut: dict[str, int]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.jsonl", 1, 2)
    os.utime(folder / "a.jsonl", (1, 1))
    (folder / "b.jsonl.gz").write_bytes(b"no gzip at all")
    os.utime(folder / "b.jsonl.gz", (2, 2))
    write(folder / "c.jsonl", 4)
    with pytest.raises(ps.ConnectorError, match=r'b.jsonl.gz" cannot be read'):
        run(tmp_path, engine="spark", **cut)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b'{"v": 3}\n'))
    run(tmp_path, engine="spark", until=1, **cut)
    run(tmp_path, engine="local", **cut)
    assert read_output(tmp_path) == [1, 2, 3, 4]


def test_a_newest_file_that_cannot_be_read_is_a_dead_letter_of_one_run_only(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", 1, 2, 3)
    os.utime(tmp_path / "in" / "a.jsonl", (1, 1))
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(b"no gzip at all")
    for n, engine in enumerate(("spark", "spark", "spark", "local")):
        if n == 2:
            write(tmp_path / "in" / "c.jsonl", 4)
        result = run(tmp_path, engine=engine, on_error="dead_letter", batch=2)
        assert result.accounts["rows"].errors == 1  # of all runs so far
    assert read_output(tmp_path) == [1, 2, 3, 4]
    assert len(rows_in(tmp_path / "errors")) == 1


@pytest.mark.parametrize(
    ("was", "now", "fact"),
    [({"batch": 2}, {}, "was cut by rows"), ({}, {"batch": 2}, "was cut by files")],
)
def test_what_was_cut_by_rows_is_not_cut_by_files_under_the_same_checkpoint(
    tmp_path: Path, was: dict[str, int], now: dict[str, int], fact: str
) -> None:
    write(tmp_path / "in" / "a.jsonl", 1, 2, 3)
    write(tmp_path / "in" / "b.jsonl", 4)
    run(tmp_path, engine="spark", until=1, **was)
    with pytest.raises(CheckpointError, match=fact) as refused:
        run(tmp_path, engine="spark", **now)
    assert refused.value.step == "rows"
    run(tmp_path, engine="spark", **was)
    assert read_output(tmp_path) == [1, 2, 3, 4]


def test_a_log_is_followed_while_it_grows_and_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.05)
    monkeypatch.setattr(file_readers, "EMPTY_BATCHES_PER_ENTRY", 1)
    log = tmp_path / "in" / "app.log"
    write(log, *range(100))
    run(tmp_path, "in/app.log", engine="spark", follow=True, until=2)
    append(log, 100)
    log.rename(tmp_path / "in" / "app.log.1")
    write(log, 101)
    with log.open("a") as half:
        half.write('{"v": 1')
    run(tmp_path, "in/app.log", engine="spark", follow=True, until=6)
    assert read_output(tmp_path) == list(range(102))
    with log.open("a") as rest:
        rest.write("02}\n")
    run(tmp_path, "in/app.log", engine="spark", follow=True, until=6)
    assert read_output(tmp_path) == list(range(103))
