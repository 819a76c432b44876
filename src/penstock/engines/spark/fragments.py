"""A plan split into fragments: the steps that rows pass without changing the worker they are on.

Fragment 0 needs nothing but the row, and all rows of sources enter there; every later fragment begins with an
exchange, because its steps keep state per key, or join streams. Edges carry rows from a fragment to a later
one, into the files that tasks write for a sink, or to the driver, for sinks that live there. A step whose
rows are already partitioned by its key stays in their fragment.

`split_into_fragments` decides this once per run. `plan_fragment` says what a worker must know of a fragment
for the whole run, and `JobTask` what it is asked to do in one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import pyarrow as pa

from penstock.connect.protocol import Reader, StagingWriter
from penstock.connect.readers.files import FileReader
from penstock.connect.readers.spark import SparkReader, SparkStreamReader
from penstock.connect.writers.delta import DeltaWriter
from penstock.connect.writers.folder import FolderWriter
from penstock.engines.checkpoint.state_files import StateFiles, StateHandle, StateHandles
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.spark.file_splits import FileReadPlan
from penstock.engines.spark.join_exchange import JoinExchange, JoinLayout, plan_join_exchange
from penstock.engines.spark.source_task import SourceReadPlan
from penstock.frozen import Frozen
from penstock.operators.ends import Sink, Source
from penstock.operators.op import ERRORS, LATE, OUT
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import PANED, Windows, why_not_pattern
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.patterns.pattern import PARTIALS

DRIVER = -1
"""The fragment number of the driver, where sinks are written that live in its process."""
FILES = -2
"""The fragment number of sinks whose files are written by the tasks that have the rows."""

Key = tuple[str, ...]


class Edge(Frozen):
    """One way out of a fragment.

    number    tells edges apart on the wire
    ref       whose rows it carries
    fragment  where they go
    step      the step that takes them there; None for rows that are collected
    key       the columns that decide the partition of a row; None when any partition will do
    schema    of its rows; of partials, that of the rows they are made of
    port      the input port of that step
    join      how rows reach the cells of a join, if the step is one
    """

    number: int
    ref: Ref
    fragment: int
    step: str | None
    key: Key | None
    schema: pa.Schema
    port: str = ""
    join: JoinExchange | None = None


class Fragment(Frozen):
    """The steps of one fragment, feeds first, and which of them read which port."""

    number: int
    steps: tuple[Step, ...]
    inside: Mapping[Ref, tuple[str, ...]]

    @property
    def keyed(self) -> bool:
        """Return whether rows must be on the partition of their key."""
        return self.number > 0


class Fragments(Frozen):
    """The whole plan: fragments in order, and all edges.

    partials   window step -> the edge on which its partial aggregates travel; rows may reach it as well
    placement  step -> its fragment; of sources, the driver
    """

    fragments: tuple[Fragment, ...]
    edges: tuple[Edge, ...]
    partials: Mapping[str, Edge]
    placement: Mapping[str, int]


def split_into_fragments(plan: Plan) -> Fragments:
    """Return a plan split into fragments: as few exchanges as the keys allow."""
    placement: dict[str, int] = {}
    partitioned_by: dict[Ref, Key | None] = {}
    for step in plan:
        placement[step.name] = _place(step, placement, partitioned_by)
        key = _partition_key(step, placement, partitioned_by)
        for port, stream in step.outputs.items():
            # Why: that a function keeps the key is only said, so rows are exchanged again behind it.
            is_said = bool(getattr(step.op, "keeps", ()))
            holds = key is not None and stream.key == key and not is_said and port not in (LATE, ERRORS)
            partitioned_by[Ref(step.name, port)] = key if holds else None
    fragments = []
    for number in range(max(placement.values()) + 1 or int(_needs_tasks(plan, placement))):
        steps = tuple(step for step in plan if placement[step.name] == number)
        inside: dict[Ref, tuple[str, ...]] = {}
        for step in steps:
            for ref in step.feeds:
                if placement[ref.step] == number:
                    inside[ref] = (*inside.get(ref, ()), step.name)
        fragments.append(Fragment(number, steps, inside))
    edges = _edges(plan, placement)
    return Fragments(tuple(fragments), tuple(edges), _partial_edges(plan, placement, len(edges)), placement)


def _needs_tasks(plan: Plan, placement: Mapping[str, int]) -> bool:
    """Return whether a plan without steps has work for tasks all the same: files to read, or to write."""
    readers = [step.op.reader for step in plan.sources if isinstance(step.op, Source)]
    return FILES in placement.values() or not all(map(lives_on_driver, readers))


def lives_on_driver(reader: Reader) -> bool:
    """Return whether a reader can only be read in the process of the driver."""
    return not isinstance(reader, FileReader | SparkReader | SparkStreamReader)


def state_key(step: Step) -> Key | None:
    """Return the key that a step keeps state by; None for a step without state."""
    return step.up.key if isinstance(step.op, Windows) or step.op.stateful else None


def keeps_state(step: Step) -> bool:
    """Return whether a step keeps state, by key or in the cells of a join."""
    return isinstance(step.op, StreamJoin) or state_key(step) is not None


def _place(step: Step, placement: Mapping[str, int], partitioned_by: Mapping[Ref, Key | None]) -> int:
    if isinstance(step.op, Sink):
        return FILES if isinstance(step.op.writer, StagingWriter) else DRIVER
    if isinstance(step.op, Source):
        return DRIVER
    latest = max(placement[ref.step] for ref in step.feeds)
    if isinstance(step.op, StreamJoin):
        return max(latest, 0) + 1
    key = state_key(step)
    if key is None:
        return max(latest, 0)
    there = all(placement[ref.step] == latest and partitioned_by[ref] == key for ref in step.feeds)
    return latest if there and latest > 0 else max(latest, 0) + 1


def _partition_key(
    step: Step, placement: Mapping[str, int], partitioned_by: Mapping[Ref, Key | None]
) -> Key | None:
    """Return the key by which the rows of a step are partitioned; None when there is none."""
    if isinstance(step.op, Source | Sink | StreamJoin):
        return None
    key = state_key(step)
    if key is not None:
        return key
    keys = {
        partitioned_by[ref] if placement[ref.step] == placement[step.name] else None for ref in step.feeds
    }
    return keys.pop() if len(keys) == 1 else None


def _edges(plan: Plan, placement: Mapping[str, int]) -> list[Edge]:
    """Return the edges that rows take, numbered through."""
    ends: list[tuple[Ref, Step | None, str]] = [
        (ref, step, port.port)
        for step in plan
        for port in step.inputs
        for ref in port.feeds
        if placement[ref.step] != placement[step.name] or placement[step.name] < 0
    ]
    ends += [(ref, None, "") for ref in plan.collects]
    edges = []
    for number, (ref, step, port) in enumerate(ends):
        schema = plan[ref.step].outputs[ref.port].schema
        if step is None:
            edges.append(Edge(number, ref, DRIVER, None, None, schema))
        else:
            join = (
                plan_join_exchange(step.op, *(port.stream for port in step.inputs))
                if isinstance(step.op, StreamJoin)
                else None
            )
            key, home = state_key(step), placement[step.name]
            edges.append(Edge(number, ref, home, step.name, key, schema, port, join))
    return edges


def _partial_edges(plan: Plan, placement: Mapping[str, int], n_edges: int) -> dict[str, Edge]:
    """Return the window steps that can be sent partial aggregates, and the edges for those.

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
        if begins and all(placement[name] < 0 for name in readers):
            ref, up = Ref(step.name, PARTIALS), step.up
            partials[step.name] = Edge(n_edges + len(partials), ref, home, step.name, up.key, up.schema)
    return partials


class FragmentPlan(Frozen):
    """What a worker must know of a fragment for the whole run; shipped with the users' functions in it.

    run           tells runs apart in a worker that serves several
    edges_in      the edges into the fragment, by number
    edges_out     the edges out of it, by whose rows they carry
    ports         step -> the output ports that are read
    sends         the window steps behind the exchange that are sent partials, and the edges for those
    sinks         the sinks that its tasks may have rows for: who writes them, and their columns
    sources       the ports of all sources with their columns; their places number them on the wire
    reads         source -> how tasks read files whose times are known
    stages        source -> how tasks read everything else
    """

    run: str
    fragment: Fragment
    edges_in: Mapping[int, Edge]
    edges_out: Mapping[Ref, tuple[Edge, ...]]
    ports: Mapping[str, frozenset[str]]
    sends: tuple[tuple[Step, Edge], ...] = ()
    sinks: Mapping[str, tuple[StagingWriter, pa.Schema]] = field(default_factory=dict)
    sources: tuple[tuple[Ref, pa.Schema], ...] = ()
    reads: Mapping[str, FileReadPlan] = field(default_factory=dict)
    stages: Mapping[str, SourceReadPlan] = field(default_factory=dict)


class RoundPlan(Frozen):
    """One round: its number, the time of the clock, and the watermarks of each step.

    fired    window step -> when it last fired early, before this round
    batches  source -> the number of its batch in this round, by which rows that were read are known
    """

    number: int
    now: int
    advances: Mapping[str, WatermarkAdvance]
    fired: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)


class RoundClock:
    """The clock as it was when the round began: the same on every worker and in every retry."""

    def __init__(self, us: int = 0) -> None:
        self.us = us

    def now(self) -> int:
        """Return the time of the round, in microseconds."""
        return self.us


class JobTask(Frozen):
    """What fragments are asked to do in one job.

    job    the name of this job
    after  the job whose state it continues: the last that was committed
    state  where the pieces of that state are, by step and bucket
    committed  sink -> the last round that is visible there: its rows are not written again
    n_partitions  of every exchange; jobs with more rows have more
    layouts  join -> its cells
    respread  joins whose state was saved by other cells, of which any may have rows that belong anywhere
    """

    rounds: tuple[RoundPlan, ...]
    job: str
    after: str
    state: StateHandles
    files: StateFiles
    committed: Mapping[str, int] = field(default_factory=dict)
    n_partitions: int = 1
    layouts: Mapping[str, JoinLayout] = field(default_factory=dict)
    respread: frozenset[str] = frozenset()

    def state_of(self, step: Step, partition: int) -> dict[int, StateHandle]:
        """Return where the state is that a step has on a partition, by bucket."""
        handles = self.state.get(step.name, {})
        if step.name in self.respread:
            return dict(handles)
        if isinstance(step.op, StreamJoin):
            owns, n, layout = (
                plan_join_exchange(step.op, *(port.stream for port in step.inputs)).owns,
                self.n_partitions,
                self.layouts[step.name],
            )
            return {bucket: at for bucket, at in handles.items() if owns(bucket, partition, n, layout)}
        return {bucket: at for bucket, at in handles.items() if bucket % self.n_partitions == partition}

    @property
    def rounds_of_batches(self) -> dict[tuple[str, int], RoundPlan]:
        """Return (source, batch) -> the round that takes the batch."""
        return {batch: round_ for round_ in self.rounds for batch in round_.batches.items()}


def plan_fragment(plan: Plan, fragments: Fragments, number: int, *, run: str) -> FragmentPlan:
    """Return what workers must know of one fragment of a plan.

    Rows of sources enter fragment 0, so what reads them is fed from there. It makes the partials of windows
    whose rows come straight from there, so late and failed rows of those windows leave from it too.
    """
    fragment, placement = fragments.fragments[number], fragments.placement
    sends = (
        ()
        if fragment.keyed
        else tuple(
            (plan[name], edge)
            for name, edge in fragments.partials.items()
            if any(placement[ref.step] <= 0 for ref in plan[name].feeds)
        )
    )
    sources, windows = {step.name for step in plan.sources}, {step.name for step, _ in sends}
    edges_out: dict[Ref, tuple[Edge, ...]] = {}
    for edge in fragments.edges:
        name, port = edge.ref.step, edge.ref.port
        is_source = not fragment.keyed and name in sources
        if placement[name] == number or is_source or (name in windows and port != OUT):
            edges_out[edge.ref] = (*edges_out.get(edge.ref, ()), edge)
    steps = {step.name for step in fragment.steps} | windows
    return FragmentPlan(
        run,
        fragment,
        {e.number: e for e in (*fragments.edges, *fragments.partials.values()) if e.fragment == number},
        edges_out,
        {name: frozenset(p for p in plan[name].outputs if plan.is_read(Ref(name, p))) for name in steps},
        sends,
        {
            step.name: (_ship(step.op.writer), step.up.schema)
            for step in plan.sinks
            if isinstance(step.op, Sink) and isinstance(step.op.writer, StagingWriter)
        },
        source_ports(plan),
    )


def _ship(writer: StagingWriter) -> StagingWriter:
    """Return a writer for tasks, whose working folder is not the driver's."""
    if isinstance(writer, FolderWriter | DeltaWriter):
        return replace(writer, folder=writer.folder.absolute())
    return writer


def source_ports(plan: Plan) -> tuple[tuple[Ref, pa.Schema], ...]:
    """Return the ports of all sources with their columns; their places number them on the wire."""
    return tuple(
        (Ref(step.name, port), stream.schema)
        for step in plan.sources
        for port, stream in step.outputs.items()
    )
