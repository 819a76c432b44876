"""The checks that need the whole graph: sinks, dead letters, early results, input that a sink removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.blocks import Composition, Derivation, Distribution, Kind, Node, Operator, derive
from penstock.blocks import Input as Edge
from penstock.caller import find_call_site
from penstock.connect.protocol import Reader
from penstock.errors import GraphError
from penstock.frozen import dataclass
from penstock.operators.map import Filter
from penstock.operators.op import ERRORS, IN, JOIN, OUT, OnError, Op, Routing
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.split import Relay, Split
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import FINAL, Windows
from penstock.plan.plan import Input, Plan, Ref, Step


def checked_plan(
    graph: str,
    steps: Iterable[Step],
    *,
    collects: tuple[Ref, ...] = (),
    composition: Composition = "combined",
) -> Plan:
    """The plan of what the sinks need, or of what the collected ports need; raises what is wrong."""
    everything = tuple(steps)
    by_name = {step.name: step for step in everything}
    wanted = [ref.step for ref in collects] or [step.name for step in everything if isinstance(step.op, Sink)]
    if not wanted:
        raise GraphError(
            f'graph "{graph}" has no sink, so nothing would come of it',
            where=find_call_site(),
            detail=f"its steps are {', '.join(by_name)}" if by_name else "it has no steps at all",
            hint="end a pipe with .sink(ps.write.memory()), or take rows in hand with pipe.collect()",
        )
    needed = _upstream(wanted, by_name)
    kept = tuple(step for step in everything if step.name in needed)
    kept, derived = _met(kept, composition)
    plan = Plan(graph, kept, collects, derived)
    for step in plan:
        _refuse_lost_letters(step, plan)
        _refuse_early(step, plan)
    _refuse_own_input(plan)
    return plan


def _met(steps: tuple[Step, ...], composition: Composition) -> tuple[tuple[Step, ...], Derivation | None]:
    """The steps and their derivation, with relays where a merged pipe is used twice and no rule covers it."""
    try:
        return steps, _derived(steps, composition)
    except GraphError:
        from penstock.plan.check import with_relays

        relayed = with_relays(steps)
        if relayed is None:
            raise
        try:
            return relayed, _derived(relayed, composition)
        except GraphError:  # it is something else, and the user did not write the relays
            pass
        raise


def _derived(steps: Sequence[Step], composition: Composition) -> Derivation | None:
    """The graph by the algebra, which refuses merges that no rule covers.

    Where nothing merges and nothing follows a sink there is nothing to refuse, and the rules are not loaded.
    """
    sinks = {step.name for step in steps if isinstance(step.op, Sink)}
    if all(len(step.feeds) < 2 and not sinks.intersection(ref.step for ref in step.feeds) for step in steps):
        return None
    from penstock.plan.check import derivation

    return derivation(steps, composition=composition)


def _upstream(wanted: Iterable[str], by_name: Mapping[str, Step]) -> set[str]:
    needed: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [ref.step for ref in by_name[name].feeds]
    return needed


def _refuse_lost_letters(step: Step, plan: Plan) -> None:
    if (
        step.op.on_error == OnError.DEAD_LETTER
        and not plan.collects
        and not plan.is_read(Ref(step.name, ERRORS))
    ):
        raise GraphError(
            f'dead-lettered rows of step "{step.name}" go nowhere',
            step=step.name,
            where=step.where,
            hint=f'sink them: graph["{step.name}"].errors.sink(...), or only count them: on_error="skip"',
        )


def _refuse_early(step: Step, plan: Plan) -> None:
    if not isinstance(step.op, Windows) or step.op.early is None:
        return
    for reader in _reached_by_early(step.name, plan):
        below = plan[reader].op
        if isinstance(below, Windows) or below.kind == JOIN:
            raise GraphError(
                f'early results of step "{step.name}" reach step "{reader}", which would count them again',
                step=step.name,
                where=step.where,
                hint='keep only final results: .filter(col("final")) before it',
            )
        if isinstance(below, Sink) and not below.writer.accepts_updates:
            raise GraphError(
                f'early results of step "{step.name}" reach sink "{reader}", which cannot take updates',
                step=step.name,
                where=step.where,
                detail=f"it writes {below.writer.describe()}",
                hint='keep only final results, .filter(col("final")), or use a sink that accepts updates',
            )


def _refuse_own_input(plan: Plan) -> None:
    """A sink that starts its folder over would remove what the graph has still to read."""
    if not plan.sinks or not any(hasattr(_reader(step.op), "reads_in") for step in plan):
        return
    from penstock.connect.readers.directory_watcher import DirectoryWatcher
    from penstock.connect.readers.files import FileReader
    from penstock.connect.writers.folder import FolderWriter

    kinds = FileReader | DirectoryWatcher
    files = {step.name: reader for step in plan if isinstance(reader := _reader(step.op), kinds)}
    for sink in plan.sinks:
        writer = sink.op.writer if isinstance(sink.op, Sink) else None
        for name, reader in files.items():
            if isinstance(writer, FolderWriter) and reader.reads_in(writer.folder):
                raise GraphError(
                    f'sink "{sink.name}" writes to "{writer.folder}", which step "{name}" reads',
                    step=sink.name,
                    where=sink.where,
                    hint="write to another folder",
                )


def _reader(op: Op) -> Reader | None:
    if isinstance(op, Source):
        return op.reader
    return op.table if isinstance(op, TableJoin) else None


def _reached_by_early(name: str, plan: Plan) -> set[str]:
    """The steps below a window that may see results that are not final."""
    below: set[str] = set()
    waiting = [name]
    while waiting:
        step = plan[waiting.pop()]
        if isinstance(step.op, Filter) and str(step.op.how) == f'col("{FINAL}")':
            continue
        # Late and failed rows of the window itself are rows that came in, not results.
        ports = [OUT] if step.name == name else list(step.outputs)
        for reader in (who for port in ports for who, _ in plan.readers(Ref(step.name, port))):
            if reader not in below:
                below.add(reader)
                waiting.append(reader)
    return below


# A merged pipe that is used twice: the algebra merges once, so a relay stands where the pipes meet.
#
# Pipes meet at the step that reads them. Where several steps read the same ones there is no such step, and
# each would merge a branch of every pipe with branches of others, which no rule covers. One that passes
# rows on unchanged gives them a place to meet, from where they part again.


def with_relays(steps: Sequence[Step]) -> tuple[Step, ...] | None:
    """The steps with a relay before those that read the same merged pipe; None if no two do."""
    merged = [given.feeds for step in steps for given in step.inputs if _is_merged(given)]
    shared = {feeds for feeds, n in Counter(merged).items() if n > 1}
    if not shared:
        return None
    by_name = {step.name: step for step in steps}
    relays: dict[tuple[Ref, ...], Step] = {}
    found: list[Step] = []
    for step in steps:
        inputs = []
        for given in step.inputs:
            at = given
            if _is_merged(given) and given.feeds in shared:
                if given.feeds not in relays:
                    relay = relays[given.feeds] = _relay(step, given, by_name)
                    by_name[relay.name] = relay
                    found.append(relay)
                at = replace(given, feeds=(Ref(relays[given.feeds].name),))
            inputs.append(at)
        found.append(replace(step, inputs=tuple(inputs)))
    return tuple(found)


def _is_merged(given: Input) -> bool:
    return len(given.feeds) > 1 and not given.control


def _relay(step: Step, given: Input, by_name: dict[str, Step]) -> Step:
    """As wide as the first pipe; keys are the readers' own."""
    name = Relay.verb
    number = 1
    while name in by_name:
        number += 1
        name = f"{Relay.verb}-{number}"
    stream = replace(given.stream, key=())
    wide = by_name[given.feeds[0].step].degree
    return Step(
        name,
        Relay(),
        (Input(IN, given.feeds, stream),),
        {OUT: stream},
        wide,
        Routing.FORWARD,
        fuse=False,
        where=step.where,
    )


# A plan's steps as the nodes that the building-block algebra composes.
#
# Splits are not operators there: they fold into what feeds them, and each branch becomes an edge from the
# operator before the split. Late and error rows are branches by tag; control edges from below are notes.

_DISTRIBUTION = {
    None: Distribution.NONE,
    Routing.FORWARD: Distribution.FORWARD,
    Routing.KEY_BY: Distribution.KEY_BY,
    Routing.BROADCAST: Distribution.BROADCAST,
    Routing.REBALANCE: Distribution.REBALANCE,
    Routing.COMPLEX: Distribution.COMPLEX,
}


def derivation(steps: Sequence[Step], *, composition: Composition = "combined") -> Derivation:
    """The term of a graph, and which rule made which part of it."""
    wires = _Wires.of(steps)
    nodes = [wires.node(step) for step in steps if step.name not in wires.splits]
    names: dict[str, str] = {}
    for split in wires.splits.values():  # several on one pipe part it together
        above = split.feeds[0].step
        names[above] = f"{names[above]}+{split.name}" if above in names else split.name
    return derive(nodes, splits=names, composition=composition)


@dataclass(frozen=True, slots=True)
class _Wires:
    """Splits by name, each step's place in the order, and the only output port of steps that have one."""

    splits: Mapping[str, Step]
    rank: Mapping[str, int]
    lone: Mapping[str, str]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> _Wires:
        splits = {step.name: step for step in steps if isinstance(step.op, Split)}
        rank = {step.name: index for index, step in enumerate(steps)}
        lone = {step.name: next(iter(step.outputs)) for step in steps if len(step.outputs) == 1}
        return cls(splits, rank, lone)

    def node(self, step: Step) -> Node:
        operator = Operator(step.name, Kind(step.op.kind), step.degree.least, _DISTRIBUTION[step.routing])
        edges = tuple(
            self._edge(ref, feedback=given.control and self.rank[ref.step] >= self.rank[step.name])
            for given in step.inputs
            for ref in given.feeds
        )
        return Node(operator, edges, chain=step.fuse, where=step.where)

    def _edge(self, ref: Ref, *, feedback: bool) -> Edge:
        split = self.splits.get(ref.step)
        if split is None:
            # An operator with one way out needs no filter by tag, whatever the port is called.
            return Edge(ref.step, OUT if self.lone.get(ref.step) == ref.port else ref.port, feedback)
        above = split.feeds[0]
        branch = f"{split.name}.{ref.port}" if above.port == OUT else f"{above.port}.{split.name}.{ref.port}"
        return Edge(above.step, branch, feedback)
