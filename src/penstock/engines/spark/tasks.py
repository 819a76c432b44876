"""What Spark's tasks run: a fragment on one partition, all fragments at once, or the reading of sources.

A task takes wire rows and yields wire rows; `fragment_task.py` has the stages. State is resumed from where
the last job left it: warm in this process if that was here, else from the state files. Invariant: warm state
serves only the job right after the one that left it; if that one was not committed, because a step failed,
its name is never asked for.
"""

from __future__ import annotations

import itertools
import pickle
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connect.writers.staged_files import FolderStage
from penstock.engines.spark.file_splits import FileSplit
from penstock.engines.spark.fragment_task import FragmentInput, FragmentTask
from penstock.engines.spark.fragments import DRIVER, FragmentPlan, JobTask, RoundPlan, keeps_state
from penstock.engines.spark.source_task import Read, SourceReport, SourceSplit
from penstock.engines.spark.wire import (
    SCHEMA,
    Kind,
    WireRow,
    from_wire,
    pack_pieces,
    report,
    to_wire,
)
from penstock.engines.wire import failure_to_dict, unpack_batch
from penstock.errors import PenstockError
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map
from penstock.operators.stream_join import StreamJoin
from penstock.plan.plan import Ref
from penstock.stages.rows.batch import Batch

ALIVE, FAILED = 0, -1
"""Outcomes of rows before fragment 0; a row that filter i of a pipeline in the JVM dropped has i + 1."""
_ROWS_PER_BATCH, _BYTES_PER_BATCH = 1024, 1 << 24
"""Wire rows in one Arrow batch, and the bytes after which one is sent."""
MAX_SENT_BYTES = 1 << 18
"""Rows that a task sends to the driver; more go through a file."""
SAMPLED_ROWS = 4096
"""Rows of a split that are looked at for joins before it is read."""
_MOST_PLANS = 4
"""Runs whose plans stay unpickled in one worker."""
_MOST_RUNS = 8
"""Runs whose state is kept warm in one worker; the oldest are dropped."""
WARM_BYTES = 1 << 26
"""Bytes of a run's state, as it is saved, that stay warm in one worker; the oldest partitions are dropped.

As objects of Python they are up to ten times as large.
"""


@contextmanager
def _name_sink(sink: str) -> Iterator[None]:
    """Put the name of a sink into what is raised for it; the driver knows where that is in the program."""
    try:
        yield
    except PenstockError as failure:
        failure.at(sink, None)
        raise


class SinkFiles:
    """The files that one task writes for the sinks of its fragment."""

    def __init__(self, plan: FragmentPlan, task: JobTask, partition: int) -> None:
        self._sinks, self._task, self._partition = plan.sinks, task, partition
        # Why: attempts at one task, and tasks of one job, must never write the same file.
        self._tag = f"{task.job[:12]}-{plan.fragment.number}-{partition}-{uuid.uuid4().hex}"
        self._stages: dict[str, FolderStage] = {}
        self._counts: dict[str, dict[int, int]] = {}

    def write(self, sink: str, batch: Batch, round_: int) -> None:
        """Append rows of a round, unless they are visible already; they are counted all the same."""
        counts = self._counts.setdefault(sink, {})
        counts[round_] = counts.get(round_, 0) + batch.num_rows
        if round_ <= self._task.committed.get(sink, -1):
            return
        with _name_sink(sink):
            if sink not in self._stages:
                writer, schema = self._sinks[sink]
                number = list(self._sinks).index(sink)  # a name may hold what no file name can
                self._stages[sink] = writer.stage(schema, f"{self._tag}-{number}")
            self._stages[sink].write(batch.rows)

    def close(self) -> list[WireRow]:
        """Complete the files and return the report of them."""
        message = {}
        for sink, counts in self._counts.items():
            with _name_sink(sink):
                files = self._stages[sink].close() if sink in self._stages else []
            rows = [[round_, n_rows] for round_, n_rows in counts.items()]
            message[sink] = {"files": [list(asdict(file).values()) for file in files], "rows": rows}
        last = self._task.rounds[-1].number
        return [report(Kind.STAGED, last, self._partition, message)] if message else []

    def abort(self) -> None:
        """Remove the files."""
        for stage in self._stages.values():
            with suppress(Exception):  # what is left is swept by the next run
                stage.abort()


@lru_cache(_MOST_PLANS)
def load_plans(pickled: bytes) -> tuple[FragmentPlan, ...]:
    """Return the plans of all fragments of a run, in a worker; they are unpickled once in each."""
    plans: tuple[FragmentPlan, ...] = pickle.loads(pickled)  # noqa: S301 (the driver's own bytes)
    return plans


def run_fragment(
    plan: FragmentPlan, task: JobTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one partition of a fragment.

    Wire rows for other fragments are passed on, so that a job is one line of fragments and nothing is
    computed twice.
    """

    def own_rows() -> Iterator[WireRow | pa.RecordBatch]:
        for batch in batches:
            own = pc.equal(batch.column("fragment"), plan.fragment.number)
            passed_on = batch.filter(pc.invert(own)).select(SCHEMA.names)
            if passed_on.num_rows:
                yield passed_on
            yield from from_wire(batch.filter(own))

    yield from to_wire_batches(_run_timed(plan, task, own_rows()))


def run_all_fragments(
    plans: Sequence[FragmentPlan], task: JobTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run all fragments in one task, partition by partition: for little work that beats an exchange."""
    pending: dict[tuple[int, int], list[WireRow]] = {}
    output: list[WireRow] = []

    def send(rows: Iterable[WireRow | pa.RecordBatch]) -> None:
        for row in rows:
            assert isinstance(row, WireRow), "all fragments are here"
            if row.fragment == DRIVER:
                output.append(row)
            else:
                partition = row.partition if plans[row.fragment].fragment.keyed else 0
                pending.setdefault((row.fragment, partition), []).append(row)

    for batch in batches:
        send(from_wire(batch))
    for number, plan in enumerate(plans):
        for partition in range(task.n_partitions if plan.fragment.keyed else 1):
            send(_run_timed(plan, task, pending.pop((number, partition), [])))
    yield from to_wire_batches(output)


def to_wire_batches(rows: Iterable[WireRow | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield wire rows as Arrow batches of bounded size; what is one already is passed on."""
    pending: list[WireRow] = []
    nbytes = 0
    for row in rows:
        if not isinstance(row, WireRow):
            yield row
            continue
        pending.append(row)
        nbytes += len(row.body or b"")
        if len(pending) >= _ROWS_PER_BATCH or nbytes >= _BYTES_PER_BATCH:
            yield to_wire(pending)
            pending, nbytes = [], 0
    if pending:
        yield to_wire(pending)


def _run_timed(
    plan: FragmentPlan, task: JobTask, rows: Iterable[WireRow | pa.RecordBatch]
) -> Iterator[WireRow | pa.RecordBatch]:
    """Run a fragment, and report how long it was at work."""
    run = _run_keyed if plan.fragment.keyed else _run_source_rows
    partition, took_ns = yield from _bound_rows(run(plan, task, rows), task)
    if took_ns:
        yield report(Kind.WORK_TIME, task.rounds[-1].number, partition, {"us": took_ns // 1000})


_Run = Generator[WireRow | pa.RecordBatch, None, tuple[int, int]]
"""Yields what leaves; returns the partition, and how long it was at work, in nanoseconds."""


def _bound_rows(output: _Run, task: JobTask) -> _Run:
    """Put rows for the driver that are more than a few into a file, which it reads piece by piece.

    Why: the driver collects what a job sends at once, and that must stay small whatever the rows are.
    """
    n_bytes, file, places = 0, None, list[tuple[int, int, int, int]]()
    name = f"{task.job[:12]}-{uuid.uuid4().hex}.rows"
    while True:
        try:
            row = next(output)
        except StopIteration as end:
            returned: tuple[int, int] = end.value
            break
        if not isinstance(row, WireRow) or row.fragment != DRIVER or row.kind is not Kind.BATCH:
            yield row
            continue
        body = row.body or b""
        n_bytes += len(body)
        if n_bytes <= MAX_SENT_BYTES:
            yield row
            continue
        if file is None:
            file = task.files.open_rows(name)
        places.append((row.edge, row.round, file.tell(), len(body)))
        file.write(body)
    if file is not None:
        file.close()
        message = {"file": name, "places": places}
        yield report(Kind.ROWS_FILE, task.rounds[-1].number, returned[0], message)
    return returned


def _run_keyed(plan: FragmentPlan, task: JobTask, rows: Iterable[WireRow | pa.RecordBatch]) -> _Run:
    """Run all rounds of a job on one partition of a keyed fragment; every failure is a report."""
    inputs = FragmentInput(plan.edges_in)
    for row in rows:
        if isinstance(row, WireRow):
            inputs.add(row)
        else:
            yield row
    began = time.perf_counter_ns()
    partition, round_ = inputs.partition, task.rounds[0]
    work: FragmentTask | None = None
    if inputs.is_empty and _is_idle(plan, partition, task):
        return partition, 0
    try:
        work = begin_task(plan, partition, task)
        for round_ in task.rounds:
            yield from work.run_round(round_, inputs)
        work.at = 0
        yield from work.save(task)
        yield from finish_task(plan, work, task)
    except Exception as failure:
        yield report_failure(work, failure, round_, partition)
    return partition, time.perf_counter_ns() - began


def _run_source_rows(plan: FragmentPlan, task: JobTask, rows: Iterable[WireRow | pa.RecordBatch]) -> _Run:
    """Run the rows of sources through fragment 0 as they come; every failure is a report."""
    work: FragmentTask | None = None
    failed = False
    rounds, partition, began = task.rounds_of_batches, 0, 0
    for row in rows:
        if not isinstance(row, WireRow):
            yield row
            continue
        if row.kind is Kind.WAKE or row.body is None or failed:
            continue
        partition, round_, split = row.partition, task.rounds[0], None
        began = began or time.perf_counter_ns()
        try:
            if work is None:
                work = begin_task(plan, partition, task)
            if row.kind is Kind.SOURCE:
                ref, schema = plan.sources[row.edge]
                if (ref.step, row.round) in rounds:
                    round_ = rounds[ref.step, row.round]
                    yield from work.run_rows(ref, unpack_batch(row.body, schema), round_)
            elif row.kind is Kind.READ:
                split = FileSplit.from_bytes(row.body)
                round_ = rounds[split.source, split.batch]
                for batch in plan.reads[split.source].read(split):
                    yield from work.run_rows(plan.reads[split.source].ref, batch, round_)
            else:
                yield from _read_here(plan, work, task, SourceSplit.from_bytes(row.body))
        except Exception as failure:
            failed = True
            if split is not None:
                # Why no more than that: the batch is read again, with all columns, which finds out which
                # file could not be read, or which row failed.
                abort_task(work)
                yield report_outcomes(split.source, {FAILED: split.n_rows}, round_, partition)
            else:
                yield report_failure(work, failure, round_, partition)
    if work is not None and not failed:
        yield from finish_task(plan, work, task)
    return partition, time.perf_counter_ns() - began if began else 0


def _read_here(
    plan: FragmentPlan, work: FragmentTask, task: JobTask, split: SourceSplit
) -> Iterator[WireRow]:
    """Read a split whose watermark nobody waits for, and run its rows through the fragment."""
    for item in plan.stages[split.source].read(split):
        if isinstance(item, SourceReport):
            yield report_source(item, work.partition)
        else:
            batch, port, rows = item
            yield from work.run_rows(
                Ref(split.source, port), rows, task.rounds_of_batches[split.source, batch]
            )


def sample_joins(
    plan: FragmentPlan, task: JobTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Tell joins of the first rows of splits; a row that fails here does so again, and is told then."""

    def sample() -> Iterator[WireRow]:
        for row in itertools.chain.from_iterable(map(from_wire, batches)):
            if row.kind is Kind.READ and row.body is not None:
                split = FileSplit.from_bytes(row.body)
                reads, round_ = plan.reads[split.source], task.rounds_of_batches[split.source, split.batch]
                with suppress(Exception):
                    work = FragmentTask(plan, row.partition, 1, task.layouts)
                    yield from work.sample(reads.ref, reads.read_first(split, SAMPLED_ROWS), round_)

    yield from to_wire_batches(sample())


def read_source_rows(plan: FragmentPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read splits ahead of their rounds: rows for fragment 0, and reports that say how far time has come."""
    partition = partition_id()

    def read() -> Iterator[WireRow]:
        for batch in batches:
            for row in from_wire(batch):
                if row.kind is Kind.SOURCE_READ and row.body is not None:
                    split = SourceSplit.from_bytes(row.body)
                    rows = plan.stages[split.source].read(split)
                    yield from pack_source_rows(plan, split.source, rows, partition)

    yield from to_wire_batches(read())


def pack_source_rows(
    plan: FragmentPlan, source: str, rows: Iterable[Read], partition: int
) -> Iterator[WireRow]:
    """Yield what a source stage gives as wire rows for fragment 0."""
    numbers = {ref: number for number, (ref, _) in enumerate(plan.sources)}
    for item in rows:
        if isinstance(item, SourceReport):
            yield report_source(item, partition)
            continue
        batch, port, columns = item
        for body in pack_pieces(columns):
            yield WireRow(0, Kind.SOURCE, numbers[Ref(source, port)], batch, partition, body)


def report_source(source_report: SourceReport, partition: int) -> WireRow:
    """Return the report of a source stage as a wire row."""
    message = {name: value for name, value in asdict(source_report).items() if value is not None}
    return report(Kind.SOURCE_REPORT, source_report.batch, partition, message)


def report_outcomes(source: str, outcomes: Mapping[int, int], round_: RoundPlan, partition: int) -> WireRow:
    """Return the report of how many rows of a source had which outcome before fragment 0."""
    counts = {str(outcome): n_rows for outcome, n_rows in outcomes.items()}
    return report(Kind.OUTCOMES, round_.number, partition, {"source": source, "outcomes": counts})


def _is_idle(plan: FragmentPlan, partition: int, task: JobTask) -> bool:
    """Return whether nothing happens on a partition without rows, so that its state need not be there."""
    steps = [step for step in plan.fragment.steps if keeps_state(step)]
    state = [handle for step in steps for handle in task.state_of(step, partition).values()]
    if not all(isinstance(step.op, _KEYED) for step in steps) or not all(handle.idle for handle in state):
        return False
    place = plan.fragment.number, partition, task.n_partitions
    work, job = _WARM.get(plan.run, {}).get(place, (None, ""))
    if work is not None and job == task.after and _has_cells(plan, work, task):
        _WARM[plan.run][place] = work, task.job
    return True


def _has_cells(plan: FragmentPlan, work: FragmentTask, task: JobTask) -> bool:
    """Return whether the joins of a fragment have the cells here that a job gives them."""
    names = [step.name for step in plan.fragment.steps]
    return all(work.layouts.get(name) == task.layouts.get(name) for name in names)


_KEYED = (Accumulate, Filter, FlatMap, Map, StreamJoin)
"""Operators whose state changes by rows alone, or by a watermark that rows wait for: a join without rows has
none."""
_WARM: dict[str, dict[tuple[int, int, int], tuple[FragmentTask, str]]] = {}
"""run -> (fragment, partition, of how many) -> the fragment there as a job left it, and that job."""


def begin_task(plan: FragmentPlan, partition: int, task: JobTask) -> FragmentTask:
    """Return a fragment as the right job left it here; else built anew, with its state from the files.

    Fragment 0 keeps no state, so there any job and any partition will do.
    """
    keyed = plan.fragment.keyed
    place = plan.fragment.number, *((partition, task.n_partitions) if keyed else (0, 0))
    work, job = _WARM.get(plan.run, {}).pop(place, (None, ""))
    if work is None or (keyed and not (job == task.after and _has_cells(plan, work, task))):
        work = FragmentTask(plan, partition, task.n_partitions, task.layouts)
        if keyed:
            work.restore(task)
    work.partition, work.n_partitions, work.layouts = partition, task.n_partitions, task.layouts
    work.files = SinkFiles(plan, task, partition)
    return work


def finish_task(plan: FragmentPlan, work: FragmentTask, task: JobTask) -> Iterator[WireRow]:
    """Yield the last reports of a fragment, and keep it for the next task that comes to this worker."""
    assert isinstance(work.files, SinkFiles), "it has begun"
    yield from work.report_accounts()
    yield from work.report_joins(task.rounds[-1].number)
    yield from work.files.close()
    work.files = None
    of_run = _WARM.pop(plan.run, {})
    at = (work.partition, task.n_partitions) if plan.fragment.keyed else (0, 0)
    of_run[plan.fragment.number, *at] = work, task.job
    _WARM[plan.run] = of_run
    for run in list(_WARM)[:-_MOST_RUNS]:
        del _WARM[run]
    n_saved = sum(warm.n_saved for warm, _ in of_run.values())
    for place, (warm, _) in list(of_run.items()):
        if n_saved > WARM_BYTES and warm.n_saved:
            n_saved -= warm.n_saved
            del of_run[place]


def abort_task(work: FragmentTask | None) -> None:
    """Remove what a task has written for sinks."""
    if work is not None and isinstance(work.files, SinkFiles):
        work.files.abort()


def report_failure(
    work: FragmentTask | None, failure: Exception, round_: RoundPlan, partition: int
) -> WireRow:
    """Remove what a task has written and return the report of what stopped it."""
    abort_task(work)
    at = 0 if work is None else work.at
    return report(Kind.FAILURE, round_.number, partition, failure_to_dict(failure, at))


def partition_id() -> int:
    """Return the number of the Spark partition that runs here; 0 outside of Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
