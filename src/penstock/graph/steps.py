"""The steps of a graph under construction: named, routed, and typed by what flows out of them.

A step gets its routing and its number of replicas as it is added. `key_by` takes effect at the first step
that needs the key: maps and filters in between run where the rows are. A step that follows keyed steps of the
same key and degree needs no second shuffle. Every error that leaves here says which step it is about, and
which line of the user's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from penstock.caller import find_call_site
from penstock.errors import GraphError, PenstockError, SchemaError, Where, nearest_first
from penstock.frozen import Frozen
from penstock.operators.ends import Source
from penstock.operators.op import ERRORS, JOIN, LATE, LATE_RIGHT, Degree, Op, Routing, Stream, degree
from penstock.operators.process import Process
from penstock.operators.windows import Windows
from penstock.plan.plan import Input, Ref, Step

# Why one lock for all graphs: two threads that build one graph must not choose the same fresh name, and a
# lock of its own would keep a graph from being copied.
_LOCK = threading.RLock()


@contextmanager
def locate_errors(step: str | None, where: Where | None) -> Iterator[None]:
    """Fill in step and line of an error on its way out, unless it already knows better."""
    try:
        yield
    except PenstockError as error:
        error.at(step, where)
        raise


class Partitioning(Frozen):
    """How rows are spread as they arrive: over how many replicas, and by which key, if by any."""

    degree: Degree
    key: tuple[str, ...] | None = None
    merged: bool = False


class Steps(dict[str, Step]):
    """The steps so far, by name, in the order they were written; only added to, by `add`."""

    def __init__(self, *, fuse: bool) -> None:
        super().__init__()
        self._fuse = fuse
        self._after: dict[str, Partitioning] = {}
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
        """Make an operator, check it against its inputs, and keep it as a step; return the step's name.

        `fuse` None leaves fusing to the graph's own setting and the rules.
        """
        with _LOCK:
            label, where = name, find_call_site()
            if label is None:  # the verb, numbered from the second such step on
                number = self._used.get(stem, 0) + 1
                while (label := stem if number == 1 else f"{stem}-{number}") in self:
                    number = self._used[stem] = number + 1
            with locate_errors(str(label), where):
                if not isinstance(label, str) or not label.strip() or not label.isprintable():
                    raise GraphError(f"{label!r} cannot name a step", hint='use a plain text: name="views"')
                if label in self:
                    raise GraphError(
                        f'there are two steps named "{label}"',
                        detail=f"the first one is at {self[label].where}",
                        hint="give one of them another name=",
                    )
                step, partitioning = self._place(make(), label, inputs, fuse, where)
            if name is None:
                self._used[stem] = self._used.get(stem, 0) + 1
            self[label], self._after[label] = step, partitioning
            return label

    def _place(
        self, op: Op, label: str, inputs: tuple[Input, ...], fuse: bool | None, where: Where | None
    ) -> tuple[Step, Partitioning]:
        """Return the step of an operator, and where its rows are when they leave it."""
        if op.key is not None and inputs:  # an operator object may bring its own key
            assert isinstance(op.key, tuple), "made so by Op.__post_init__"
            inputs[0].stream.require_key(*op.key)
            inputs = (replace(inputs[0], stream=inputs[0].stream.with_key(*op.key)), *inputs[1:])
        outputs = op.outputs({fed.port: fed.stream for fed in inputs})
        for port, stream in outputs.items():
            if stream.lost_key is not None and stream.lost_key.step is None:
                lost = replace(stream.lost_key, step=label, where=where)
                outputs[port] = replace(stream, lost_key=lost)
        up = inputs[0].stream if inputs else next(iter(outputs.values()))
        at = self.partitioning(inputs[0].feeds) if inputs else Partitioning(Degree(1, 1))
        if len([fed for fed in inputs if not fed.control]) > 1:
            at = replace(at, merged=True)
        routing, replicas = choose_routing(op, up, at)
        same_place = routing is Routing.FORWARD and replicas == at.degree and not at.merged
        # Why: a dedicated thread serves one step, so neither that step nor the ones it feeds are fused.
        alone = op.dedicated or any(self[ref.step].op.dedicated for fed in inputs for ref in fed.feeds)
        fused = (self._fuse if fuse is None else fuse) and op.chainable and same_place and not alone
        key = (up.key or None) if routing is Routing.KEY_BY else at.key if same_place else None
        # Why: that a function keeps the key is only said. Rows go to their key anew, so that no answer
        # depends on whether it is true.
        if key != next(iter(outputs.values()), up).key or bool(getattr(op, "keeps", ())):
            key = None
        step = Step(label, op, inputs, outputs, replicas, routing, fused, where)
        return step, Partitioning(replicas, key)

    def feed_back(self, target: str, port: str, feeds: tuple[Ref, ...], stream: Stream) -> None:
        """Close a loop: feed a control port of an earlier step."""
        step = self.get(target)
        if step is None:
            raise self.unknown(target)
        control = step.op.operator.control if isinstance(step.op, Process) else ()
        if port not in control:
            raise GraphError(
                f'port "{port}" of step "{target}" cannot close a loop',
                step=target,
                detail=f"only a control port can, since its rows push nothing; it has "
                f"{', '.join(control) or 'none'}",
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
        together = (*fed.feeds, *feeds) if fed is not None else feeds
        closed = Input(port, tuple(dict.fromkeys(together)), stream, control=True)
        self[target] = replace(step, inputs=(*(old for old in step.inputs if old is not fed), closed))

    def unknown(self, name: object) -> GraphError:
        """Return the error for a step that does not exist."""
        names = nearest_first(str(name), self)
        return GraphError(
            f'there is no step "{name}"',
            detail=f"the steps are {', '.join(names[:12])}",
            hint=f'did you mean "{names[0]}"?' if names else "begin with graph.source(...)",
        )

    def partitioning(self, feeds: tuple[Ref, ...]) -> Partitioning:
        """Return where rows are on a pipe; a merged pipe is spread like its first feed.

        Late and failed rows may leave a step before they reach the replica of their key.
        """
        first = self._after[feeds[0].step]
        if len(feeds) == 1 and feeds[0].port in (LATE, LATE_RIGHT, ERRORS):
            return Partitioning(first.degree, None)
        return first if len(feeds) == 1 else Partitioning(first.degree, None, merged=True)


def choose_routing(op: Op, up: Stream, at: Partitioning) -> tuple[Routing | None, Degree]:
    """Return how rows reach a step, and its number of replicas; raise when that cannot be had."""
    replicas = degree(op.parallelism)
    if replicas is None and op.kind == JOIN and isinstance(getattr(op, "layout", None), tuple):
        replicas = Degree(op.layout[0] * op.layout[1], op.layout[0] * op.layout[1])  # type: ignore[attr-defined]
    if replicas is None:
        # One group has one owner, and a driver loop keeps its own state.
        alone = isinstance(op, Windows) and not up.key and op.pattern == "keyed"
        replicas = Degree(1, 1) if alone or isinstance(op, Process) else at.degree
    if isinstance(op, Source):
        return None, replicas
    routing = op.own_routing
    if op.routing is not None and routing != op.routing:
        raise GraphError(
            f'routing="{op.routing}" cannot be had here: {op.verb} is routed by "{routing}"',
            hint="leave routing out",
        )
    if routing is Routing.BROADCAST and replicas.elastic:
        raise GraphError(
            "a broadcast step cannot be elastic",
            detail="every replica gives its own copy of each row",
            hint="use a fixed parallelism",
        )
    if routing is not Routing.KEY_BY:
        return routing or Routing.FORWARD, replicas
    if op.routing == Routing.KEY_BY:  # a shuffle that is asked for by name is never left out
        if up.lost_key is not None:
            raise up.lost_key.refuse('routing="key_by"', up.schema)
        if not up.key:
            raise GraphError(
                'routing="key_by" needs a key', hint='say .key_by("user") before it, or key="user"'
            )
        return routing, replicas
    partitioned = bool(up.key) and at.key == up.key and not at.merged and at.degree == replicas
    return (Routing.FORWARD if partitioned else routing), replicas
