"""The base of every operator: its options, its ports, and the rule that types its outputs.

An operator is a frozen description. It knows no engine: `outputs` says what flows out for what flows in, and
raises for every mistake that can be seen before a run. What flows on an edge is a `Stream`: the columns, the
type of time, and the key that rows are grouped by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar

import pyarrow as pa

from penstock.errors import GraphError, SchemaError, TimeError, Where, nearest_first
from penstock.expr.types import check_column_name
from penstock.frozen import Frozen
from penstock.options import is_positive
from penstock.timing.units import TimeType


class KeyLoss(Frozen):
    """A key that rows had, and that they may have no longer.

    key     its columns
    reason  what became of it
    step    the step behind which it is lost, and the line where that was written
    """

    key: tuple[str, ...]
    reason: str
    step: str | None = None
    where: Where | None = None

    def refuse(self, who: str, schema: pa.Schema) -> GraphError:
        """Return the error for a step that groups rows, and cannot know whether by this key."""
        names = ", ".join(f'"{name}"' for name in self.key)
        at = f" at {self.where}" if self.where is not None else ""
        again = f".key_by({names})" if set(self.key) <= set(schema.names) else ".key_by(...) a column it has"
        return GraphError(
            f"{who} does not know its key: the rows had the key {', '.join(self.key)} before "
            f'step "{self.step}"{at}',
            detail=self.reason,
            hint=f"say {again} before it, or .keyless() to take all rows together",
        )


class Stream(Frozen):
    """The type of an edge.

    schema    columns in canonical types
    time      type of event time, or None when the source has none; the time itself travels beside the row
    key       columns that equal rows are grouped by after `key_by`; () for none
    lost_key  the key before a step that may have changed it; None where no key was lost

    Invariant: where `lost_key` is set, `key` is (). A step that groups rows refuses such a stream, so that
    none ever takes all rows together where a key was meant.
    """

    schema: pa.Schema
    time: TimeType | None = None
    key: tuple[str, ...] = ()
    lost_key: KeyLoss | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column names in order."""
        return tuple(self.schema.names)

    def require(self, *names: str) -> None:
        """Raise a SchemaError, nearest names first, unless all the columns exist."""
        for name in names:
            if not isinstance(name, str):
                parts = [f'"{part}"' for part in name] if isinstance(name, list | tuple) else ['e.g. "price"']
                raise SchemaError(
                    f"{name!r} is not the name of a column", hint=f"name it by a string, {', '.join(parts)}"
                )
            if name not in self.schema.names:
                raise unknown_column(name, self.schema.names)

    def require_key(self, *names: str) -> None:
        """Raise a SchemaError unless all the columns exist, once each, and can tell rows apart."""
        self.require(*names)
        if len(set(names)) < len(names):
            raise SchemaError(f"a key names a column twice: {', '.join(names)}", hint="name it once")
        for name in names:
            type_ = self.schema.field(name).type
            if pa.types.is_nested(type_):
                raise SchemaError(
                    f'column "{name}" of type {type_} cannot be a key',
                    hint="use a plain column, e.g. a field of it computed with .with_columns(...)",
                )

    def require_time(self, who: str) -> TimeType:
        """Return the time type, or a TimeError: `who` needs it."""
        if self.time is None:
            raise TimeError(
                f"{who} needs event time, and its input has none",
                detail="without time there is no watermark, so nothing could ever leave",
                hint='name the time column at the source: graph.source(reader, time="ts", delay="2 s")',
            )
        return self.time

    def with_schema(self, schema: pa.Schema) -> Stream:
        """Return the same stream with other columns; the key is lost unless all its columns stay."""
        missing = [f'"{name}"' for name in self.key if name not in schema.names]
        stream = replace(self, schema=schema)
        return stream.lose_key(f"behind it there is no column {', '.join(missing)}") if missing else stream

    def lose_key(self, reason: str) -> Stream:
        """Return the same stream with its key lost, if it has one."""
        return replace(self, key=(), lost_key=KeyLoss(self.key, reason)) if self.key else self

    def with_key(self, *names: str) -> Stream:
        """Return the same stream with this key, or with none."""
        return replace(self, key=names, lost_key=None)


def unknown_column(name: str, available: Iterable[str]) -> SchemaError:
    """Return the error for a column that is not there."""
    names = nearest_first(name, available)
    hint = f'did you mean "{names[0]}"?' if names else "the stream has no columns"
    return SchemaError(
        f'there is no column "{name}"', detail=f"the columns are {', '.join(names)}", hint=hint
    )


def with_columns(schema: pa.Schema, added: Iterable[tuple[str, pa.DataType]]) -> pa.Schema:
    """Return a schema with columns replaced in place, or added at the end."""
    fields = {field.name: field for field in schema}
    for name, type_ in added:
        check_column_name(name)
        fields[name] = pa.field(name, type_)
    return pa.schema(list(fields.values()))


def join_columns(parts: Iterable[tuple[str, pa.Schema]], *, hint: str) -> pa.Schema:
    """Return schemas side by side; a name that occurs twice is a SchemaError naming both parts."""
    fields: dict[str, pa.Field] = {}
    owner: dict[str, str] = {}
    for part, schema in parts:
        for field in schema:
            if field.name in fields:
                raise SchemaError(
                    f'column "{field.name}" comes twice',
                    detail=f"once from {owner[field.name]} and once from {part}",
                    hint=hint,
                )
            fields[field.name], owner[field.name] = field, part
    return pa.schema(list(fields.values()))


def columns(*pairs: tuple[str, pa.DataType]) -> pa.Schema:
    """Return a schema from (name, type) pairs."""
    for name, _ in pairs:
        check_column_name(name)
    return pa.schema([pa.field(name, type_) for name, type_ in pairs])


IN, OUT, LATE, LATE_RIGHT, ERRORS = "in", "out", "late", "late_right", "errors"
JOIN = "WJ"
"""The kind of `StreamJoin`: tells one from other operators without loading its module."""
ERROR_COLUMNS = (("error", pa.string()), ("error_step", pa.string()))


class Routing(StrEnum):
    """How rows reach the replicas of an operator."""

    FORWARD = "forward"
    KEY_BY = "key_by"
    BROADCAST = "broadcast"
    REBALANCE = "rebalance"
    COMPLEX = "complex"


class OnError(StrEnum):
    """What becomes of a row that a function, an expression or a reader could not handle."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


class Degree(Frozen):
    """How many replicas an operator has: fixed when least == most, else elastic between them."""

    least: int
    most: int

    @property
    def elastic(self) -> bool:
        """Return whether the number of replicas may change while the graph runs."""
        return self.least != self.most

    def __str__(self) -> str:
        return f"{self.least}..{self.most}" if self.elastic else str(self.least)


Parallelism = int | tuple[int, int] | str | None
AUTO_MOST = 64
"""The upper end of parallelism="auto"; engines stop earlier, at the machine's cores."""


class StepHistory(Frozen):
    """What a step was before, in earlier runs of its checkpoint.

    judged  a checkpoint has allowed what differs between saved state and the step
    former  names that it had before it was renamed
    added   aggregate -> the time, in microseconds, before which windows begin that may have rows from before
            it was added: it is null there
    closed  windows that end at or before this time have left, whatever the lateness is now; None if that is
            as the watermark says
    """

    judged: bool = False
    former: tuple[str, ...] = ()
    added: Mapping[str, int] = dataclasses.field(default_factory=dict)
    closed: int | None = None


NO_HISTORY = StepHistory()


class Op(Frozen, kw_only=True):
    """An operator and its options."""

    name: str | None = None
    parallelism: Parallelism = None
    batch_size: int | None = None
    key: str | tuple[str, ...] | None = None
    routing: str | None = None
    on_error: str = OnError.FAIL
    dedicated: bool = False
    """A node and a thread of its own, where the engine has threads: for a function that blocks."""

    kind: ClassVar[str] = "M"
    """The operator's acronym in WindFlow's Table 1, or ours beyond it."""
    verb: ClassVar[str] = "step"
    """What the step is called when the user gives no name."""
    chainable: ClassVar[bool] = True
    """Whether the operator may be fused with the one before it."""
    fixed_routing: ClassVar[Routing | None] = None
    """The distribution that every operator of the class demands."""

    def __post_init__(self) -> None:
        degree(self.parallelism)
        if self.batch_size is not None and not is_positive(self.batch_size):
            raise GraphError(f"batch_size={self.batch_size!r} is not a number of rows", hint="use 1 or more")
        if not isinstance(self.dedicated, bool):
            raise GraphError(
                f"dedicated={self.dedicated!r} is neither True nor False", hint="use dedicated=True"
            )
        if not isinstance(self.on_error, OnError):
            object.__setattr__(self, "on_error", _member(OnError, self.on_error, "on_error"))
        if self.routing is not None:
            object.__setattr__(self, "routing", _member(Routing, self.routing, "routing"))
        if self.key is not None:
            object.__setattr__(self, "key", key_columns(self.key))

    @property
    def ports(self) -> tuple[str, ...]:
        """Return the input ports."""
        return (IN,)

    @property
    def stateful(self) -> bool:
        """Return whether rows of one key must meet in one replica, because there is a state per key."""
        return getattr(self, "state", None) is not None

    @property
    def own_routing(self) -> Routing | None:
        """Return the distribution that the operator itself demands; None leaves it to the pipe."""
        if self.fixed_routing is not None or self.stateful:
            return self.fixed_routing or Routing.KEY_BY
        return Routing(self.routing) if self.routing is not None else None

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the streams that leave, by port. Raises what is wrong with the inputs."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return one line for explain()."""
        return self.verb

    def errors_port(self, up: Stream) -> dict[str, Stream]:
        """Return the `errors` port, if rows are dead-lettered: the row, still keyed, the reason, the step."""
        if self.on_error != OnError.DEAD_LETTER:
            return {}
        return {ERRORS: replace(up, schema=error_schema(up.schema))}


def error_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of dead-lettered rows."""
    for name, _ in ERROR_COLUMNS:
        if name in schema.names:
            raise SchemaError(
                f'dead-lettered rows get a column "{name}", and the input has one already',
                hint='rename it before this step, or use on_error="skip"',
            )
    fields = [field.with_nullable(True) for field in schema]
    return pa.schema(fields + [pa.field(name, type_) for name, type_ in ERROR_COLUMNS])


def key_columns(key: object) -> tuple[str, ...]:
    """Return the columns of a key, as written: a name, or several."""
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise GraphError(
            f"key={key!r} is not a column, or several different ones",
            hint='use key="user" or key=("region", "user")',
        )
    return names


def degree(parallelism: Parallelism) -> Degree | None:
    """Return the Degree that was asked for; None when the pipe decides."""
    match parallelism:
        case None:
            return None
        case "auto":
            return Degree(1, AUTO_MOST)
        case int(n) if is_positive(n):
            return Degree(n, n)
        case (int(least), int(most)) if is_positive(least) and is_positive(most) and least <= most:
            return Degree(least, most)
    raise GraphError(
        f"parallelism={parallelism!r} is not a number of replicas",
        hint='use 4, a range such as (1, 8), or "auto"',
    )


def _member(members: type[StrEnum], value: str, option: str) -> StrEnum:
    allowed = [member for member in members if member != Routing.COMPLEX]  # which only an operator demands
    if value not in allowed:
        names = ", ".join(f'"{member}"' for member in allowed)
        raise GraphError(f"{option}={value!r} is unknown", hint=f"use one of {names}")
    return members(value)
