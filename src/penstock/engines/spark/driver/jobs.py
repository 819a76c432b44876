"""Spark jobs: the rounds of one micro-batch, through all fragments, back to the driver.

Fragments are lazy DataFrames over wire rows, one behind the other: exchanged by partition where a fragment is
keyed, run by `mapInArrow`, which passes on what is for others. Nothing is computed twice, and the driver asks
once. Where there is little to do one task runs all fragments, partition by partition: the same work in the
same order, without exchanges, whose planning alone takes longer.

Failures of steps come back as data (`engines/wire.py`); `translate_failure` is for what Spark itself raises.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.checkpoint.state_files import StateHandle, state_size
from penstock.engines.spark.closures import require_picklable
from penstock.engines.spark.file_splits import FileSplit, RemoteBatch, split_files
from penstock.engines.spark.fragment_task import FAILED, load_plans, run_all_fragments, run_fragment
from penstock.engines.spark.fragments import (
    DRIVER,
    JobTask,
    RoundPlan,
    plan_fragment,
    split_into_fragments,
)
from penstock.engines.spark.jvm_source import RemoteSource
from penstock.engines.spark.read_placement import source_pipelines
from penstock.engines.spark.wire import NO_EDGE, SCHEMA, SPARK_SCHEMA, Kind, WireRow, from_wire, to_wire
from penstock.engines.wire import failure_from_dict
from penstock.errors import EngineError, FunctionError, PenstockError, describe_cause
from penstock.frozen import dataclass
from penstock.operators.rows import user_function
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""
RemoteBatches = Mapping[int, Mapping[str, RemoteBatch]]
"""round -> source -> the batch that is read outside of the driver."""

SMALL_INPUT, SMALL_STATE, SMALL_WORK = 1 << 20, 1 << 23, 100_000
"""One task runs a micro-batch with at most so many bytes of rows and of state, if the one before it kept
workers busy for at most so many microseconds."""
ROW_WEIGHT = 8
"""What a row in a file counts for among bytes that are sent: it is quickly read."""
_DIED = re.compile(r"Python worker (process )?(exited|crashed|terminated)")
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


@dataclass(slots=True)
class JobResult:
    """What a job gave the driver.

    rows      edge -> round -> packed batches, in a fixed order
    accounts  (round, step -> what a partition counted)
    state     step -> bucket -> where its newest piece is
    failure   what stopped the first step that failed, if one did
    outcomes  (round, source) -> outcome -> the number of its rows that had it before fragment 0
    reasons   round -> step -> why a row of it failed
    work_us   how long workers were at work, all added up, in microseconds
    job       the name of the job
    """

    rows: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    accounts: list[tuple[int, Mapping[str, Mapping[str, Any]]]] = field(default_factory=list)
    state: dict[str, dict[int, StateHandle]] = field(default_factory=dict)
    failure: PenstockError | None = None
    outcomes: dict[tuple[int, str], Counter[int]] = field(default_factory=dict)
    reasons: dict[int, dict[str, str]] = field(default_factory=dict)
    work_us: int = 0
    job: str = ""

    @property
    def has_failed_rows(self) -> bool:
        """Return whether rows failed before fragment 0, or could not be read; the driver finds out which."""
        return any(outcomes[FAILED] for outcomes in self.outcomes.values())


def read_job_result(table: pa.Table) -> JobResult:
    """Sort out the wire rows of a job; their order does not depend on which task was first."""
    result, failures = JobResult(), []
    for row in sorted(from_wire(table), key=lambda row: (row.round, row.edge, row.partition)):
        assert row.body is not None, "what comes back has a body"
        if row.kind is Kind.BATCH:
            result.rows.setdefault(row.edge, {}).setdefault(row.round, []).append(row.body)
            continue
        message = json.loads(row.body)
        if row.kind is Kind.ACCOUNTS:
            result.accounts.append((row.round, message))
        elif row.kind is Kind.STATE:
            for step, places in message.items():
                result.state.setdefault(step, {}).update({b: StateHandle(*place) for b, place in places})
        elif row.kind is Kind.OUTCOMES:
            counts = result.outcomes.setdefault((row.round, message["source"]), Counter())
            counts.update({int(outcome): n for outcome, n in message["outcomes"].items()})
        elif row.kind is Kind.REASONS:
            result.reasons.setdefault(row.round, {}).update(message)
        elif row.kind is Kind.WORK_TIME:
            result.work_us += message["us"]
        elif row.kind is Kind.FAILURE:
            failures.append((row.round, message["order"], message))
    if failures:
        *_, first = min(failures, key=lambda failure: failure[:2])
        result.failure = failure_from_dict(first)
    return result


class SparkJobs:
    """Runs the fragments of one plan on a session.

    remote  the sources that the driver does not read, by name
    """

    def __init__(self, spark: SparkSession, plan: Plan, n_partitions: int) -> None:
        self._spark, self._run, self.n_partitions = spark, uuid.uuid4().hex, n_partitions
        self.fragments, self._work_us = split_into_fragments(plan), 0
        self._broadcast: Broadcast[bytes] | None = None
        self._n_tasks = n_partitions if spark is None else spark.sparkContext.defaultParallelism
        self.remote = {
            pipeline.source.name: RemoteSource(spark, plan, pipeline, self.fragments, n_partitions)
            for pipeline in (source_pipelines(plan) if self.fragments.fragments else ())
        }
        self._plans = [
            plan_fragment(plan, self.fragments, number, run=self._run, n_partitions=n_partitions)
            for number in range(len(self.fragments.fragments))
        ]
        if self._plans:
            reads = {name: source.read_plan for name, source in self.remote.items() if source.by_workers}
            self._plans[0] = replace(self._plans[0], reads=reads)

    def run(
        self, rows: Sequence[WireRow], task: JobTask, remote: RemoteBatches, frame: DataFrame | None = None
    ) -> JobResult:
        """Run what the driver sends, and what is read elsewhere, through all fragments.

        rows   with the splits that workers are to read
        frame  the same rows, and those that wake partitions up, if Spark has them already
        """
        if not rows and not remote and not any(fragment.keyed for fragment in self.fragments.fragments):
            return JobResult()
        in_jvm = [
            (round_, source, batch)
            for round_ in task.rounds
            for source, batch in remote.get(round_.number, {}).items()
            if not batch.by_workers
        ]
        if frame is None:
            frame = self._frame(rows, task.rounds[-1].number)
        if not in_jvm and self._is_small(rows, task):
            frame = frame.coalesce(1).mapInArrow(self._function(task, None), SPARK_SCHEMA)
        else:
            frame = self._spread(frame, rows, task, in_jvm)
        result = read_job_result(frame.toArrow())
        self._work_us = result.work_us
        return result

    def close(self) -> None:
        """Release what workers hold of this run."""
        if self._broadcast is not None:
            with suppress(Exception):  # Spark may have been stopped
                self._broadcast.destroy()

    def splits(self, remote: RemoteBatches) -> list[WireRow]:
        """Return which files workers are to read, in splits for all tasks."""
        return [
            WireRow(0, Kind.READ, NO_EDGE, round_, 0, split.to_bytes())
            for round_, batches in remote.items()
            for source, batch in batches.items()
            if batch.by_workers
            for split in split_files(source, batch, self._n_tasks)
        ]

    def wake_ups(self, round_: int) -> list[WireRow]:
        """Return a call to every partition of every keyed fragment: watermarks concern all."""
        return [
            WireRow(fragment.number, Kind.WAKE, NO_EDGE, round_, partition)
            for fragment in self.fragments.fragments
            if fragment.keyed
            for partition in range(self.n_partitions)
        ]

    def _is_small(self, rows: Sequence[WireRow], task: JobTask) -> bool:
        """Return whether one task is enough: little to send, little state, and little work the last time."""
        nbytes, (state_nbytes, _) = sum(map(_weight, rows)), state_size(task.state)
        return nbytes <= SMALL_INPUT and state_nbytes <= SMALL_STATE and self._work_us <= SMALL_WORK

    def tasks(self, rows: Sequence[WireRow], round_: int) -> list[list[WireRow]]:
        """Return the rows, and those that wake partitions up, for tasks that have equal work."""
        return balance_slots([*rows, *self.wake_ups(round_)], self._n_tasks, round_)

    def _spread(
        self,
        frame: DataFrame,
        rows: Sequence[WireRow],
        task: JobTask,
        in_jvm: Sequence[tuple[RoundPlan, str, RemoteBatch]],
    ) -> DataFrame:
        """Return one task for every partition, fragments one after the other, with exchanges between them.

        What a fragment is not asked to do it passes on, so that what is for the driver is there at the end.
        """
        plans = self._broadcast_plans()
        for fragment in self.fragments.fragments:
            if fragment.keyed:
                frame = frame.repartitionById(self.n_partitions, "partition")
            if fragment.keyed or any(row.fragment == fragment.number for row in rows):
                frame = frame.mapInArrow(self._function(task, fragment.number), SPARK_SCHEMA)
            if not fragment.keyed:
                for round_, source, batch in in_jvm:
                    frame = frame.unionAll(self.remote[source].wire_rows(batch, round_, plans))
        return frame.where(f"fragment = {DRIVER}")

    def _function(self, task: JobTask, number: int | None) -> ArrowFunction:
        """Return what Spark ships for a fragment, or for all: where plans are, and what is to be done."""
        plans = self._broadcast_plans()

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if number is None:
                return run_all_fragments(load_plans(plans.value), task, batches)
            return run_fragment(load_plans(plans.value)[number], task, batches)

        return run

    def _broadcast_plans(self) -> Broadcast[bytes]:
        """Return the plans as they are sent once to every worker: with functions, and tables to join."""
        from pyspark import cloudpickle

        if self._broadcast is None:
            try:
                pickled = cloudpickle.dumps(tuple(self._plans))
            except Exception:  # whatever a __reduce__ of the user's raises
                self._refuse_unpicklable()
                raise
            try:
                self._broadcast = self._spark.sparkContext.broadcast(pickled)
            except OSError as cause:
                raise no_room_error(cause) from cause
        return self._broadcast

    def _refuse_unpicklable(self) -> None:
        """Raise for the first step that cannot be sent to workers."""
        for step in (step for fragment in self.fragments.fragments for step in fragment.steps):
            try:
                require_picklable(f'step "{step.name}"', step.op)
            except FunctionError as error:
                raise error.at(step.name, step.where) from None

    def _frame(self, rows: Sequence[WireRow], round_: int) -> DataFrame:
        """Return what the driver sends, balanced over all tasks, as a DataFrame."""
        table = pa.Table.from_batches(map(to_wire, self.tasks(rows, round_)), schema=SCHEMA)
        try:
            return self._spark.createDataFrame(table)
        except OSError as cause:
            raise no_room_error(cause) from cause


def no_room_error(cause: OSError) -> EngineError:
    """Return the error for input of a job that could not be written down for Spark."""
    return EngineError(
        f"rows cannot be handed to Spark: {describe_cause(cause)}",
        hint="make room in the folder for temporary files, or name another with TMPDIR",
    )


def _weight(row: WireRow) -> int:
    """Return how much there is to do for a wire row, in bytes."""
    if row.kind is Kind.READ and row.body is not None:
        return FileSplit.from_bytes(row.body).n_rows * ROW_WEIGHT
    return len(row.body or b"")


def balance_slots(rows: Sequence[WireRow], n_slots: int, round_: int) -> list[list[WireRow]]:
    """Return wire rows in slots of one length, which are equal work: Spark slices a table evenly."""
    slots: list[list[WireRow]] = [[] for _ in range(n_slots)]
    weights = [0] * n_slots
    for row in sorted(rows, key=_weight, reverse=True):
        lightest = min(range(n_slots), key=lambda slot: (weights[slot], len(slots[slot])))
        weights[lightest] += _weight(row)
        slots[lightest].append(replace(row, partition=lightest) if row.kind is Kind.READ else row)
    longest = max(len(slot) for slot in slots)
    for number, slot in enumerate(slots):
        slot.extend([WireRow(0, Kind.WAKE, NO_EDGE, round_, number)] * (longest - len(slot)))
    return slots


def translate_failure(failure: BaseException, plan: Plan) -> BaseException:
    """Return what Spark raised as an error of ours; everything else as it is."""
    if not type(failure).__module__.startswith(("pyspark", "py4j")):
        return failure
    reasons = re.findall(r"^(?:Caused by: |: )?([\w.$]*(?:Exception|Error): .+)", str(failure), re.MULTILINE)
    missing = _MISSING.search(str(failure))
    if _DIED.search(str(failure)):
        error = _worker_died(plan)
    elif missing is not None:
        error = EngineError(
            f'a Python worker of Spark cannot import "{missing[1]}"',
            detail="functions of the graph need it where the workers run",
            hint="install it there, let PYSPARK_PYTHON name a Python that has it, or send it with a session "
            f'of yours, SparkOptions(session=…): session.addArtifacts("{missing[1].partition(".")[0]}.zip", '
            "pyfile=True)",
        )
    elif _OTHER_PYTHON in str(failure):
        error = EngineError(
            "a Python worker of Spark has another Python than this program",
            detail=[*reasons, str(failure)[:500]][0],
            hint='let both have the same, os.environ["PYSPARK_PYTHON"] = sys.executable before Spark starts; '
            "on a cluster the path of such a Python on its machines",
        )
    else:
        error = EngineError("Spark failed to run a batch", detail=[str(failure)[:500], *reasons][-1])
    error.__cause__ = failure
    return error


def _worker_died(plan: Plan) -> EngineError:
    """Return the error for a worker that died: only users' functions can have ended it."""
    steps = [
        step
        for step in plan
        if user_function(step.op) is not None or (isinstance(step.op, Windows) and step.op.function)
    ]
    names = ", ".join(f'"{step.name}"' for step in steps)
    return EngineError(
        "a Python worker of Spark died, and died again whenever Spark tried once more",
        step=steps[0].name if len(steps) == 1 else None,
        where=steps[0].where if len(steps) == 1 else None,
        detail=f"steps with Python functions: {names}" if names else "no step has a Python function",
        hint="look for os._exit, a crash in native code, or too little memory for a worker; "
        'engine="reference" runs the functions in this process',
    )
