"""Folders of files: what is visible, what is refused, what is cleaned up."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock.read as read
import penstock.write as write
from penstock import crash_points
from penstock.connect.protocol import Delivery, Writer
from penstock.connect.writers.folder import FolderWriter, Manifest
from penstock.connect.writers.staged_files import StagedFile, seal, unseal
from penstock.errors import ConnectorError, SchemaError
from tests.support.file_runs import Died
from tests.support.reader_contents import rows_of

SCHEMA = pa.schema([("a", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


def run(writer: FolderWriter, *batches: list[int], resume: bool = False, sink: str = "sink") -> None:
    out = writer.open(SCHEMA, sink, resume=resume)
    try:
        for number, values in enumerate(batches):
            out.write(number, rows(*values))
            out.commit(number)
    finally:
        out.close()


def visible(folder: Path) -> list[str]:
    files = (entry.relative_to(folder) for entry in folder.rglob("*") if entry.is_file())
    return sorted(str(file) for file in files if not str(file).startswith(("_", ".")))


def staged_folder(folder: Path) -> Path:
    return folder / "_penstock" / "staged"


def manifest_of(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any]
    fields, _ = unseal((folder / "_penstock" / "manifest.json").read_text())
    return fields


def stage_rows(writer: FolderWriter, tag: str, batch: pa.RecordBatch) -> list[StagedFile]:
    stage = writer.stage(batch.schema, tag)
    stage.write(batch)
    return stage.close()


def test_each_batch_with_rows_is_one_file_and_the_folder_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    run(write.jsonl(out), [1, 2], [], [3])
    assert visible(out) == ["part-00000000-00000.jsonl", "part-00000002-00000.jsonl"]
    assert rows_of(read.jsonl(out)) == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_nothing_is_visible_before_the_commit_nor_left_after_the_close(tmp_path: Path) -> None:
    out = write.csv(tmp_path).open(SCHEMA, "sink")
    out.write(0, rows(1))
    out.write(0, rows(2))
    assert visible(tmp_path) == []
    out.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["_penstock"]


def test_committing_a_number_again_changes_nothing(tmp_path: Path) -> None:
    writer = write.jsonl(tmp_path)
    run(writer, [1], [2])
    run(writer, [1], [2], [3], resume=True)
    assert [row["a"] for row in rows_of(read.jsonl(tmp_path))] == [1, 2, 3]


def test_a_batch_that_was_carried_away_is_not_written_again(tmp_path: Path) -> None:
    writer = write.jsonl(tmp_path)
    run(writer, [1], [2])
    (tmp_path / "part-00000000-00000.jsonl").unlink()
    run(writer, [1], [2], resume=True)
    assert visible(tmp_path) == ["part-00000001-00000.jsonl"]


def test_what_a_crash_left_is_cleaned_up(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    (staged_folder(tmp_path) / "00000001-1-0.jsonl").write_text("half a ro")
    run(write.jsonl(tmp_path), [1], [2], resume=True)
    assert visible(tmp_path) == ["part-00000000-00000.jsonl", "part-00000001-00000.jsonl"]
    assert list(staged_folder(tmp_path).iterdir()) == []


def test_a_fresh_run_is_refused_where_earlier_output_is_unless_it_may_overwrite(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1], [2])
    with pytest.raises(ConnectorError, match="holds the output of an earlier run") as caught:
        write.jsonl(tmp_path).open(SCHEMA, "sink")
    assert "overwrite=True" in str(caught.value.hint)
    run(write.jsonl(tmp_path, overwrite=True), [3])
    assert rows_of(read.jsonl(tmp_path)) == [{"a": 3}]


def test_output_carried_away_still_counts_as_an_earlier_run(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    (tmp_path / "part-00000000-00000.jsonl").unlink()
    with pytest.raises(ConnectorError, match="earlier run"):
        write.jsonl(tmp_path).open(SCHEMA, "sink")


def test_a_run_that_wrote_nothing_leaves_the_folder_free(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [])
    run(write.csv(tmp_path), [1], sink="other")
    assert visible(tmp_path) == ["part-00000000-00000.csv"]


def test_resuming_may_begin_in_an_empty_folder(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1], resume=True)
    assert visible(tmp_path) == ["part-00000000-00000.jsonl"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_are_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConnectorError, match=r'holds "thesis\.txt", which is no output of this graph'):
        write.jsonl(tmp_path, overwrite=overwrite).open(SCHEMA, "sink")
    assert visible(tmp_path) == ["thesis.txt"]


def test_parts_without_a_manifest_are_someone_elses(tmp_path: Path) -> None:
    (tmp_path / "part-00000000-00000.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ConnectorError, match=r'holds "part-00000000-00000\.jsonl"'):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)


def test_resuming_the_output_of_another_sink_or_other_columns_is_refused(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    with pytest.raises(ConnectorError, match='holds the output of sink "sink", not "other"'):
        write.jsonl(tmp_path).open(SCHEMA, "other", resume=True)
    with pytest.raises(ConnectorError, match="holds jsonl files with the columns a: int64"):
        write.jsonl(tmp_path).open(pa.schema([("a", pa.string())]), "sink", resume=True)


def test_an_output_goes_on_with_more_columns_or_fewer(tmp_path: Path) -> None:
    nested = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.decimal128(5, 2))]))
    run(write.jsonl(tmp_path), [1])
    for schema in ({"a": pa.int64(), "b": nested}, {"b": nested}):
        write.jsonl(tmp_path).open(pa.schema(schema), "sink", resume=True).close()
    with pytest.raises(ConnectorError, match="columns b: list<item: struct<x: int64, y: decimal"):
        write.jsonl(tmp_path).open(pa.schema([("b", pa.int64())]), "sink", resume=True)


def test_two_runs_cannot_write_into_one_folder(tmp_path: Path) -> None:
    out = write.jsonl(tmp_path).open(SCHEMA, "sink")
    with pytest.raises(ConnectorError, match="is being written by another sink or run"):
        write.jsonl(tmp_path).open(SCHEMA, "sink")
    out.close()
    write.jsonl(tmp_path).open(SCHEMA, "sink").close()


def test_a_refused_folder_is_not_left_locked(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    for _ in range(2):
        with pytest.raises(ConnectorError, match="earlier run"):
            write.jsonl(tmp_path).open(SCHEMA, "sink")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"format": "jsonl"}', '{"version": 2, "rubbish": 2}', '{"version": 2, "publishing": [1]}'],
)
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    run(write.jsonl(tmp_path), [1])
    (tmp_path / "_penstock" / "manifest.json").write_text(text)
    with pytest.raises(ConnectorError, match=r"manifest\.json. is damaged"):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_manifest_of_another_version_is_refused(tmp_path: Path, version: int, overwrite: bool) -> None:
    run(write.jsonl(tmp_path), [1])
    manifest = tmp_path / "_penstock" / "manifest.json"
    manifest.write_text(seal(manifest_of(tmp_path) | {"version": version}))
    with pytest.raises(ConnectorError, match=f"has version {version}, and this build knows 2 and") as caught:
        write.jsonl(tmp_path, overwrite=overwrite).open(SCHEMA, "sink", resume=not overwrite)
    assert "resume the run with that version; or write to another folder" in str(caught.value.hint)


def test_a_manifest_with_any_byte_changed_is_refused_by_name(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    manifest = tmp_path / "_penstock" / "manifest.json"
    whole = manifest.read_bytes()
    for place in range(len(whole)):
        manifest.write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        with pytest.raises(ConnectorError, match=r"manifest\.json. is damaged") as caught:
            write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)
        assert "overwrite" not in str(caught.value.hint)


def test_a_manifest_of_the_version_before_is_read(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    manifest = tmp_path / "_penstock" / "manifest.json"
    fields = manifest_of(tmp_path) | {"version": 2, "publishing": [["gone", "part-00000000-00000.jsonl"]]}
    manifest.write_text(json.dumps({k: v for k, v in fields.items() if k not in ("run", "head")}, indent=1))
    out = write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)
    assert out.last_committed == 0
    out.close()
    assert manifest_of(tmp_path)["version"] == 3


def test_a_staged_file_that_was_cut_before_it_was_renamed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(point: str) -> None:
        if point == crash_points.LISTED:
            raise Died

    out = write.jsonl(tmp_path).open(SCHEMA, "sink")
    out.write(0, rows(1))
    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "listener", die)
        with pytest.raises(Died):
            out.commit(0)
    out.close()
    (staged,) = staged_folder(tmp_path).iterdir()
    staged.write_text("half")
    with pytest.raises(ConnectorError, match=r'00000000-1-0.jsonl" has 4 bytes, and it had 8'):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)


def test_a_manifest_as_the_first_version_wrote_it_is_refused(tmp_path: Path) -> None:
    first = {"format": "jsonl", "sink": "sink", "columns": "a: int64", "committed": 0, "version": 1}
    (tmp_path / "_penstock").mkdir()
    (tmp_path / "_penstock" / "manifest.json").write_text(json.dumps(first))
    (tmp_path / "part-00000000.jsonl").write_text('{"a":1}\n')
    with pytest.raises(ConnectorError, match=r'manifest\.json" has version 1, and this build knows 2 and 3'):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)
    assert visible(tmp_path) == ["part-00000000.jsonl"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ConnectorError, match="is a file, and output needs a folder"):
        write.parquet(tmp_path / "out").open(SCHEMA, "sink")
    with pytest.raises(ConnectorError, match="cannot be written: Not a directory"):
        write.parquet(tmp_path / "out" / "deeper").open(SCHEMA, "sink")


def test_a_place_that_the_system_refuses_is_named() -> None:
    with pytest.raises(ConnectorError, match='"/proc/penstock" cannot be written'):
        write.parquet("/proc/penstock").open(SCHEMA, "sink")


def test_a_folder_that_vanishes_during_the_run_is_named(tmp_path: Path) -> None:
    out = write.jsonl(tmp_path / "out").open(SCHEMA, "sink")
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(ConnectorError, match="cannot be written: No such file"):
        out.write(0, rows(1))
    out.close()


def test_csv_refuses_columns_that_it_cannot_hold(tmp_path: Path) -> None:
    for type_ in (pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.int64())])):
        with pytest.raises(SchemaError, match='csv cannot hold column "c"'):
            write.csv(tmp_path).open(pa.schema([("c", type_)]), "sink")


@pytest.mark.parametrize("writer", [write.csv, write.jsonl])
def test_text_cannot_show_years_beyond_9999(tmp_path: Path, writer: Callable[[Path], FolderWriter]) -> None:
    for type_, far in ((pa.timestamp("us"), 2**61), (pa.timestamp("us"), -(2**61)), (pa.date32(), 3_000_000)):
        far_rows = pa.RecordBatch.from_arrays([pa.array([far], type_)], names=["t"])
        out = writer(tmp_path).open(far_rows.schema, "sink")
        with pytest.raises(ConnectorError, match='column "t" holds a time outside the years 1 to 9999'):
            out.write(0, far_rows)
        out.close()


def test_folders_say_what_they_are(tmp_path: Path) -> None:
    writer = write.parquet("out")
    assert isinstance(writer, Writer)
    assert (writer.delivery, writer.accepts_updates, writer.describe()) == (
        Delivery.EXACTLY_ONCE,
        False,
        "parquet out/",
    )


def test_what_is_no_path_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(ConnectorError, match="3 is not a path") as caught:
        write.jsonl(wrong)
    assert caught.value.hint == 'name a folder: ps.write.jsonl("out/")'


DAYS = pa.schema([("a", pa.int64()), ("day", pa.int64()), ("place", pa.string())])


def days(*rows: tuple[int, int, str]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=DAYS)


def test_a_batch_of_several_partitions_has_a_file_in_each_and_the_columns_in_their_names(
    tmp_path: Path,
) -> None:
    out = write.csv(tmp_path, partition_by=["place", "day"]).open(DAYS, "sink")
    out.write(0, days((1, 7, "DE"), (2, 7, "FR"), (3, 8, "DE")))
    out.write(0, days((4, 7, "DE")))
    out.commit(0)
    out.close()
    assert {name: (tmp_path / name).read_text() for name in visible(tmp_path)} == {
        "place=DE/day=7/part-00000000-00000.csv": "a\n1\n4\n",
        "place=FR/day=7/part-00000000-00001.csv": "a\n2\n",
        "place=DE/day=8/part-00000000-00002.csv": "a\n3\n",
    }
    assert manifest_of(tmp_path)["partition_by"] == ["place", "day"]


def test_what_a_killed_job_of_spark_left_staged_is_removed_when_the_run_is_resumed(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    left = staged_folder(tmp_path) / "4f1c" / "_temporary"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_text("half a fi")
    run(write.jsonl(tmp_path), [1], [2], resume=True)
    assert list(staged_folder(tmp_path).iterdir()) == []
    assert rows_of(read.jsonl(tmp_path)) == [{"a": 1}, {"a": 2}]


def test_partitioned_output_is_resumed_and_read_by_its_files(tmp_path: Path) -> None:
    writer = write.jsonl(tmp_path, partition_by="place")
    for n in (1, 2):
        out = writer.open(DAYS, "sink", resume=n == 2)
        for batch in range(n):
            out.write(batch, days((batch, 7, "DE")))
            out.commit(batch)
        out.close()
    assert rows_of(read.jsonl(f"{tmp_path}/**")) == [{"a": 0, "day": 7}, {"a": 1, "day": 7}]


def test_overwriting_removes_parts_and_partition_folders_that_are_empty_then(tmp_path: Path) -> None:
    out = write.jsonl(tmp_path, partition_by=["place", "day"]).open(DAYS, "sink")
    out.write(0, days((1, 7, "DE"), (2, 8, "FR"), (3, 9, "IT")))
    out.commit(0)
    out.close()
    (tmp_path / "place=FR" / ".notes").write_text("of the user")
    (tmp_path / "place=IT" / "day=9" / "part-00000000-00002.jsonl").unlink()  # moved away
    run(write.jsonl(tmp_path, overwrite=True), [5])
    assert visible(tmp_path) == ["part-00000000-00000.jsonl", "place=FR/.notes"]
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir()) == ["_penstock", "place=FR"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "name",
    ["place=DE/notes.txt", "place=DE/day=7/notes.txt", "place=FR", "notes=1/x", "part-00000000-00000.jsonl"],
)
def test_what_is_no_partition_of_the_manifest_is_never_touched(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    writer = write.jsonl(tmp_path, partition_by=["place", "day"], overwrite=overwrite)
    out = writer.open(DAYS, "sink")
    out.write(0, days((1, 7, "DE")))
    out.commit(0)
    out.close()
    foreign = tmp_path / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("years of work")
    with pytest.raises(ConnectorError, match="which is no output of this graph"):
        writer.open(DAYS, "sink", resume=not overwrite)
    assert foreign.read_text() == "years of work"
    assert "place=DE/day=7/part-00000000-00000.jsonl" in visible(tmp_path)


def test_resuming_with_other_partitions_is_refused(tmp_path: Path) -> None:
    out = write.jsonl(tmp_path, partition_by=["place", "day"]).open(DAYS, "sink")
    out.write(0, days((1, 7, "DE")))
    out.commit(0)
    out.close()
    with pytest.raises(ConnectorError, match="holds files partitioned by place, day"):
        write.jsonl(tmp_path).open(DAYS, "sink", resume=True)
    run(write.jsonl(tmp_path / "flat"), [1])
    with pytest.raises(ConnectorError, match="holds files partitioned by no column"):
        write.jsonl(tmp_path / "flat", partition_by="day").open(DAYS, "sink", resume=True)


def test_files_that_others_staged_are_published_under_the_number_of_their_batch(tmp_path: Path) -> None:
    writer = write.jsonl(tmp_path)
    out = writer.open(SCHEMA, "sink")
    files = stage_rows(writer, "task-0", rows(1, 2)) + stage_rows(writer, "task-1", rows(3))
    stage_rows(writer, "task-1-again", rows(3))
    assert visible(tmp_path) == []
    out.publish(7, files)
    assert visible(tmp_path) == ["part-00000007-00000.jsonl", "part-00000007-00001.jsonl"]
    assert out.last_committed == 7
    assert [row["a"] for row in rows_of(read.jsonl(tmp_path))] == [1, 2, 3]
    assert [entry.name for entry in staged_folder(tmp_path).iterdir()] == ["task-1-again-0.jsonl"]
    out.close()
    assert list(staged_folder(tmp_path).iterdir()) == []


def test_a_batch_that_is_published_again_changes_nothing_and_its_files_are_removed(tmp_path: Path) -> None:
    writer = write.jsonl(tmp_path)
    out = writer.open(SCHEMA, "sink")
    out.publish(1, stage_rows(writer, "a", rows(1)))
    out.publish(1, stage_rows(writer, "b", rows(2)))
    out.publish(0, stage_rows(writer, "c", rows(3)))
    assert list(staged_folder(tmp_path).iterdir()) == []
    out.close()
    out = writer.open(SCHEMA, "sink", resume=True)
    out.publish(1, stage_rows(writer, "d", rows(4)))
    assert [row["a"] for row in rows_of(read.jsonl(tmp_path))] == [1]
    out.close()


def test_publishing_no_file_records_nothing(tmp_path: Path) -> None:
    out = write.jsonl(tmp_path).open(SCHEMA, "sink")
    before = (tmp_path / "_penstock" / "manifest.json").stat()
    out.publish(3, [])
    out.commit(4)
    assert out.last_committed is None
    assert (tmp_path / "_penstock" / "manifest.json").stat().st_ino == before.st_ino
    out.close()


def test_a_commit_replaces_the_manifest_once_and_a_clean_end_has_nothing_to_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Manifest] = []
    save = Manifest.save

    def record(manifest: Manifest, folder: Path) -> None:
        saved.append(manifest)
        save(manifest, folder)

    monkeypatch.setattr(Manifest, "save", record)
    out = write.jsonl(tmp_path).open(SCHEMA, "sink")
    for batch in (0, 1):
        out.write(batch, rows(batch))
        out.commit(batch)
    assert [(manifest.committed, len(manifest.publishing)) for manifest in saved] == [
        (None, 0),
        (0, 1),
        (1, 1),
    ]
    assert manifest_of(tmp_path)["publishing"] == [["00000001-2-0.jsonl", "part-00000001-00000.jsonl", 8]]
    out.close()
    assert (manifest_of(tmp_path)["committed"], manifest_of(tmp_path)["publishing"]) == (1, [])


def test_a_staged_file_that_does_not_arrive_is_named_and_nothing_is_committed(tmp_path: Path) -> None:
    writer = write.jsonl(tmp_path)
    out = writer.open(SCHEMA, "sink")
    files = stage_rows(writer, "task-0", rows(1)) + stage_rows(writer, "task-1", rows(2))
    path = staged_folder(tmp_path) / files[1].path
    path.write_text("half")
    with pytest.raises(
        ConnectorError, match=r'task-1-0.jsonl" has 4 bytes, and a file of 8 bytes was staged'
    ):
        out.publish(0, files)
    path.unlink()
    with pytest.raises(
        ConnectorError, match=r'task-1-0.jsonl" does not exist, and a file of 8 bytes'
    ) as caught:
        out.publish(0, files)
    assert "every executor must reach the folder under this path" in str(caught.value.hint)
    assert (visible(tmp_path), out.last_committed) == ([], None)
    out.close()


def test_files_moved_away_between_the_renames_of_a_commit_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write.jsonl(tmp_path, partition_by="day")
    out = writer.open(DAYS, "sink")
    out.write(0, days((1, 7, "DE"), (2, 8, "FR")))

    def move_away(point: str) -> None:
        if point == crash_points.PUBLISHED:
            shutil.rmtree(tmp_path / "day=7")
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "listener", move_away)
        with pytest.raises(Died):
            out.commit(0)
    out.close()
    assert len(manifest_of(tmp_path)["publishing"]) == 2
    out = writer.open(DAYS, "sink", resume=True)
    assert visible(tmp_path) == ["day=8/part-00000000-00001.jsonl"]
    out.write(0, days((1, 7, "DE"), (2, 8, "FR")))
    out.commit(0)
    out.close()
    assert visible(tmp_path) == ["day=8/part-00000000-00001.jsonl"]


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_a_commit_that_the_disk_refuses_is_finished_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Whichever rename or sync it is that fails, before the disk recovers."""
    for number in range(1, 20):
        folder = tmp_path / str(number)
        writer = write.jsonl(folder)
        out = writer.open(SCHEMA, "sink")
        files = stage_rows(writer, "a", rows(1)) + stage_rows(writer, "b", rows(2))
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, failing_call(getattr(os, failing), number))
            try:
                out.publish(0, files)
                break
            except ConnectorError as problem:
                assert problem.fact == f'"{folder}" cannot be written: Input/output error'  # noqa: PT017
        out.publish(0, files)
        out.publish(1, stage_rows(writer, "c", rows(3)))
        out.close()
        assert [row["a"] for row in rows_of(read.jsonl(folder))] == [1, 2, 3], number
        assert list(staged_folder(folder).iterdir()) == []
    out.close()
    assert 3 < number < 19


def failing_call(call: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The call, of which the n-th fails."""
    left = [number]

    def instead(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.EIO, "Input/output error")
        return call(*args, **kwargs)

    return instead


def test_folders_say_how_they_are_partitioned() -> None:
    assert write.parquet("out", partition_by=["place", "day"]).describe() == "parquet out/ by place, day"
