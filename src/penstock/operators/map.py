"""Map: one row out for every row in, made by a function of a row or of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from penstock.frozen import dataclass
from penstock.operators.function import (
    BatchFunction,
    RowFunction,
    as_function,
    check_compile,
    late_port,
    need_key,
    need_schema,
)
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Map(Op):
    """Make a row of every row by a row function or a batch function, which gives the whole new row.

    With `state=factory` the function is called as `fn(row, state)`, with the state of the row's key.
    `compile=True` lets a row function be compiled although its integers then wrap at 64 bits.
    """

    function: object
    schema: object = None
    state: Callable[[], Any] | None = None
    compile: bool = False

    kind: ClassVar[str] = "M"
    verb: ClassVar[str] = "map"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        object.__setattr__(self, "function", as_function(self.function, self.schema, "map"))
        check_compile(self.compile, self.how, self.state, "map")

    @property
    def how(self) -> BatchFunction | RowFunction:
        """The function, checked."""
        assert isinstance(self.function, BatchFunction | RowFunction), "made so by __post_init__"
        return self.function

    @property
    def stateful(self) -> bool:
        """Whether there is a state per key."""
        return self.state is not None

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Returns the columns that the function declares, without a key."""
        up = inputs[IN]
        out = up.with_schema(need_schema(self.how, "map")).unkeyed()
        late = late_port(up) if need_key(self.state, up, self.how, "map") else {}
        return {OUT: out, **late, **self.errors_port(up)}

    def describe(self) -> str:
        """Returns the verb and the function."""
        return f"map {self.how}" + (" with state per key" if self.state is not None else "")
