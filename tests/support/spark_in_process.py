"""The fragments of a plan carried in this process: everything of the Spark engine but Spark.

Rounds, fragments, wire, state files, checkpoint and sinks are the real ones; only the job that hands wire
rows
from fragment to fragment is plain Python. Files are read as Spark's workers read them, and never by a JVM.
So thousands
of graphs and every moment of a crash can be tried, where Spark allows dozens. Rows reach a part in an order
that a seed decides, since Spark promises none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.protocol import EngineHarness, Gap, RunOptions, RunResult
from penstock.engines.run_log import RunStatus, describe_status
from penstock.engines.spark.driver.job_results import JobResult, read_job_result
from penstock.engines.spark.driver.jobs import RemoteBatches, SparkJobs
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.driver.read_ahead import ReadRows
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.fragments import DRIVER, FragmentPlan, JobTask
from penstock.engines.spark.source_task import SourceSplit
from penstock.engines.spark.tasks import read_source_rows, run_all_fragments, run_fragment
from penstock.engines.spark.wire import NO_EDGE, SCHEMA, Kind, WireRow, from_wire, to_wire
from penstock.errors import NotSupported
from penstock.events import EventSink
from penstock.plan.plan import Plan
from penstock.stages.join.model import list_layouts

Alone = Callable[[int], bool]


class KeptRows(list[WireRow]):
    """Rows that were read ahead."""

    def unpersist(self) -> None:
        """Forgets them."""
        self.clear()


class InProcessJobs(SparkJobs):
    """A job as a loop over fragments and partitions; `alone` jobs are one task for all fragments."""

    def __init__(self, plan: Plan, *, n_partitions: int, seed: int, alone: Alone) -> None:
        super().__init__(None, plan, n_partitions)
        self.remote = {name: source for name, source in self.remote.items() if source.by_workers}
        self._random = random.Random(seed)
        self._alone, self._n_jobs = alone, 0

    def read(self, splits: Sequence[SourceSplit], frame: object = None) -> ReadRows:
        """Reads splits ahead, as tasks do; the rows are kept here."""
        splits = self._random.sample(splits, len(splits))
        rows = [WireRow(0, Kind.SOURCE_READ, NO_EDGE, 0, 0, split.to_bytes()) for split in splits]
        batches = read_source_rows(self._plans[0], [to_wire(rows)])
        wire = [row for batch in batches for row in from_wire(batch)]
        back = to_wire([row for row in wire if row.fragment == DRIVER])
        reports = read_job_result(pa.Table.from_batches([back], schema=SCHEMA)).sources
        return ReadRows(KeptRows(row for row in wire if row.fragment != DRIVER), reports)

    def run(
        self,
        rows: Sequence[WireRow],
        task: JobTask,
        remote: RemoteBatches,
        read: Sequence[ReadRows] = (),
        frame: object = None,
    ) -> JobResult:
        """Runs what the driver sends through all fragments."""
        rows_read = [row for part in read for row in part.frame]
        # As with jobs of many rows and of few, which have different numbers of partitions.
        n_partitions = self._random.choice([self.n_partitions, 2 * self.n_partitions])
        task = self._mix_layouts(self.lay_out(task, n_partitions))
        wire = [*rows, *rows_read, *self.wake_ups(task.rounds[-1].number, range(n_partitions))]
        self._n_jobs += 1
        if self._alone(self._n_jobs - 1):
            self._random.shuffle(wire)
            batches = run_all_fragments(self._plans, task, [to_wire(wire)])
            return read_job_result(pa.Table.from_batches(batches, schema=SCHEMA))
        for plan in self._plans:
            wire += self._run_fragment(plan, task, [r for r in wire if r.fragment == plan.fragment.number])
        back = to_wire([row for row in wire if row.fragment == DRIVER])
        return read_job_result(pa.Table.from_batches([back], schema=SCHEMA))

    def _mix_layouts(self, task: JobTask) -> JobTask:
        """Gives joins that may have any layout another one in every job, as if rates were changing."""
        joins = {edge.step: edge.join for edge in self.fragments.edges if edge.join is not None}
        layouts = dict(task.layouts)
        for name, join in joins.items():
            if name is not None and join.lines == (True, True) and join.layout is None:
                layouts[name] = self._random.choice(list(list_layouts(task.n_partitions)))
        return replace(task, layouts=layouts)

    def _run_fragment(self, plan: FragmentPlan, task: JobTask, rows: list[WireRow]) -> list[WireRow]:
        self._random.shuffle(rows)
        partitions: dict[int, list[WireRow]] = {}
        for row in rows:
            place = row.partition if plan.fragment.keyed else self._random.randrange(self.n_partitions)
            partitions.setdefault(place, []).append(row)
        return [
            row
            for partition in partitions.values()
            for batch in run_fragment(plan, task, iter([to_wire(partition)]))
            for row in from_wire(batch)
        ]


class InProcessRun:
    """A run that is over when it has been built."""

    def __init__(self, loop: DriverLoop) -> None:
        self._loop = loop
        try:
            loop.open()
            loop.run_micro_batches()
        except BaseException:
            loop.end(failed=True)
            raise
        self._result = loop.end()

    def wait(self, timeout: float | None = None) -> RunResult:
        """Returns its result."""
        return self._result

    def stop(self, *, drain: bool = False) -> None:
        """Does nothing: it has stopped."""

    def metrics(self) -> Mapping[str, Accounts]:
        """Returns the accounts."""
        return self._loop.accounts

    def status(self) -> RunStatus:
        """Returns how it has ended."""
        loop, outcome = self._loop, self._result.outcome
        return describe_status(loop.plan, outcome, loop.accounts, loop.watermarks, loop.clock.now(), None)

    async def finished(self) -> RunResult:
        """Returns its result."""
        return self._result


class InProcessSparkEngine:
    """The Spark engine without Spark, for `run(engine=InProcessSparkEngine())`."""

    name = "spark in process"

    def __init__(self, n_partitions: int = 3, seed: int = 0, *, alone: Alone = lambda job: False) -> None:
        self._n_partitions, self._seed, self._alone = n_partitions, seed, alone

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Returns those of the Spark engine."""
        return SparkEngine().gaps(plan)

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> InProcessRun:
        """Runs the plan to its end."""
        checkpoint = Checkpoint(options.checkpoint, describe_graph(plan))
        jobs = InProcessJobs(plan, n_partitions=self._n_partitions, seed=self._seed, alone=self._alone)
        return InProcessRun(DriverLoop(plan, jobs, checkpoint, clock=clock, events=events, options=options))

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """Raises: there is none."""
        raise NotSupported("not fed by hand")

    def explain(self, plan: Plan) -> Sequence[str]:
        """Returns those of the Spark engine."""
        return SparkEngine().explain(plan)
