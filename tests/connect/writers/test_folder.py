"""Folders of files: what is visible, what is refused, what is cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock.read as read
import penstock.write as write
from penstock.connect.protocol import Delivery, Writer
from penstock.connect.writers.folder import FolderWriter
from penstock.errors import ConnectorError, SchemaError
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
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(("_", ".")))


def test_each_batch_with_rows_is_one_file_and_the_folder_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    run(write.jsonl(out), [1, 2], [], [3])
    assert visible(out) == ["part-00000000.jsonl", "part-00000002.jsonl"]
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
    (tmp_path / "part-00000000.jsonl").unlink()
    run(writer, [1], [2], resume=True)
    assert visible(tmp_path) == ["part-00000001.jsonl"]


def test_what_a_crash_left_is_cleaned_up(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    (tmp_path / ".part-00000001.jsonl.tmp").write_text("half a ro")
    run(write.jsonl(tmp_path), [1], [2], resume=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "_penstock",
        "part-00000000.jsonl",
        "part-00000001.jsonl",
    ]


def test_a_batch_that_a_crash_left_unnoted_is_noted_by_the_next_run(tmp_path: Path) -> None:
    writer, manifest = write.jsonl(tmp_path), tmp_path / "_penstock" / "manifest.json"
    run(writer, [1])
    before = manifest.read_text()
    run(writer, [1], [2], resume=True)
    manifest.write_text(before.replace('"committed": 0', '"committed": null'))
    out = writer.open(SCHEMA, "sink", resume=True)
    assert out.last_committed == 1
    out.close()
    run(writer, [1], [2], [3], resume=True)
    assert [row["a"] for row in rows_of(read.jsonl(tmp_path))] == [1, 2, 3]


def test_a_fresh_run_is_refused_where_earlier_output_is_unless_it_may_overwrite(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1], [2])
    with pytest.raises(ConnectorError, match="holds the output of an earlier run") as caught:
        write.jsonl(tmp_path).open(SCHEMA, "sink")
    assert "overwrite=True" in str(caught.value.hint)
    run(write.jsonl(tmp_path, overwrite=True), [3])
    assert rows_of(read.jsonl(tmp_path)) == [{"a": 3}]


def test_output_carried_away_still_counts_as_an_earlier_run(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    (tmp_path / "part-00000000.jsonl").unlink()
    with pytest.raises(ConnectorError, match="earlier run"):
        write.jsonl(tmp_path).open(SCHEMA, "sink")


def test_a_run_that_wrote_nothing_leaves_the_folder_free(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [])
    run(write.csv(tmp_path), [1], sink="other")
    assert visible(tmp_path) == ["part-00000000.csv"]


def test_resuming_may_begin_in_an_empty_folder(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1], resume=True)
    assert visible(tmp_path) == ["part-00000000.jsonl"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_are_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConnectorError, match=r'holds "thesis\.txt", which is no output of this graph'):
        write.jsonl(tmp_path, overwrite=overwrite).open(SCHEMA, "sink")
    assert visible(tmp_path) == ["thesis.txt"]


def test_parts_without_a_manifest_are_someone_elses(tmp_path: Path) -> None:
    (tmp_path / "part-00000000.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ConnectorError, match=r'holds "part-00000000\.jsonl"'):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)


def test_resuming_the_output_of_another_sink_or_other_columns_is_refused(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    with pytest.raises(ConnectorError, match='holds the output of sink "sink", not "other"'):
        write.jsonl(tmp_path).open(SCHEMA, "other", resume=True)
    with pytest.raises(ConnectorError, match="holds jsonl files with the columns a: int64"):
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


@pytest.mark.parametrize("text", ["{", '{"format": "jsonl"}', '{"sink": 1, "rubbish": 2}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    run(write.jsonl(tmp_path), [1])
    (tmp_path / "_penstock" / "manifest.json").write_text(text)
    with pytest.raises(ConnectorError, match=r"manifest\.json. is damaged"):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)


def test_a_manifest_of_a_later_version_is_refused(tmp_path: Path) -> None:
    run(write.jsonl(tmp_path), [1])
    manifest = tmp_path / "_penstock" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(ConnectorError, match="its version is 2, and this build knows 1"):
        write.jsonl(tmp_path).open(SCHEMA, "sink", resume=True)


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
