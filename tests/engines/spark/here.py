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
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.graph import describe_graph
from penstock.engines.protocol import EngineHarness, Gap, RunOptions, RunResult
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.driver.loop import DriverLoop
from penstock.engines.spark.driver.reports import JobResult, read_job_result
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.fragment_plan import FragmentPlan, JobTask
from penstock.engines.spark.fragments import DRIVER, Fragments, split_into_fragments
from penstock.engines.spark.wire import SCHEMA, WAKE, WireRow, from_wire, to_wire
from penstock.engines.spark.worker.task import run_all_fragments, run_fragment
from penstock.errors import NotSupported
from penstock.events import EventSink
from penstock.plan.plan import Plan

Alone = Callable[[int], bool]


class InProcessJobs(SparkJobs):
    """A job as a loop over fragments and partitions; `alone` jobs are one task for all fragments."""

    def __init__(
        self, plan: Plan, fragments: Fragments, *, n_partitions: int, seed: int, alone: Alone
    ) -> None:
        super().__init__(None, plan, fragments, run=uuid.uuid4().hex, n_partitions=n_partitions)
        self.native = {name: each for name, each in self.native.items() if each.by_workers}
        self._random = random.Random(seed)
        self._alone, self._n_jobs = alone, 0

    def run(self, given: Sequence[WireRow], task: JobTask, files: Any = None) -> JobResult:
        """Carry what the driver sends through all fragments."""
        calls = [
            WireRow(fragment.number, WAKE, task.rounds[-1].number, part)
            for fragment in self._fragments.fragments
            if fragment.keyed
            for part in range(self._n_partitions)
        ]
        rows = [*given, *calls, *self.pointers(files or {})]
        self._n_jobs += 1
        if self._alone(self._n_jobs - 1):
            self._random.shuffle(rows)
            return read_job_result(
                pa.Table.from_batches(run_all_fragments(self._plans, task, [to_wire(rows)]), schema=SCHEMA)
            )
        for fragment in self._plans:
            rows += self._carried(
                fragment, task, [row for row in rows if row.fragment == fragment.fragment.number]
            )
        back = to_wire([row for row in rows if row.fragment == DRIVER])
        return read_job_result(pa.Table.from_batches([back], schema=SCHEMA))

    def _carried(self, fragment: FragmentPlan, task: JobTask, rows: list[WireRow]) -> list[WireRow]:
        self._random.shuffle(rows)
        parts: dict[int, list[WireRow]] = {}
        for row in rows:
            place = row.part if fragment.fragment.keyed else self._random.randrange(self._n_partitions)
            parts.setdefault(place, []).append(row)
        return [
            sent
            for part in parts.values()
            for batch in run_fragment(fragment, task, iter([to_wire(part)]))
            for sent in from_wire(batch)
        ]


class InProcessRun:
    """A run that is over when it has been made."""

    def __init__(self, rounds: DriverLoop, checkpoint: Checkpoint) -> None:
        self._rounds = rounds
        try:
            rounds.open()
            while rounds.turn():
                pass
        finally:
            try:
                rounds.close()
            finally:
                checkpoint.close()
        outcome = "drained" if rounds.drained else "stopped"
        self._result = RunResult(outcome, rounds.batches, rounds.accounts, rounds.tables())

    def wait(self, timeout: float | None = None) -> RunResult:
        """What it gave."""
        return self._result

    def stop(self) -> None:
        """It has stopped."""

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts."""
        return self._rounds.accounts


class InProcessSparkEngine:
    """The engine of the fragments, for `run(engine=InProcessSparkEngine())`."""

    name = "fragments here"

    def __init__(self, n_partitions: int = 3, seed: int = 0, *, alone: Alone = lambda job: False) -> None:
        self._n_partitions, self._seed, self._alone = n_partitions, seed, alone

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Spark's own."""
        return SparkEngine().gaps(plan)

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> InProcessRun:
        """Run the plan to its end."""
        checkpoint = Checkpoint(options.checkpoint, describe_graph(plan))
        fragments = split_into_fragments(plan)
        rounds = DriverLoop(
            plan,
            fragments,
            InProcessJobs(
                plan, fragments, n_partitions=self._n_partitions, seed=self._seed, alone=self._alone
            ),
            checkpoint,
            clock=clock,
            events=events,
            until=options.until,
            drain=options.drain,
            n_partitions=self._n_partitions,
        )
        return InProcessRun(rounds, checkpoint)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """None."""
        raise NotSupported("not fed by hand")

    def explain(self, plan: Plan) -> Sequence[str]:
        """Spark's own."""
        return SparkEngine().explain(plan)
