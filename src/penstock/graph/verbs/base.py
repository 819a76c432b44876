"""What the verbs of a MultiPipe may rely on: the pipe itself, as far as they need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.operators.op import Op
from penstock.operators.stream import Stream
from penstock.plan.plan import Input, Ref

if TYPE_CHECKING:
    from penstock.graph.multipipe import MultiPipe
    from penstock.graph.pipegraph import PipeGraph


class Verbs:
    """Base of the verb collections; MultiPipe supplies all of it."""

    __slots__ = ()

    @property
    def graph(self) -> PipeGraph:
        """The graph."""
        raise NotImplementedError

    @property
    def feeds(self) -> tuple[Ref, ...]:
        """What flows here."""
        raise NotImplementedError

    @property
    def stream(self) -> Stream:
        """Columns, time and key."""
        raise NotImplementedError

    def as_input(self, port: str, graph: PipeGraph, *, control: bool = False) -> Input:
        """This pipe as the feed of a port."""
        raise NotImplementedError

    def _then(
        self, make: Callable[[], Op], *, stem: str, name: str | None, fuse: bool | None = None
    ) -> MultiPipe:
        raise NotImplementedError
