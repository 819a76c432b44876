"""A plan cut into fragments: the steps that rows pass without changing the worker they are on.

Fragment 0 needs nothing but the row; every later fragment begins with an exchange by key, because its steps
keep state
per key. Edges are what crosses: from a fragment (or from the driver, where sources are) to a later
fragment, or back to
the driver, where sinks are. A step whose rows already lie where its key needs them stays in its fragment.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.frozen import dataclass
from penstock.operators.choices.patterns import PANED, why_not_pattern
from penstock.operators.ends import Sink, Source
from penstock.operators.op import ERRORS, LATE
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.patterns.partial_stores import PARTIALS

DRIVER = -1
"""Where sources are read and sinks written."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One way out of a fragment.

    number  tells edges apart on the wire
    ref     whose rows
    fragment     where they go
    step    who takes them there; None for rows that are collected
    key     the columns that say which part a row goes to; None when any will do
    """

    number: int
    ref: Ref
    fragment: int
    step: str | None
    key: Key | None


@dataclass(frozen=True, slots=True)
class Fragment:
    """The steps of one fragment, feeds first, and who in the fragment reads which port."""

    number: int
    steps: tuple[Step, ...]
    inside: Mapping[Ref, tuple[str, ...]]

    @property
    def keyed(self) -> bool:
        """Whether rows must be on the part of their key."""
        return self.number > 0


@dataclass(frozen=True, slots=True)
class Fragments:
    """The whole plan: fragments in order, and all edges.

    parts  window step -> the edge on which its parts travel; rows may come to it as well
    """

    fragments: tuple[Fragment, ...]
    edges: tuple[Edge, ...]
    parts: Mapping[str, Edge]

    def leaving(self, fragment: int, plan: Plan) -> dict[Ref, tuple[Edge, ...]]:
        """The edges out of a fragment, by whose rows they carry."""
        found: dict[Ref, tuple[Edge, ...]] = {}
        homes = self.homes(plan)
        for edge in self.edges:
            if homes[edge.ref.step] == fragment:
                found[edge.ref] = (*found.get(edge.ref, ()), edge)
        return found

    def homes(self, plan: Plan) -> dict[str, int]:
        """The fragment of every step."""
        found = {step.name: fragment.number for fragment in self.fragments for step in fragment.steps}
        return {step.name: found.get(step.name, DRIVER) for step in plan}


def split_into_fragments(plan: Plan) -> Fragments:
    """Cut a plan into fragments."""
    homes: dict[str, int] = {}
    lies_by: dict[Ref, Key | None] = {}
    for step in plan:
        homes[step.name] = _home(step, homes, lies_by)
        for port, stream in step.outputs.items():
            by = _lies_by(step, homes, lies_by)
            kept = by is not None and stream.key == by and port not in (LATE, ERRORS)
            lies_by[Ref(step.name, port)] = by if kept else None
    last = max(homes.values())
    fragments = tuple(_fragment(plan, number, homes) for number in range(last + 1))
    edges = _edges(plan, homes)
    return Fragments(fragments, tuple(edges), _parts(plan, homes, edges))


def key_of(step: Step) -> Key | None:
    """The key that a step keeps state by; None for a step that keeps none."""
    return step.up.key if isinstance(step.op, Windows) or step.op.stateful else None


def _home(step: Step, homes: Mapping[str, int], lies_by: Mapping[Ref, Key | None]) -> int:
    if isinstance(step.op, Source | Sink):
        return DRIVER
    latest = max(homes[ref.step] for ref in step.feeds)
    key = key_of(step)
    if key is None:
        return max(latest, 0)
    there = all(homes[ref.step] == latest and lies_by[ref] == key for ref in step.feeds)
    return latest if there and latest > 0 else max(latest, 0) + 1


def _lies_by(step: Step, homes: Mapping[str, int], lies_by: Mapping[Ref, Key | None]) -> Key | None:
    """The key by which a step's rows lie on parts; None when they lie anyhow."""
    if isinstance(step.op, Source | Sink):
        return None
    key = key_of(step)
    if key is not None:
        return key
    found = {lies_by[ref] if homes[ref.step] == homes[step.name] else None for ref in step.feeds}
    return found.pop() if len(found) == 1 else None


def _fragment(plan: Plan, number: int, homes: Mapping[str, int]) -> Fragment:
    steps = tuple(step for step in plan if homes[step.name] == number)
    inside: dict[Ref, tuple[str, ...]] = {}
    for step in steps:
        for ref in step.feeds:
            if homes[ref.step] == number:
                inside[ref] = (*inside.get(ref, ()), step.name)
    return Fragment(number, steps, inside)


def _edges(plan: Plan, homes: Mapping[str, int]) -> list[Edge]:
    edges: list[Edge] = []
    for step in plan:
        for ref in step.feeds:
            crosses = homes[ref.step] != homes[step.name] or homes[step.name] == DRIVER
            if crosses:
                edges.append(Edge(len(edges), ref, homes[step.name], step.name, key_of(step)))
    edges += [Edge(len(edges) + i, ref, DRIVER, None, None) for i, ref in enumerate(plan.collects)]
    return edges


def _parts(plan: Plan, homes: Mapping[str, int], edges: list[Edge]) -> dict[str, Edge]:
    """The window steps that can be sent parts, whose late and failed rows then leave before the exchange.

    Nobody may work on those rows in the fragment of the windows; and the windows must begin the fragment.
    """
    found: dict[str, Edge] = {}
    for step in plan:
        if (
            not isinstance(step.op, Windows)
            or why_not_pattern(PANED, step.op, step.up, totally_ordered=False) is not None
        ):
            continue
        home = homes[step.name]
        sides = [who for port in (LATE, ERRORS) for who, _ in plan.readers(Ref(step.name, port))]
        if all(homes[ref.step] < home for ref in step.feeds) and all(homes[who] == DRIVER for who in sides):
            number = len(edges) + len(found)
            found[step.name] = Edge(number, Ref(step.name, PARTIALS), home, step.name, step.up.key)
    return found
