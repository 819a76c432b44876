"""A step: an operator at its place in a graph, with a name, its inputs, and what flows out of it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import Where
from penstock.frozen import dataclass
from penstock.operators.op import OUT, Degree, Op, Routing
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Ref:
    """One output port of a step."""

    step: str
    port: str = OUT

    def __str__(self) -> str:
        return self.step if self.port == OUT else f"{self.step}.{self.port}"


@dataclass(frozen=True, slots=True)
class Input:
    """One input port of a step and what feeds it; several feeds are merged.

    `control` ports change an operator's state and carry no data downstream; only they may close a loop.
    """

    port: str
    feeds: tuple[Ref, ...]
    stream: Stream
    control: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """An operator in its place.

    name     unique in the graph; names errors, events, state and the picture
    op       what it does
    inputs   data ports in the operator's order, then control ports
    outputs  port -> stream, `late` and `errors` among them where the operator has them
    degree   replicas
    routing  how rows reach the replicas; None for a source
    fuse     whether it asks to run in one node with the step before it
    where    the user's line that wrote it
    """

    name: str
    op: Op
    inputs: tuple[Input, ...]
    outputs: Mapping[str, Stream]
    degree: Degree
    routing: Routing | None
    fuse: bool
    where: Where | None

    @property
    def up(self) -> Stream:
        """What flows into the only data port."""
        return self.inputs[0].stream

    @property
    def feeds(self) -> tuple[Ref, ...]:
        """Everything that flows in, on any port."""
        return tuple(ref for given in self.inputs for ref in given.feeds)

    @property
    def data_feeds(self) -> tuple[Ref, ...]:
        """What flows in on data ports."""
        return tuple(ref for given in self.inputs if not given.control for ref in given.feeds)
