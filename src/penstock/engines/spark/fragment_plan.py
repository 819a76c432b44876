"""What a worker is told of a fragment: once for the whole run, and anew for every job.

Made on the driver from the plan and its cut; shipped by Spark beside the users' functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from penstock.engines.checkpoint.state_files import StateFiles, StateHandles
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.spark.fragments import Edge, Fragment, Fragments
from penstock.engines.spark.worker.files import FileReadPlan
from penstock.frozen import dataclass
from penstock.operators.op import OUT
from penstock.plan.plan import Plan, Ref, Step


@dataclass(frozen=True, slots=True)
class FragmentPlan:
    """What a worker must know of a fragment for the whole run.

    run      tells runs apart in a worker that serves several
    edges    the edges out of the fragment, by whose rows they carry
    schemas  the columns of those rows
    takers   edge -> (step, schema) of the edges into the fragment
    read     step -> the output ports that somebody reads
    n_partitions  parts of an exchange
    sends    the window steps behind the exchange that are sent parts, and the edges for those
    joins    edge -> step of the edges into the fragment that carry parts
    reads    source -> how workers read its files
    """

    run: str
    fragment: Fragment
    edges: Mapping[Ref, tuple[Edge, ...]]
    schemas: Mapping[Ref, pa.Schema]
    takers: Mapping[int, tuple[str, pa.Schema]]
    read: Mapping[str, frozenset[str]]
    n_partitions: int
    sends: tuple[tuple[Step, Edge], ...] = ()
    joins: Mapping[int, str] = field(default_factory=dict)
    reads: Mapping[str, FileReadPlan] = field(default_factory=dict)

    def rows_edge(self, step: str) -> Edge:
        """The edge on which rows leave for a step of another fragment; all of them lead to the same place."""
        return next(edge for edges in self.edges.values() for edge in edges if edge.step == step)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One round: its number, what the clock says, and what each step is told.

    shown  window step -> when it has last shown open windows, before this round
    """

    number: int
    now: int
    advances: Mapping[str, WatermarkAdvance]
    shown: Mapping[str, int] = field(default_factory=dict)


class RoundClock:
    """The clock as it was when the round began: the same on every worker and in every retry."""

    def __init__(self, us: int = 0) -> None:
        self.us = us

    def now(self) -> int:
        """The time now."""
        return self.us


@dataclass(frozen=True, slots=True)
class JobTask:
    """What a fragment is asked to do in one job.

    job    this job's own name
    after  the job whose state it goes on from: the last that was committed
    state  where the pieces of that state are, by step and bucket
    """

    rounds: tuple[RoundPlan, ...]
    job: str
    after: str
    state: StateHandles
    files: StateFiles

    @property
    def version(self) -> int:
        """Rounds done when this job is."""
        return self.rounds[-1].number + 1


def plan_fragment(
    plan: Plan, fragments: Fragments, number: int, *, run: str, n_partitions: int
) -> FragmentPlan:
    """What workers are told of one fragment of a plan."""
    takers = {
        edge.number: (edge.step, plan[edge.ref.step].outputs[edge.ref.port].schema)
        for edge in fragments.edges
        if edge.fragment == number and edge.step is not None
    }
    fragment, edges = fragments.fragments[number], fragments.leaving(number, plan)
    sends = () if fragment.keyed else _sends(plan, fragments)
    if not fragment.keyed:
        for edge in _beside(plan, fragments, sends):
            edges[edge.ref] = (*edges.get(edge.ref, ()), edge)
    steps = {step.name for step in fragment.steps} | {step.name for step, _ in sends}
    return FragmentPlan(
        run,
        fragment,
        edges,
        {ref: plan[ref.step].outputs[ref.port].schema for ref in edges},
        takers,
        {name: frozenset(p for p in plan[name].outputs if plan.is_read(Ref(name, p))) for name in steps},
        n_partitions,
        sends,
        {edge.number: name for name, edge in fragments.parts.items() if edge.fragment == number},
    )


def _sends(plan: Plan, fragments: Fragments) -> tuple[tuple[Step, Edge], ...]:
    """The windows that fragment 0 makes parts for: those that rows come to straight from there."""
    homes = fragments.homes(plan)
    return tuple(
        (plan[name], edge)
        for name, edge in fragments.parts.items()
        if any(homes[ref.step] <= 0 for ref in plan[name].feeds)
    )


def _beside(plan: Plan, fragments: Fragments, sends: Sequence[tuple[Step, Edge]]) -> list[Edge]:
    """Returns the edges out of fragment 0 that carry source rows, or late and failed rows of windows."""
    sources = {step.name for step in plan.sources}
    windows = {step.name for step, _ in sends}
    return [
        edge
        for edge in fragments.edges
        if (edge.ref.step in sources and edge.ref.port == OUT)
        or (edge.ref.step in windows and edge.ref.port != OUT)
    ]
