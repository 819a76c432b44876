"""The Structured Streaming query of a run: its source is what the driver loop plans.

A run with a checkpoint, or that does not end by itself, or that asks for a trigger, is one query. Which rows
make a micro-batch is decided by the driver loop, because batches must be cut by readers, the same on every
engine. So the source of the query is a Python data source whose rows are wire rows (`wire.py`): which splits
tasks are to read, and which partitions to wake up. Its offset is the number of micro-batches that have been
planned. Triggers, progress and the log of offsets are Spark's, and the log goes on over restarts, unless it
is damaged. What is done is said by our manifest alone: a batch that Spark repeats has whatever is to be done
next.

Spark plans in a process of its own (`plan_source.py`), which meets the driver loop in a folder.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.spark.driver.job_results import find_disk_error, no_room_error
from penstock.engines.spark.driver.plan_source import FORMAT, POLL_S, PlanSource
from penstock.engines.spark.driver.progress import BatchProgress, observe_progress, report_progress
from penstock.engines.spark.driver.query_log import find_damage
from penstock.engines.spark.wire import SCHEMA, SPARK_SCHEMA, WireRow, to_wire
from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger("penstock.run")
_PATIENCE_S = 1.0
"""Seconds that a run waits for the last report of Spark."""
_SLOW_START, _MAX_TRIES = "Python worker failed to connect back", 10
"""What Spark says when a busy machine takes ten seconds to start a process, and how often to try again."""
_ALIVE_POLL_S = 0.2
"""Seconds between checks whether the query is still there."""
_ABANDONED_POLL_S = 0.02
"""Seconds between checks whether the run still waits for its micro-batch."""
_GROUP = "spark.jobGroup.id"
_OVER = -1
"""The number of planned micro-batches that tells Spark's planning process not to wait for one."""


class RunQuery:
    """The query of one run. The thread of the run plans micro-batches, and works on what Spark makes of them.

    The query's own thread waits for that meanwhile, so that the query can be stopped though the work takes
    long.

    timed      the sources that have a watermark
    abandoned  set when what is not committed is given up: nobody waits for it any more
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        *,
        checkpoint: str,
        folder: Path,
        trigger: str | None,
        timed: Sequence[str] = (),
        abandoned: threading.Event | None = None,
    ) -> None:
        self._abandoned = abandoned or threading.Event()
        self._spark, self._name, self._trigger, self._timed = spark, name, trigger, timed
        self._folder, self._checkpoint, self._context = folder, checkpoint, spark.sparkContext
        self._changed = threading.Condition()
        self._batch: tuple[DataFrame, int] | None = None  # what Spark has made of the last plan
        damage = find_damage(Path(checkpoint))
        if damage is not None:
            # Our manifests say what is done, so that nothing but the numbers of Spark's batches begins again.
            _log.warning("%s is damaged (%s); Spark begins a new log of the query", *damage)
            shutil.rmtree(checkpoint)
        self._n_planned = self._n_worked = read_log(Path(checkpoint))
        self._started = threading.Event()
        self._n_tries = self._n_run = self._last_batch = 0
        _write_count(folder, self._n_planned)
        spark.dataSource.register(PlanSource)
        self._start()

    def _start(self) -> None:
        stream = self._spark.readStream.format(FORMAT).schema(SPARK_SCHEMA)
        stream = stream.option("folder", str(self._folder)).load()
        stream = observe_progress(stream, self._timed, is_ours=True)
        writer = stream.writeStream.foreachBatch(self._run_batch).queryName(self._name)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if self._trigger is not None:
            writer = writer.trigger(processingTime=self._trigger)
        # Why without tags: a listener of PySpark fails on a query that begins with some.
        tags = self._context.getJobTags()
        self._context.clearJobTags()
        self._query: StreamingQuery = writer.start()
        for tag in tags:
            self._context.addJobTag(tag)
        self._started.set()

    def wait_until_asked(self, stopping: threading.Event) -> None:
        """Wait until Spark asks for a micro-batch, or the run is to stop."""
        asked, checked = self._folder / f"asked-{self._n_planned}", time.monotonic()
        while not asked.exists() and not stopping.wait(POLL_S):
            if time.monotonic() - checked > _ALIVE_POLL_S:
                self._require_alive()
                checked = time.monotonic()

    def run(self, tasks: Sequence[Sequence[WireRow]], work: Callable[[DataFrame], BatchProgress]) -> None:
        """Give Spark the wire rows of a micro-batch, by task, and work on the batch that it makes of them.

        work  is called with the batch; returns what became known by it
        """
        path = self._folder / f"{self._n_planned}.arrow"
        with self._changed:
            self._n_planned += 1
            try:
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as plan:
                    for rows in tasks:
                        plan.write_batch(to_wire(rows))
                _write_count(self._folder, self._n_planned)
            except OSError as cause:
                raise no_room_error(cause) from cause
            checked = time.monotonic()
            while self._batch is None and not self._abandoned.is_set():
                self._changed.wait(_ABANDONED_POLL_S)
                if self._batch is None and time.monotonic() - checked > _ALIVE_POLL_S:
                    self._require_alive()
                    checked = time.monotonic()
            if self._batch is None:
                return
            frame, number = self._batch
        self._context.setJobGroup(
            str(self._query.runId), self._name
        )  # so that who stops the query cancels its jobs
        try:
            progress = work(frame)
            if not self._abandoned.is_set():
                report_progress(self._query, self._context._gateway, progress, is_ours=True)
                self._last_batch, self._n_run = number, self._n_run + 1
        finally:
            self._context.setLocalProperty(_GROUP, None)
            with self._changed:
                self._batch = None
                self._changed.notify_all()

    def finish(self) -> None:
        """Wait until Spark has committed and reported the last micro-batch, though not for ever."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._n_run and time.monotonic() < deadline:
            if self._abandoned.is_set():
                break
            progress = self._query.lastProgress
            if progress is not None and progress["batchId"] >= self._last_batch:
                break
            time.sleep(POLL_S)

    def close(self) -> None:
        """End the query: Spark waits for no micro-batch any more, and cancels the one that it carries."""
        with suppress(OSError):
            _write_count(self._folder, _OVER)
        with suppress(Exception):  # a Spark that has been stopped has no query to stop
            self._query.stop()

    def _run_batch(self, frame: DataFrame, number: int) -> None:
        """Hand Spark's batch to the thread of the run, and wait until it has been worked on, or given up."""
        self._started.wait()
        # Up to which planned micro-batch the current batch of Spark reaches.
        jvm_query: Any = self._query._jsq
        offsets = str(jvm_query.streamingQuery().availableOffsets().toString())
        n_planned = int(re.findall(r'"planned":\s*(\d+)', offsets)[-1])
        with self._changed:
            # Why: a query whose first micro-batch is planned late begins with a batch of nothing.
            if n_planned != self._n_planned or n_planned == self._n_worked:
                return
            self._batch, self._n_worked = (frame, number), n_planned
            self._changed.notify_all()
            while self._batch is not None and not self._abandoned.is_set():
                self._changed.wait(_ABANDONED_POLL_S)

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
        folder = Path(self._checkpoint).parent
        raise find_disk_error(reason, folder) or EngineError(
            "Spark stopped the query",
            detail=f"{reason.partition(chr(10))[0]}; its checkpoint is {folder}",
            hint="run it again: it goes on where its checkpoint is",
        )


def read_log(checkpoint: Path) -> int:
    """Return how many micro-batches are done by Spark's own log; 0 where there is none that can be read."""
    batches = [int(file.name) for file in checkpoint.glob("commits/*") if file.name.isdigit()]
    if not batches:
        return 0
    with suppress(OSError, ValueError, KeyError, TypeError):
        *_, offset = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        return int(json.loads(offset)["planned"])
    return 0


def _write_count(folder: Path, count: int) -> None:
    staged = folder / "planned.tmp"
    staged.write_text(str(count), "ascii")
    staged.replace(folder / "planned")
