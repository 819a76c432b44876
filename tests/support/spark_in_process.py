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

import numpy as np
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.protocol import EngineHarness, Gap, RunOptions, RunResult
from penstock.engines.run_log import RunStatus, describe_status
from penstock.engines.spark.driver.job_results import JobResult, read_job_result
from penstock.engines.spark.driver.jobs import RemoteBatches, SparkJobs
from penstock.engines.spark.driver.join_planner import JoinPlanner
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.driver.read_ahead import ReadRows
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.fragments import DRIVER, FragmentPlan, JobTask
from penstock.engines.spark.join_exchange import JoinLayout
from penstock.engines.spark.source_task import SourceSplit
from penstock.engines.spark.tasks import (
    read_source_rows,
    run_all_fragments,
    run_fragment,
    sample_joins,
)
from penstock.engines.spark.wire import NO_EDGE, SCHEMA, Kind, WireRow, from_wire, to_wire
from penstock.errors import NotSupported
from penstock.events import EventSink
from penstock.plan.plan import Plan, Step
from penstock.stages.join.cell_places import RangeLayout
from penstock.stages.join.conditions import order_floats

Alone = Callable[[int], bool]


class KeptRows(list[WireRow]):
    """Rows that were read ahead."""

    def unpersist(self) -> None:
        """Forgets them."""
        self.clear()


class MixingPlanner(JoinPlanner):
    """Gives a join another layout in most jobs, as if rates and values were changing."""

    def __init__(self, step: Step, random_: random.Random) -> None:
        super().__init__(step)
        self._random = random_

    def pick(self, n_partitions: int, now: JoinLayout | None) -> JoinLayout:
        """Returns any layout that the join may have, or that of now."""
        exchange, draw = self.exchange, self._random
        grids = exchange.grids(n_partitions)
        is_possible = now in grids or (isinstance(now, RangeLayout) and now.n_parts <= n_partitions)
        if now is not None and is_possible and draw.random() < 0.4:
            return now
        if not exchange.bands or n_partitions == 1 or draw.random() < 0.3:
            return draw.choice(grids)
        band = draw.randrange(len(exchange.bands))
        span = draw.choice([range(-4, 5), range(-4, 44)])
        values = np.array(sorted(draw.sample(span, draw.randrange(1, min(n_partitions, len(span))))))
        codes = order_floats(values + 0.5) if exchange.bands[band][1] else values
        return RangeLayout(band, tuple(codes.tolist()), draw.choice(exchange.copies))


class InProcessJobs(SparkJobs):
    """A job as a loop over fragments and partitions; `alone` jobs are one task for all fragments."""

    def __init__(self, plan: Plan, *, n_partitions: int, seed: int, alone: Alone, mixes: bool = True) -> None:
        super().__init__(None, plan, n_partitions)
        self.remote = {name: source for name, source in self.remote.items() if source.by_workers}
        self._random = random.Random(seed)
        self._alone, self._n_jobs = alone, 0
        if mixes:
            self.joins = {name: MixingPlanner(plan[name], self._random) for name in self.joins}

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
        self.look_at_joins(rows, task)
        task = self.lay_out(task, n_partitions)
        wire = [*rows, *rows_read, *self.wake_ups(task.rounds[-1].number, range(n_partitions))]
        self._n_jobs += 1
        if self._alone(self._n_jobs - 1):
            self._random.shuffle(wire)
            batches = run_all_fragments(self._plans, task, [to_wire(wire)])
            result = read_job_result(pa.Table.from_batches(batches, schema=SCHEMA))
            self.learn(result)
            return result
        for plan in self._plans:
            wire += self._run_fragment(plan, task, [r for r in wire if r.fragment == plan.fragment.number])
        back = to_wire([row for row in wire if row.fragment == DRIVER])
        result = read_job_result(pa.Table.from_batches([back], schema=SCHEMA))
        self.learn(result)
        return result

    def _run_samples(self, rows: Sequence[WireRow], task: JobTask) -> list[WireRow]:
        batches = sample_joins(self._plans[0], task, [to_wire(rows)])
        return [row for batch in batches for row in from_wire(batch)]

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

    def __init__(self, loop: DriverLoop, *, drains: bool = False) -> None:
        self._loop = loop
        try:
            loop.open()
            loop.run_micro_batches()
            if drains:
                loop.drain()
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
        return self._loop.metrics()

    def status(self) -> RunStatus:
        """Returns how it has ended."""
        loop, outcome = self._loop, self._result.outcome
        return describe_status(loop.plan, outcome, loop.accounts, loop.watermarks, loop.clock.now(), None)

    def statistics(self) -> tuple[()]:
        """Returns nothing."""
        return ()

    def measurements(self) -> None:
        """Returns nothing."""

    async def finished(self) -> RunResult:
        """Returns its result."""
        return self._result


class InProcessSparkEngine:
    """The Spark engine without Spark, for `run(engine=InProcessSparkEngine())`."""

    name = "spark in process"

    def __init__(
        self,
        n_partitions: int = 3,
        seed: int = 0,
        *,
        alone: Alone = lambda job: False,
        mixes: bool = True,
        drains: bool = False,
    ) -> None:
        self._n_partitions, self._seed, self._alone, self._mixes = n_partitions, seed, alone, mixes
        self._drains = drains

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Returns those of the Spark engine."""
        return SparkEngine().gaps(plan)

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> InProcessRun:
        """Runs the plan to its end."""
        checkpoint = Checkpoint(options.checkpoint, describe_graph(plan), "spark", options.renamed)
        plan = checkpoint.adapt(plan)
        jobs = InProcessJobs(
            plan, n_partitions=self._n_partitions, seed=self._seed, alone=self._alone, mixes=self._mixes
        )
        loop = DriverLoop(plan, jobs, checkpoint, clock=clock, events=events, options=options)
        return InProcessRun(loop, drains=self._drains)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """Raises: there is none."""
        raise NotSupported("not fed by hand")

    def explain(self, plan: Plan) -> Sequence[str]:
        """Returns those of the Spark engine."""
        return SparkEngine().explain(plan)
