"""What a checkpoint takes up again and what it refuses, told so that one can act on it.

The fragments run in this process: nothing here depends on who carries them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import CheckpointError, ConnectorError, col
from penstock.events import BatchDone, Event
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": "int64", "key": "string", "v": "int64"}
BATCHES = [[(1, "a", 1), (2, "b", 2)], [(5, "a", 3)], [(14, "b", 4)], [(31, "a", 5)]]
ALL = [{"key": "a", "s": 4}, {"key": "b", "s": 2}, {"key": "b", "s": 4}, {"key": "a", "s": 5}]


def rows(n: int = len(BATCHES)) -> list[list[dict[str, Any]]]:
    return [[dict(zip(SCHEMA, row, strict=True)) for row in batch] for batch in BATCHES[:n]]


class Program:
    """A small program that can be changed between two runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name, self.delay = folder, "program", "2 s"
        self.batches, self.key, self.window, self.lateness = rows(), "key", ps.tumbling("10 s"), "0 s"
        self.least, self.parallelism, self.sinks = 0, 1, ["out"]
        self.source = "rows"

    def run(self, engine: Any = None, **options: Any) -> Any:
        graph = ps.PipeGraph(self.name)
        reader = ps.read.batches(self.batches, schema=SCHEMA)
        source = graph.source(reader, time="t", time_unit="s", delay=self.delay, name=self.source)
        filtered = source.filter(col("v") > self.least, name="kept")
        windows = filtered.key_by(self.key).window(
            self.window, lateness=self.lateness, name="sums", parallelism=self.parallelism
        )
        sums = windows.aggregate(s=ps.sum("v"))
        for name in self.sinks:
            sums.select(self.key, "s").sink(ps.write.jsonl(self.folder / name), name=name)
        options.setdefault("checkpoint", str(self.folder / "checkpoint"))
        options.setdefault("drain", True)
        return graph.run(engine or InProcessSparkEngine(), **options)

    def read_sink(self, sink: str = "out") -> list[dict[str, Any]]:
        rows = ps.read.jsonl(self.folder / sink, schema={"key": str, "s": int})
        return [row for batch in rows.batches() for row in batch.rows.to_pylist()]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def half_run(program: Program) -> Program:
    """A program that has been stopped after two of four rounds."""
    assert program.run(until=2).outcome == "stopped"
    return program


def same(actual: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    return sorted(map(repr, actual)) == sorted(map(repr, wanted))


def test_a_run_that_was_stopped_goes_on_where_it_was(half_run: Program) -> None:
    assert half_run.run().batches == 2
    assert same(half_run.read_sink(), ALL)


def test_windows_stay_open_for_the_next_run_without_draining(program: Program) -> None:
    program.batches = rows(2)
    assert program.run(drain=False).outcome == "ended"
    assert not program.read_sink()
    program.batches = rows()
    program.run()
    assert same(program.read_sink(), ALL)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "least", -5),
        lambda p: setattr(p, "parallelism", 3),
    ],
    ids=["stateless code", "parallelism"],
)
def test_stateless_code_and_degrees_may_change(half_run: Program, change: Callable[[Program], None]) -> None:
    change(half_run)
    half_run.run(InProcessSparkEngine(n_partitions=2))
    assert same(half_run.read_sink(), ALL)


def test_a_sink_may_be_added_and_is_known_from_then_on(half_run: Program) -> None:
    half_run.sinks = ["out", "more"]
    half_run.run(until=1)
    half_run.run()
    assert same(half_run.read_sink(), ALL)
    assert same(half_run.read_sink("more"), ALL)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (lambda p: setattr(p, "name", "other"), 'the checkpoint is of graph "program", not of "other"'),
        (lambda p: setattr(p, "window", ps.tumbling("5 s")), 'step "sums" is not what it was: its window'),
        (lambda p: setattr(p, "source", "lines"), 'the checkpoint has step "rows", and the graph has not'),
        (lambda p: setattr(p, "sinks", []), 'the checkpoint has step "out", and the graph has not'),
        (lambda p: setattr(p, "folder", p.folder / "x"), 'the output of sink "out" is gone'),
        (lambda p: setattr(p, "batches", rows(1)), 'source "rows" does not begin with what has been read'),
        (lambda p: p.batches[0].pop(), 'source "rows" does not begin with what has been read'),
    ],
)
def test_what_state_depends_on_may_not_change(
    half_run: Program, change: Callable[[Program], None], fact: str
) -> None:
    checkpoint = str(half_run.folder / "checkpoint")
    change(half_run)
    if not half_run.sinks:
        half_run.sinks = ["another"]
    with pytest.raises(CheckpointError, match=fact) as caught:
        half_run.run(checkpoint=checkpoint)
    assert "with an empty checkpoint folder" in str(caught.value.hint)


def test_what_changed_is_told_with_both_values(half_run: Program) -> None:
    half_run.window = ps.tumbling("5 s")
    with pytest.raises(CheckpointError) as caught:
        half_run.run()
    assert str(caught.value.detail).startswith("saved: tumbling 10 s; now: tumbling 5 s; in ")


def test_a_new_step_with_state_is_refused(half_run: Program) -> None:
    graph = ps.PipeGraph("program")
    reader = ps.read.batches(rows(), schema=SCHEMA)
    source = graph.source(reader, time="t", time_unit="s", delay="2 s", name="rows")
    keyed = source.filter(col("v") > 0, name="kept").key_by("key")
    sums = keyed.window(ps.tumbling("10 s"), name="sums").aggregate(s=ps.sum("v"))
    sums.select("key", "s").sink(ps.write.jsonl(half_run.folder / "out"), name="out")
    more = keyed.window(ps.tumbling("5 s"), name="more").aggregate(s=ps.sum("v"))
    more.sink(ps.write.memory(), name="memory")
    with pytest.raises(CheckpointError, match='step "more" is new, and keeps state or reads'):
        graph.run(InProcessSparkEngine(), checkpoint=str(half_run.folder / "checkpoint"))


def test_output_without_its_checkpoint_is_refused_however_often_one_tries(half_run: Program) -> None:
    half_run.run(until=1)
    for _ in range(2):
        with pytest.raises(ConnectorError, match="holds the output of an earlier run") as caught:
            half_run.run(checkpoint=str(half_run.folder / "new"))
        assert "continue that run with the checkpoint that it had" in str(caught.value.hint)


def test_a_drained_checkpoint_takes_no_more_input(program: Program) -> None:
    program.run()
    program.batches = [*program.batches, *rows(1)]
    with pytest.raises(CheckpointError, match="its windows are closed, and there is new input") as caught:
        program.run()
    assert "leave drain=True out" in str(caught.value.hint)


def test_two_runs_on_one_checkpoint_are_refused(half_run: Program) -> None:
    refused: list[str | None] = []

    def refuse_once(event: Event) -> None:
        if isinstance(event, BatchDone) and not refused:
            with pytest.raises(CheckpointError, match="another run is using this checkpoint") as caught:
                half_run.run()
            refused.append(caught.value.detail)

    half_run.run(events=refuse_once)
    assert refused == [str(half_run.folder / "checkpoint")]


def files(half_run: Program, pattern: str) -> Iterator[Path]:
    files = sorted((half_run.folder / "checkpoint").glob(pattern))
    assert files
    return iter(files)


@pytest.mark.parametrize("pattern", ["state/*.state", "commits/*.json", "penstock.json"])
@pytest.mark.parametrize("how", ["flipped", "cut", "empty"])
def test_damage_is_told_with_the_name_of_the_file(half_run: Program, pattern: str, how: str) -> None:
    file = list(files(half_run, pattern))[-1]
    body = bytearray(file.read_bytes())
    if how == "flipped":
        body[len(body) // 2] ^= 4
    file.write_bytes(body if how == "flipped" else body[: -20 if how == "cut" else 0])
    with pytest.raises(CheckpointError) as caught:
        half_run.run()
    assert file.name in str(caught.value)
    assert "bring it back" in str(caught.value.hint)


@pytest.mark.slow
def test_any_flipped_byte_of_the_newest_manifest_is_found(half_run: Program) -> None:
    file = list(files(half_run, "commits/*.json"))[-1]
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        body = bytearray(whole)
        body[place] ^= 1
        file.write_bytes(body)
        with pytest.raises(CheckpointError, match=file.name):
            half_run.run()


def test_a_missing_state_file_is_named(half_run: Program) -> None:
    gone = list(files(half_run, "state/*.state"))
    for file in gone:
        file.unlink()
    with pytest.raises(CheckpointError, match='saved state of step "sums" cannot be read') as caught:
        half_run.run()
    assert any(file.name in str(caught.value.detail) for file in gone)


def test_what_a_crash_left_behind_is_cleared_away(half_run: Program) -> None:
    for name in ("state/0000000099-1-0-abc.state", "commits/0000000099.tmp"):
        (half_run.folder / "checkpoint" / name).write_text("half")
    half_run.run()
    assert not list((half_run.folder / "checkpoint").rglob("0000000099*"))


@pytest.mark.parametrize("place", ["checkpoint", "checkpoint/state", "checkpoint/commits"])
def test_a_place_that_cannot_be_a_folder_is_told(program: Program, place: str) -> None:
    file = program.folder / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("in the way")
    with pytest.raises(CheckpointError, match="the checkpoint folder cannot be used") as caught:
        program.run()
    assert caught.value.detail == str(program.folder / "checkpoint")
    assert caught.value.hint == "give a folder that can be written"


@pytest.mark.parametrize("scheme", ["s3://bucket/x", "hdfs://host/x"])
def test_a_checkpoint_that_is_no_folder_is_refused(program: Program, scheme: str) -> None:
    with pytest.raises(CheckpointError, match="is not a folder of a file system") as caught:
        program.run(checkpoint=scheme)
    assert "mount" in str(caught.value.hint)


def test_a_folder_may_be_written_as_a_file_address(program: Program) -> None:
    program.run(checkpoint=f"file://{program.folder}/checkpoint")
    assert (program.folder / "checkpoint" / "penstock.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full")
@pytest.mark.parametrize("full", ["state", "manifest"])
def test_a_full_disk_is_told_and_nothing_is_lost(
    half_run: Program, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    opened = Path.open

    def on_a_full_disk(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        wanted = ".state" if full == "state" else ".tmp"
        if path.suffix == wanted and mode in ("xb", "w") and "checkpoint" in path.parts:
            return opened(Path("/dev/full"), "wb" if "b" in mode else "w")
        return opened(path, mode, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", on_a_full_disk)
        with pytest.raises(CheckpointError, match="No space left on device") as caught:
            half_run.run()
    assert caught.value.hint
    half_run.run()
    assert same(half_run.read_sink(), ALL)


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user may write anywhere")
def test_a_folder_without_permission_is_told(program: Program) -> None:
    (program.folder / "checkpoint").mkdir(mode=0o500)
    with pytest.raises(CheckpointError, match="the checkpoint folder cannot be used: PermissionError"):
        program.run()


def test_accounts_go_on_from_what_was_saved(program: Program) -> None:
    program.run(until=2)
    result = program.run()
    assert (result.accounts["rows"].rows_in, result.accounts["out"].rows_in) == (5, 4)
    assert all(account.is_balanced for account in result.accounts.values())


def test_output_that_is_gone_while_the_checkpoint_is_kept_is_refused(program: Program) -> None:
    program.run(until=4)
    assert len(program.read_sink()) == 3
    shutil.rmtree(program.folder / "out")
    for _ in range(2):  # also when the first try has left an empty folder
        with pytest.raises(CheckpointError, match='the output of sink "out" is gone') as failure:
            program.run()
        assert failure.value.step == "out"
        assert "start anew with an empty checkpoint folder" in str(failure.value.hint)


def test_finished_files_may_be_moved_away(program: Program) -> None:
    program.run(until=4)
    for file in (program.folder / "out").glob("part-*"):
        file.unlink()
    program.run()
    assert program.read_sink() == ALL[3:]
