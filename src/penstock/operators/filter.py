"""Filter: keep the rows for which something is true; null is not true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.function import (
    BatchFunction,
    RowFunction,
    check_compile,
    late_port,
    need_bool,
    need_key,
    row_function,
)
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream

Predicate = Expr | BatchFunction | RowFunction


@dataclass(frozen=True, slots=True)
class Filter(Op):
    """Drop the rows for which the predicate is false or null; they are counted as filtered.

    `compile=True` lets a row function be compiled although its whole numbers then wrap at 64 bits.
    """

    predicate: object
    state: Callable[[], Any] | None = None
    compile: bool = False

    kind: ClassVar[str] = "F"
    verb: ClassVar[str] = "filter"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if not isinstance(self.predicate, Predicate):
            object.__setattr__(self, "predicate", row_function(self.predicate))
        check_compile(self.compile, self.how, self.state, "filter")

    @property
    def how(self) -> Predicate:
        """The predicate, checked."""
        assert isinstance(self.predicate, Predicate), "made so by __post_init__"
        return self.predicate

    @property
    def stateful(self) -> bool:
        """Whether there is a state per key."""
        return self.state is not None

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """The same columns, and still keyed."""
        up = inputs[IN]
        if isinstance(self.how, Expr):
            need_bool(self.how, up.schema, "a filter")
        stateful = need_key(self.state, up, self.how, "filter")
        return {OUT: up, **(late_port(up) if stateful else {}), **self.errors_port(up)}

    def describe(self) -> str:
        """The predicate."""
        return f"filter {self.how}" + (" with state per key" if self.state is not None else "")
