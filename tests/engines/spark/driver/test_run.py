"""A run on real Spark: quiet, in order, stoppable, and clear about what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import EngineError, NotSupported, col
from penstock.engines.spark.session.session import RunSession
from penstock.events import Event, StateSaved
from penstock.operators.process import Context
from tests.support.spark_in_process import InProcessSparkEngine

pytestmark = pytest.mark.slow
SCHEMA = {"t": "int64", "key": "string", "v": "int64"}
BATCHES = [
    [{"t": 1, "key": "a", "v": 1}, {"t": 12, "key": "b", "v": 0}],
    [{"t": 2, "key": "a", "v": 3}, {"t": 30, "key": "a", "v": 4}],
    [{"t": 3, "key": "b", "v": 1}, {"t": 4, "key": "b", "v": 0}, {"t": 50, "key": "b", "v": 2}],
]


def heard(engine: Any) -> list[str]:
    """The kinds of events of a run with late rows and rows that fail, in order."""
    graph = ps.PipeGraph("heard")
    reader = ps.read.batches(BATCHES, schema=SCHEMA)
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    good = rows.with_columns(v=ps.lit(10) % col("v"), on_error="skip", name="rest")
    sums = good.key_by("key").window(ps.tumbling("10 s"), name="sums").aggregate(s=ps.sum("v"))
    sums.sink(ps.write.memory(), name="memory")
    events: list[Event] = []
    graph.run(engine, clock=ps.ManualClock(), events=events.append)
    heard = [event for event in events if not isinstance(event, StateSaved)]
    return [
        f"{type(event).__name__} {getattr(event, 'step', '')} {getattr(event, 'example', '')}".strip()
        for event in heard
    ]


def test_events_come_in_the_order_of_the_reference(spark_session: RunSession) -> None:
    expected = heard("reference")
    assert heard("spark") == expected
    assert "RowsLate sums" in expected
    assert any(line.startswith("RowsErrored rest ") and "zero" in line for line in expected)


@pytest.mark.parametrize("n_partitions", [1, 2, 5])
def test_events_do_not_depend_on_how_many_parts_there_are(n_partitions: int) -> None:
    assert heard(InProcessSparkEngine(n_partitions)) == heard("reference")


def test_a_run_without_an_end_can_be_stopped(spark_session: RunSession, tmp_path: Path) -> None:
    seen = threading.Event()

    def endless() -> Iterator[dict[str, Any]]:
        for n in range(10**9):
            yield {"t": n, "v": n}
            if n == 5:
                seen.wait(60)

    graph = ps.PipeGraph("endless")
    reader = ps.read.generator(endless, schema={"t": int, "v": int}, batch=1, bounded=False)
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
    rows.window(ps.tumbling("2 s"), name="w").aggregate(s=ps.sum("v")).sink(
        ps.write.jsonl(tmp_path / "out"), name="out"
    )
    running = graph.start("spark")
    running.stop()
    seen.set()
    result = running.wait(120)
    assert result.outcome == "stopped"
    assert result.accounts["rows"].rows_in == result.batches


def dies(row: Any) -> dict[str, int]:
    if row.v == 3:
        os._exit(7)
    return {"v": row.v}


def test_a_python_worker_that_dies_is_an_error_that_names_the_step(spark_session: RunSession) -> None:
    graph = ps.PipeGraph("deadly")
    rows = graph.source(ps.read.batches(BATCHES, schema=SCHEMA), name="rows")
    rows.map(dies, schema={"v": int}, name="deadly").sink(ps.write.memory())
    with pytest.raises(EngineError, match="a Python worker of Spark died, and died again") as caught:
        graph.run("spark")
    assert caught.value.step == "deadly"
    assert caught.value.where is not None
    assert "os._exit" in str(caught.value.hint)
    assert rows.with_columns(v=col("v") + 1).collect("spark").num_rows == 7  # Spark itself goes on


class Pass(ps.ProcessOperator):
    outputs: ClassVar[dict[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: Context) -> None:
        raise AssertionError("nothing runs")


def test_an_operator_with_a_loop_of_its_own_is_sent_to_the_engine_that_has_them() -> None:
    graph = ps.PipeGraph("loops")
    graph.source(ps.read.rows([{"v": 1}])).process(Pass()).sink(ps.write.memory())
    with pytest.raises(NotSupported, match="the spark engine cannot do this") as caught:
        graph.run("spark")
    assert "waits for rows, and Spark brings them in batches" in str(caught.value)
    assert caught.value.hint == 'run it with engine="local"'


def test_options_of_another_engine_are_refused() -> None:
    graph = ps.PipeGraph("other")
    graph.source(ps.read.batches(BATCHES, schema=SCHEMA)).sink(ps.write.memory())
    with pytest.raises(EngineError, match="the spark engine takes SparkOptions, and got LocalOptions"):
        graph.run("spark", options=ps.LocalOptions())


WITHOUT = """
import sys
sys.modules["pyspark"] = None
import penstock as ps
graph = ps.PipeGraph("p")
graph.source(ps.read.rows([{"v": 1}])).sink(ps.write.memory())
graph.explain("spark")
try:
    graph.run()
except ps.NotSupported as told:
    print(told.hint)
"""


def test_without_pyspark_a_run_names_the_pip_line() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ('pip install "penstock[spark]"\n', "")
