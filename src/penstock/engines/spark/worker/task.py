"""A task in a Python worker of Spark: some rounds through one fragment, or through all fragments at once.

State is resumed from where the last job left it: warm in this process if that was here, else from the state
files. Invariant: warm state serves only the job right after the one that left it; if that one was not
committed, because a step failed, its name is never asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engines.spark.fragments import DRIVER, FragmentPlan, JobTask, RoundPlan
from penstock.engines.spark.wire import SCHEMA, Kind, WireRow, from_wire, report, to_wire
from penstock.engines.spark.worker.files import FileSplit
from penstock.engines.spark.worker.operators import FragmentInput, FragmentTask
from penstock.engines.wire import failure_to_dict
from penstock.frozen import dataclass

ALIVE, FAILED = 0, -1
"""Outcomes of rows before fragment 0; a row that filter i of a pipeline in the JVM dropped has i + 1."""
_ROWS_PER_BATCH = 1024
"""Wire rows in one Arrow batch."""
_MOST_RUNS = 8
"""Runs whose state is kept warm in one worker; the oldest are dropped."""


@dataclass(slots=True)
class WarmTask:
    """A fragment on one partition as a job left it."""

    task: FragmentTask
    job: str


_WARM: dict[tuple[str, int, int], WarmTask] = {}


def run_fragment(
    plan: FragmentPlan, task: JobTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs one partition of a fragment.

    Wire rows for other fragments are passed on, so that a job is one line of fragments and nothing is
    computed twice.
    """
    inputs = FragmentInput(plan)
    for batch in batches:
        own = pc.equal(batch.column("fragment"), plan.fragment.number)
        inputs.add_batch(batch.filter(own))
        passed_on = batch.filter(pc.invert(own)).select(SCHEMA.names)
        if passed_on.num_rows:
            yield passed_on
    yield from to_wire_batches(_run_timed(plan, task, inputs))


def run_all_fragments(
    plans: Sequence[FragmentPlan], task: JobTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs all fragments in one task, partition by partition: for little work that beats an exchange."""
    pending: dict[tuple[int, int], list[WireRow]] = {}
    output: list[WireRow] = []

    def send(row: WireRow) -> None:
        keyed = plans[row.fragment].fragment.keyed
        pending.setdefault((row.fragment, row.partition if keyed else 0), []).append(row)

    for batch in batches:
        for row in from_wire(batch):
            send(row)
    for number, plan in enumerate(plans):
        for partition in range(plan.n_partitions if plan.fragment.keyed else 1):
            inputs = FragmentInput(plan)
            inputs.add(pending.pop((number, partition), []))
            for row in _run_timed(plan, task, inputs):
                if row.fragment == DRIVER:
                    output.append(row)
                else:
                    send(row)
    yield from to_wire_batches(output)


def to_wire_batches(rows: Sequence[WireRow]) -> Iterator[pa.RecordBatch]:
    """Yields wire rows as Arrow batches of bounded length."""
    for start in range(0, len(rows), _ROWS_PER_BATCH):
        yield to_wire(rows[start : start + _ROWS_PER_BATCH])


def _run_timed(plan: FragmentPlan, task: JobTask, inputs: FragmentInput) -> list[WireRow]:
    if not plan.fragment.keyed and not inputs.rows and not inputs.splits:
        return []
    began = time.perf_counter_ns()
    output = _run_rounds(plan, task, inputs)
    took_us = (time.perf_counter_ns() - began) // 1000
    return [*output, report(Kind.WORK_TIME, task.rounds[-1].number, inputs.partition, {"us": took_us})]


def _run_rounds(plan: FragmentPlan, task: JobTask, inputs: FragmentInput) -> list[WireRow]:
    """Runs all rounds of a job on one partition; every failure is returned as a report."""
    partition, at, round_ = inputs.partition, 0, task.rounds[0]
    output: list[WireRow] = []
    work: FragmentTask | None = None
    try:
        work = _resume(plan, task, partition)
        for round_ in task.rounds:
            output += _read_splits(plan, work, round_, inputs.splits.pop(round_.number, []))
            output += work.run_round(round_, inputs)
        work.at = 0
        output += work.save(task)
    except _UnreadableSplit as unreadable:
        return [report_outcomes(unreadable.source, {FAILED: unreadable.n_rows}, round_, partition)]
    except Exception as failure:
        at = 0 if work is None else work.at
        return [report(Kind.FAILURE, round_.number, partition, failure_to_dict(failure, at))]
    keep_warm(plan, work, partition, task.job)
    return output


def report_outcomes(source: str, outcomes: Mapping[int, int], round_: RoundPlan, partition: int) -> WireRow:
    """Returns the report of how many rows of a source had which outcome before fragment 0."""
    counts = {str(outcome): n_rows for outcome, n_rows in outcomes.items()}
    return report(Kind.OUTCOMES, round_.number, partition, {"source": source, "outcomes": counts})


def _read_splits(
    plan: FragmentPlan, work: FragmentTask, round_: RoundPlan, splits: Sequence[FileSplit]
) -> Iterator[WireRow]:
    for split in splits:
        read_plan = plan.reads[split.source]
        try:
            for batch in read_plan.read(split):
                yield from work.run_rows(read_plan.ref, batch, round_)
        except Exception as failure:
            raise _UnreadableSplit(split) from failure


class _UnreadableSplit(Exception):
    """A split could not be read, or a row of it failed.

    The driver is told no more than that: it reads the batch again, with all columns, and finds out which
    file, or which row, it was.
    """

    def __init__(self, split: FileSplit) -> None:
        super().__init__(split.path)
        self.source, self.n_rows = split.source, split.n_rows


def _resume(plan: FragmentPlan, task: JobTask, partition: int) -> FragmentTask:
    """Returns the partition as the right job left it here; else built anew from the state files."""
    if not plan.fragment.keyed:
        return resume_first_fragment(plan, partition)
    warm = _WARM.pop((plan.run, plan.fragment.number, partition), None)
    if warm is not None and warm.job == task.after:
        return warm.task
    work = FragmentTask(plan, partition)
    work.restore(task.state, task.files)
    return work


def resume_first_fragment(plan: FragmentPlan, partition: int) -> FragmentTask:
    """Returns fragment 0, which keeps no state: as it was left here, or built anew."""
    warm = _WARM.pop((plan.run, plan.fragment.number, 0), None)
    work = FragmentTask(plan, partition) if warm is None else warm.task
    work.partition = partition
    return work


def keep_warm(plan: FragmentPlan, work: FragmentTask, partition: int, job: str) -> None:
    """Keeps a fragment on one partition for the next task that comes to this worker."""
    place = (plan.run, plan.fragment.number, partition if plan.fragment.keyed else 0)
    _WARM[place] = WarmTask(work, job)
    runs = list(dict.fromkeys(run for run, _, _ in _WARM))
    for run in runs[:-_MOST_RUNS]:
        for known in [known for known in _WARM if known[0] == run]:
            del _WARM[known]
