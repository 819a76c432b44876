"""Disks that Spark cannot write to: the error names the folder and what to do, and then the run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from bench.faults.disks import SmallDisk
from bench.workload import BenchError
from penstock import crash_points
from penstock.engines.spark.driver.job_results import find_disk_error

FULL = "java.io.IOException: No space left on device"


def test_a_full_disk_is_told_with_the_checkpoint_that_spark_names(tmp_path: Path) -> None:
    text = f"org.apache.spark.SparkException: x\nCaused by: {FULL}: {tmp_path}/c/spark/offsets/.3.tmp"
    error = find_disk_error(text, tmp_path / "c")
    assert isinstance(error, ps.CheckpointError)
    assert (error.fact, error.detail) == (
        "the checkpoint cannot be written: No space left on device",
        str(tmp_path / "c"),
    )
    assert "run the same again" in str(error.hint)


def test_a_full_disk_of_spark_s_own_files_is_told_with_their_folder(tmp_path: Path) -> None:
    error = find_disk_error(
        "java.io.FileNotFoundException: /scratch/blockmgr-1/0c/x (Read-only file system)", tmp_path
    )
    assert isinstance(error, ps.EngineError)
    assert error.detail == "/scratch/blockmgr-1/0c/x"
    assert "spark.local.dir" in str(error.hint)


def test_what_is_no_disk_error_is_left_alone(tmp_path: Path) -> None:
    assert find_disk_error("java.lang.ArithmeticException: / by zero", tmp_path) is None


def run(folder: Path, **options: Any) -> Any:
    """A run whose windows are saved."""
    graph = ps.PipeGraph("full")
    batches = [[{"t": 10 * i + j, "v": j} for j in range(5)] for i in range(4)]
    reader = ps.read.batches(batches, schema={"t": "int64", "v": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="3 s", name="rows")
    sums = rows.window(ps.tumbling("10 s"), name="sums").aggregate(s=ps.sum("v"))
    sums.sink(ps.write.jsonl(folder / "out"), name="out")
    return graph.run("spark", checkpoint=folder / "checkpoint", **options)


@pytest.mark.slow
def test_a_folder_of_spark_s_that_cannot_be_written_is_named_and_afterwards_the_run_goes_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "checkpoint" / "spark"
    file.parent.mkdir(parents=True)
    file.write_text("in the way")
    with pytest.raises(ps.CheckpointError, match="the checkpoint cannot be written") as refused:
        run(tmp_path)
    assert refused.value.detail == str(tmp_path / "checkpoint")
    file.unlink()
    assert run(tmp_path, drain=True).outcome == "drained"
    lines = [line for part in (tmp_path / "out").glob("*.jsonl") for line in part.read_text().splitlines()]
    assert len(lines) == 4


@pytest.fixture(params=["checkpoint", "out"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of its own for the checkpoint, or for the output."""
    try:
        small = SmallDisk(tmp_path / "image", tmp_path / "disk")
    except (BenchError, OSError) as problem:
        pytest.skip(f"no disk can be mounted here: {problem}")
    (small.folder / "own").mkdir()
    (tmp_path / request.param).symlink_to(small.folder / "own")
    yield small
    small.unmount()


@pytest.mark.slow
@pytest.mark.parametrize("at", [5, 12])
def test_a_disk_that_becomes_read_only_is_named_and_afterwards_the_run_goes_on(
    tmp_path: Path, disk: SmallDisk, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = (path for path in tmp_path.iterdir() if path.is_symlink())
    n_passed = 0

    def strike(point: str) -> None:
        nonlocal n_passed
        n_passed += 1
        if n_passed == at:
            disk.strike("read-only")

    monkeypatch.setattr(crash_points, "listener", strike)
    with pytest.raises(ps.PenstockError) as failed:
        run(tmp_path, drain=True)
    assert n_passed >= at
    assert str(place) in str(failed.value)
    assert failed.value.hint
    monkeypatch.setattr(crash_points, "listener", None)
    disk.mend("read-only")
    assert run(tmp_path, drain=True).outcome == "drained"
    lines = [line for part in (tmp_path / "out").glob("*.jsonl") for line in part.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == 4
