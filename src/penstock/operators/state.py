"""State per key: what map, filter, flat_map and accumulate need in order to have it.

Rows reach state in the order (time, seq), once the watermark has passed them. So a row that comes
behind the watermark can no longer be put in order: it is late, and goes to the step's `.late`.
"""

from __future__ import annotations

from penstock.errors import FunctionError, GraphError
from penstock.expr import Expr
from penstock.operators.calling import need_call
from penstock.operators.function import Function, RowFunction
from penstock.operators.op import LATE
from penstock.operators.stream import Stream


def need_key(state: object, up: Stream, function: Function | Expr, verb: str) -> bool:
    """Whether the step keeps state; raises when it asks for state and cannot have it, or cannot be called."""
    if state is None:
        if isinstance(function, RowFunction):
            need_call(function.call, "row")
        return False
    if not callable(state):
        raise FunctionError(
            f"state={state!r} is not a function that makes the state of a new key",
            hint="write state=list or state=lambda: 0",
        )
    if not isinstance(function, RowFunction):
        raise FunctionError(
            f"only a row function can keep state, and {verb} has {function}", hint="use fn(row, state)"
        )
    if not up.key:
        raise GraphError(
            f"{verb} with state= needs a key", hint='say whose state it is: .key_by("user") before it'
        )
    need_call(function.call, "row", "state")
    return True


def late_port(up: Stream) -> dict[str, Stream]:
    """The `late` port of a step that needs order; a stream without time is in order as it comes."""
    return {} if up.time is None else {LATE: up.unkeyed()}
