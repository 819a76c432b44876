"""A task in a Python worker of Spark: some rounds through one fragment, or through all fragments at once.

What keeps state is taken up from where the last job left it: warm in this process if that was here, else from
the state files. Warm state is good only for the job that comes right after the one which left it; if that
one was not committed, because a step failed, its name is never asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engines import wire as failures
from penstock.engines.spark.fragment_plan import FragmentPlan, JobTask, RoundPlan
from penstock.engines.spark.fragments import DRIVER
from penstock.engines.spark.jvm.groups import GroupForm
from penstock.engines.spark.wire import FAILED, FATES, SCHEMA, WORKED, WireRow, from_wire, report, to_wire
from penstock.engines.spark.worker.files import FileSplit
from penstock.engines.spark.worker.input import FragmentInput
from penstock.engines.spark.worker.operators import FragmentTask
from penstock.frozen import dataclass

LOST = -1
"""The fate of rows that failed, whoever had them in hand."""
_AT_ONCE = 1024
"""Wire rows in one Arrow batch."""


@dataclass(slots=True)
class Warm:
    """A part of a fragment as it was left by a job."""

    work: FragmentTask
    job: str


_WARM: dict[tuple[str, int, int], Warm] = {}
_MOST_RUNS = 8
"""Runs whose parts are kept warm in one worker; the oldest are let go."""


def run_fragment(
    plan: FragmentPlan, task: JobTask, batches: Iterable[pa.RecordBatch], form: GroupForm | None = None
) -> Iterator[pa.RecordBatch]:
    """Work one part of a fragment off. With a `form`, groups that Spark made come beside the wire.

    What is not for this fragment is passed on: so a job is one line of fragments, and nothing has to be
    kept for two.
    """
    inbox = FragmentInput(plan)
    for batch in batches:
        wire = batch if form is None else inbox.take_groups(batch, form)
        mine = pc.equal(wire.column("fragment"), plan.fragment.number)
        inbox.take(wire.filter(mine))
        others = wire.filter(pc.invert(mine)).select(SCHEMA.names)
        if others.num_rows:
            yield others
    yield from to_wire_batches(_run_timed(plan, task, inbox))


def run_all_fragments(
    plans: Sequence[FragmentPlan], task: JobTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs all fragments in one task: for little work an exchange costs more than it saves."""
    waiting: dict[tuple[int, int], list[WireRow]] = {}
    leaving: list[WireRow] = []
    for batch in batches:
        for sent in from_wire(batch):
            waiting.setdefault(_place(plans, sent), []).append(sent)
    for number, plan in enumerate(plans):
        for part in range(plan.n_partitions if plan.fragment.keyed else 1):
            inbox = FragmentInput(plan)
            for sent in waiting.pop((number, part), []):
                inbox.take_sent(sent)
            for sent in _run_timed(plan, task, inbox):
                if sent.fragment == DRIVER:
                    leaving.append(sent)
                else:
                    waiting.setdefault(_place(plans, sent), []).append(sent)
    yield from to_wire_batches(leaving)


def _place(plans: Sequence[FragmentPlan], sent: WireRow) -> tuple[int, int]:
    return sent.fragment, sent.part if plans[sent.fragment].fragment.keyed else 0


def to_wire_batches(sent: Sequence[WireRow]) -> Iterator[pa.RecordBatch]:
    """Wire rows as Arrow batches that are not too long."""
    for start in range(0, len(sent), _AT_ONCE):
        yield to_wire(sent[start : start + _AT_ONCE])


def _run_timed(plan: FragmentPlan, task: JobTask, inbox: FragmentInput) -> list[WireRow]:
    """What leaves, and how long it took to make."""
    if not plan.fragment.keyed and not inbox.rows and not inbox.files:
        return []
    began = time.perf_counter_ns()
    sent = _run_rounds(plan, task, inbox)
    took_us = (time.perf_counter_ns() - began) // 1000
    return [*sent, report(WORKED, task.rounds[-1].number, inbox.part, {"us": took_us})]


def _run_rounds(plan: FragmentPlan, task: JobTask, inbox: FragmentInput) -> list[WireRow]:
    """What leaves a part; every failure is told as data."""
    try:
        work = _resume(plan, task, inbox.part)
    except Exception as failure:
        return [report(FAILED, task.rounds[0].number, inbox.part, failures.failure_to_dict(failure, 0))]
    sent = inbox.told
    for round_ in task.rounds:
        try:
            sent += _read(plan, work, round_, inbox.files.pop(round_.number, []))
            sent += work.round(round_, inbox)
        except _UnreadableSplit as lost:
            return [lost.as_sent(round_.number, inbox.part)]
        except Exception as failure:
            return [report(FAILED, round_.number, inbox.part, failures.failure_to_dict(failure, work.at))]
    try:
        sent += work.saved(task)
    except Exception as failure:
        return [report(FAILED, task.rounds[-1].number, inbox.part, failures.failure_to_dict(failure, 0))]
    keep_warm(plan, work, inbox.part, task.job)
    return sent


def _read(
    plan: FragmentPlan, work: FragmentTask, round_: RoundPlan, pieces: Sequence[FileSplit]
) -> Iterator[WireRow]:
    """What becomes of the pieces of files of a round."""
    for piece in pieces:
        form = plan.reads[piece.source]
        try:
            for batch in form.read(piece):
                yield from work.given(form.ref, batch, round_)
        except Exception as failure:
            raise _UnreadableSplit(piece) from failure


class _UnreadableSplit(Exception):
    """A piece of a file that could not be read, or a row of it failed.

    The driver is told no more than that: it reads the batch again, with all columns, and finds out which
    file, or which row, it was.
    """

    def __init__(self, piece: FileSplit) -> None:
        super().__init__(piece.path)
        self.piece = piece

    def as_sent(self, round_: int, part: int) -> WireRow:
        """As the driver is told of it."""
        fates = {str(LOST): self.piece.n_rows}
        return report(FATES, round_, part, {"source": self.piece.source, "fates": fates})


def _resume(plan: FragmentPlan, task: JobTask, part: int) -> FragmentTask:
    """The part as it was left, if it was left here by the right job; else made anew."""
    if not plan.fragment.keyed:
        return resume_first_fragment(plan, part)
    warm = _WARM.pop((plan.run, plan.fragment.number, part), None)
    if warm is not None and warm.job == task.after:
        return warm.work
    work = FragmentTask(plan, part)
    work.restore(task.state, task.files)
    return work


def resume_first_fragment(plan: FragmentPlan, part: int) -> FragmentTask:
    """Fragment 0, which keeps no state: as it was left, or made anew."""
    warm = _WARM.pop((plan.run, plan.fragment.number, 0), None)
    work = FragmentTask(plan, part) if warm is None else warm.work
    work.part = part
    return work


def keep_warm(plan: FragmentPlan, work: FragmentTask, part: int, job: str) -> None:
    """Leave a part for the next task that comes here."""
    place = (plan.run, plan.fragment.number, part if plan.fragment.keyed else 0)
    _WARM[place] = Warm(work, job)
    runs = list(dict.fromkeys(run for run, _, _ in _WARM))
    for run in runs[:-_MOST_RUNS]:
        for known in [known for known in _WARM if known[0] == run]:
            del _WARM[known]
