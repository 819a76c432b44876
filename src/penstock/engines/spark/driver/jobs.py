"""One Spark job per turn of the run: the rounds at hand, through all legs, back to the driver.

Legs are lazy DataFrames over wire rows, one behind the other: exchanged by part where a leg is keyed, carried
by `mapInArrow`, which passes on what is for others. Nothing is computed twice, and the driver asks once.
Where there is little to do one task carries all legs, part by part: the same work in the same order of parts,
without exchanges, whose planning alone takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engines.checkpoint.state_files import kept
from penstock.engines.spark.driver.reports import Came, came
from penstock.engines.spark.fragment_plan import LegPlan, RoundPlan, Task, leg_plan
from penstock.engines.spark.fragments import DRIVER, Legs
from penstock.engines.spark.jvm.carry import Native, beside
from penstock.engines.spark.jvm.groups import GroupForm
from penstock.engines.spark.jvm.pipeline import Chain, chains_of
from penstock.engines.spark.jvm.source import NativeBatch
from penstock.engines.spark.wire import READ, SCHEMA, SPARK_SCHEMA, WAKE, Sent, to_wire
from penstock.engines.spark.worker.files import FilePiece, pieces_of
from penstock.engines.spark.worker.task import run_alone, run_leg
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
ROW = 8
"""What a row in a file counts for among bytes that are sent: it is quickly read."""


class Jobs:
    """Runs the legs of one plan on a session."""

    def __init__(self, spark: SparkSession, plan: Plan, legs: Legs, *, run: str, n_parts: int) -> None:
        self._spark, self._legs, self._n_parts = spark, legs, n_parts
        self._plans = [leg_plan(plan, legs, leg.number, run=run, n_parts=n_parts) for leg in legs.legs]
        self._worked = 0
        self._n_tasks = n_parts if spark is None else spark.sparkContext.defaultParallelism
        chains = chains_of(plan, legs) if legs.legs else []
        self.native = {chain.source.name: self._native(plan, chain) for chain in chains}
        if chains:
            reads = {name: native.file_form for name, native in self.native.items() if native.by_workers}
            self._plans[0] = replace(self._plans[0], reads=reads)

    def _native(self, plan: Plan, chain: Chain) -> Native:
        edge = None if chain.window is None else self._legs.parts[chain.window.name]
        in_parts = all(name in self._legs.parts for name, _ in plan.readers(chain.last))
        return Native(self._spark, plan, chain, edge, in_parts=in_parts)

    def run(self, given: Sequence[Sent], task: Task, files: Files) -> Came:
        """Carry what the driver sends, and what is read elsewhere, through all legs."""
        if not given and not files and not any(leg.keyed for leg in self._legs.legs):
            return Came()
        given, files = [*given, *self.pointers(files)], _in_the_jvm(files)
        if self._is_little(given, task, files):
            work = _alone(self._plans, task)
            found = came(self._given(given, task).coalesce(1).mapInArrow(work, SPARK_SCHEMA).toArrow())
        else:
            found = self._spread(given, task, files)
        self._worked = found.worked
        return found

    def pointers(self, files: Files) -> list[Sent]:
        """Where the files are that workers read, in pieces for all tasks."""
        return [
            Sent(0, READ, round_, 0, piece.packed())
            for round_, batches in files.items()
            for source, batch in batches.items()
            if batch.by_workers
            for piece in pieces_of(source, batch, self._n_tasks)
        ]

    def _is_little(self, given: Sequence[Sent], task: Task, files: Files) -> bool:
        """Whether one task is enough: little to carry, little to keep, and little to do the last time."""
        n_sent = sum(_weight(sent) for sent in given)
        n_kept, _ = kept(task.state)
        return not files and n_sent <= LITTLE_SENT and n_kept <= LITTLE_KEPT and self._worked <= LITTLE_WORK

    def _spread(self, given: Sequence[Sent], task: Task, files: Files) -> Came:
        """One task for every part, legs one after the other, with exchanges between them.

        What a leg is not asked to do it passes on, so the legs are one line: nothing is computed twice or
        kept, and what is for the driver is there at the end.
        """
        frame = self._given(given, task)
        for leg, plan in zip(self._legs.legs, self._plans, strict=True):
            if leg.keyed or any(sent.leg == leg.number for sent in given):
                frame, form = self._with_groups(frame, leg.number, task, files)
                if leg.keyed:
                    frame = frame.repartitionById(self._n_parts, "part")
                frame = frame.mapInArrow(_work(plan, task, form), SPARK_SCHEMA)
            if not leg.keyed:
                frame = _together([frame, *self._read(task, files)])
        return came(frame.where(f"leg = {DRIVER}").toArrow())

    def _read(self, task: Task, files: Files) -> list[DataFrame]:
        """The rows that the JVM reads and that have passed leg 0."""
        found = [
            native.rows(batch, self._plans[0], round_) for round_, native, batch in self._batches(task, files)
        ]
        return [frame for frame in found if frame is not None]

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
        rows = in_slots([*given, *calls], self._n_tasks, last)
        table = pa.Table.from_batches([to_wire(rows)], schema=SCHEMA)
        try:
            return self._spark.createDataFrame(table)
        except OSError as cause:
            raise EngineError(
                f"rows cannot be handed to Spark: {reason_of(cause)}",
                hint="make room in the folder for temporary files, or name another with TMPDIR",
            ) from cause


def _in_the_jvm(files: Files) -> Files:
    """The files that workers do not read."""
    kept = {
        round_: {source: batch for source, batch in batches.items() if not batch.by_workers}
        for round_, batches in files.items()
    }
    return {round_: batches for round_, batches in kept.items() if batches}


def _weight(sent: Sent) -> int:
    """How much there is to do for a wire row, in bytes."""
    if sent.edge == READ and sent.body is not None:
        return FilePiece.unpacked(sent.body).n_rows * ROW
    return len(sent.body or b"")


def in_slots(given: Sequence[Sent], n_slots: int, round_: int) -> list[Sent]:
    """Wire rows in such an order that Spark's slices of them, all of one length, are equal work."""
    slots: list[list[Sent]] = [[] for _ in range(n_slots)]
    weights = [0] * n_slots
    for sent in sorted(given, key=_weight, reverse=True):
        lightest = min(range(n_slots), key=lambda slot: (weights[slot], len(slots[slot])))
        weights[lightest] += _weight(sent)
        slots[lightest].append(replace(sent, part=lightest) if sent.edge == READ else sent)
    longest = max(len(slot) for slot in slots)
    return [
        sent
        for number, slot in enumerate(slots)
        for sent in _filled(slot, longest, Sent(0, WAKE, round_, number))
    ]


def _filled(slot: list[Sent], length: int, nothing: Sent) -> list[Sent]:
    return slot + [nothing] * (length - len(slot))


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
