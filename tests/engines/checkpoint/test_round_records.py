"""A run that dies in a round of the clock, or of a stop: the next one repeats it, or has none of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import crash_points
from penstock.connect.readers import files as file_readers
from penstock.crash_points import CLEANED, COMMITTED, LISTED, PUBLISHED, RENAMED, STAGED, WRITTEN
from penstock.engines.checkpoint import round_records
from penstock.engines.checkpoint.round_records import RoundRecord, RoundRecords
from penstock.errors import CheckpointError, PenstockError
from penstock.events import BatchDone, Event
from tests.support.file_runs import SCHEMA, Died, build, dying_at, put, read_rows
from tests.support.spark_in_process import InProcessSparkEngine

PATIENCE_S = 30
BREATHER = threading.Event()
SECOND = 1_000_000
POINTS = (WRITTEN, LISTED, PUBLISHED, COMMITTED, STAGED, RENAMED, CLEANED)
Rows = list[tuple[int, str, int]]
FIRST: Rows = [(1, "a", 1), (12, "b", 2), (13, "a", 4)]
LATER: Rows = [(14, "b", 8), (25, "c", 16)]
AT_REST: Rows = [(2, "a", 32), (11, "c", 64)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_readers, "POLL_S", 0.02)
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


class Seen:
    """Listens until a sink has written so many rows; what earlier runs have written counts too."""

    def __init__(self, folder: Path, n_rows: int) -> None:
        self._folder, self._n_rows, self.enough = folder, n_rows, threading.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchDone) and read_rows(self._folder).total() >= self._n_rows:
            self.enough.set()


def drain_in_process(
    files: Path,
    folder: Path,
    save_every: str,
    n_rows: int,
    *death: Any,
    build: Callable[[Path, Path], ps.PipeGraph] = build,
) -> str:
    """Run until so many rows are there, and stop with all windows closed, or die on the way."""
    seen = Seen(folder / "rows", n_rows)
    options: Any = {"options": ps.LocalOptions(save_every=save_every), "events": seen}
    run = build(files, folder).start("local", checkpoint=str(folder / "checkpoint"), **options)
    while not seen.enough.wait(0.01) and run.status().state == "running":
        continue
    if death:
        with dying_at(*death):
            run.stop(drain=True)
            return run.wait(PATIENCE_S).outcome
    run.stop(drain=True)
    return run.wait(PATIENCE_S).outcome


def assert_each_row_counts_once(folder: Path, *, drained: bool, also: Rows | None = None) -> None:
    rows = read_rows(folder / "rows")
    assert set(rows.values()) == {1}
    assert rows.keys() in ({*FIRST, *(also or ())}, {*FIRST, *LATER, *(also or ())})
    sums = Counter[tuple[str, int]]()
    for t, k, v in rows:
        sums[k, t // 10 * 10] += v
    written = read_rows(folder / "sums")
    assert {(row[0], int(row[1])): row[-1] for row in written} == dict(sums)
    assert written.total() == len(sums)
    assert drained


@pytest.mark.parametrize("save_every", ["0 s", "1 h"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_while_a_stopped_run_drains_loses_and_doubles_nothing(
    files: Path, tmp_path: Path, point: str, save_every: str
) -> None:
    for times in (1, 2):
        folder = tmp_path / str(times)
        put(files, "a.jsonl", *FIRST)
        with suppress(Died, PenstockError):
            drain_in_process(files, folder, save_every, len(FIRST), point, times)
        put(files, "b.jsonl", *LATER)
        try:
            outcome = drain_in_process(files, folder, save_every, len(FIRST + LATER))
        except CheckpointError as refusal:
            outcome = "drained" if "has been drained" in str(refusal) else str(refusal)
        assert_each_row_counts_once(folder, drained=outcome == "drained")
        (files / "b.jsonl").unlink()


def build_of_two(files: Path, folder: Path) -> ps.PipeGraph:
    """The same program with a second source, which ends by itself before the run is stopped."""
    graph = ps.PipeGraph("watching")
    time: dict[str, Any] = {"time": "t", "time_unit": "s", "delay": "0 s"}
    followed = ps.read.jsonl(files, schema=SCHEMA, follow=True, wait="5 ms")
    at_rest = ps.read.batches([[dict(zip(SCHEMA, row, strict=True))] for row in AT_REST], schema=SCHEMA)
    rows = graph.source(followed, name="rows", **time).merge(graph.source(at_rest, name="at-rest", **time))
    rows.sink(ps.write.jsonl(folder / "rows"), name="seen")
    windows = rows.key_by("k").window(ps.tumbling("10 s"), lateness="1000 s", name="windows")
    windows.aggregate(v=ps.sum("v")).sink(ps.write.jsonl(folder / "sums"), name="sums")
    return graph


@pytest.mark.parametrize("save_every", ["0 s", "1 h"])
@pytest.mark.parametrize("point", [LISTED, PUBLISHED, COMMITTED, STAGED])
def test_the_same_holds_where_another_source_has_ended_before(
    files: Path, tmp_path: Path, point: str, save_every: str
) -> None:
    for times in (1, 2):
        folder = tmp_path / str(times)
        put(files, "a.jsonl", *FIRST)
        n_first = len(FIRST) + len(AT_REST)
        with suppress(Died, PenstockError):
            drain_in_process(files, folder, save_every, n_first, point, times, build=build_of_two)
        put(files, "b.jsonl", *LATER)
        try:
            n_all = n_first + len(LATER)
            outcome = drain_in_process(files, folder, save_every, n_all, build=build_of_two)
        except CheckpointError as refusal:
            outcome = "drained" if "has been drained" in str(refusal) else str(refusal)
        assert_each_row_counts_once(folder, drained=outcome == "drained", also=AT_REST)
        (files / "b.jsonl").unlink()


@pytest.mark.parametrize("first", ["local", "spark"])
@pytest.mark.parametrize("second", ["local", "spark"])
@pytest.mark.parametrize("point", [PUBLISHED, COMMITTED, STAGED])
def test_the_same_holds_on_spark_and_from_one_engine_to_the_other(
    files: Path, tmp_path: Path, point: str, first: str, second: str
) -> None:
    put(files, "a.jsonl", *FIRST)

    def drain(engine: str, n_rows: int, until: int, *death: Any) -> str:
        if engine == "local":
            return drain_in_process(files, tmp_path, "1 h", n_rows, *death)
        graph, here = build(files, tmp_path), InProcessSparkEngine(drains=True)
        checkpoint = str(tmp_path / "checkpoint")
        if not death:
            return graph.run(here, checkpoint=checkpoint, until=until).outcome
        with suppress(Died, PenstockError):
            graph.run(InProcessSparkEngine(), checkpoint=checkpoint, until=until)
        with dying_at(*death):
            return build(files, tmp_path).run(here, checkpoint=checkpoint, until=0).outcome

    with suppress(Died, PenstockError):
        drain(first, len(FIRST), 1, point)
    put(files, "b.jsonl", *LATER)
    try:
        outcome = drain(second, len(FIRST + LATER), 8)
    except CheckpointError as refusal:
        outcome = "drained" if "has been drained" in str(refusal) else str(refusal)
    assert_each_row_counts_once(tmp_path, drained=outcome == "drained")


def test_a_source_that_grew_after_a_crash_at_its_end_ends_where_it_had(files: Path, tmp_path: Path) -> None:
    def run(*death: Any) -> str:
        graph = ps.PipeGraph("growing")
        reader = ps.read.jsonl(files, schema={"t": int, "k": str, "v": int})
        rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
        sums = rows.key_by("k").window(ps.tumbling("10 s"), name="windows").aggregate(v=ps.sum("v"))
        sums.sink(ps.write.jsonl(tmp_path / "sums"), name="sums")
        return graph.run("local", checkpoint=str(tmp_path / "checkpoint"), drain=True).outcome

    put(files, "a.jsonl", (1, "a", 1))
    with dying_at(COMMITTED), pytest.raises((Died, PenstockError)):
        run()
    put(files, "b.jsonl", (2, "a", 2), (30, "b", 4))
    assert run() == "drained"
    assert [row[-1] for row in read_rows(tmp_path / "sums")] == [1]
    with pytest.raises(CheckpointError, match="has been drained"):
        run()


def test_an_end_that_no_sink_has_seen_is_forgotten(files: Path, tmp_path: Path) -> None:
    put(files, "a.jsonl", *FIRST)
    with dying_at(WRITTEN), suppress(Died, PenstockError):
        drain_in_process(files, tmp_path, "1 h", 0, WRITTEN)
    put(files, "b.jsonl", *LATER)
    drain_in_process(files, tmp_path, "1 h", len(FIRST + LATER))
    assert read_rows(tmp_path / "rows") == Counter([*FIRST, *LATER])


def follow_the_clock(files: Path, folder: Path, clock: ps.ManualClock, n_sums: int, *death: Any) -> None:
    """Count rows by the time at which they are read; move the clock until so many windows are there."""
    graph = build(files, folder, time=ps.ingest_time(), time_unit=None)
    settings: Any = {"clock": clock, "options": ps.LocalOptions(save_every="1 h")}
    with dying_at(*death) if death else nullcontext():
        run = graph.start("local", checkpoint=str(folder / "checkpoint"), **settings)
        while read_rows(folder / "sums").total() < n_sums and run.status().state == "running":
            if read_rows(folder / "rows"):
                clock.advance(300 * SECOND)
            BREATHER.wait(0.005)
        run.stop()
        run.wait(PATIENCE_S)


@pytest.mark.parametrize("point", [crash_points.READ, LISTED, COMMITTED])
@pytest.mark.parametrize("times", [1, 2])
def test_windows_of_a_watched_folder_leave_by_the_clock_and_the_same_after_a_crash(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, times: int
) -> None:
    monkeypatch.setattr(file_readers, "POLL_S", 1.0)  # so the clock makes rounds first
    put(files, "a.jsonl", *FIRST)
    with suppress(Died, PenstockError):
        follow_the_clock(files, tmp_path, ps.ManualClock(10 * SECOND), 2, point, times)
    follow_the_clock(files, tmp_path, ps.ManualClock(5000 * SECOND), 2)
    put(files, "b.jsonl", *LATER)
    follow_the_clock(files, tmp_path, ps.ManualClock(9000 * SECOND), 4)
    assert read_rows(tmp_path / "rows") == Counter([*FIRST, *LATER])
    sums = Counter[str]()
    for row in read_rows(tmp_path / "sums").elements():
        sums[row[0]] += row[-1]
    assert sums == {"a": 5, "b": 10, "c": 16}
    for thread in threading.enumerate():  # other tests count threads, and these sleep until the next look
        if thread.name.startswith("penstock-"):
            thread.join(PATIENCE_S)


def records(folder: Path, rounds: int = 0, **more: Any) -> RoundRecords:
    return RoundRecords(folder / "rounds.jsonl", more.pop("run", "this"), done=rounds, **more)


def test_records_are_found_again_until_their_rounds_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_records, "MAX_LINES", 5)
    written = records(tmp_path)
    for number in range(12):
        written.record("rows", number, RoundRecord(number, number % 2 == 0, 0))
        written.complete(number - 1)
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) <= 6
    again = records(tmp_path, 11)
    assert again.find("rows", 11) == RoundRecord(11, took=False, rows_at=0)
    assert again.find("rows", 10) is None
    assert again.find("others", 11) is None


def test_a_record_that_a_crash_cut_short_is_none_and_one_that_changed_is_damage(tmp_path: Path) -> None:
    written = records(tmp_path)
    written.record("rows", 0, RoundRecord(7, took=True, rows_at=0))
    file = tmp_path / "rounds.jsonl"
    whole = file.read_text()
    file.write_text(whole + whole.splitlines()[-1][:-9])
    assert records(tmp_path).find("rows", 0) == RoundRecord(7, took=True, rows_at=0)
    file.write_text(whole.replace(" 7,", " 8,"))
    with pytest.raises(CheckpointError, match=r"the checkpoint is damaged: rounds.jsonl cannot be read"):
        records(tmp_path)
    file.write_text("")
    with pytest.raises(CheckpointError, match=r"rounds.jsonl cannot be read") as caught:
        records(tmp_path)
    assert "line 1: " in str(caught.value.detail)


def write_some(folder: Path) -> RoundRecords:
    written = records(folder)
    for number in range(3):
        written.record("rows", number, RoundRecord(number, took=False, rows_at=0))
    written.record_end(["rows"], 2)
    return written


def test_records_go_on_as_one_chain_over_runs(tmp_path: Path) -> None:
    first = write_some(tmp_path)
    again = records(tmp_path, 1, known=first.head)
    assert (again.head, again.ends) == (first.head, {"rows": 2})
    again.keep()
    again.replace_ends({})
    again.record("rows", 3, RoundRecord(9, took=True, rows_at=4))
    assert again.head[0] == first.head[0] + 2
    third = records(tmp_path, 2, known=again.head)
    assert (third.find("rows", 1), third.find("rows", 3), third.ends) == (None, RoundRecord(9, True, 4), {})


def test_records_that_are_gone_older_cut_foreign_or_changed_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rounds.jsonl"
    head = write_some(tmp_path).head
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    with pytest.raises(CheckpointError, match=r"rounds\.jsonl is older than what was done by it, or cut"):
        records(tmp_path, known=head)
    file.write_text("".join([*lines[:2], *lines[3:]]))
    with pytest.raises(CheckpointError, match=r"rounds\.jsonl cannot be read"):
        records(tmp_path, known=head)
    file.write_text("".join(lines))
    with pytest.raises(CheckpointError, match=r"rounds\.jsonl belongs to another run") as caught:
        records(tmp_path, run="other")
    assert str(caught.value.detail).endswith("it is of the checkpoint this; this is the checkpoint other")
    with pytest.raises(CheckpointError, match=r"rounds\.jsonl has other lines than it had"):
        records(tmp_path, known=[head[0], "0" * 16])
    file.unlink()
    with pytest.raises(CheckpointError, match=r"rounds\.jsonl is gone"):
        records(tmp_path, known=head)
    assert records(tmp_path, known=()).ends == {}


def test_a_step_keeps_its_records_under_another_name(tmp_path: Path) -> None:
    write_some(tmp_path)
    names = {"rows": "lines", "lines": "rows"}
    renamed = records(tmp_path, names=names)
    assert (renamed.find("lines", 2), renamed.ends) == (RoundRecord(2, False, 0), {"lines": 2})
    renamed.keep()
    renamed.record("rows", 5, RoundRecord(1, True, 1))
    again = records(tmp_path, names=names)
    assert (again.find("lines", 2), again.find("rows", 5)) == (
        RoundRecord(2, False, 0),
        RoundRecord(1, True, 1),
    )


def test_an_unreleased_file_of_ends_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in", "a.jsonl", *FIRST)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "ends.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"ends\.json is of an unreleased Penstock"):
        build(tmp_path / "in", tmp_path).run("local", checkpoint=tmp_path / "checkpoint", until=1)
