"""StreamJoin: pairs of rows of two streams, close in time, for which a predicate holds (DP-Join, 4).

What makes two rows a pair: equal columns, columns close to each other, any function of both, or several of
these at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.errors import FunctionError, GraphError, SchemaError, TimeError
from penstock.frozen import Frozen
from penstock.operators.function import UserFunction, require_call
from penstock.operators.op import JOIN, LATE, LATE_RIGHT, OUT, Op, Routing, Stream
from penstock.options import is_positive
from penstock.timing.units import Duration, micros, spell
from penstock.timing.windows import SlidingSpec, TimeWindow


class Equal(Frozen):
    """Both sides have the same value; null equals nothing, NaN equals NaN."""

    left: str
    right: str

    def check(self, left: Stream, right: Stream) -> None:
        """Raise a SchemaError unless both columns exist and have one type."""
        left.require(self.left)
        right.require(self.right)
        left_type, right_type = left.schema.field(self.left).type, right.schema.field(self.right).type
        if left_type != right_type:
            raise SchemaError(
                f'"{self.left}" is {left_type} on the left, and "{self.right}" is {right_type} on the right',
                hint=f'cast one of them: .with_columns({self.right}=col("{self.right}").cast("{left_type}"))',
            )

    def __str__(self) -> str:
        return self.left if self.left == self.right else f"{self.left} = {self.right}"


class Band(Frozen):
    """|left - right| <= width (< width when strict); null is close to nothing."""

    left: str
    right: str
    width: float
    strict: bool

    def check(self, left: Stream, right: Stream) -> None:
        """Raise a SchemaError unless both columns exist and are numbers."""
        left.require(self.left)
        right.require(self.right)
        for side, name in ((left, self.left), (right, self.right)):
            type_ = side.schema.field(name).type
            if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
                raise SchemaError(
                    f'a band needs numbers, and column "{name}" is {type_}',
                    hint=f'cast it, or join on equality: ps.equal("{self.left}", "{self.right}")',
                )

    def __str__(self) -> str:
        sign = "<" if self.strict else "<="
        return f"|{self.left} - {self.right}| {sign} {self.width}"


class PairFunction(UserFunction):
    """Any function of a left row and a right row that says true or false."""

    def check(self, left: Stream, right: Stream) -> None:
        """Accept any rows: nothing can be known before the function runs."""

    def __str__(self) -> str:
        return f"{self.name}(left, right)"


JoinTerm = Equal | Band | PairFunction


def band(left: str, right: str | float, width: float | None = None, *, strict: bool = False) -> Band:
    """Pair rows whose values differ by at most `width`: `band("x", 10)`, or `band("x", "a", 10)`."""
    if width is None:
        if isinstance(right, str):
            raise SchemaError(
                "a band needs a width", where=find_call_site(), hint=f'write ps.band("{left}", "{right}", 10)'
            )
        width, right = right, left
    if isinstance(width, bool) or not isinstance(width, (int, float)) or not width >= 0:
        raise SchemaError(
            f"a band of width {width!r} holds nothing",
            where=find_call_site(),
            hint="use a number of zero or more",
        )
    return Band(left, str(right), width, strict)


def terms(on: object) -> tuple[JoinTerm, ...]:
    """Return what `on=` may be: a column, a predicate, a function, or a list of them that must all hold."""
    if isinstance(on, (list, tuple)) and on:
        return tuple(term for part in on for term in terms(part))
    if isinstance(on, str):
        return (Equal(on, on),)
    if isinstance(on, JoinTerm):
        return (on,)
    if callable(on):
        require_call(on, "left", "right")
        return (PairFunction(on, None, name_of(on), find_definition(on)),)
    raise FunctionError(
        f"on={on!r} is not a join predicate",
        hint='use a column name, ps.equal("a", "b"), ps.band("x", 10), fn(left, right), or a list',
    )


def equal(left: str, right: str) -> Equal:
    """Pair rows with equal values in columns of different names."""
    return Equal(left, right)


LEFT, RIGHT = "left", "right"


class ResolvedJoin(Frozen):
    """A join in microseconds.

    older_left   how much older the left row of a pair may be
    older_right  how much older the right row of a pair may be
    window       instead: the tumbling window both must lie in
    """

    older_left: int
    older_right: int
    window: TimeWindow | None
    lateness: int


class StreamJoin(
    Op,
    kind=JOIN,
    verb="join",
    ports=(LEFT, RIGHT),
    chainable=False,
    fixed_routing=Routing.COMPLEX,  # to a row or a column of the worker grid
):
    """Join two streams on any predicate.

    within   how far apart in time a pair may be: one duration, or (older left, older right)
    window   instead of within: pair rows of the same tumbling window (AIR's Join)
    layout   workers as (m, n): m parts of the left by n parts of the right; "auto" chooses
    how      "inner", "left", "right" or "full": which rows without a partner leave too
    suffix   what a right column is given when the left has one of its name
    terms    the parts of the predicate, all of which must hold
    """

    on: object
    within: Duration | tuple[Duration, Duration] | None = None
    window: SlidingSpec | None = None
    layout: str | tuple[int, int] = "auto"
    how: str = "inner"
    suffix: str | None = None
    lateness: Duration = "0 s"
    terms: tuple[JoinTerm, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        object.__setattr__(self, "terms", terms(self.on))
        if self.how not in ("inner", "left", "right", "full"):
            raise GraphError(f"how={self.how!r} is unknown", hint='use "inner", "left", "right" or "full"')
        if self.within is not None and self.window is not None:
            raise TimeError("a join takes within= or window=, not both", hint="leave one of them out")
        if self.within is None and self.window is None:
            raise TimeError(
                "a join needs within= or window=",
                detail="two endless streams can only be joined inside a bound of time",
                hint='write within="5 min", or window=ps.tumbling("10 s")',
            )
        if self.window is not None and not isinstance(self.window, SlidingSpec):
            raise _not_tumbling()
        if isinstance(self.within, tuple) and len(self.within) != 2:
            raise TimeError(
                f"within={self.within!r} is not one duration or two",
                hint='write within="5 min", or within=("5 min", "1 min"): older left, older right',
            )
        layout = self.layout
        if layout == "auto":
            return
        if not isinstance(layout, tuple) or len(layout) != 2 or not all(map(is_positive, layout)):
            raise GraphError(f"layout={layout!r} is not m x n workers", hint='use (2, 3) or "auto"')
        workers = layout[0] * layout[1]
        if self.parallelism not in (None, workers):
            raise GraphError(
                f"layout={layout!r} is {workers} workers, and parallelism={self.parallelism!r}",
                hint="leave parallelism out: the layout says it",
            )

    def resolve(self, left: Stream, right: Stream) -> ResolvedJoin:
        """Return the join in microseconds."""
        time = left.require_time("the left side of a join")
        other = right.require_time("the right side of a join")
        if time != other:
            raise TimeError(
                f"the left side's time is {time} and the right side's is {other}",
                hint="use one type of time for both",
            )
        lateness = time.length(self.lateness, "lateness")
        if lateness < 0:
            raise TimeError(f"lateness {spell(lateness)} is negative", hint='use lateness="1 s"')
        if self.window is not None:
            window = self.window.resolve(time)
            if not isinstance(window, TimeWindow) or window.size != window.every:
                raise _not_tumbling()
            return ResolvedJoin(window.size, window.size, window, lateness)
        assert self.within is not None, "one of the two, by __post_init__"
        bounds = self.within if isinstance(self.within, tuple) else (self.within, self.within)
        older_left, older_right = (time.length(bound, "within") for bound in bounds)
        if older_left < 0 or older_right < 0:
            raise TimeError(
                f"within {spell(min(older_left, older_right))} is negative", hint='write within="5 min"'
            )
        return ResolvedJoin(older_left, older_right, None, lateness)

    def output_delay(self, left: Stream, right: Stream) -> int:
        """Return how far, in microseconds, what leaves may be behind the watermark.

        An inner pair is at most the lateness behind; a row with its own time leaves a bound later. In a join
        by window a row is on time until all its windows have closed, so pairs too may be a window behind.
        """
        bound = self.resolve(left, right)
        at_once = self.how == "inner" and bound.window is None
        return bound.lateness + (0 if at_once else max(bound.older_left, bound.older_right))

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns of both; a column they are equal on comes once."""
        left, right = inputs[LEFT], inputs[RIGHT]
        self.resolve(left, right)
        for term in self.terms:
            term.check(left, right)
        schema = pa.schema(list(left.schema) + [field for _, field in self.right_columns(left, right)])
        out = Stream(schema, left.time)
        late = {LATE: left.without_key(), LATE_RIGHT: right.without_key()}
        return {OUT: out, **late, **self.errors_port(out)}

    def right_columns(self, left: Stream, right: Stream) -> list[tuple[str, pa.Field]]:
        """Return (name on the right, field in the result) of every right column that is passed on."""
        once = {term.right for term in self.terms if isinstance(term, Equal) and term.left == term.right}
        used = set(left.columns)
        passed = []
        for column in right.schema:
            if column.name in once:
                continue
            name = column.name
            if name in used and self.suffix:
                name += self.suffix
            if name in used:
                raise SchemaError(
                    f'both sides have a column "{name}"',
                    hint='rename one with .select(...), or give the join suffix="_right"',
                )
            used.add(name)
            passed.append((column.name, pa.field(name, column.type)))
        return passed

    def describe(self) -> str:
        """Return the predicate and the bound."""
        bound = f"in one window: {self.window}"
        if self.window is None:
            parts: tuple[Any, ...] = self.within if isinstance(self.within, tuple) else (self.within,)
            texts = [str(part) if isinstance(part, int) else spell(micros(part)) for part in parts]
            bound = f"within {', '.join(texts)}"
        return f"{self.how} join on {' and '.join(map(str, self.terms))} {bound}"


def _not_tumbling() -> TimeError:
    return TimeError("a join's window must be tumbling", hint='write window=ps.tumbling("10 s")')
