"""A task in a Python worker of Spark: some rounds through one leg, or through all legs at once.

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
from penstock.engines.spark.fragment_plan import LegPlan, RoundPlan, Task
from penstock.engines.spark.fragments import DRIVER
from penstock.engines.spark.jvm.groups import GroupForm
from penstock.engines.spark.wire import FAILED, FATES, SCHEMA, WORKED, Sent, from_wire, to_wire, told
from penstock.engines.spark.worker.files import FilePiece
from penstock.engines.spark.worker.input import Inbox
from penstock.engines.spark.worker.operators import LegWork
from penstock.frozen import dataclass

LOST = -1
"""The fate of rows that failed, whoever had them in hand."""
_AT_ONCE = 1024
"""Wire rows in one Arrow batch."""


@dataclass(slots=True)
class Warm:
    """A part of a leg as it was left by a job."""

    work: LegWork
    job: str


_WARM: dict[tuple[str, int, int], Warm] = {}
_MOST_RUNS = 8
"""Runs whose parts are kept warm in one worker; the oldest are let go."""


def run_leg(
    plan: LegPlan, task: Task, batches: Iterable[pa.RecordBatch], form: GroupForm | None = None
) -> Iterator[pa.RecordBatch]:
    """Work one part of a leg off. With a `form`, groups that Spark made come beside the wire.

    What is not for this leg is passed on: so a job is one line of legs, and nothing has to be kept for two.
    """
    inbox = Inbox(plan)
    for batch in batches:
        wire = batch if form is None else inbox.take_groups(batch, form)
        mine = pc.equal(wire.column("leg"), plan.leg.number)
        inbox.take(wire.filter(mine))
        others = wire.filter(pc.invert(mine)).select(SCHEMA.names)
        if others.num_rows:
            yield others
    yield from on_wire(_timed(plan, task, inbox))


def run_alone(
    plans: Sequence[LegPlan], task: Task, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Work all legs off in one task, part by part: for little work an exchange costs more than it spares."""
    waiting: dict[tuple[int, int], list[Sent]] = {}
    leaving: list[Sent] = []
    for batch in batches:
        for sent in from_wire(batch):
            waiting.setdefault(_place(plans, sent), []).append(sent)
    for number, plan in enumerate(plans):
        for part in range(plan.n_parts if plan.leg.keyed else 1):
            inbox = Inbox(plan)
            for sent in waiting.pop((number, part), []):
                inbox.take_sent(sent)
            for sent in _timed(plan, task, inbox):
                if sent.leg == DRIVER:
                    leaving.append(sent)
                else:
                    waiting.setdefault(_place(plans, sent), []).append(sent)
    yield from on_wire(leaving)


def _place(plans: Sequence[LegPlan], sent: Sent) -> tuple[int, int]:
    return sent.leg, sent.part if plans[sent.leg].leg.keyed else 0


def on_wire(sent: Sequence[Sent]) -> Iterator[pa.RecordBatch]:
    """Wire rows as Arrow batches that are not too long."""
    for start in range(0, len(sent), _AT_ONCE):
        yield to_wire(sent[start : start + _AT_ONCE])


def _timed(plan: LegPlan, task: Task, inbox: Inbox) -> list[Sent]:
    """What leaves, and how long it took to make."""
    if not plan.leg.keyed and not inbox.rows and not inbox.files:
        return []
    began = time.perf_counter_ns()
    sent = _done(plan, task, inbox)
    took_us = (time.perf_counter_ns() - began) // 1000
    return [*sent, told(WORKED, task.rounds[-1].number, inbox.part, {"us": took_us})]


def _done(plan: LegPlan, task: Task, inbox: Inbox) -> list[Sent]:
    """What leaves a part; every failure is told as data."""
    try:
        work = _taken_up(plan, task, inbox.part)
    except Exception as failure:
        return [told(FAILED, task.rounds[0].number, inbox.part, failures.failure_to_dict(failure, 0))]
    sent = inbox.told
    for round_ in task.rounds:
        try:
            sent += _read(plan, work, round_, inbox.files.pop(round_.number, []))
            sent += work.round(round_, inbox)
        except _Lost as lost:
            return [lost.as_sent(round_.number, inbox.part)]
        except Exception as failure:
            return [told(FAILED, round_.number, inbox.part, failures.failure_to_dict(failure, work.at))]
    try:
        sent += work.saved(task)
    except Exception as failure:
        return [told(FAILED, task.rounds[-1].number, inbox.part, failures.failure_to_dict(failure, 0))]
    leave_warm(plan, work, inbox.part, task.job)
    return sent


def _read(plan: LegPlan, work: LegWork, round_: RoundPlan, pieces: Sequence[FilePiece]) -> Iterator[Sent]:
    """What becomes of the pieces of files of a round."""
    for piece in pieces:
        form = plan.reads[piece.source]
        try:
            for batch in form.read(piece):
                yield from work.given(form.ref, batch, round_)
        except Exception as failure:
            raise _Lost(piece) from failure


class _Lost(Exception):
    """A piece of a file that could not be read, or a row of it failed.

    The driver is told no more than that: it reads the batch again, with all columns, and finds out which
    file, or which row, it was.
    """

    def __init__(self, piece: FilePiece) -> None:
        super().__init__(piece.path)
        self.piece = piece

    def as_sent(self, round_: int, part: int) -> Sent:
        """As the driver is told of it."""
        fates = {str(LOST): self.piece.n_rows}
        return told(FATES, round_, part, {"source": self.piece.source, "fates": fates})


def _taken_up(plan: LegPlan, task: Task, part: int) -> LegWork:
    """The part as it was left, if it was left here by the right job; else made anew."""
    if not plan.leg.keyed:
        return first_leg(plan, part)
    warm = _WARM.pop((plan.run, plan.leg.number, part), None)
    if warm is not None and warm.job == task.after:
        return warm.work
    work = LegWork(plan, part)
    work.restore(task.state, task.files)
    return work


def first_leg(plan: LegPlan, part: int) -> LegWork:
    """Leg 0, which keeps no state: as it was left, or made anew."""
    warm = _WARM.pop((plan.run, plan.leg.number, 0), None)
    work = LegWork(plan, part) if warm is None else warm.work
    work.part = part
    return work


def leave_warm(plan: LegPlan, work: LegWork, part: int, job: str) -> None:
    """Leave a part for the next task that comes here."""
    place = (plan.run, plan.leg.number, part if plan.leg.keyed else 0)
    _WARM[place] = Warm(work, job)
    runs = list(dict.fromkeys(run for run, _, _ in _WARM))
    for run in runs[:-_MOST_RUNS]:
        for known in [known for known in _WARM if known[0] == run]:
            del _WARM[known]
