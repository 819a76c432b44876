"""Process: an operator with its own driver loop and any number of ports (C-Stream, 3).

The user's class says which ports it has and what flows out, and its `process` co-routine waits for
rows, takes them, and pushes rows, in the order that suits it. Waiting suspends; nothing blocks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.errors import GraphError, SchemaError
from penstock.expr.types import parse_schema
from penstock.operators.function import Row
from penstock.operators.op import OUT, OnError, Op, Routing, Stream


class InputPort(Protocol):
    """One input of a running operator.

    closed  whether no more rows will come; those waiting can still be taken
    """

    closed: bool

    def __len__(self) -> int:
        """Return the number of rows that wait."""

    def pop(self) -> Row:
        """Take the oldest row; IndexError when none waits."""

    def peek(self) -> Row:
        """Look at the oldest row without taking it; IndexError when none waits."""


class OutputPort(Protocol):
    """One output of a running operator."""

    def push(self, row: object) -> Awaitable[None]:
        """Send a row (dict, dataclass, NamedTuple), or a RecordBatch of rows; waits for room."""


class Context(Protocol):
    """What a running operator sees: its ports by name, and the waits."""

    inputs: Mapping[str, InputPort]
    outputs: Mapping[str, OutputPort]

    async def wait_for_all(self, wanted: Mapping[str, int]) -> bool:
        """Wait until every port has this number of rows; return False when one of them never will."""

    async def wait_for_any(self, wanted: Mapping[str, int]) -> bool:
        """Wait until some port has this number of rows; return False when none of them ever will."""

    @property
    def shutdown_requested(self) -> bool:
        """Return whether the run is being stopped: finish soon."""


class ProcessOperator:
    """Base of operators with a driver loop of their own.

    inputs   names of the input ports
    outputs  output port -> schema (anything `schema=` takes); leave out and override `schemas` when
             what flows out depends on what flows in
    control  names of ports that may be fed from downstream; their rows are handled by `on_control`

    A copy of the object runs per replica and per run, so attributes are private state.
    """

    inputs: ClassVar[tuple[str, ...]] = ("in",)
    outputs: ClassVar[Mapping[str, Any]] = {}
    control: ClassVar[tuple[str, ...]] = ()

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, Any]:
        """Return the schema of every output port."""
        return self.outputs

    async def process(self, ctx: Context) -> None:
        """Run the driver loop, until it returns or its inputs are over."""
        raise NotImplementedError

    def on_control(self, port: str, row: Row) -> None:
        """Change state for a row on a control port; nothing can be pushed from here."""


class Process(Op, kind="P", verb="process", chainable=False):
    """Run a `ProcessOperator` of the user's as a step."""

    operator: ProcessOperator

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        kind = type(self.operator).__name__
        if not isinstance(self.operator, ProcessOperator):
            hint = (
                "give an object, not the class"
                if isinstance(self.operator, type)
                else "subclass ps.ProcessOperator"
            )
            raise GraphError(f"{self.operator!r} is not an operator with its own loop", hint=hint)
        if type(self.operator).process is ProcessOperator.process:
            raise GraphError(f"{kind} has no driver loop", hint="write async def process(self, ctx)")
        if self.on_error != OnError.FAIL:
            raise GraphError(
                f'on_error="{self.on_error}" is not for an operator with its own loop',
                hint="catch errors in process(), and push such rows to an output port of your own",
            )
        for attribute in ("inputs", "control"):
            ports = getattr(self.operator, attribute)
            if isinstance(ports, str):
                raise GraphError(
                    f"{kind} has {attribute} = {ports!r}, a text and not a tuple of names",
                    hint=f'write {attribute} = ("{ports}",)',
                )
        if not self.operator.inputs:
            raise GraphError(
                f"{kind} has no inputs", hint="to make rows from nothing use ps.read.generator(...)"
            )
        if len(set(self.ports)) < len(self.ports):
            raise GraphError(
                f"{kind} has two ports of one name: {', '.join(self.ports)}", hint="rename one of them"
            )

    @property
    def ports(self) -> tuple[str, ...]:
        """Return the data ports, then the control ports."""
        return tuple(self.operator.inputs) + tuple(self.operator.control)

    @property
    def own_routing(self) -> Routing | None:
        """Several ports meet in one operator: a distribution of its own."""
        if len(self.operator.inputs) > 1:
            return Routing.COMPLEX
        return Routing(self.routing) if self.routing is not None else None

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the streams that the operator declares; time is of the type the inputs have."""
        data = {name: inputs[name] for name in self.operator.inputs}
        declared = self.operator.schemas({name: stream.schema for name, stream in data.items()})
        if not declared:
            raise SchemaError(
                f"{type(self.operator).__name__} declares no outputs",
                hint=f'add outputs = {{"{OUT}": {{"total": "float64"}}}} to the class',
            )
        if not isinstance(declared, Mapping):
            raise SchemaError(
                f"{type(self.operator).__name__} declares outputs {declared!r}, which have no schemas",
                hint=f'write outputs = {{"{OUT}": {{"total": "float64"}}}}',
            )
        times = {stream.time for stream in data.values()}
        time = times.pop() if len(times) == 1 else None
        lost = None
        for stream in data.values():
            reason = f"{type(self.operator).__name__} may push rows of any key"
            lost = lost or stream.lose_key(reason).lost_key
        return {port: Stream(parse_schema(schema), time, lost_key=lost) for port, schema in declared.items()}

    def describe(self) -> str:
        """Return the operator's class."""
        return f"process {type(self.operator).__name__}"
