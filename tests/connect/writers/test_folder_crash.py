"""A run that is killed at any moment, and restarted, loses nothing and doubles nothing.

The killed run dies inside the k-th call that touches the disk's order (sync or rename), or at the k-th crash
point, for every k until one run comes through. It is a child process that ends by os._exit, so no cleanup
code of ours runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock.read as read
import penstock.write as write
from penstock import crash_points
from penstock.connect.writers.staged_files import StagedFile
from tests.support.file_runs import Died, dying_at
from tests.support.reader_contents import rows_of

PROGRAM = """
import json, os, sys
import pyarrow as pa
import pyarrow.parquet
import penstock.write as write

kind, folder, options = sys.argv[1:]
SCHEMA = pa.schema([("a", pa.int64()), ("odd", pa.bool_())])

def run(place, resume):
    out = getattr(write, kind)(place, **json.loads(options)).open(SCHEMA, "sink", resume=resume)
    for batch in range(3):
        for value in (2 * batch, 2 * batch + 1):
            out.write(batch, pa.record_batch({"a": [value], "odd": [value % 2 == 1]}))
        out.commit(batch)
    out.close()

def dying(call, left, when):
    def patched(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0 and when == "before":
            os._exit(9)
        done = call(*args, **kwargs)
        if left[0] == 0:
            os._exit(9)
        return done
    return patched

def killed(place, k, when):
    child = os.fork()
    if child == 0:
        left = [k]
        os.replace, os.fsync = dying(os.replace, left, when), dying(os.fsync, left, when)
        run(place, resume=False)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

for when in ("before", "after"):
    k = 1
    while killed(f"{folder}/{when}-{k}", k, when):
        run(f"{folder}/{when}-{k}", resume=True)
        k += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("parquet", {}), ("jsonl", {"max_rows_per_file": 1}), ("jsonl", {"partition_by": "odd"})],
    ids=["parquet", "small files", "partitions"],
)
def test_a_run_killed_at_any_moment_and_restarted_writes_every_row_once(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    args = [kind, str(tmp_path), json.dumps(options)]
    subprocess.run([sys.executable, "-c", PROGRAM, *args], check=True, timeout=240)
    places = sorted(tmp_path.iterdir())
    assert len(places) > 20
    for place in places:
        rows = rows_of(getattr(read, kind)(f"{place}/**", schema={"a": int}))
        assert sorted(row["a"] for row in rows) == [0, 1, 2, 3, 4, 5], place.name
        assert list((place / "_penstock" / "staged").iterdir()) == []


SCHEMA = pa.schema([("a", pa.int64()), ("k", pa.int64())])
OWN_POINTS = {crash_points.WRITTEN, crash_points.LISTED, crash_points.PUBLISHED}
DIED = 9


def publish_all(folder: Path, run: int) -> None:
    """Three batches, each staged by two tasks, and by a third of which nobody hears."""
    writer = write.jsonl(folder, partition_by="k")
    out = writer.open(SCHEMA, "sink", resume=True)
    for batch in range(3):
        files: list[StagedFile] = []
        for task in range(2):
            stage = writer.stage(SCHEMA, f"{run}-{batch}-{task}")
            stage.write(pa.record_batch({"a": [4 * batch + task, 4 * batch + task + 2], "k": [task, 7]}))
            files += stage.close()
        unheard = writer.stage(SCHEMA, f"{run}-{batch}-unheard")
        unheard.write(pa.record_batch({"a": [99], "k": [0]}))
        unheard.close()
        out.publish(batch, files)
    out.close()


def dies(folder: Path, run: int, number: int) -> str | None:
    """Let a child process publish, and die at the n-th point; return that, or None if it came through."""
    seen = folder.with_suffix(".point")
    seen.unlink(missing_ok=True)

    def end(point: str, left: list[int] = [number]) -> None:  # noqa: B006  # it counts
        left[0] -= 1
        if left[0] == 0:
            seen.write_text(point)
            os._exit(DIED)

    child = os.fork()
    if child == 0:
        crash_points.listener = end
        try:
            publish_all(folder, run)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (0, DIED)
    return seen.read_text() if seen.exists() else None


def values(folder: Path) -> list[int]:
    lines = [line for part in folder.glob("k=*/part-*") for line in part.read_text().splitlines()]
    return sorted(json.loads(line)["a"] for line in lines)


@pytest.mark.slow
def test_a_driver_that_dies_at_any_point_and_is_started_again_publishes_every_file_once(
    tmp_path: Path,
) -> None:
    points, number = set(), 1
    while (point := dies(tmp_path / str(number), 1, number)) is not None:
        points.add(point)
        publish_all(tmp_path / str(number), 2)
        assert values(tmp_path / str(number)) == list(range(12)), (number, point)
        assert list((tmp_path / str(number) / "_penstock" / "staged").iterdir()) == []
        number += 1
    assert number == 1 + 3 * (1 + 1 + 4)
    assert points == OWN_POINTS


def test_a_driver_that_dies_whenever_it_is_started_again_gets_to_its_end(tmp_path: Path) -> None:
    n_runs = 1
    while dies(tmp_path / "out", n_runs, 3) is not None:
        n_runs += 1
    assert n_runs > 4
    assert values(tmp_path / "out") == list(range(12))


@pytest.mark.parametrize("point", sorted(OWN_POINTS))
@pytest.mark.parametrize("times", [1, 2])
def test_an_output_that_fails_at_a_point_and_is_closed_is_resumed(
    tmp_path: Path, point: str, times: int
) -> None:
    """As in an engine that closes its sinks when a step has failed."""
    writer = write.jsonl(tmp_path, max_rows_per_file=1)
    for resume in (False, True):
        out = writer.open(SCHEMA, "sink", resume=resume)
        with dying_at(point if not resume else "never", times):
            try:
                for batch in range(2):
                    out.write(batch, pa.record_batch({"a": [2 * batch, 2 * batch + 1], "k": [0, 0]}))
                    out.commit(batch)
            except Died:
                assert not resume
        out.close()
    rows = rows_of(read.jsonl(tmp_path))
    assert [row["a"] for row in rows] == [0, 1, 2, 3]
    assert list((tmp_path / "_penstock" / "staged").iterdir()) == []
