"""One Spark job per turn of the run: the rounds at hand, through all legs, back to the driver.

Legs are lazy DataFrames over wire rows: exchanged by part where a leg is keyed, carried by `mapInArrow`, kept
while a later leg and the driver both want what came out. Nothing is computed twice, and the driver asks once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.spark.failures import as_error
from penstock.engines.spark.leg_work import LegPlan, RoundPlan, Task, run_task
from penstock.engines.spark.legs import DRIVER, Edge, Legs
from penstock.engines.spark.native import Native, beside
from penstock.engines.spark.native_chain import Chain, chains_of
from penstock.engines.spark.native_groups import GroupForm
from penstock.engines.spark.native_source import NativeBatch
from penstock.engines.spark.state_files import Place
from penstock.engines.spark.wire import (
    COUNTED,
    FAILED,
    FATES,
    SAVED,
    SCHEMA,
    SPARK_SCHEMA,
    WAKE,
    Sent,
    from_wire,
    to_wire,
)
from penstock.errors import PenstockError
from penstock.operators.op import OUT
from penstock.plan.plan import Plan
from penstock.plan.step import Ref, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Files = Mapping[int, Mapping[str, NativeBatch]]
"""round -> source -> the batch that Spark reads for it."""
Carry = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(slots=True)
class Came:
    """What a job gave the driver.

    rows     edge -> round -> packed batches, in a fixed order
    counted  (round, step) -> what the parts counted
    saved    step -> bucket -> where its newest piece is
    failed   what stopped the first step that failed, if one did, and in which round
    fates    (round, source) -> what became of the rows of its chain in the JVM, and which windows they missed
    """

    rows: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    counted: list[tuple[int, Mapping[str, Mapping[str, Any]]]] = field(default_factory=list)
    saved: dict[str, dict[int, Place]] = field(default_factory=dict)
    failed: PenstockError | None = None
    fates: dict[tuple[int, str], Fates] = field(default_factory=dict)


@dataclass(slots=True)
class Fates:
    """How many rows of a chain had which fate (`native_frames.py`), and how many windows they missed."""

    fates: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)


class Jobs:
    """Runs the legs of one plan on a session."""

    def __init__(self, spark: SparkSession, plan: Plan, legs: Legs, *, run: str, n_parts: int) -> None:
        self._spark, self._legs, self._n_parts = spark, legs, n_parts
        plans = [_leg_plan(plan, legs, leg.number, run, n_parts) for leg in legs.legs]
        self._plans = plans
        self._sends_on = [_sends_on(legs, plan, leg.number) for leg in legs.legs]
        chains = chains_of(plan, legs) if legs.legs else []
        self.native = {chain.source.name: self._native(plan, chain) for chain in chains}

    def _native(self, plan: Plan, chain: Chain) -> Native:
        edge = None if chain.window is None else self._legs.parts[chain.window.name]
        return Native(self._spark, plan, chain, edge)

    def run(self, given: Sequence[Sent], task: Task, files: Files) -> Came:
        """Carry what the driver sends, and what Spark reads itself, through all legs."""
        if not self._legs.legs:
            return Came()
        kept: list[DataFrame] = []
        frames = [self._given(given, task)]
        for frame, sends_on in self._read(task, files):
            kept += [frame.persist()] if sends_on else []
            frames.append(frame)
        for leg, leg_plan, sends_on in zip(self._legs.legs, self._plans, self._sends_on, strict=True):
            if not leg.keyed and all(sent.leg != leg.number for sent in given):
                continue
            taken = [frame.where(f"leg = {leg.number}") for frame in frames]
            frame, form = self._with_groups(_together(taken), leg.number, task, files)
            if leg.keyed:
                frame = frame.repartitionById(self._n_parts, "part")
            frame = frame.mapInArrow(_work(leg_plan, task, form), SPARK_SCHEMA)
            if sends_on:
                kept.append(frame.persist())
            frames.append(frame)
        results = [frame.where(f"leg = {DRIVER}") for frame in frames[1:]]
        if not results:
            return Came()
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
        return self._spark.createDataFrame(table)


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def _work(plan: LegPlan, task: Task, form: GroupForm | None) -> Carry:
    """What Spark ships: steps with the users' functions in them, and what is to be done."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(plan, task, batches, form)

    return work


def came(table: pa.Table) -> Came:
    """Sort out what came back; the order of rows does not depend on which task was first."""
    found, failures = Came(), []
    rows = sorted(from_wire(table), key=lambda sent: (sent.round, sent.edge, sent.part))
    for sent in rows:
        assert sent.body is not None, "what comes back has a body"
        if sent.edge >= 0:
            found.rows.setdefault(sent.edge, {}).setdefault(sent.round, []).append(sent.body)
        elif sent.edge == COUNTED:
            found.counted.append((sent.round, json.loads(sent.body)))
        elif sent.edge == SAVED:
            for step, places in json.loads(sent.body).items():
                found.saved.setdefault(step, {}).update({b: tuple(place) for b, place in places})
        elif sent.edge == FATES:
            told = json.loads(sent.body)
            fates = found.fates.setdefault((sent.round, told["source"]), Fates())
            fates.fates.update(told["fates"])
            fates.missed.update(told.get("missed", {}))
        elif sent.edge == FAILED:
            failures.append((sent.round, json.loads(sent.body)))
    if failures:
        _, first = min(failures, key=lambda each: (each[0], each[1]["order"]))
        found.failed = as_error(first)
    return found


def _leg_plan(plan: Plan, legs: Legs, number: int, run: str, n_parts: int) -> LegPlan:
    takers = {
        edge.number: (edge.step, plan[edge.ref.step].outputs[edge.ref.port].schema)
        for edge in legs.edges
        if edge.leg == number and edge.step is not None
    }
    leg, edges = legs.legs[number], legs.leaving(number, plan)
    sends = () if leg.keyed else _sends(plan, legs)
    if not leg.keyed:
        for edge in _beside(plan, legs, sends):
            edges[edge.ref] = (*edges.get(edge.ref, ()), edge)
    steps = {step.name for step in leg.steps} | {step.name for step, _ in sends}
    return LegPlan(
        run,
        leg,
        edges,
        {ref: plan[ref.step].outputs[ref.port].schema for ref in edges},
        takers,
        {name: frozenset(p for p in plan[name].outputs if plan.is_read(Ref(name, p))) for name in steps},
        n_parts,
        sends,
        {edge.number: name for name, edge in legs.parts.items() if edge.leg == number},
    )


def _sends(plan: Plan, legs: Legs) -> tuple[tuple[Step, Edge], ...]:
    """The windows that leg 0 makes parts for: those that rows come to straight from there."""
    homes = legs.homes(plan)
    return tuple(
        (plan[name], edge)
        for name, edge in legs.parts.items()
        if any(homes[ref.step] <= 0 for ref in plan[name].feeds)
    )


def _beside(plan: Plan, legs: Legs, sends: Sequence[tuple[Step, Edge]]) -> list[Edge]:
    """The edges that leave leg 0 and are not those of its steps: rows that Spark reads, and what is late."""
    sources = {step.name for step in plan.sources}
    windows = {step.name for step, _ in sends}
    return [
        edge
        for edge in legs.edges
        if (edge.ref.step in sources and edge.ref.port == OUT)
        or (edge.ref.step in windows and edge.ref.port != OUT)
    ]


def _sends_on(legs: Legs, plan: Plan, number: int) -> bool:
    """Whether what comes out of a leg is wanted more than once: by a later leg, and by the driver."""
    return any(edge.leg > number for edges in legs.leaving(number, plan).values() for edge in edges)
