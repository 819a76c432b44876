"""A plan split into fragments: the steps that rows pass without changing the worker they are on.

Fragment 0 needs nothing but the row; every later fragment begins with an exchange by key, because its steps
keep state per key. Edges carry rows from a fragment (or from the driver, where sources are read) to a later
fragment, or back to the driver, where sinks are written. A step whose rows are already partitioned by its key
stays in their fragment.

`split_into_fragments` decides this once per run. `plan_fragment` says what a worker must know of a fragment
for the whole run, and `JobTask` what it is asked to do in one job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from penstock.engines.checkpoint.state_files import StateFiles, StateHandles
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.spark.worker.files import FileReadPlan
from penstock.frozen import dataclass
from penstock.operators.ends import Sink, Source
from penstock.operators.op import ERRORS, LATE, OUT
from penstock.operators.patterns import PANED, why_not_pattern
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.patterns.pattern import PARTIALS

DRIVER = -1
"""The fragment number of the driver, where sources are read and sinks written."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One way out of a fragment.

    number    tells edges apart on the wire
    ref       whose rows it carries
    fragment  where they go
    step      the step that takes them there; None for rows that are collected
    key       the columns that decide the partition of a row; None when any partition will do
    """

    number: int
    ref: Ref
    fragment: int
    step: str | None
    key: Key | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """The steps of one fragment, feeds first, and which of them read which port."""

    number: int
    steps: tuple[Step, ...]
    inside: Mapping[Ref, tuple[str, ...]]

    @property
    def keyed(self) -> bool:
        """Returns whether rows must be on the partition of their key."""
        return self.number > 0


@dataclass(frozen=True, slots=True)
class Fragments:
    """The whole plan: fragments in order, and all edges.

    partials  window step -> the edge on which its partial aggregates travel; rows may reach it as well
    """

    fragments: tuple[Fragment, ...]
    edges: tuple[Edge, ...]
    partials: Mapping[str, Edge]

    def edges_out_of(self, fragment: int, plan: Plan) -> dict[Ref, tuple[Edge, ...]]:
        """Returns the edges out of a fragment, by whose rows they carry."""
        edges: dict[Ref, tuple[Edge, ...]] = {}
        placement = self.placement(plan)
        for edge in self.edges:
            if placement[edge.ref.step] == fragment:
                edges[edge.ref] = (*edges.get(edge.ref, ()), edge)
        return edges

    def placement(self, plan: Plan) -> dict[str, int]:
        """Returns the fragment of every step; sources and sinks are on the driver."""
        inside = {step.name: fragment.number for fragment in self.fragments for step in fragment.steps}
        return {step.name: inside.get(step.name, DRIVER) for step in plan}


def split_into_fragments(plan: Plan) -> Fragments:
    """Splits a plan into fragments: as few exchanges as the keys allow."""
    placement: dict[str, int] = {}
    partitioned_by: dict[Ref, Key | None] = {}
    for step in plan:
        placement[step.name] = _place(step, placement, partitioned_by)
        for port, stream in step.outputs.items():
            key = _partition_key(step, placement, partitioned_by)
            holds = key is not None and stream.key == key and port not in (LATE, ERRORS)
            partitioned_by[Ref(step.name, port)] = key if holds else None
    last = max(placement.values())
    fragments = tuple(_fragment(plan, number, placement) for number in range(last + 1))
    edges = _edges(plan, placement)
    return Fragments(fragments, tuple(edges), _partial_edges(plan, placement, edges))


def state_key(step: Step) -> Key | None:
    """Returns the key that a step keeps state by; None for a step without state."""
    return step.up.key if isinstance(step.op, Windows) or step.op.stateful else None


def _place(step: Step, placement: Mapping[str, int], partitioned_by: Mapping[Ref, Key | None]) -> int:
    if isinstance(step.op, Source | Sink):
        return DRIVER
    latest = max(placement[ref.step] for ref in step.feeds)
    key = state_key(step)
    if key is None:
        return max(latest, 0)
    there = all(placement[ref.step] == latest and partitioned_by[ref] == key for ref in step.feeds)
    return latest if there and latest > 0 else max(latest, 0) + 1


def _partition_key(
    step: Step, placement: Mapping[str, int], partitioned_by: Mapping[Ref, Key | None]
) -> Key | None:
    """Returns the key by which the rows of a step are partitioned; None when there is none."""
    if isinstance(step.op, Source | Sink):
        return None
    key = state_key(step)
    if key is not None:
        return key
    keys = {
        partitioned_by[ref] if placement[ref.step] == placement[step.name] else None for ref in step.feeds
    }
    return keys.pop() if len(keys) == 1 else None


def _fragment(plan: Plan, number: int, placement: Mapping[str, int]) -> Fragment:
    steps = tuple(step for step in plan if placement[step.name] == number)
    inside: dict[Ref, tuple[str, ...]] = {}
    for step in steps:
        for ref in step.feeds:
            if placement[ref.step] == number:
                inside[ref] = (*inside.get(ref, ()), step.name)
    return Fragment(number, steps, inside)


def _edges(plan: Plan, placement: Mapping[str, int]) -> list[Edge]:
    edges: list[Edge] = []
    for step in plan:
        for ref in step.feeds:
            crosses = placement[ref.step] != placement[step.name] or placement[step.name] == DRIVER
            if crosses:
                edges.append(Edge(len(edges), ref, placement[step.name], step.name, state_key(step)))
    edges += [Edge(len(edges) + i, ref, DRIVER, None, None) for i, ref in enumerate(plan.collects)]
    return edges


def _partial_edges(plan: Plan, placement: Mapping[str, int], edges: list[Edge]) -> dict[str, Edge]:
    """Returns the window steps that can be sent partial aggregates, and the edges for those.

    Late and failed rows then leave before the exchange: no step may work on them in the fragment of the
    windows, and the windows must begin the fragment.
    """
    partials: dict[str, Edge] = {}
    for step in plan:
        if (
            not isinstance(step.op, Windows)
            or why_not_pattern(PANED, step.op, step.up, totally_ordered=False) is not None
        ):
            continue
        home = placement[step.name]
        readers = [name for port in (LATE, ERRORS) for name, _ in plan.readers(Ref(step.name, port))]
        begins = all(placement[ref.step] < home for ref in step.feeds)
        if begins and all(placement[name] == DRIVER for name in readers):
            number = len(edges) + len(partials)
            partials[step.name] = Edge(number, Ref(step.name, PARTIALS), home, step.name, step.up.key)
    return partials


@dataclass(frozen=True, slots=True)
class FragmentPlan:
    """What a worker must know of a fragment for the whole run; shipped with the users' functions in it.

    run           tells runs apart in a worker that serves several
    edges         the edges out of the fragment, by whose rows they carry
    schemas       the columns of those rows
    consumers     edge -> (step, schema) of the edges into the fragment
    ports         step -> the output ports that are read
    n_partitions  of an exchange
    sends         the window steps behind the exchange that are sent partials, and the edges for those
    partials      edge -> step of the edges into the fragment that carry partials
    reads         source -> how workers read its files
    """

    run: str
    fragment: Fragment
    edges: Mapping[Ref, tuple[Edge, ...]]
    schemas: Mapping[Ref, pa.Schema]
    consumers: Mapping[int, tuple[str, pa.Schema]]
    ports: Mapping[str, frozenset[str]]
    n_partitions: int
    sends: tuple[tuple[Step, Edge], ...] = ()
    partials: Mapping[int, str] = field(default_factory=dict)
    reads: Mapping[str, FileReadPlan] = field(default_factory=dict)

    def rows_edge(self, step: str) -> Edge:
        """Returns the edge on which rows leave for a step; all edges to one step lead to the same place."""
        return next(edge for edges in self.edges.values() for edge in edges if edge.step == step)


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One round: its number, the time of the clock, and the watermarks of each step.

    fired  window step -> when it last fired early, before this round
    """

    number: int
    now: int
    advances: Mapping[str, WatermarkAdvance]
    fired: Mapping[str, int] = field(default_factory=dict)


class RoundClock:
    """The clock as it was when the round began: the same on every worker and in every retry."""

    def __init__(self, us: int = 0) -> None:
        self.us = us

    def now(self) -> int:
        """Returns the time of the round, in microseconds."""
        return self.us


@dataclass(frozen=True, slots=True)
class JobTask:
    """What fragments are asked to do in one job.

    job    the name of this job
    after  the job whose state it continues: the last that was committed
    state  where the pieces of that state are, by step and bucket
    """

    rounds: tuple[RoundPlan, ...]
    job: str
    after: str
    state: StateHandles
    files: StateFiles

    @property
    def version(self) -> int:
        """Returns the number of rounds that are done when this job is."""
        return self.rounds[-1].number + 1


def plan_fragment(
    plan: Plan, fragments: Fragments, number: int, *, run: str, n_partitions: int
) -> FragmentPlan:
    """Returns what workers must know of one fragment of a plan."""
    consumers = {
        edge.number: (edge.step, plan[edge.ref.step].outputs[edge.ref.port].schema)
        for edge in fragments.edges
        if edge.fragment == number and edge.step is not None
    }
    fragment, edges = fragments.fragments[number], fragments.edges_out_of(number, plan)
    sends = () if fragment.keyed else _sends(plan, fragments)
    if not fragment.keyed:
        for edge in _source_and_side_edges(plan, fragments, sends):
            edges[edge.ref] = (*edges.get(edge.ref, ()), edge)
    steps = {step.name for step in fragment.steps} | {step.name for step, _ in sends}
    return FragmentPlan(
        run,
        fragment,
        edges,
        {ref: plan[ref.step].outputs[ref.port].schema for ref in edges},
        consumers,
        {name: frozenset(p for p in plan[name].outputs if plan.is_read(Ref(name, p))) for name in steps},
        n_partitions,
        sends,
        {edge.number: name for name, edge in fragments.partials.items() if edge.fragment == number},
    )


def _sends(plan: Plan, fragments: Fragments) -> tuple[tuple[Step, Edge], ...]:
    """Returns the windows that fragment 0 makes partials for: those whose rows come straight from there."""
    placement = fragments.placement(plan)
    return tuple(
        (plan[name], edge)
        for name, edge in fragments.partials.items()
        if any(placement[ref.step] <= 0 for ref in plan[name].feeds)
    )


def _source_and_side_edges(
    plan: Plan, fragments: Fragments, sends: Sequence[tuple[Step, Edge]]
) -> list[Edge]:
    """Returns the edges out of fragment 0 for rows of sources, and for late and failed rows of windows."""
    sources = {step.name for step in plan.sources}
    windows = {step.name for step, _ in sends}
    return [
        edge
        for edge in fragments.edges
        if (edge.ref.step in sources and edge.ref.port == OUT)
        or (edge.ref.step in windows and edge.ref.port != OUT)
    ]
