"""The legs of a plan carried in this process: everything of the Spark engine but Spark.

Rounds, legs, wire, state files, checkpoint and sinks are the real ones; only the job that hands wire rows
from leg to leg is plain Python. Files are read as Spark's workers read them, and never by a JVM. So thousands
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
from penstock.engines.checkpoint.checkpoint import Checkpoint, described
from penstock.engines.protocol import EngineHarness, Gap, RunOptions, RunResult
from penstock.engines.spark.driver.jobs import Jobs
from penstock.engines.spark.driver.loop import Rounds
from penstock.engines.spark.driver.reports import Came, came
from penstock.engines.spark.engine import SparkEngine
from penstock.engines.spark.fragment_plan import LegPlan, Task
from penstock.engines.spark.fragments import DRIVER, Legs, cut
from penstock.engines.spark.wire import SCHEMA, WAKE, Sent, from_wire, to_wire
from penstock.engines.spark.worker.task import run_alone, run_leg
from penstock.errors import NotSupported
from penstock.events import EventSink
from penstock.plan.plan import Plan

Alone = Callable[[int], bool]


class JobsHere(Jobs):
    """A job as a loop over legs and parts; of `alone` jobs, numbered from 0, one task carries all legs."""

    def __init__(self, plan: Plan, legs: Legs, *, n_parts: int, seed: int, alone: Alone) -> None:
        super().__init__(None, plan, legs, run=uuid.uuid4().hex, n_parts=n_parts)
        self.native = {name: each for name, each in self.native.items() if each.by_workers}
        self._random = random.Random(seed)
        self._alone, self._n_jobs = alone, 0

    def run(self, given: Sequence[Sent], task: Task, files: Any = None) -> Came:
        """Carry what the driver sends through all legs."""
        calls = [
            Sent(leg.number, WAKE, task.rounds[-1].number, part)
            for leg in self._legs.legs
            if leg.keyed
            for part in range(self._n_parts)
        ]
        rows = [*given, *calls, *self.pointers(files or {})]
        self._n_jobs += 1
        if self._alone(self._n_jobs - 1):
            self._random.shuffle(rows)
            return came(pa.Table.from_batches(run_alone(self._plans, task, [to_wire(rows)]), schema=SCHEMA))
        for leg_plan in self._plans:
            rows += self._carried(leg_plan, task, [row for row in rows if row.leg == leg_plan.leg.number])
        back = to_wire([row for row in rows if row.leg == DRIVER])
        return came(pa.Table.from_batches([back], schema=SCHEMA))

    def _carried(self, leg_plan: LegPlan, task: Task, rows: list[Sent]) -> list[Sent]:
        self._random.shuffle(rows)
        parts: dict[int, list[Sent]] = {}
        for row in rows:
            place = row.part if leg_plan.leg.keyed else self._random.randrange(self._n_parts)
            parts.setdefault(place, []).append(row)
        return [
            sent
            for part in parts.values()
            for batch in run_leg(leg_plan, task, iter([to_wire(part)]))
            for sent in from_wire(batch)
        ]


class HereRun:
    """A run that is over when it has been made."""

    def __init__(self, rounds: Rounds, checkpoint: Checkpoint) -> None:
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


class LegsHere:
    """The engine of the legs, for `run(engine=LegsHere())`."""

    name = "legs here"

    def __init__(self, n_parts: int = 3, seed: int = 0, *, alone: Alone = lambda job: False) -> None:
        self._n_parts, self._seed, self._alone = n_parts, seed, alone

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Spark's own."""
        return SparkEngine().gaps(plan)

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> HereRun:
        """Run the plan to its end."""
        checkpoint = Checkpoint(options.checkpoint, described(plan))
        legs = cut(plan)
        rounds = Rounds(
            plan,
            legs,
            JobsHere(plan, legs, n_parts=self._n_parts, seed=self._seed, alone=self._alone),
            checkpoint,
            clock=clock,
            events=events,
            until=options.until,
            drain=options.drain,
            n_parts=self._n_parts,
        )
        return HereRun(rounds, checkpoint)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """None."""
        raise NotSupported("not fed by hand")

    def explain(self, plan: Plan) -> Sequence[str]:
        """Spark's own."""
        return SparkEngine().explain(plan)
