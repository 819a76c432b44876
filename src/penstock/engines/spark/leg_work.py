"""A leg at work on one part, inside a Python worker of Spark: the same stages as in process.

A task brings the rows of some rounds. Round by round, every step of the leg takes its rows in, judged by the
watermark before the round, then lets go what the watermark after it has passed; batches leave before the
watermark they came with. What keeps state is taken up from where the last task left it: warm in this process
if that was here, else from the state files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from penstock.engines.marks import Turn
from penstock.engines.spark import failures
from penstock.engines.spark.both_ways import PartsOfRound, RowsAndParts
from penstock.engines.spark.counting import taken
from penstock.engines.spark.legs import Edge, Leg
from penstock.engines.spark.native_groups import GroupForm, apart, grouped
from penstock.engines.spark.state_files import Place, StateFiles
from penstock.engines.spark.wire import (
    COUNTED,
    FAILED,
    FATES,
    SAVED,
    WAKE,
    Dealing,
    Sent,
    from_wire,
    packed,
    to_wire,
    told,
    unpack,
)
from penstock.errors import CheckpointError
from penstock.operators.op import Routing
from penstock.operators.windows import Windows
from penstock.plan.accounts import Accounts
from penstock.plan.step import Ref, Step
from penstock.stages.batch import Batch
from penstock.stages.make import stage_of
from penstock.stages.patterns.parts import PARTS
from penstock.stages.protocol import Stage
from penstock.stages.row_places import merged
from penstock.stages.site import Site


@dataclass(frozen=True, slots=True)
class LegPlan:
    """What a worker must know of a leg for the whole run.

    run      tells runs apart in a worker that serves several
    edges    the edges out of the leg, by whose rows they carry
    schemas  the columns of those rows
    takers   edge -> (step, schema) of the edges into the leg
    read     step -> the output ports that somebody reads
    n_parts  parts of an exchange
    sends    the window steps behind the exchange that are sent parts, and the edges for those
    joins    edge -> step of the edges into the leg that carry parts
    """

    run: str
    leg: Leg
    edges: Mapping[Ref, tuple[Edge, ...]]
    schemas: Mapping[Ref, pa.Schema]
    takers: Mapping[int, tuple[str, pa.Schema]]
    read: Mapping[str, frozenset[str]]
    n_parts: int
    sends: tuple[tuple[Step, Edge], ...] = ()
    joins: Mapping[int, str] = field(default_factory=dict)

    def rows_edge(self, step: str) -> Edge:
        """The edge on which rows leave for a step of another leg; all of them lead to the same place."""
        return next(edge for edges in self.edges.values() for edge in edges if edge.step == step)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One round: its number, what the clock says, and what each step is told."""

    number: int
    now: int
    turns: Mapping[str, Turn]


@dataclass(frozen=True, slots=True)
class Task:
    """What a leg is asked to do in one job.

    version  the state to go on from: rounds done so far
    state    where the pieces of that state are, by step and bucket
    """

    rounds: tuple[RoundPlan, ...]
    version: int
    state: Mapping[str, Mapping[int, Place]]
    files: StateFiles


class RoundClock:
    """The driver's clock as it was when the round began: the same on every worker and in every retry."""

    def __init__(self) -> None:
        self.us = 0

    def now(self) -> int:
        """The time now."""
        return self.us


@dataclass(slots=True)
class Warm:
    """A part of a leg as it was left: good for the task that goes on from `version`."""

    work: LegWork
    version: int


_WARM: dict[tuple[str, int, int], Warm] = {}
_MOST_RUNS = 8
"""Runs whose parts are kept warm in one worker; the oldest are let go."""


def run_task(
    plan: LegPlan, task: Task, batches: Iterator[pa.RecordBatch], form: GroupForm | None = None
) -> Iterator[pa.RecordBatch]:
    """Work one part of a leg off; every failure is told as data. With a `form`, groups come too."""
    inbox = Inbox(plan)
    for batch in batches:
        inbox.take(batch if form is None else inbox.take_groups(batch, form))
    if not plan.leg.keyed and not inbox.rows:
        return
    try:
        work = _taken_up(plan, task, inbox.part)
    except CheckpointError as failure:
        yield to_wire([told(FAILED, task.rounds[0].number, inbox.part, failures.as_data(failure, 0))])
        return
    sent = inbox.told
    for round_ in task.rounds:
        try:
            sent += work.round(round_, inbox)
        except Exception as failure:
            order = work.at
            yield to_wire([told(FAILED, round_.number, inbox.part, failures.as_data(failure, order))])
            return
    try:
        sent += work.saved(task)
    except Exception as failure:
        yield to_wire([told(FAILED, task.rounds[-1].number, inbox.part, failures.as_data(failure, 0))])
        return
    leave_warm(plan, work, inbox.part, task.rounds[-1].number + 1)
    for start in range(0, len(sent), 1024):
        yield to_wire(sent[start : start + 1024])


class Inbox:
    """What came for a part, by round and edge."""

    def __init__(self, plan: LegPlan) -> None:
        self._takers, self._joins = plan.takers, plan.joins
        self.rows: dict[tuple[int, str], list[Batch]] = {}
        self.parts: dict[tuple[int, str], list[bytes | Batch]] = {}  # the stage knows their columns
        self.told: list[Sent] = []
        self.part = 0

    def take_groups(self, batch: pa.RecordBatch, form: GroupForm) -> pa.RecordBatch:
        """Take what Spark has grouped; gives back what else is on the wire."""
        wire, groups = apart(batch, form)
        for each in grouped(groups, form):
            self.parts.setdefault((each.round, form.step), []).append(each.parts)
            self.told.append(told(FATES, each.round, self.part, each.told))
        return wire

    def take(self, batch: pa.RecordBatch) -> None:
        """Unpack what is on the wire."""
        for sent in from_wire(batch):
            self.part = sent.part
            if sent.body is None or sent.edge == WAKE:
                continue
            if sent.edge in self._joins:
                self.parts.setdefault((sent.round, self._joins[sent.edge]), []).append(sent.body)
            else:
                step, schema = self._takers[sent.edge]
                self.rows.setdefault((sent.round, step), []).append(unpack(sent.body, schema))


@dataclass(slots=True)
class _Seat:
    """A step at its place in the leg; `others` are the other replicas where every one gets every row."""

    step: Step
    stage: Stage
    accounts: Accounts
    others: tuple[Stage, ...] = ()
    waiting: list[Batch] = field(default_factory=list)


class LegWork:
    """The stages of a leg on one part."""

    def __init__(self, plan: LegPlan, part: int) -> None:
        self._plan, self.part = plan, part
        self._clock = RoundClock()
        self._seats = {step.name: self._seat(step) for step in plan.leg.steps}
        self._dealings = {
            edge.number: Dealing(edge.key, plan.schemas[edge.ref], plan.n_parts)
            for edges in plan.edges.values()
            for edge in edges
        }
        self._panes = {step.name: self._before(step, edge) for step, edge in plan.sends}
        self.at = 0  # the step at hand, for failures

    def _seat(self, step: Step) -> _Seat:
        accounts = Accounts()
        site = self._site(step, accounts)
        if isinstance(step.op, Windows) and step.name in self._plan.joins.values():
            return _Seat(step, RowsAndParts(step.op, step.up, site), accounts)
        copied = step.routing == Routing.BROADCAST and not step.op.stateful
        others = tuple(stage_of(step, site) for _ in range(1, step.degree.least if copied else 1))
        return _Seat(step, stage_of(step, site), accounts, others)

    def _site(self, step: Step, accounts: Accounts) -> Site:
        return Site(step.name, step.where, accounts, self._clock, self._plan.read[step.name])

    def _before(self, step: Step, edge: Edge) -> PartsOfRound:
        """What makes parts for windows behind the exchange."""
        accounts = Accounts()
        made = PartsOfRound(step, self._site(step, accounts), accounts)
        self._dealings[edge.number] = Dealing(made.format.key, made.format.schema, self._plan.n_parts)
        return made

    def restore(self, state: Mapping[str, Mapping[int, Place]], files: StateFiles) -> None:
        """Take up the buckets of this part."""
        for name, places in state.items():
            mine = {b: place for b, place in places.items() if b % self._plan.n_parts == self.part}
            if mine and name in self._seats:
                self._seats[name].stage.restore(files.read(mine, name))

    def round(self, round_: RoundPlan, inbox: Inbox) -> list[Sent]:
        """Carry the rows of one round through; gives what leaves, and what was counted."""
        self._clock.us = round_.now
        sent: list[Sent] = []
        for number, seat in enumerate(self._seats.values()):
            self.at = number
            came = inbox.rows.pop((round_.number, seat.step.name), [])
            batches, seat.waiting = [*came, *seat.waiting], []
            for body in inbox.parts.pop((round_.number, seat.step.name), []):
                assert isinstance(seat.stage, RowsAndParts), "parts go to windows that take them"
                parts = unpack(body, seat.stage.format.schema) if isinstance(body, bytes) else body
                if parts.num_rows:
                    seat.stage.on_parts(parts)
            for port, batch in self._step(seat, batches, round_.turns[seat.step.name]):
                if batch.num_rows:
                    sent += self._out(Ref(seat.step.name, port), batch, round_.number)
        sent += self._in_parts(round_)
        counting = {name: seat.accounts for name, seat in self._seats.items()}
        counting |= {name: panes.accounts for name, panes in self._panes.items()}
        counted = {name: asdict(taken(accounts)) for name, accounts in counting.items()}
        return [*sent, told(COUNTED, round_.number, self.part, counted)]

    def given(self, ref: Ref, batch: Batch, round_: RoundPlan) -> list[Sent]:
        """Carry rows that somebody else made in the place of a step, or of a source."""
        sent = list(self._out(ref, batch, round_.number))
        return sent + self.round(round_, Inbox(self._plan))

    def _step(self, seat: _Seat, batches: list[Batch], turn: Turn) -> Iterator[tuple[str, Batch]]:
        if len(batches) > 1:
            batches = [merged(batches, seat.step.up.schema)]
        for stage in (seat.stage, *seat.others):
            for batch in batches:
                yield from stage.on_batch(batch, turn.before)
            yield from stage.drain() if turn.over else stage.on_watermark(turn.after)

    def _out(self, ref: Ref, batch: Batch, round_: int) -> Iterator[Sent]:
        for name in self._plan.leg.inside.get(ref, ()):
            self._seats[name].waiting.append(batch)
        for edge in self._plan.edges.get(ref, ()):
            if edge.leg == self._plan.leg.number and edge.step is not None:
                self._seats[edge.step].waiting.append(batch)
            elif edge.step in self._panes:
                self._panes[edge.step].waiting.append(batch)
            else:
                yield from self._dealt(edge, batch, round_)

    def _dealt(self, edge: Edge, batch: Batch, round_: int) -> Iterator[Sent]:
        for part, rows in self._dealings[edge.number].deal(batch, self.part):
            for body in packed(rows):
                yield Sent(edge.leg, edge.number, round_, part, body)

    def _in_parts(self, round_: RoundPlan) -> Iterator[Sent]:
        """What windows behind the exchange are sent: parts, or rows where parts would not be fewer."""
        for number, (step, edge) in enumerate(self._plan.sends, len(self._seats)):
            self.at = number
            found, rows = self._panes[step.name].made(round_.turns[step.name].before)
            for port, batch in found:
                if port == PARTS:
                    yield from self._dealt(edge, batch, round_.number)
                else:
                    yield from self._out(Ref(step.name, port), batch, round_.number)
            for batch in rows:
                yield from self._dealt(self._plan.rows_edge(step.name), batch, round_.number)

    def saved(self, task: Task) -> list[Sent]:
        """Write what changed in the state; gives where it is."""
        if not self._plan.leg.keyed:
            return []
        pieces = {name: dict(seat.stage.snapshot()) for name, seat in self._seats.items()}
        version = task.rounds[-1].number + 1
        places = task.files.write(version, f"{self._plan.leg.number}-{self.part}", pieces)
        found = {step: list(where.items()) for step, where in places.items() if where}
        return [told(SAVED, task.rounds[-1].number, self.part, found)] if found else []


def _taken_up(plan: LegPlan, task: Task, part: int) -> LegWork:
    """The part as it was left, if it was left here and at the right version; else made anew."""
    place = (plan.run, plan.leg.number, part if plan.leg.keyed else 0)
    warm = _WARM.pop(place, None)
    if warm is not None and (warm.version == task.version or not plan.leg.keyed):
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


def leave_warm(plan: LegPlan, work: LegWork, part: int, version: int) -> None:
    """Leave a part for the next task that comes here."""
    place = (plan.run, plan.leg.number, part if plan.leg.keyed else 0)
    _WARM[place] = Warm(work, version)
    runs = list(dict.fromkeys(run for run, _, _ in _WARM))
    for run in runs[:-_MOST_RUNS]:
        for known in [known for known in _WARM if known[0] == run]:
            del _WARM[known]
