"""Split: send each row to one branch, to several, or to none (WindFlow, 2.2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from penstock.errors import GraphError, SchemaError
from penstock.expr import Expr, type_of
from penstock.frozen import dataclass
from penstock.operators.function import RowFunction, require_bool, require_call, row_function
from penstock.operators.op import ERRORS, IN, LATE, OUT, Op
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Split(Op):
    """Branches "0" to "n-1" by an index, or named branches by a predicate each.

    A row of several branches is copied; a row of none, or of a branch that nobody reads, is counted
    as unrouted.
    """

    function: object = None
    branches: int | Mapping[str, Expr] = 0

    kind: ClassVar[str] = "SPLIT"
    verb: ClassVar[str] = "split"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if isinstance(self.branches, bool) or not isinstance(self.branches, int | Mapping):
            raise GraphError(f"{self.branches!r} is not a number of branches", hint="write pipe.split(fn, 2)")
        if len(self.names) < 2:
            raise GraphError(
                f"a split has two branches or more, and got {len(self.names)}",
                hint="write pipe.split(fn, 2) or pipe.split(view=..., click=...); for one branch use filter",
            )
        for name in self.names:
            if name in (LATE, ERRORS):
                raise GraphError(
                    f'a branch cannot be called "{name}"',
                    detail=f"every step keeps .{name} for its own rows of that kind",
                    hint=f'use another name, e.g. "{name}_rows"',
                )
        if self.function is not None and not isinstance(self.function, Expr | RowFunction):
            function = row_function(self.function)
            require_call(function.call, "row")
            object.__setattr__(self, "function", function)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the branches in order."""
        if isinstance(self.branches, int):
            return tuple(str(index) for index in range(self.branches))
        return tuple(self.branches)

    @property
    def predicates(self) -> Mapping[str, Expr] | None:
        """Return the predicate of each named branch; None when one function gives the index."""
        return None if isinstance(self.branches, int) else self.branches

    @property
    def how(self) -> Expr | RowFunction | None:
        """Return the function that gives the index or indexes, checked."""
        assert self.function is None or isinstance(self.function, Expr | RowFunction), "by __post_init__"
        return self.function

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the input, once per branch."""
        up = inputs[IN]
        for name, predicate in (self.predicates or {}).items():
            if not isinstance(predicate, Expr):
                raise GraphError(
                    f'branch "{name}" is given {predicate!r}, not an expression',
                    hint=f'write {name}=col("type") == "{name}", or split(fn, 2) for a function',
                )
            require_bool(predicate, up.schema, f'branch "{name}"')
        if isinstance(self.how, Expr) and not pa.types.is_integer(type_of(self.how, up.schema)):
            raise SchemaError(
                f"a split needs the index of a branch, and {self.how} is {type_of(self.how, up.schema)}",
                hint='name the branches instead: pipe.split(view=col("type") == "view", rest=...)',
            )
        return {**dict.fromkeys(self.names, up), **self.errors_port(up)}

    def describe(self) -> str:
        """Return what decides."""
        if self.predicates is not None:
            return "split " + ", ".join(f"{name}: {predicate}" for name, predicate in self.predicates.items())
        return f"split {len(self.names)} ways by {self.how}"


@dataclass(frozen=True, slots=True)
class Relay(Op):
    """Pass rows on unchanged: what stands where streams meet and part again with nothing between."""

    kind: ClassVar[str] = "ID"
    verb: ClassVar[str] = "relay"

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the input."""
        return {OUT: inputs[IN]}
