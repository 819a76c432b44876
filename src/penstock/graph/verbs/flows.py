"""Verbs that part and join flows: split, merge, sink, feed_back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.caller import find_call_site
from penstock.connect.protocol import Writer
from penstock.errors import GraphError, SchemaError, TimeError, nearest_first
from penstock.expr import Expr
from penstock.graph.steps import placed
from penstock.graph.verbs.base import Verbs
from penstock.operators.op import Parallelism
from penstock.operators.sink import Sink
from penstock.operators.split import Relay, Split
from penstock.operators.stream import Stream
from penstock.plan.plan import Ref

if TYPE_CHECKING:
    from penstock.graph.multipipe import MultiPipe


class Branches:
    """The branches of a split: by name or index, or unpacked: `a, b = pipe.split(fn, 2)`."""

    def __init__(self, pipes: dict[str, MultiPipe], step: str) -> None:
        self._pipes = pipes
        self._step = step

    def __getitem__(self, branch: str | int) -> MultiPipe:
        pipe = self._pipes.get(str(branch))
        if pipe is None:
            names = ", ".join(nearest_first(str(branch), self._pipes))
            raise GraphError(
                f"there is no branch {branch!r}",
                step=self._step,
                where=find_call_site(),
                detail=f"the branches are {names}",
                hint=f'did you mean "{nearest_first(str(branch), self._pipes)[0]}"?',
            )
        return pipe

    def __iter__(self) -> Iterator[MultiPipe]:
        return iter(self._pipes.values())

    def __len__(self) -> int:
        return len(self._pipes)


class SinkHandle:
    """The end of a pipe; nothing comes after it."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise GraphError(
            f'nothing comes after a sink: .{name} on sink "{self.step}"',
            step=self.step,
            where=find_call_site(),
            hint="put it before .sink(...)",
        )

    def __repr__(self) -> str:
        return f"SinkHandle({self.step!r})"


class Flows(Verbs):
    """Where rows go."""

    __slots__ = ()

    def split(
        self,
        function: object = None,
        n: int | None = None,
        /,
        *,
        name: str | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
        **branches: Expr,
    ) -> Branches:
        """Send rows to branches: `split(fn, 2)` by index, `split(view=expr, click=expr)` by predicate.

        The function gives an index, several, or None: several mean a copy each, none counts as unrouted.
        """
        from penstock.graph.multipipe import MultiPipe

        with placed(name or Split.verb, find_call_site()):
            if (function is None) == (not branches) or (function is not None and n is None):
                raise GraphError(
                    "split takes a function and a number of branches, or branches by name",
                    hint='split(fn, 2), or split(view=col("type") == "view", click=col("type") == "click")',
                )
            into = n if n is not None else branches
            op = Split(function, into, name=name, on_error=on_error, dedicated=dedicated)
        made = self._one_operator()._then(lambda: op, stem=Split.verb, name=name, fuse=True)
        step = made.feeds[0].step
        return Branches({port: MultiPipe(self.graph, (Ref(step, port),)) for port in op.names}, step)

    def merge(self, *others: MultiPipe) -> MultiPipe:
        """All rows of several pipes as one; they must have the same columns and the same kind of time."""
        from penstock.graph.multipipe import MultiPipe

        with placed(None, find_call_site()):
            if not others:
                raise GraphError("merge needs another pipe", hint="a.merge(b)")
            stream = self.stream
            for other in others:
                if not isinstance(other, MultiPipe):
                    raise GraphError(
                        f"merge takes other pipes, and got {type(other).__name__}",
                        hint="a.merge(b), with a and b of one graph",
                    )
                other.as_input("in", self.graph)
                _same_columns(stream, other.stream)
            feeds = tuple(ref for pipe in (self, *others) for ref in pipe.feeds)
            if len(set(feeds)) < len(feeds):
                raise GraphError(
                    "a pipe cannot be merged with itself",
                    detail=f"the feeds are {', '.join(map(str, feeds))}",
                    hint="for every row twice, let a map between make them different pipes",
                )
            alike = all(other.stream.key == stream.key for other in others)
        return MultiPipe(self.graph, feeds, stream if alike else stream.unkeyed())

    def sink(
        self,
        writer: Writer,
        *,
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        routing: str | None = None,
        dedicated: bool = False,
    ) -> SinkHandle:
        """Write the rows out."""
        end = self._then(
            lambda: Sink(
                writer,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                routing=routing,
                dedicated=dedicated,
            ),
            stem=Sink.verb,
            name=name,
        )
        return SinkHandle(end.feeds[0].step)

    def feed_back(self, to: str, port: str) -> None:
        """Close a loop: send rows to a control port of an earlier step, which takes them a round later."""
        with placed(None, find_call_site()):
            self.graph.steps.feed_back(to, port, self.feeds, self.stream)

    def _one_operator(self) -> Verbs:
        """A split parts what one operator gives; where pipes meet or a branch parts again, a relay."""
        first = self.graph.steps[self.feeds[0].step]
        if len(self.feeds) == 1 and not isinstance(first.op, Split):
            return self
        return self._then(Relay, stem=Relay.verb, name=None)


def _same_columns(left: Stream, right: Stream) -> None:
    ours = [(field.name, field.type) for field in left.schema]
    theirs = [(field.name, field.type) for field in right.schema]
    if ours != theirs:
        differing = [f"{name}: {type_}" for name, type_ in theirs if (name, type_) not in ours]
        missing = [f"{name}: {type_}" for name, type_ in ours if (name, type_) not in theirs]
        told = [f"only the first has {', '.join(missing)}"] if missing else []
        told += [f"only the second has {', '.join(differing)}"] if differing else []
        raise SchemaError(
            "merged pipes must have the same columns in the same order",
            detail="; ".join(told) or "the same columns come in another order",
            hint="bring them into one form first: .select(...)",
        )
    if left.time != right.time:
        raise TimeError(
            f"merged pipes must agree on time: {left.time or 'none'} meets {right.time or 'none'}",
            hint="give both sources time= of one type",
        )
