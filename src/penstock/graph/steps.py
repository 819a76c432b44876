"""The steps of a graph under construction: named, routed, and typed by what flows out of them.

Every error that leaves here says which step it is about, and which line of the user's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from penstock.caller import find_call_site
from penstock.errors import GraphError, PenstockError, SchemaError, Where, nearest_first
from penstock.graph.routing import Placement, may_fuse, placement_after, route
from penstock.operators.op import Degree, Op
from penstock.operators.stream import Stream
from penstock.plan.plan import Input, Ref, Step


@contextmanager
def locate_errors(step: str | None, where: Where | None) -> Iterator[None]:
    """Fill in step and line of an error on its way out, unless it already knows better."""
    try:
        yield
    except PenstockError as error:
        error.at(step, where)
        raise


# Two threads that build one graph must not find the same fresh name. One lock for all graphs, and not one
# each: a lock cannot be copied, and a graph can.
_ADDING = threading.RLock()


class Steps:
    """An ordered, append-only collection of steps; iterating gives the steps themselves."""

    def __init__(self, *, fuse: bool) -> None:
        self._fuse = fuse
        self._steps: dict[str, Step] = {}
        self._after: dict[str, Placement] = {}
        self._used: dict[str, int] = {}

    def add(
        self,
        make: Callable[[], Op],
        *,
        stem: str,
        name: str | None,
        inputs: tuple[Input, ...],
        fuse: bool | None = None,
    ) -> str:
        """Make an operator, check it against its inputs, and keep it as a step; returns the step's name.

        `fuse` None leaves fusing to the graph's own setting and the rules.
        """
        with _ADDING:
            return self._add(make, stem=stem, name=name, inputs=inputs, fuse=fuse, where=find_call_site())

    def _add(
        self,
        make: Callable[[], Op],
        *,
        stem: str,
        name: str | None,
        inputs: tuple[Input, ...],
        fuse: bool | None,
        where: Where | None,
    ) -> str:
        label = self._fresh(stem) if name is None else name
        with locate_errors(str(label), where):
            if not isinstance(label, str) or not label.strip() or not label.isprintable():
                raise GraphError(f"{label!r} cannot name a step", hint='use a plain text: name="views"')
            if label in self._steps:
                raise GraphError(
                    f'there are two steps named "{label}"',
                    detail=f"the first one is at {self._steps[label].where}",
                    hint="give one of them another name=",
                )
            op = make()
            inputs = _apply_own_key(op, inputs)
            streams = {fed.port: fed.stream for fed in inputs}
            outputs = op.outputs(streams)
            up = inputs[0].stream if inputs else next(iter(outputs.values()))
            at = self.placement(inputs[0].feeds) if inputs else Placement(Degree(1, 1))
            if len([fed for fed in inputs if not fed.control]) > 1:
                at = replace(at, merged=True)
            routing, degree = route(op, up, at)
            fused = (self._fuse if fuse is None else fuse) and may_fuse(op, routing, degree, at)
            apart = op.dedicated or any(self._is_dedicated(fed) for fed in inputs)
        if name is None:
            self._used[stem] = self._used.get(stem, 0) + 1
        self._steps[label] = Step(label, op, inputs, outputs, degree, routing, fused and not apart, where)
        first = next(iter(outputs.values()), up)
        self._after[label] = placement_after(up, first, at, routing, degree)
        return label

    def _is_dedicated(self, fed: Input) -> bool:
        """Whether rows come from a step with a thread of its own, which does nobody else's work."""
        return any(self._steps[ref.step].op.dedicated for ref in fed.feeds)

    def feed_back(self, target: str, port: str, feeds: tuple[Ref, ...], stream: Stream) -> None:
        """Close a loop: feed a control port of an earlier step."""
        step = self._steps.get(target)
        if step is None:
            raise self.unknown(target)
        if port not in _control_ports(step.op):
            able = ", ".join(_control_ports(step.op)) or "none"
            raise GraphError(
                f'port "{port}" of step "{target}" cannot close a loop',
                step=target,
                detail=f"only a control port can, since its rows push nothing; it has {able}",
                hint='declare it in the operator: control = ("limit",)',
            )
        fed = next((old for old in step.inputs if old.port == port), None)
        if fed is not None and not fed.stream.schema.equals(stream.schema):
            raise SchemaError(
                f'port "{port}" of step "{target}" is fed rows of other columns already',
                step=target,
                detail=f"it has {', '.join(fed.stream.columns)}, and would get {', '.join(stream.columns)}",
                hint="bring both into one form first: .select(...)",
            )
        others = tuple(other for other in step.inputs if other is not fed)
        together = (*fed.feeds, *feeds) if fed is not None else feeds
        added = Input(port, tuple(dict.fromkeys(together)), stream, control=True)
        self._steps[target] = replace(step, inputs=(*others, added))

    def unknown(self, name: object) -> GraphError:
        """The error for a step that is not there."""
        names = nearest_first(str(name), self._steps)
        return GraphError(
            f'there is no step "{name}"',
            detail=f"the steps are {', '.join(names[:12])}",
            hint=f'did you mean "{names[0]}"?' if names else "begin with graph.source(...)",
        )

    def placement(self, feeds: tuple[Ref, ...]) -> Placement:
        """Where rows are on a pipe; a merged pipe is spread like its first feed."""
        first = self._after[feeds[0].step]
        return first if len(feeds) == 1 else Placement(first.degree, None, merged=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(self._steps)

    def __getitem__(self, name: str) -> Step:
        return self._steps[name]

    def __iter__(self) -> Iterator[Step]:
        return iter(tuple(self._steps.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._steps

    def __len__(self) -> int:
        return len(self._steps)

    def _fresh(self, stem: str) -> str:
        number = self._used.get(stem, 0) + 1
        while (label := stem if number == 1 else f"{stem}-{number}") in self._steps:
            number = self._used[stem] = number + 1
        return label


def _control_ports(op: Op) -> tuple[str, ...]:
    return tuple(getattr(getattr(op, "operator", None), "control", ()))


def _apply_own_key(op: Op, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """An operator object may bring its own key: `Map(fn, state=list, key="user")`."""
    if op.key is None or not inputs:
        return inputs
    assert isinstance(op.key, tuple), "made so by Op.__post_init__"
    first = inputs[0]
    first.stream.require_key(*op.key)
    return (replace(first, stream=replace(first.stream, key=op.key)), *inputs[1:])
