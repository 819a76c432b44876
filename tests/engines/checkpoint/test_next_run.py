"""The job that runs every hour: a run keeps its open windows for the next one, until it is told to drain.

The Spark engine's fragments run in this process: nothing here depends on who carries them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": "int64", "k": "string", "v": "int64"}
HOURS = [
    [(0, "a", 1), (5, "b", 2), (9, "a", 3)],
    [(11, "a", 4), (14, "b", 5)],
    [(21, "b", 6), (33, "a", 7)],
]
ENGINES: dict[str, Callable[[], Any]] = {"local": lambda: "local", "fragments": InProcessSparkEngine}
EVERYWHERE = pytest.mark.parametrize("who", ENGINES)


def put(folder: Path, hour: int) -> None:
    """The file of an hour arrives."""
    (folder / "in").mkdir(exist_ok=True, parents=True)
    rows = (dict(zip(SCHEMA, row, strict=True)) for row in HOURS[hour])
    (folder / "in" / f"{hour}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def job(folder: Path, make: Callable[[ps.MultiPipe], ps.MultiPipe] | None = None) -> ps.PipeGraph:
    """Sums by key in windows of ten seconds, of whatever files there are."""
    graph = ps.PipeGraph("hourly")
    reader = ps.read.jsonl(folder / "in", schema=SCHEMA)
    rows = graph.source(reader, time="t", time_unit="s", delay="2 s", name="rows")
    sums = (make or windows)(rows)
    sums.sink(ps.write.jsonl(folder / "out"), name="out")
    return graph


def windows(rows: ps.MultiPipe) -> ps.MultiPipe:
    """Sums by window."""
    keyed = rows.key_by("k").window(ps.tumbling("10 s"), name="sums")
    return keyed.aggregate(s=ps.sum("v"))


def run(folder: Path, who: str, make: Any = None, **options: Any) -> Any:
    """Run the job as a timer would."""
    return job(folder, make).run(ENGINES[who](), checkpoint=folder / "checkpoint", **options)


def read_output(folder: Path) -> Counter[str]:
    """Every row that was written."""
    files = (folder / "out").glob("*.jsonl")
    return Counter(line for file in files for line in file.read_text().splitlines())


def whole_output(folder: Path, make: Any = None) -> Counter[str]:
    """What a single run over all files writes."""
    for hour in range(len(HOURS)):
        put(folder, hour)
    job(folder, make).run("reference")
    return read_output(folder)


@EVERYWHERE
def test_a_job_that_runs_every_hour_writes_what_one_run_over_all_its_files_writes(
    tmp_path: Path, who: str
) -> None:
    outcomes = []
    for hour in range(len(HOURS)):
        put(tmp_path, hour)
        outcomes.append(run(tmp_path, who).outcome)
    outcomes.append(run(tmp_path, who, drain=True).outcome)
    assert outcomes == ["ended", "ended", "ended", "drained"]
    assert read_output(tmp_path) == whole_output(tmp_path / "whole")


@EVERYWHERE
def test_without_new_files_an_hour_changes_nothing(tmp_path: Path, who: str) -> None:
    put(tmp_path, 0)
    run(tmp_path, who)
    before = read_output(tmp_path)
    again = run(tmp_path, who)
    assert (again.outcome, again.batches, again.waiting) == ("ended", 0, {"sums": 2})
    assert read_output(tmp_path) == before


def test_the_result_and_the_log_say_how_many_windows_wait_and_what_closes_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.run")
    for hour in range(2):
        put(tmp_path, hour)
    result = run(tmp_path, "local")
    assert result.waiting == {"sums": 2}  # those from 10 to 20 of a and b
    (line,) = [record.getMessage() for record in caplog.records if "open windows" in record.getMessage()]
    assert line == (
        'run of "hourly": 2 open windows of step "sums" wait for the next run; '
        "run(checkpoint=…, drain=True) closes them"
    )
    assert run(tmp_path, "local", drain=True).waiting == {}


SLIDING: dict[str, Callable[[ps.MultiPipe], Any]] = {
    "sliding": lambda rows: rows.key_by("k").window(ps.sliding("10 s", every="4 s"), name="w"),
    "two kinds": lambda rows: rows.key_by("k").window(
        a=ps.sliding("9 s", every="3 s"), b=ps.tumbling("7 s"), name="w"
    ),
    "hopping": lambda rows: rows.key_by("k").window(ps.sliding("3 s", every="7 s"), name="w"),
    "sessions": lambda rows: rows.key_by("k").window(ps.session("3 s"), name="w"),
    "counts": lambda rows: rows.key_by("k").window(ps.count_window(3, 2), partial=True, name="w"),
    "late": lambda rows: rows.key_by("k").window(ps.sliding("6 s", every="2 s"), lateness="5 s", name="w"),
    "no key": lambda rows: rows.window(ps.sliding("10 s", every="4 s"), name="w", parallelism=3),
}


@EVERYWHERE
@pytest.mark.parametrize("kind", SLIDING)
@pytest.mark.parametrize("hours", [1, 2, 3])
def test_as_many_windows_wait_as_draining_writes(tmp_path: Path, who: str, kind: str, hours: int) -> None:
    def make(rows: ps.MultiPipe) -> ps.MultiPipe:
        pipe: Any = SLIDING[kind](rows)
        return pipe.aggregate(n=ps.count())  # type: ignore[no-any-return]

    for hour in range(hours):
        put(tmp_path, hour)
    waiting = run(tmp_path, who, make).waiting.get("w", 0)
    before = read_output(tmp_path)
    run(tmp_path, who, make, drain=True)
    assert (read_output(tmp_path) - before).total() == waiting
    assert waiting or kind == "hopping"


@EVERYWHERE
def test_rows_that_wait_for_their_turn_are_told_as_rows(
    tmp_path: Path, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.run")

    def make(rows: ps.MultiPipe) -> ps.MultiPipe:
        keyed = rows.key_by("k")
        return keyed.accumulate(lambda row, n: n + row.v, 0, schema={"n": int}, name="so far")

    put(tmp_path, 0)
    assert run(tmp_path, who, make).waiting == {"so far": 1}  # that of 9, behind the watermark of 7
    assert who != "local" or '1 rows of step "so far" wait for the next run' in caplog.text


@EVERYWHERE
def test_a_drained_checkpoint_without_new_input_says_that_all_is_done(tmp_path: Path, who: str) -> None:
    put(tmp_path, 0)
    run(tmp_path, who, drain=True)
    before = read_output(tmp_path)
    for drain in (True, False, True):
        again = run(tmp_path, who, drain=drain)
        assert (again.outcome, again.batches) == ("drained", 0)
    assert read_output(tmp_path) == before


@EVERYWHERE
def test_a_drained_checkpoint_refuses_more_input_and_goes_on_refusing_until_it_is_taken_away(
    tmp_path: Path, who: str
) -> None:
    put(tmp_path, 0)
    run(tmp_path, who, drain=True)
    before = read_output(tmp_path)
    put(tmp_path, 1)
    for drain in (False, True):
        with pytest.raises(ps.CheckpointError, match="the run of this checkpoint has been drained") as no:
            run(tmp_path, who, drain=drain)
        assert no.value.step == "rows"
        assert "leave drain=True out until" in str(no.value.hint)
        assert str(tmp_path / "checkpoint") in str(no.value.detail)
    (tmp_path / "in" / "1.jsonl").unlink()
    assert run(tmp_path, who).outcome == "drained"
    assert read_output(tmp_path) == before


@EVERYWHERE
def test_a_drained_checkpoint_of_a_program_without_state_simply_goes_on(tmp_path: Path, who: str) -> None:
    def make(rows: ps.MultiPipe) -> ps.MultiPipe:
        return rows.with_columns(w=ps.col("v") * 2)

    for hour in range(len(HOURS)):
        put(tmp_path, hour)
        run(tmp_path, who, make, drain=hour % 2 == 0)
    assert read_output(tmp_path) == whole_output(tmp_path / "whole", make)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_checkpoint_may_be_a_path(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    put(tmp_path, 0)
    for engine in ("local", InProcessSparkEngine()):
        checkpoint = kind(tmp_path / f"checkpoint-{engine == 'local'}")
        graph = ps.PipeGraph("paths", engine=engine)
        reader = ps.read.jsonl(kind(tmp_path / "in"), schema=SCHEMA)
        graph.source(reader, name="rows").sink(ps.write.jsonl(kind(tmp_path / f"o{engine}")), name="out")
        assert graph.run(checkpoint=checkpoint).outcome == "ended"


def test_a_checkpoint_that_is_neither_text_nor_a_path_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 0)
    with pytest.raises(ps.CheckpointError, match="checkpoint=7 is not a folder") as no:
        job(tmp_path).run("local", checkpoint=7)  # type: ignore[arg-type]
    assert 'checkpoint="checkpoint/"' in str(no.value.hint)


@pytest.mark.slow
def test_the_hourly_job_on_spark_itself(tmp_path: Path) -> None:
    for hour in range(len(HOURS)):
        put(tmp_path, hour)
        assert job(tmp_path).run("spark", checkpoint=tmp_path / "checkpoint").outcome == "ended"
    assert job(tmp_path).run("spark", checkpoint=tmp_path / "checkpoint", drain=True).outcome == "drained"
    assert job(tmp_path).run("spark", checkpoint=tmp_path / "checkpoint").outcome == "drained"
    assert read_output(tmp_path) == whole_output(tmp_path / "whole")
