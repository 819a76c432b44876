"""Delta tables: what is committed and when, what is refused, and who may write."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
import penstock.write as write
from penstock.connect.protocol import Delivery, DurableOutput, StagedOutput, StagingWriter, Writer
from penstock.connect.writers.delta import DeltaOutput, DeltaWriter
from penstock.connect.writers.staged_files import seal, unseal
from penstock.errors import CheckpointError, ConnectorError, SchemaError
from penstock.expr.values import from_plain
from tests.connect.test_round_trip import NESTED, SIMPLE, batches_of, values_of

SCHEMA = pa.schema([("a", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


def run(writer: DeltaWriter, *batches: list[int], resume: bool = False, sink: str = "sink") -> None:
    out = writer.open(SCHEMA, sink, resume=resume)
    try:
        for number, values in enumerate(batches):
            out.write(number, rows(*values))
            out.commit(number)
    finally:
        out.close()


def values(folder: Path) -> list[int]:
    return sorted(DeltaTable(folder).to_pyarrow_table()["a"].to_pylist())


def data_files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.parquet"))


# What is committed.


def test_each_batch_with_rows_is_one_version_behind_that_of_the_new_table(tmp_path: Path) -> None:
    run(write.delta(tmp_path / "deep" / "table"), [1, 2], [], [3])
    assert values(tmp_path / "deep" / "table") == [1, 2, 3]
    assert DeltaTable(tmp_path / "deep" / "table").version() == 2


def test_a_table_exists_though_no_row_came(tmp_path: Path) -> None:
    run(write.delta(tmp_path))
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 0


def test_nothing_is_visible_before_the_commit_nor_left_after_the_close(tmp_path: Path) -> None:
    out = write.delta(tmp_path).open(SCHEMA, "sink")
    out.write(0, rows(1))
    assert values(tmp_path) == []
    out.close()
    assert data_files(tmp_path) == []


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_what_is_written_reads_back_the_same(data: st.DataObject) -> None:
    batch = data.draw(batches_of(SIMPLE | NESTED))
    cut = data.draw(st.integers(0, batch.num_rows))
    with TemporaryDirectory() as folder:
        out = write.delta(folder).open(batch.schema, "sink")
        out.write(0, batch.slice(0, cut))
        out.commit(0)
        out.write(1, batch.slice(cut))
        out.commit(1)
        out.close()
        back = DeltaTable(folder).to_pyarrow_table()
        assert back.schema.names == batch.schema.names
        order = [*range(cut, batch.num_rows), *range(cut)]  # the newest version is read first
        assert values_of(back.cast(batch.schema)) in (values_of(batch), values_of(batch.take(order)))


PARTITION_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a b", "ü/%=", "x", None]),
    "whole": (pa.int8(), [-7, 0, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(2026, 1, 31), None]),
    "time": (pa.timestamp("us"), [datetime(2026, 1, 31, 12, 0, 0, 1), datetime(1969, 1, 1), None]),
    "zoned": (
        pa.timestamp("us", "Europe/Berlin"),
        [datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)],
    ),
    "double": (pa.float64(), [0.1, 1e300, float("inf"), float("-inf"), -0.0]),
}


@pytest.mark.parametrize("kind", sorted(PARTITION_VALUES))
def test_values_of_partition_columns_read_back_the_same(tmp_path: Path, kind: str) -> None:
    type_, contents = PARTITION_VALUES[kind]
    schema = pa.schema([("p", type_), ("a", pa.int64())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(contents, type_), pa.array(range(len(contents)), pa.int64())], schema=schema
    )
    out = write.delta(tmp_path, partition_by="p").open(schema, "sink")
    out.write(0, batch)
    out.commit(0)
    out.close()
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["p"]
    assert len(table.file_uris()) == len(contents)
    back = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["a"])
    assert [
        repr(row["p"]).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for row in back
    ] == [repr(value) for value in contents]


def test_partitions_may_be_of_several_columns_and_other_engines_prune_by_them(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [1, 2, 3], "day": ["mon", "mon", "tue"], "land": ["DE", "IT", "DE"]})
    out = write.delta(tmp_path, partition_by=["land", "day"]).open(batch.schema, "sink")
    out.write(0, batch)
    out.commit(0)
    out.close()
    table = DeltaTable(tmp_path)
    assert [file.rsplit("/", 1)[0] for file in data_files(tmp_path)] == [
        "land=DE/day=mon",
        "land=DE/day=tue",
        "land=IT/day=mon",
    ]
    assert len(table.file_uris(file_pruning_predicate=[("land", "=", "DE")])) == 2
    assert table.to_pyarrow_table(filters=[("day", "=", "tue")])["a"].to_pylist() == [3]


def test_a_file_has_at_most_so_many_rows(tmp_path: Path) -> None:
    run(write.delta(tmp_path, max_rows_per_file=2), [1, 2, 3, 4, 5])
    assert (len(data_files(tmp_path)), values(tmp_path)) == (3, [1, 2, 3, 4, 5])


def test_the_log_says_what_is_in_a_file(tmp_path: Path) -> None:
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "whole": (pa.int64(), [3, None, -2]),
        "text": (pa.string(), ["b", "a", "c"]),
        "long": (pa.string(), ["x" * 40, "y", "z"]),
        "day": (pa.date32(), [date(2026, 1, 2), date(2026, 1, 1), None]),
        "time": (pa.timestamp("us"), [datetime(2026, 1, 2), datetime(2026, 1, 1, 0, 0, 0, 1), None]),
        "zoned": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, tzinfo=UTC), None, None]),
        "double": (pa.float64(), [1.0, float("nan"), None]),
        "nested": (pa.list_(pa.int64()), [[1], None, []]),
        "empty": (pa.int64(), [None, None, None]),
        "far": (pa.timestamp("us"), [-(2**62), 0, 0]),
    }
    schema = pa.schema([(name, type_) for name, (type_, _) in columns.items()])
    arrays = [
        from_plain(values, type_) if name == "far" else pa.array(values, type_)
        for name, (type_, values) in columns.items()
    ]
    out = write.delta(tmp_path).open(schema, "sink")
    out.write(0, pa.RecordBatch.from_arrays(arrays, schema=schema).slice(0, 2))
    out.write(0, pa.RecordBatch.from_arrays(arrays, schema=schema).slice(2))  # a row group of its own
    out.commit(0)
    out.close()
    [add] = [
        json.loads(line)["add"]
        for line in (tmp_path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
        if "add" in json.loads(line)
    ]
    assert json.loads(add["stats"]) == {
        "numRecords": 3,
        "minValues": {
            "whole": -2,
            "text": "a",
            "day": "2026-01-01",
            "time": "2026-01-01T00:00:00.000001",
            "zoned": "2026-01-02T00:00:00.000000Z",
        },
        "maxValues": {
            "whole": 3,
            "text": "c",
            "day": "2026-01-02",
            "time": "2026-01-02T00:00:00.000000",
            "zoned": "2026-01-02T00:00:00.000000Z",
        },
        "nullCount": {
            "whole": 1,
            "text": 0,
            "long": 0,
            "day": 1,
            "time": 1,
            "zoned": 2,
            "double": 1,
            "empty": 3,
            "far": 0,
        },
    }
    assert DeltaTable(tmp_path).to_pyarrow_table(filters=[("whole", ">", 2)]).num_rows == 1


# Files of tasks.


def test_files_that_tasks_have_staged_are_published_in_one_version(tmp_path: Path) -> None:
    writer = write.delta(tmp_path, max_rows_per_file=2)
    out = writer.open(SCHEMA, "sink")
    stages = [writer.stage(SCHEMA, f"task-{n}") for n in range(2)]
    stages[0].write(rows(1, 2, 3))
    stages[1].write(rows(4))
    files = [file for stage in stages for file in stage.close()]
    assert [file.path for file in files] == ["task-0-0.parquet", "task-0-1.parquet", "task-1-0.parquet"]
    assert values(tmp_path) == []
    out.publish(0, files)
    assert (values(tmp_path), out.last_committed) == ([1, 2, 3, 4], 0)
    out.close()


def test_a_batch_that_is_published_again_changes_nothing_and_its_files_go(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    run(writer, [1], [2])
    out = writer.open(SCHEMA, "sink", resume=True)
    assert out.last_committed == 1
    stage = writer.stage(SCHEMA, "again")
    stage.write(rows(2))
    out.publish(1, stage.close())
    out.publish(2, [])
    assert DeltaTable(tmp_path).version() == 2
    assert not (tmp_path / "again-0.parquet").exists()
    out.close()
    assert values(tmp_path) == [1, 2]


def test_a_stage_that_is_aborted_leaves_no_file(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    writer.open(SCHEMA, "sink").close()
    stage = writer.stage(SCHEMA, "task")
    stage.write(rows(1))
    stage.abort()
    assert data_files(tmp_path) == []


def test_files_that_nobody_published_are_removed_by_a_full_vacuum(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    run(writer, [1])
    stage = writer.stage(SCHEMA, "orphan")
    stage.write(rows(2))
    stage.close()
    orphans = DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert (orphans, values(tmp_path)) == (["orphan-0.parquet"], [1])


def test_a_staged_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    out = writer.open(SCHEMA, "sink")
    stage = writer.stage(SCHEMA, "task")
    stage.write(rows(1))
    files = stage.close()
    (tmp_path / "task-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConnectorError, match=r"has 4 bytes, and a file of .* bytes was staged there"):
        out.publish(0, files)
    (tmp_path / "task-0.parquet").unlink()
    with pytest.raises(ConnectorError, match="does not exist, and a file of"):
        out.publish(0, files)
    assert values(tmp_path) == []
    out.close()


def test_a_task_that_cannot_see_the_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match='"_delta_log" does not exist on') as caught:
        write.delta(tmp_path).stage(SCHEMA, "task")
    assert "every executor must reach the folder" in str(caught.value.hint)


# Runs behind one another.


def test_a_resumed_run_does_not_commit_again(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    run(writer, [1], [2])
    run(writer, [1], [2], [3], resume=True)
    assert (values(tmp_path), DeltaTable(tmp_path).version()) == ([1, 2, 3], 3)
    assert len(data_files(tmp_path)) == 3


def test_a_new_run_appends_its_own_batches(tmp_path: Path) -> None:
    run(write.delta(tmp_path), [1], [2])
    run(write.delta(tmp_path), [3])
    assert values(tmp_path) == [1, 2, 3]


def test_sinks_of_other_names_write_to_one_table_at_the_same_time(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    first, second = (writer.open(SCHEMA, name) for name in ("first", "zweite/Senke ü"))
    for number in range(3):
        for out in (first, second):
            out.write(number, rows(number))
            out.commit(number)
    first.close()
    second.close()
    assert values(tmp_path) == [0, 0, 1, 1, 2, 2]
    out = writer.open(SCHEMA, "zweite/Senke ü", resume=True)
    assert out.last_committed == 2
    out.close()


def test_resuming_without_the_saved_id_finds_no_batch(tmp_path: Path) -> None:
    run(write.delta(tmp_path), [1])
    (tmp_path / "_penstock" / "sink.json").unlink()
    out = write.delta(tmp_path, overwrite=True).open(SCHEMA, "sink", resume=True)
    assert out.last_committed is None
    out.close()
    assert values(tmp_path) == [1]  # the engine refuses to go on, and rows must not be lost by then


def test_starting_over_removes_the_rows_in_one_version_and_keeps_the_older_ones(tmp_path: Path) -> None:
    run(write.delta(tmp_path), [1], [2])
    out = write.delta(tmp_path, overwrite=True).open(SCHEMA, "sink")
    assert (values(tmp_path), DeltaTable(tmp_path).version(), out.last_committed) == ([], 3, None)
    out.write(0, rows(3))
    out.commit(0)
    out.close()
    run(write.delta(tmp_path, overwrite=True), [3], [4], resume=True)
    assert values(tmp_path) == [3, 4]
    assert sorted(DeltaTable(tmp_path, version=2).to_pyarrow_table()["a"].to_pylist()) == [1, 2]


def test_starting_over_may_change_the_columns_and_the_partitions(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"b": ["x"], "c": [1]}), partition_by=["c"])
    run(write.delta(tmp_path, overwrite=True), [1])
    table = DeltaTable(tmp_path)
    assert (values(tmp_path), table.metadata().partition_columns, table.version()) == ([1], [], 2)
    assert DeltaTable(tmp_path, version=0).to_pyarrow_table().to_pylist() == [{"b": "x", "c": 1}]


def test_properties_of_a_table_outlive_its_rows(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, Schema.from_arrow(SCHEMA), configuration={"delta.checkpointInterval": "7"})
    run(write.delta(tmp_path, overwrite=True), [1])
    assert DeltaTable(tmp_path).metadata().configuration == {"delta.checkpointInterval": "7"}


def test_a_table_that_others_have_made_is_appended_to_whatever_the_order_of_its_columns(
    tmp_path: Path,
) -> None:
    write_deltalake(tmp_path, pa.table({"b": ["x"], "a": [1]}))
    batch = pa.record_batch({"a": [2], "b": ["y"]})
    out = write.delta(tmp_path).open(batch.schema, "sink")
    out.write(0, batch)
    out.commit(0)
    out.close()
    back = sorted(DeltaTable(tmp_path).to_pyarrow_table().to_pylist(), key=lambda row: row["a"])
    assert back == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_times_of_any_zone_are_kept_as_instants(tmp_path: Path) -> None:
    zoned = pa.timestamp("us", "Europe/Berlin")
    schema = pa.schema([("t", zoned), ("ts", pa.list_(pa.struct([("t", zoned)])))])
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    batch = pa.RecordBatch.from_pylist([{"t": noon, "ts": [{"t": noon}]}], schema=schema)
    out = write.delta(tmp_path).open(schema, "sink")
    out.write(0, batch)
    out.commit(0)
    out.close()
    [row] = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert (row["t"], row["ts"]) == (noon, [{"t": noon}])


# Two at once.


def test_a_second_run_of_the_sink_is_refused_while_the_first_writes(tmp_path: Path) -> None:
    out = write.delta(tmp_path).open(SCHEMA, "sink")
    with pytest.raises(ConnectorError, match='another run writes sink "sink" to'):
        write.delta(tmp_path).open(SCHEMA, "sink", resume=True)
    out.close()


def open_twice(folder: Path) -> tuple[DeltaOutput, DeltaOutput]:
    """Two outputs of one sink, as if the lock did not reach the other machine."""
    writer = write.delta(folder)
    run(writer, [1])
    first = writer.open(SCHEMA, "sink", resume=True)
    (folder / "_penstock" / "sink.lock").unlink()
    return first, writer.open(SCHEMA, "sink", resume=True)


def test_of_two_runs_of_one_sink_the_slower_fails_at_its_commit(tmp_path: Path) -> None:
    first, second = open_twice(tmp_path)
    first.write(1, rows(2))
    first.commit(1)
    for number in (1, 2):
        second.write(number, rows(2))
        with pytest.raises(ConnectorError, match='another run writes sink "sink" to') as caught:
            second.commit(number)
        assert "give this sink another name" in str(caught.value.hint)
    first.write(2, rows(3))
    first.commit(2)
    first.close()
    second.close()
    assert values(tmp_path) == [1, 2, 3]


def test_what_others_append_meanwhile_does_not_disturb(tmp_path: Path) -> None:
    out = write.delta(tmp_path).open(SCHEMA, "sink")
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"a": [10 * number]}), mode="append")
        out.write(number, rows(number + 1))
        out.commit(number)
    out.close()
    assert values(tmp_path) == [0, 1, 2, 3, 10, 20]


def test_a_table_that_is_changed_meanwhile_stops_the_run(tmp_path: Path) -> None:
    out = write.delta(tmp_path).open(SCHEMA, "sink")
    DeltaTable.create(tmp_path, Schema.from_arrow(pa.schema([("b", pa.string())])), mode="overwrite")
    out.write(0, rows(1))
    with pytest.raises(ConnectorError, match="cannot be written as a Delta table: ") as caught:
        out.commit(0)
    assert "\n" not in caught.value.fact
    out.close()


# What is refused.


def with_field(field: pa.Field, **metadata: str) -> Schema:
    return Schema.from_arrow(pa.schema([field.with_metadata(metadata) if metadata else field]))


DIFFERENT: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda path: write_deltalake(path, pa.table({"a": [1], "b": [1]})),
        'has a column "b", and the rows have none',
    ),
    (
        lambda path: write_deltalake(path, pa.table({"a": ["x"]})),
        'has a column "a" of type string, and that of the rows is long',
    ),
    (
        lambda path: write_deltalake(path, pa.table({"a": [[1]]})),
        'has a column "a" of type .*"elementType": "long".*, and that of the rows is long',
    ),
    (lambda path: write_deltalake(path, pa.table({"b": [1]})), 'has a column "b"'),
    (
        lambda path: DeltaTable.create(path, with_field(pa.field("a", pa.int64(), nullable=False))),
        'has no null in column "a", and the rows may have',
    ),
    (
        lambda path: DeltaTable.create(
            path,
            Schema.from_json(
                '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,'
                '"metadata":{"delta.generationExpression":"1"}}]}'
            ),
        ),
        'has a rule for column "a" \\(delta.generationExpression\\), which is not checked here',
    ),
    (
        lambda path: DeltaTable.create(path, Schema.from_arrow(SCHEMA)).alter.add_constraint({"c": "a > 0"}),
        "has delta.constraints.c, which this writer does not know",
    ),
]


@pytest.mark.parametrize(("create", "difference"), DIFFERENT)
def test_a_table_that_cannot_take_the_rows_is_refused_and_left_alone(
    tmp_path: Path, create: Callable[[Path], object], difference: str
) -> None:
    create(tmp_path)
    version = DeltaTable(tmp_path).version()
    with pytest.raises(ConnectorError, match=f"holds a Delta table that {difference}") as caught:
        write.delta(tmp_path).open(SCHEMA, "sink")
    assert "overwrite=True" in str(caught.value.hint)
    assert DeltaTable(tmp_path).version() == version
    assert not (tmp_path / "_penstock" / "sink.json").exists()


def test_a_column_that_the_table_has_not_is_refused(tmp_path: Path) -> None:
    run(write.delta(tmp_path))
    with pytest.raises(ConnectorError, match='has no column "b"'):
        write.delta(tmp_path).open(pa.schema([("a", pa.int64()), ("b", pa.int64())]), "sink")


def test_other_partitions_are_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [1], "b": ["x"]})
    write_deltalake(tmp_path, pa.table(batch), partition_by=["b"])
    with pytest.raises(ConnectorError, match="is partitioned by b, and not by no column"):
        write.delta(tmp_path).open(batch.schema, "sink")
    with pytest.raises(ConnectorError, match="is partitioned by b, and not by a"):
        write.delta(tmp_path, partition_by="a").open(batch.schema, "sink")


def test_a_table_that_only_takes_more_rows_is_not_started_over(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, Schema.from_arrow(SCHEMA), configuration={"delta.appendOnly": "true"})
    run(write.delta(tmp_path), [1])
    with pytest.raises(ConnectorError, match=r"only takes more rows \(delta\.appendOnly\)"):
        write.delta(tmp_path, overwrite=True).open(SCHEMA, "sink")
    assert values(tmp_path) == [1]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConnectorError, match=r'holds "thesis\.txt", and no Delta table'):
        write.delta(tmp_path, overwrite=True).open(SCHEMA, "sink")
    with pytest.raises(ConnectorError, match="is a file, and a Delta table needs a folder"):
        write.delta(tmp_path / "thesis.txt").open(SCHEMA, "sink")


def test_a_damaged_table_or_id_is_refused(tmp_path: Path) -> None:
    writer = write.delta(tmp_path)
    run(writer, [1])
    saved = tmp_path / "_penstock" / "sink.json"
    contents = saved.read_text()
    saved.write_text("{")
    with pytest.raises(ConnectorError, match=r'sink\.json" cannot be used: JSONDecodeError') as caught:
        writer.open(SCHEMA, "sink", resume=True)
    assert "bring the file back" in str(caught.value.hint)
    saved.write_text(contents.replace('"version": 2', '"version": 9'))
    with pytest.raises(ConnectorError, match=r'sink\.json" cannot be used: ValueError: its checksum'):
        writer.open(SCHEMA, "sink", resume=True)
    saved.write_text(seal(unseal(contents)[0] | {"version": 9}))
    with pytest.raises(ConnectorError, match="it has version 9, and this build knows 1 and 2"):
        writer.open(SCHEMA, "sink", resume=True)
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("{}\n")
    with pytest.raises(ConnectorError, match="cannot be written as a Delta table: "):
        writer.open(SCHEMA, "sink")


REFUSED: list[tuple[Sequence[tuple[str, pa.DataType]], str]] = [
    ([("a b", pa.int64())], "column \"a b\" has ' ' in its name, which Delta does not allow"),
    ([("a", pa.struct([("b=", pa.int64())]))], "column \"a.b=\" has '=' in its name"),
    (
        [("a", pa.int64()), ("A", pa.int64())],
        'columns "a" and "A" are one in Delta, which takes no regard to case',
    ),
    (
        [("a", pa.list_(pa.decimal128(5, -2)))],
        'column "a" of type decimal128.* is no decimal that Delta knows',
    ),
    ([("a", pa.struct([]))], 'column "a" is a struct without fields'),
]


@pytest.mark.parametrize(("columns", "fact"), REFUSED)
def test_columns_that_delta_does_not_know_are_refused_when_the_graph_is_built(
    columns: Sequence[tuple[str, pa.DataType]], fact: str
) -> None:
    with pytest.raises(SchemaError, match=fact) as caught:
        write.delta("table").check_schema(pa.schema(columns))
    assert caught.value.hint


def test_what_names_no_folder_is_refused() -> None:
    with pytest.raises(ConnectorError, match="5 is not a path"):
        write.delta(5)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ConnectorError, match='"s3://bucket/table" is an address') as caught:
        write.delta("s3://bucket/table")
    assert "ps.write.spark" in str(caught.value.hint)


def test_a_missing_package_is_named_before_the_graph_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connect.writers.delta.find_spec", lambda name: None)
    with pytest.raises(ConnectorError, match="needs the package deltalake") as caught:
        write.delta("table")
    assert caught.value.hint == 'pip install "penstock[delta]"'


def test_a_delta_writer_says_what_it_is(tmp_path: Path) -> None:
    writer = write.delta("events", partition_by=["land", "day"])
    assert isinstance(writer, Writer)
    assert isinstance(writer, StagingWriter)
    assert (writer.delivery, writer.accepts_updates) == (Delivery.EXACTLY_ONCE, False)
    assert (writer.describe(), write.delta("events").describe()) == (
        "delta events/ by land, day",
        "delta events/",
    )
    out = write.delta(tmp_path).open(SCHEMA, "sink")
    assert isinstance(out, DurableOutput)
    assert isinstance(out, StagedOutput)
    out.close()


# In a graph.


def run_graph(folder: Path, n_batches: int, engine: str = "local") -> None:
    graph = ps.PipeGraph("delta")
    batches = [[{"a": number, "b": number % 2}] for number in range(n_batches)]
    pipe = graph.source(ps.read.batches(batches, schema={"a": int, "b": int}))
    pipe.sink(ps.write.delta(folder / "table", partition_by="b"), name="rows")
    if engine == "local":
        graph.run(engine, checkpoint=str(folder / "checkpoint"), drain=False)
    else:
        graph.run(engine)


def test_a_graph_writes_to_a_table_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    run_graph(tmp_path, 3)
    run_graph(tmp_path, 5)
    assert values(tmp_path / "table") == [0, 1, 2, 3, 4]


def test_a_graph_whose_table_is_gone_is_refused(tmp_path: Path) -> None:
    run_graph(tmp_path, 3)
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r'the output of sink "\w+" is gone'):
        run_graph(tmp_path, 5)


def test_the_reference_engine_writes_to_a_table_too(tmp_path: Path) -> None:
    run_graph(tmp_path, 3, "reference")
    assert values(tmp_path / "table") == [0, 1, 2]
