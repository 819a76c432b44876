"""One Spark job per turn of the run: the rounds at hand, through all legs, back to the driver.

Legs are lazy DataFrames over wire rows: exchanged by part where a leg is keyed, carried by `mapInArrow`, kept
while a later leg and the driver both want what came out. Nothing is computed twice, and the driver asks once.
Where there is little to do one task carries all legs, part by part: the same work in the same order of parts,
without exchanges, whose planning alone takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engines.spark.came import Came, came
from penstock.engines.spark.leg_plan import LegPlan, RoundPlan, Task, leg_plan, sends_on
from penstock.engines.spark.legs import DRIVER, Legs
from penstock.engines.spark.native import Native, beside
from penstock.engines.spark.native_chain import Chain, chains_of
from penstock.engines.spark.native_groups import GroupForm
from penstock.engines.spark.native_source import NativeBatch
from penstock.engines.spark.tasks import run_alone, run_leg
from penstock.engines.spark.wire import SCHEMA, SPARK_SCHEMA, WAKE, Sent, to_wire
from penstock.errors import EngineError
from penstock.expr.failure import reason_of
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Files = Mapping[int, Mapping[str, NativeBatch]]
"""round -> source -> the batch that Spark reads for it."""
Carry = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

LITTLE_SENT, LITTLE_KEPT, LITTLE_WORK = 1 << 20, 1 << 23, 100_000
"""One task carries a turn with at most so many bytes of rows and of state, if the turn before it kept workers
busy for at most so many microseconds."""


class Jobs:
    """Runs the legs of one plan on a session."""

    def __init__(self, spark: SparkSession, plan: Plan, legs: Legs, *, run: str, n_parts: int) -> None:
        self._spark, self._legs, self._n_parts = spark, legs, n_parts
        self._plans = [leg_plan(plan, legs, leg.number, run=run, n_parts=n_parts) for leg in legs.legs]
        self._sends_on = [sends_on(plan, legs, leg.number) for leg in legs.legs]
        self._worked = 0
        chains = chains_of(plan, legs) if legs.legs else []
        self.native = {chain.source.name: self._native(plan, chain) for chain in chains}

    def _native(self, plan: Plan, chain: Chain) -> Native:
        edge = None if chain.window is None else self._legs.parts[chain.window.name]
        return Native(self._spark, plan, chain, edge)

    def run(self, given: Sequence[Sent], task: Task, files: Files) -> Came:
        """Carry what the driver sends, and what Spark reads itself, through all legs."""
        if not given and not files and not any(leg.keyed for leg in self._legs.legs):
            return Came()
        if self._is_little(given, task, files):
            work = _alone(self._plans, task)
            found = came(self._given(given, task).coalesce(1).mapInArrow(work, SPARK_SCHEMA).toArrow())
        else:
            found = self._spread(given, task, files)
        self._worked = found.worked
        return found

    def _is_little(self, given: Sequence[Sent], task: Task, files: Files) -> bool:
        """Whether one task is enough: little to carry, little to keep, and little to do the last time."""
        n_sent = sum(len(sent.body or b"") for sent in given)
        n_kept = sum(length for places in task.state.values() for _, _, length in places.values())
        return not files and n_sent <= LITTLE_SENT and n_kept <= LITTLE_KEPT and self._worked <= LITTLE_WORK

    def _spread(self, given: Sequence[Sent], task: Task, files: Files) -> Came:
        """One task for every part, legs one after the other, with exchanges between them."""
        kept: list[DataFrame] = []
        frames = [self._given(given, task)]
        for frame, goes_on in self._read(task, files):
            kept += [frame.persist()] if goes_on else []
            frames.append(frame)
        for leg, plan, goes_on in zip(self._legs.legs, self._plans, self._sends_on, strict=True):
            if not leg.keyed and all(sent.leg != leg.number for sent in given):
                continue
            taken = [frame.where(f"leg = {leg.number}") for frame in frames]
            frame, form = self._with_groups(_together(taken), leg.number, task, files)
            if leg.keyed:
                frame = frame.repartitionById(self._n_parts, "part")
            frame = frame.mapInArrow(_work(plan, task, form), SPARK_SCHEMA)
            kept += [frame.persist()] if goes_on else []
            frames.append(frame)
        results = [frame.where(f"leg = {DRIVER}") for frame in frames[1:]]
        try:
            return came(_together(results).toArrow())
        finally:
            for frame in kept:
                frame.unpersist()

    def _read(self, task: Task, files: Files) -> list[tuple[DataFrame, bool]]:
        """The rows that Spark reads itself and that have passed leg 0; and whether they go on from there."""
        found = []
        for round_, native, batch in self._batches(task, files):
            frame = native.rows(batch, self._plans[0], round_)
            if frame is not None:
                found.append((frame, native.leg is None and len(self._legs.legs) > 1))
        return found

    def _with_groups(
        self, wire: DataFrame, leg: int, task: Task, files: Files
    ) -> tuple[DataFrame, GroupForm | None]:
        """What is on the wire for a leg, and beside it what Spark has grouped for it."""
        made = [
            (native, native.groups(batch, round_, self._n_parts))
            for round_, native, batch in self._batches(task, files)
            if native.leg == leg
        ]
        if not made:
            return wire, None
        return beside(wire, _together([groups for _, groups in made])), made[0][0].form

    def _batches(self, task: Task, files: Files) -> Iterator[tuple[RoundPlan, Native, NativeBatch]]:
        for round_ in task.rounds:
            for source, batch in files.get(round_.number, {}).items():
                yield round_, self.native[source], batch

    def _given(self, given: Sequence[Sent], task: Task) -> DataFrame:
        """What the driver sends, and a call to every part of every keyed leg: watermarks concern all."""
        last = task.rounds[-1].number
        calls = [
            Sent(leg.number, WAKE, last, part)
            for leg in self._legs.legs
            if leg.keyed
            for part in range(self._n_parts)
        ]
        table = pa.Table.from_batches([to_wire([*given, *calls])], schema=SCHEMA)
        try:
            return self._spark.createDataFrame(table)
        except OSError as cause:
            raise EngineError(
                f"rows cannot be handed to Spark: {reason_of(cause)}",
                hint="make room in the folder for temporary files, or name another with TMPDIR",
            ) from cause


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def _work(plan: LegPlan, task: Task, form: GroupForm | None) -> Carry:
    """What Spark ships: steps with the users' functions in them, and what is to be done."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_leg(plan, task, batches, form)

    return work


def _alone(plans: Sequence[LegPlan], task: Task) -> Carry:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_alone(plans, task, batches)

    return work
