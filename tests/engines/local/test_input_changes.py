"""What happens to input files between two runs of a checkpoint, in process."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import crash_points
from penstock.connect.readers import chunks, file_identity
from penstock.connect.readers import files as file_readers
from penstock.engines.checkpoint.checkpoint import skip_file
from penstock.errors import CheckpointError, ConnectorError
from tests.support.file_runs import Died, dying_at
from tests.support.input_runs import append, read_output, rows_in, run, write


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 0.0)


CUTS = pytest.mark.parametrize("cut", [{}, {"batch": 2}], ids=["by files", "by rows"])
PLACES = pytest.mark.parametrize("path", ["in", "in/app.log", "in/*.log*"])


@CUTS
@PLACES
def test_rows_that_were_put_behind_others_are_read_by_the_next_run(
    tmp_path: Path, path: str, cut: dict[str, int]
) -> None:
    log = tmp_path / "in" / "app.log"
    write(log, 1, 2, 3)
    run(tmp_path, path, **cut)
    append(log, 4, 5)
    run(tmp_path, path, **cut)
    run(tmp_path, path, **cut)
    assert read_output(tmp_path) == [1, 2, 3, 4, 5]


@CUTS
@pytest.mark.parametrize("change", ["rewrite", "truncate", "same size", "reorder"])
def test_a_file_that_changed_is_refused_by_name(tmp_path: Path, cut: dict[str, int], change: str) -> None:
    log = tmp_path / "in" / "app.log"
    write(log, 1, 2, 3)
    run(tmp_path, **cut)
    values = {"rewrite": [7, 8, 9, 10], "truncate": [1, 2], "same size": [1, 2, 4], "reorder": [3, 2, 1]}
    write(log, *values[change])
    with pytest.raises(ConnectorError, match=r'app.log" changed after it was read') as refused:
        run(tmp_path, **cut)
    assert refused.value.step == "rows"
    write(log, 1, 2, 3)
    run(tmp_path, **cut)
    assert read_output(tmp_path) == [1, 2, 3]


@CUTS
@PLACES
def test_a_log_that_was_copied_and_cut_between_two_runs_loses_no_row(
    tmp_path: Path, path: str, cut: dict[str, int]
) -> None:
    log = tmp_path / "in" / "app.log"
    write(log, 1, 2, 3)
    run(tmp_path, path, until=1, **cut)
    append(log, 4)
    shutil.copy(log, tmp_path / "in" / "app.log.1")
    write(log, 5, 6)
    run(tmp_path, path, **cut)
    run(tmp_path, path, **cut)
    assert read_output(tmp_path) == [1, 2, 3, 4, 5, 6]


@CUTS
@PLACES
def test_a_log_that_was_rotated_between_two_runs_loses_no_row(
    tmp_path: Path, path: str, cut: dict[str, int]
) -> None:
    log = tmp_path / "in" / "app.log"
    write(log, 1, 2, 3)
    run(tmp_path, path, until=1, **cut)
    append(log, 4)
    log.rename(tmp_path / "in" / "app.log.1")
    if path == "in":
        run(tmp_path, path, **cut)
    write(log, 5, 6)
    run(tmp_path, path, **cut)
    append(tmp_path / "in" / "app.log.1", 7)
    run(tmp_path, path, **cut)
    assert read_output(tmp_path) == [1, 2, 3, 4, 5, 6, 7]


@CUTS
def test_a_file_that_was_renamed_touched_or_copied_is_not_read_again(
    tmp_path: Path, cut: dict[str, int]
) -> None:
    for n, name in enumerate(("a", "b", "c")):
        write(tmp_path / "in" / f"{name}.jsonl", n)
    run(tmp_path, **cut)
    (tmp_path / "in" / "a.jsonl").rename(tmp_path / "in" / "z.jsonl")
    os.utime(tmp_path / "in" / "b.jsonl", (9, 9))
    shutil.copy(tmp_path / "in" / "c.jsonl", tmp_path / "in" / ".c")
    (tmp_path / "in" / ".c").rename(tmp_path / "in" / "c.jsonl")
    run(tmp_path, **cut)
    run(tmp_path, **cut)
    assert read_output(tmp_path) == [0, 1, 2]


def test_files_that_were_copied_to_another_machine_are_known(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    for n in range(3):
        write(here / "in" / f"{n}.jsonl", n)
    run(here, until=2)
    shutil.copytree(here, there)
    moved = there / "checkpoint" / "files" / "rows.jsonl"
    assert moved.exists()
    shutil.rmtree(here / "in")
    shutil.copytree(there / "in", here / "in")  # other inodes and times of change
    run(here)
    assert read_output(here) == [0, 1, 2]


@CUTS
def test_a_large_file_that_is_being_read_must_keep_its_time_too(
    tmp_path: Path, cut: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "HASHED_BYTES", 8)  # so that the hashes leave the middle out
    write(tmp_path / "in" / "a.jsonl", *range(10))
    with dying_at(crash_points.COMMITTED), pytest.raises((Died, ps.PenstockError)):
        run(tmp_path, **cut)
    write(tmp_path / "in" / "a.jsonl", 0, 1, 2, 3, 8, 5, 6, 7, 8, 9)
    with pytest.raises(ConnectorError, match=r'a.jsonl" changed after it was read'):
        run(tmp_path, **cut)


@CUTS
@pytest.mark.parametrize("mended", ["removed", "mended", "left out"])
def test_a_file_that_could_not_be_read_may_be_mended_removed_or_left_out(
    tmp_path: Path, cut: dict[str, int], mended: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    whole = gzip.compress(b'{"v": 2}\n' * 200)
    write(folder / "a.jsonl", 1)
    os.utime(folder / "a.jsonl", (1, 1))
    (folder / "b.jsonl.gz").write_bytes(b"no gzip at all")
    os.utime(folder / "b.jsonl.gz", (2, 2))
    write(folder / "c.jsonl", 3)
    for _ in range(2):
        with pytest.raises(ConnectorError, match=r'b.jsonl.gz" cannot be read'):
            run(tmp_path, **cut)
    assert read_output(tmp_path) == ([1] if not cut else [])
    if mended == "removed":
        (folder / "b.jsonl.gz").unlink()
    elif mended == "mended":
        (folder / "b.jsonl.gz").write_bytes(whole)
    else:
        skip_file(tmp_path / "checkpoint", "rows", folder / "b.jsonl.gz")
    run(tmp_path, **cut)
    run(tmp_path, **cut)
    assert read_output(tmp_path) == [1, *[2] * 200 * (mended == "mended"), 3]


@pytest.mark.parametrize("follow", [False, True])
@CUTS
def test_a_file_that_cannot_be_read_is_skipped_and_counted(
    tmp_path: Path, cut: dict[str, int], follow: bool
) -> None:
    if follow and cut:
        pytest.skip("files that are followed make the batches")
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.jsonl", 1, 2)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b'{"v": 2}\n' * 200)[:-12])
    write(folder / "c.jsonl", 3)
    more = {"follow": True, "until": 4} if follow else {}
    result = run(tmp_path, on_error="skip", **cut, **more)
    account = result.accounts["rows"]
    assert (account.errors, account.is_balanced) == (1, True)
    assert set(read_output(tmp_path)) == {1, 2, 3}
    run(tmp_path, on_error="skip", **cut, **more)
    assert read_output(tmp_path).count(3) == 1


@CUTS
@pytest.mark.parametrize("size", [10, 1 << 20], ids=["in its middle", "at once"])
def test_a_newest_file_that_cannot_be_read_is_a_dead_letter_of_one_run_only(
    tmp_path: Path, cut: dict[str, int], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
    write(tmp_path / "in" / "a.jsonl", 1, 2, 3)
    os.utime(tmp_path / "in" / "a.jsonl", (1, 1))
    packed = gzip.compress("".join(f'{{"v": {n}}}\n' for n in range(10, 3_000)).encode())
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    accounts = [run(tmp_path, on_error="dead_letter", **cut).accounts["rows"] for _ in range(3)]
    assert [account.errors for account in accounts] == [1, 1, 1]  # of all runs so far
    n_rows = len(read_output(tmp_path))
    assert (n_rows > 3) == (size == 10)
    assert len(set(read_output(tmp_path))) == n_rows
    write(tmp_path / "in" / "c.jsonl", 4, 5)
    for _ in range(2):
        assert run(tmp_path, on_error="dead_letter", **cut).accounts["rows"].errors == 1
    assert len(set(read_output(tmp_path))) == len(read_output(tmp_path)) == n_rows + 2
    assert len(rows_in(tmp_path / "errors")) == 1


def test_a_file_that_can_no_longer_be_read_after_some_of_its_rows_is_a_dead_letter_once(
    tmp_path: Path,
) -> None:
    write(tmp_path / "in" / "a.jsonl", 1, 2, 3)
    run(tmp_path, batch=2, until=1, on_error="dead_letter")
    (tmp_path / "in" / "a.jsonl").rename(tmp_path / "away")
    write(tmp_path / "in" / "b.jsonl", 4)
    accounts = [run(tmp_path, batch=2, on_error="dead_letter").accounts["rows"] for _ in range(2)]
    assert [account.errors for account in accounts] == [1, 1]  # of all runs so far
    assert read_output(tmp_path) == [1, 2, 4]


@pytest.mark.parametrize(
    ("was", "now", "fact"),
    [
        ({"batch": 2}, {}, "was cut by rows"),
        ({"batch": 2}, {"files": 2}, "was cut by rows"),
        ({}, {"batch": 2}, "was cut by files"),
        ({"files": 2}, {"batch": 2}, "was cut by files"),
    ],
)
@pytest.mark.parametrize("until", [1, None])
def test_what_was_cut_by_rows_is_not_cut_by_files_under_the_same_checkpoint(
    tmp_path: Path, was: dict[str, int], now: dict[str, int], fact: str, until: int | None
) -> None:
    for n, name in enumerate("abc"):
        write(tmp_path / "in" / f"{name}.jsonl", *range(3 * n, 3 * n + 3))
    run(tmp_path, until=until, **was)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=fact) as refused:
            run(tmp_path, **now)
        assert refused.value.step == "rows"
        assert "batch=" in str(refused.value.hint)
    run(tmp_path, **was)
    assert read_output(tmp_path) == list(range(9))


def test_a_file_that_cannot_be_read_is_a_dead_letter_with_its_path_and_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", 1)
    bad = tmp_path / "in" / "b.jsonl"
    bad.write_bytes("x".encode("utf-16"))
    run(tmp_path, on_error="dead_letter")
    (letter,) = rows_in(tmp_path / "errors")
    assert letter["raw"] == str(bad)
    assert f"{bad}: is UTF-16" in letter["error"]
    assert read_output(tmp_path) == [1]


def test_only_files_that_nobody_has_seen_may_change_after_a_failure(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", 1)
    with dying_at(crash_points.COMMITTED), pytest.raises((Died, ps.PenstockError)):
        run(tmp_path)
    (tmp_path / "in" / "a.jsonl").unlink()  # its rows are in the output, and not yet in the checkpoint
    for _ in range(2):
        with pytest.raises(ConnectorError, match=r'a.jsonl" cannot be read: No such file'):
            run(tmp_path)
    write(tmp_path / "in" / "a.jsonl", 1)
    run(tmp_path)
    assert read_output(tmp_path) == [1]


def test_a_file_that_is_gone_before_all_of_its_rows_were_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.jsonl"
    write(file, 1, 2, 3, 4, 5)
    run(tmp_path, batch=2, until=1)
    file.rename(tmp_path / "away")
    with pytest.raises(ConnectorError, match=r'a.jsonl" cannot be read: No such file'):
        run(tmp_path, batch=2)
    (tmp_path / "away").rename(file)
    run(tmp_path, batch=2)
    assert read_output(tmp_path) == [1, 2, 3, 4, 5]


def test_a_row_that_stopped_the_run_may_be_mended_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.jsonl"
    write(file, 1)
    append(file, 2)
    file.write_text(file.read_text() + '{"v": "x"}\n')
    with pytest.raises(ConnectorError, match="v"):
        run(tmp_path)
    write(file, 1, 2, 3)
    run(tmp_path)
    assert read_output(tmp_path) == [1, 2, 3]


def test_leaving_a_file_out_needs_a_source_that_reads_files(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", 1)
    run(tmp_path)
    with pytest.raises(CheckpointError, match='knows no files of a source "row"') as refused:
        skip_file(tmp_path / "checkpoint", "row", "a.jsonl")
    assert "its sources with files are rows" in str(refused.value.detail)


@pytest.mark.parametrize("format", ["jsonl", "parquet", "csv"])
def test_a_run_that_resumes_does_not_read_again_what_was_read(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folder = pa.table({"v": range(10_000)}), tmp_path / "in"
    folder.mkdir()
    if format == "parquet":
        pq.write_table(table, folder / "a.parquet", row_group_size=1_000)
    else:
        graph = ps.PipeGraph("write")
        writer = getattr(ps.write, format)(folder)
        graph.source(ps.read.table(table)).sink(writer)
        graph.run("reference")
    from penstock.connect.readers import parquet

    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4_000)
    monkeypatch.setattr(parquet, "_ROWS_AT_A_TIME", 500)

    def resume(until: int | None) -> int:
        graph = ps.PipeGraph("resume")
        reader = getattr(ps.read, format)(f"{folder}/*.{format}", schema={"v": int}, batch=100)
        graph.source(reader, name="rows").sink(ps.write.jsonl(tmp_path / "out"), name="out")
        read = [0]
        whole = type(reader).read_part

        def count(self: Any, part: Any, start: int) -> Any:
            for rows in whole(self, part, start):
                read[0] += rows.end - rows.start
                yield rows

        monkeypatch.setattr(type(reader), "read_part", count)
        often = ps.LocalOptions(save_every="0 s")
        checkpoint = str(tmp_path / "checkpoint")
        graph.run("local", checkpoint=checkpoint, until=until, drain=False, options=often)
        monkeypatch.setattr(type(reader), "read_part", whole)
        return read[0]

    resume(90)
    assert resume(None) <= 2_000
    assert read_output(tmp_path) == list(range(10_000))
