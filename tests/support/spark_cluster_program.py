"""What test_cluster.py runs on its cluster after the cases of the conformance suite, in the same program.

The graph of `crashing_graph.py` loses an executor when its third round is about to be carried. A program has
two executors, of one core each.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock import crash_points
from penstock.engines.spark.driver import jobs, join_planner
from penstock.engines.spark.driver import rounds as ahead
from penstock.engines.spark.session.session import open_session
from tests.conformance.engines import everywhere
from tests.support import crashing_graph as dying

EXECUTOR = b"CoarseGrainedExecutorBackend"


@pytest.fixture
def master(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--master"))


@everywhere
def test_a_run_that_loses_an_executor_writes_every_row_once_and_prints_nothing(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    killed, turns = list[int](), 0

    def heard(point: str) -> None:
        nonlocal turns
        turns += point == crash_points.READ
        if turns == 3 and point == crash_points.READ:
            killed.append(executors()[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(ahead, "MAX_ROUNDS", 1)
    monkeypatch.setattr(join_planner, "MIN_SAMPLE", 1)  # so that joins go over to ranges of few rows
    monkeypatch.setattr(jobs, "SMALL_INPUT", -1)  # so that every executor has work in every round
    monkeypatch.setattr(crash_points, "listener", heard)
    dying.run(tmp_path, "spark", master=master, options=ps.SparkOptions(partitions=4))
    assert len(killed) == 1
    assert dying.read_sinks(tmp_path) == dying.expected_sinks(tmp_path / "whole")
    assert capfd.readouterr() == ("", "")


@everywhere
def test_executors_use_the_package_that_came_with_the_program(master: str) -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import penstock

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"file": [str(penstock.__file__)] * batch.num_rows})

    spark = open_session(ps.SparkOptions(), master=master).spark
    rows = spark.range(4, numPartitions=4).mapInArrow(seen, "file string").toArrow()
    # Executors here could import the installed package as well.
    assert all("penstock-" in file and ".zip/" in file for file in rows["file"].to_pylist())


def executors() -> list[int]:
    """The processes of this program's executors."""
    from pyspark import SparkContext

    program = SparkContext.getOrCreate().applicationId.encode()
    result = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if program in words and any(word.endswith(EXECUTOR) for word in words):
            result.append(int(file.parent.name))
    return result
