"""The Structured Streaming query of a run: its source is what the driver loop plans.

A run with a checkpoint, or that does not end by itself, or that asks for a trigger, is one query. Which rows
make a micro-batch is decided by the driver loop, because batches must be cut by readers, the same on every
engine. So the source of the query is a Python data source whose rows are wire rows (`wire.py`): which splits
tasks are to read, and which partitions to wake up. Its offset is the number of micro-batches that have been
planned. Triggers, progress and the log of offsets are Spark's, and the log goes on over restarts. What is
done is said by our manifest alone: a batch that Spark repeats has whatever is to be done next.

Spark plans in a process of its own, which meets the driver loop in a folder:

    asked-3        Spark asks for micro-batch 3; the driver loop plans it then, and not before
    3.arrow        the wire rows of micro-batch 3, one record batch per task
    planned        how many micro-batches are planned
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.engines.spark.driver.job_results import no_room_error
from penstock.engines.spark.wire import SCHEMA, SPARK_SCHEMA, WireRow, to_wire
from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FORMAT = "penstock"
"""The name of the data source."""
_POLL_S = 0.003
"""Seconds between looks into the folder."""
_PATIENCE_S = 1.0
"""Seconds that Spark waits for a micro-batch before it asks again, and a run for the last report of Spark."""
_SLOW_START, _MAX_TRIES = "Python worker failed to connect back", 3
"""What Spark says when a busy machine takes ten seconds to start a process, and how often to try again."""
_ALIVE_POLL_S = 0.2
"""Seconds between checks whether the query is still there."""


class PlannedRows(InputPartition):  # type: ignore[misc]
    """The wire rows of one task."""

    def __init__(self, packed: bytes) -> None:
        self.packed = packed


class PlanReader(DataSourceStreamReader):  # type: ignore[misc]
    """What Spark asks of the driver loop, in the process in which Spark plans."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def initialOffset(self) -> dict[str, int]:
        """Return that no micro-batch has been planned."""
        return {"planned": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        """Ask for the next micro-batch, and return how many are planned after waiting a while."""
        n_done, deadline = start["planned"], time.monotonic() + _PATIENCE_S
        (self._folder / f"asked-{n_done}").touch()
        while (n_planned := _read_count(self._folder)) <= n_done and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return {"planned": max(n_planned, n_done)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a partition for each task of the planned micro-batches."""
        tasks: list[InputPartition] = []
        for number in range(start["planned"], end["planned"]):
            self._wait_until_planned(number)
            with pa.ipc.open_file(pa.memory_map(str(self._folder / f"{number}.arrow"))) as file:
                for place in range(file.num_record_batches):
                    sink = pa.BufferOutputStream()
                    with pa.ipc.new_stream(sink, SCHEMA) as stream:
                        stream.write_batch(file.get_batch(place))
                    tasks.append(PlannedRows(sink.getvalue().to_pybytes()))
        return tasks

    def _wait_until_planned(self, number: int) -> None:
        """Ask for a micro-batch that Spark repeats from its log, and wait until it is planned in this run."""
        while _read_count(self._folder) <= number:
            (self._folder / f"asked-{number}").touch()  # raises once the run is over, and its folder gone
            time.sleep(_POLL_S)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the wire rows of one task, in a worker."""
        assert isinstance(partition, PlannedRows), "partitions are made above"
        yield from pa.ipc.open_stream(partition.packed)

    def commit(self, end: dict[str, int]) -> None:
        """Remove the plans of micro-batches that are done."""
        for number in range(end["planned"]):
            for name in (f"{number}.arrow", f"asked-{number}"):
                (self._folder / name).unlink(missing_ok=True)


class PlanSource(DataSource):  # type: ignore[misc]
    """The data source `penstock`; the option `folder` says where Spark and the driver loop meet."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark finds it."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of wire rows."""
        return SPARK_SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        return PlanReader(self.options["folder"])


class RunQuery:
    """The query of one run. The thread of the run plans micro-batches; the query's own thread runs them."""

    def __init__(
        self, spark: SparkSession, name: str, *, checkpoint: str, folder: Path, trigger: str | None
    ) -> None:
        self._spark, self._name, self._trigger = spark, name, trigger
        self._folder, self._checkpoint, self._context = folder, checkpoint, spark.sparkContext
        self._changed = threading.Condition()
        self._work: Callable[[DataFrame], int] | None = None
        self._n_planned, self._started = read_log(Path(checkpoint)), threading.Event()
        self._n_tries = self._n_run = self._last_batch = 0
        _write_count(folder, self._n_planned)
        spark.dataSource.register(PlanSource)
        self._start()

    def _start(self) -> None:
        stream = self._spark.readStream.format(FORMAT).option("folder", str(self._folder)).load()
        writer = stream.writeStream.foreachBatch(self._run_batch).queryName(self._name)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if self._trigger is not None:
            writer = writer.trigger(processingTime=self._trigger)
        self._query: StreamingQuery = writer.start()
        self._started.set()

    def wait_until_asked(self, stopping: threading.Event) -> None:
        """Wait until Spark asks for a micro-batch, or the run is to stop."""
        asked, checked = self._folder / f"asked-{self._n_planned}", time.monotonic()
        while not asked.exists() and not stopping.wait(_POLL_S):
            if time.monotonic() - checked > _ALIVE_POLL_S:
                self._require_alive()
                checked = time.monotonic()

    def run(self, tasks: Sequence[Sequence[WireRow]], work: Callable[[DataFrame], int]) -> None:
        """Give Spark the wire rows of a micro-batch, by task, and wait until its batch has been worked on.

        work  is called with the batch, in the thread of the query; returns how many rows its sources gave
        """
        path = self._folder / f"{self._n_planned}.arrow"
        with self._changed:
            self._work, self._n_planned = work, self._n_planned + 1
            try:
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as plan:
                    for rows in tasks:
                        plan.write_batch(to_wire(rows))
                _write_count(self._folder, self._n_planned)
            except OSError as cause:
                raise no_room_error(cause) from cause
            while self._work is not None:
                if not self._changed.wait(_ALIVE_POLL_S) and self._work is not None:
                    self._require_alive()

    def finish(self) -> None:
        """Wait until Spark has committed and reported the last micro-batch, though not for ever."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._n_run and time.monotonic() < deadline:
            progress = self._query.lastProgress
            if progress is not None and progress["batchId"] >= self._last_batch:
                break
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End the query."""
        with suppress(Exception):  # a Spark that has been stopped has no query to stop
            self._query.stop()

    def _run_batch(self, frame: DataFrame, number: int) -> None:
        self._started.wait()
        n_planned = self._n_planned_in_batch()
        with self._changed:
            # Why: a query whose first micro-batch is planned late begins with a batch of nothing.
            work = self._work if n_planned == self._n_planned else None
        if work is None:
            return
        n_rows = work(frame)
        self._count_input(n_rows)
        self._last_batch, self._n_run = number, self._n_run + 1
        with self._changed:
            self._work = None
            self._changed.notify_all()

    def _n_planned_in_batch(self) -> int:
        """Return up to which planned micro-batch the current batch of Spark reaches."""
        jvm_query: Any = self._query._jsq
        offsets = str(jvm_query.streamingQuery().availableOffsets().toString())
        return int(re.findall(r'"planned":\s*(\d+)', offsets)[-1])

    def _count_input(self, n_rows: int) -> None:
        """Let the progress of the query tell rows, where Spark itself has counted wire rows.

        Why: `numInputRows` is what the scan has counted; the rows are read behind it.
        """
        with suppress(Exception):  # inner parts of Spark: without them the progress tells wire rows
            jvm_query: Any = self._query._jsq
            scan = jvm_query.streamingQuery().lastExecution().executedPlan()
            while scan.children().size():
                scan = scan.children().apply(0)
            counted = scan.metrics().apply("numOutputRows")
            counted.set(n_rows)

    def _require_alive(self) -> None:
        """Raise if the query has ended by itself; start it again if only its planning process was slow."""
        reason = "Spark itself was stopped"
        with suppress(Exception):  # the JVM may be gone, and with it what it could tell
            if self._context._jsc is not None and self._query.isActive:
                return
            reason = str(self._query.exception() or reason)
        if _SLOW_START in reason and self._n_tries < _MAX_TRIES:
            self._n_tries += 1
            self._start()
            return
        raise EngineError("Spark stopped the query", detail=reason.partition("\n")[0])


def read_log(checkpoint: Path) -> int:
    """Return how many micro-batches are done by Spark's own log; 0 where there is none that can be read."""
    batches = [int(file.name) for file in checkpoint.glob("commits/*") if file.name.isdigit()]
    if not batches:
        return 0
    with suppress(OSError, ValueError, KeyError, TypeError):
        *_, offset = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        return int(json.loads(offset)["planned"])
    return 0


def _read_count(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return int((folder / "planned").read_text("ascii"))
    return 0


def _write_count(folder: Path, count: int) -> None:
    staged = folder / "planned.tmp"
    staged.write_text(str(count), "ascii")
    staged.replace(folder / "planned")
