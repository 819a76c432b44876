"""StreamJoin: pairs of rows of two streams for which a predicate holds (DP-Join, 4).

Which rows meet at all is bounded, because the streams have no end: by time (`within=`), by the windows that
they share (`window=`), or by their number (`last_rows=`). What makes two of them a pair is in
`join_predicate.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from penstock.errors import GraphError, SchemaError, TimeError
from penstock.frozen import Frozen
from penstock.operators.join_predicate import LEFT, RIGHT, Equal, JoinTerm, PairExpression, terms
from penstock.operators.op import JOIN, LATE, LATE_RIGHT, OUT, Op, Routing, Stream
from penstock.operators.windows import END, START
from penstock.options import is_positive
from penstock.timing.units import Duration, micros, spell
from penstock.timing.windows import SlidingSpec, TimeWindow, check_length

HOW = ("inner", "left", "right", "full", "semi", "anti")
"""The ways to join: pairs; pairs and rows alone of one side or both; left rows with a partner, or without."""

CENTRALISED, HANDSHAKE = "centralised", "handshake"
"""Layouts by name: CellJoin's, and the handshake join's (DP-Join, 4.1 and 4.2)."""


class ResolvedJoin(Frozen):
    """A join in microseconds.

    older_left   how much older the left row of a pair may be
    older_right  how much older the right row of a pair may be
    window       instead: the windows that both must lie in
    lateness     how far behind the watermark a row may come
    last_rows    instead: how many of the latest left rows a right row meets, and of the right a left row
    """

    older_left: int
    older_right: int
    window: TimeWindow | None
    lateness: int
    last_rows: tuple[int, int] | None = None

    @property
    def has_window_columns(self) -> bool:
        """Return whether results name their window: a pair may share several, and leaves once for each."""
        return self.window is not None and self.window.size != self.window.every


class StreamJoin(
    Op,
    kind=JOIN,
    verb="join",
    ports=(LEFT, RIGHT),
    chainable=False,
    fixed_routing=Routing.COMPLEX,  # to a row or a column of the worker grid
):
    """Join two streams on any predicate.

    within     how far apart in time a pair may be: one duration, or (older left, older right)
    window     instead: pair rows of the same window, once for each window that they share (AIR's Join)
    layout     workers as (m, n): m parts of the left by n parts of the right; "auto" chooses; "centralised":
               all share one part (CellJoin); "handshake": both sides flow through a pipeline of them
    how        "inner"; "left", "right" or "full": rows without a partner leave too; "semi" or "anti": only
               left rows leave, those with a partner or those without
    suffix     what a right column is given when the left has one of its name
    last_rows  instead: each row meets the last N rows of the other stream before it: N, or (N of the left, N
               of the right)
    rates      rows a second of the left and of the right, where they are known: for predictions
    terms      the parts of the predicate, all of which must hold, in the order in which they are tested
    """

    on: object
    within: Duration | tuple[Duration, Duration] | None = None
    window: SlidingSpec | None = None
    layout: str | tuple[int, int] = "auto"
    how: str = "inner"
    suffix: str | None = None
    lateness: Duration = "0 s"
    last_rows: int | tuple[int, int] | None = None
    rates: tuple[float, float] | None = None
    terms: tuple[JoinTerm, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        object.__setattr__(self, "terms", terms(self.on))
        if self.how not in HOW:
            names = ", ".join(f'"{how}"' for how in HOW)
            raise GraphError(f"how={self.how!r} is unknown", hint=f"use one of {names}")
        bounds = [name for name in ("within", "window", "last_rows") if getattr(self, name) is not None]
        if len(bounds) > 1:
            raise TimeError(
                f"a join takes one of within=, window= and last_rows=, and got {' and '.join(bounds)}",
                hint="leave all but one of them out",
            )
        if not bounds:
            raise TimeError(
                "a join needs within=, window= or last_rows=",
                detail="two endless streams can only be joined inside a bound of time or of rows",
                hint='write within="5 min", window=ps.tumbling("10 s"), or last_rows=100',
            )
        if self.window is not None and not isinstance(self.window, SlidingSpec):
            raise TimeError(
                "a join's window must be tumbling or sliding",
                hint='write window=ps.tumbling("10 s"), or window=ps.sliding("10 s", every="5 s")',
            )
        if isinstance(self.within, tuple) and len(self.within) != 2:
            raise TimeError(
                f"within={self.within!r} is not one duration or two",
                hint='write within="5 min", or within=("5 min", "1 min"): older left, older right',
            )
        if self.last_rows is not None:
            self._check_last_rows()
        if self.rates is not None and not _are_rates(self.rates):
            raise GraphError(
                f"rates={self.rates!r} is not the rows a second of both streams",
                hint="write rates=(2500, 100): of the left and of the right",
            )
        layout = self.layout
        if layout == HANDSHAKE and self.last_rows is not None:
            raise GraphError(
                'layout="handshake" does not go with last_rows=',
                detail="its rows go on with time, and not when others come",
                hint='use within= or window=, or layout="auto"',
            )
        if isinstance(layout, str) and layout in ("auto", CENTRALISED, HANDSHAKE):
            return
        if not isinstance(layout, tuple) or len(layout) != 2 or not all(map(is_positive, layout)):
            hint = 'use "auto", (2, 3), "centralised" or "handshake"'
            raise GraphError(f"layout={layout!r} is not m x n workers", hint=hint)
        workers = layout[0] * layout[1]
        if self.parallelism not in (None, workers):
            raise GraphError(
                f"layout={layout!r} is {workers} workers, and parallelism={self.parallelism!r}",
                hint="leave parallelism out: the layout says it",
            )

    def _check_last_rows(self) -> None:
        """Raise unless the counts are numbers of rows, and rows alone are known to be alone in time."""
        counts = _for_both_sides(self.last_rows)
        if len(counts) != 2 or not all(n == 0 or is_positive(n) for n in counts) or not any(counts):
            raise GraphError(
                f"last_rows={self.last_rows!r} is not a number of rows, or two",
                hint="write last_rows=100, or last_rows=(0, 5): of the left and of the right",
            )
        # Why: a row that others may meet later is alone only when that many others have come, which may
        # never be; a row that nobody meets later is decided when its own time has passed.
        waits = {"left": counts[0] > 0, "semi": counts[0] > 0, "anti": counts[0] > 0, "right": counts[1] > 0}
        if waits.get(self.how, self.how == "full"):
            hint = 'use how="inner", or bound the join by time: within="5 min"'
            if self.how != "full":
                counted = f"(0, {counts[1] or 5})" if self.how != "right" else f"({counts[0] or 5}, 0)"
                hint = f"write last_rows={counted}, where such a row meets only rows before it; or {hint[4:]}"
            raise GraphError(
                f'how="{self.how}" with last_rows={self.last_rows!r} has no bound of time',
                detail="a row could wait for ever for rows that may still meet it",
                hint=hint,
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
        lateness = check_length(time.length(self.lateness, "lateness"), "lateness")
        if lateness < 0:
            raise TimeError(f"lateness {spell(lateness)} is negative", hint='use lateness="1 s"')
        if self.window is not None:
            window = self.window.resolve(time)
            assert isinstance(window, TimeWindow), "checked by __post_init__"
            return ResolvedJoin(window.size, window.size, window, lateness)
        if self.last_rows is not None:
            return ResolvedJoin(0, 0, None, lateness, _for_both_sides(self.last_rows))
        assert self.within is not None, "one of the three, by __post_init__"
        older_left, older_right = (
            check_length(time.length(bound, "within"), "within") for bound in _for_both_sides(self.within)
        )
        if older_left < 0 or older_right < 0:
            raise TimeError(
                f"within {spell(min(older_left, older_right))} is negative", hint='write within="5 min"'
            )
        return ResolvedJoin(older_left, older_right, None, lateness)

    def match_terms(self, left: Stream, right: Stream) -> tuple[JoinTerm, ...]:
        """Return the terms by which engines match rows: all that are equalities of two columns, as such.

        An expression that says that two columns are equal is one if both have one type, any but lists and
        structs: expressions and equal columns agree on null, NaN and -0.0. The result has both columns.
        """
        matched: list[JoinTerm] = []
        for term in self.terms:
            equal = term.equal if isinstance(term, PairExpression) else None
            if equal is not None:
                type_ = left.schema.field(equal.left).type
                is_key = type_ == right.schema.field(equal.right).type and not pa.types.is_nested(type_)
            matched.append(equal if equal is not None and is_key else term)
        return tuple(matched)

    def output_delay(self, left: Stream, right: Stream) -> int:
        """Return how far, in microseconds, what leaves may be behind the watermark.

        An inner pair is at most the lateness behind; a row with its own time leaves a bound later. In a join
        by window a row is on time until all its windows have closed, so pairs too may be a window behind; so
        they may in a handshake pipeline, in which rows meet later than they come.
        """
        bound = self.resolve(left, right)
        at_once = self.how == "inner" and bound.window is None and self.layout != HANDSHAKE
        return bound.lateness + (0 if at_once else max(bound.older_left, bound.older_right))

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns of both; a column they are equal on comes once."""
        left, right = inputs[LEFT], inputs[RIGHT]
        resolved = self.resolve(left, right)
        for term in self.terms:
            term.check(left, right)
        fields = list(left.schema) + [field for _, field in self.right_columns(left, right)]
        if resolved.has_window_columns:
            time = left.require_time("the left side of a join").type
            used = [field.name for field in fields if field.name in (START, END)]
            if used:
                raise SchemaError(
                    f'a join by sliding windows adds a column "{used[0]}", and there is one already',
                    hint="rename it before the join with .select(...)",
                )
            fields += [pa.field(START, time), pa.field(END, time)]
        out = replace(left, schema=pa.schema(fields))
        if self.how in ("right", "full"):
            out = out.lose_key("rows without a partner have none of the left columns")
        elif not left.key and left.lost_key is None:
            of_right = replace(out, key=right.key, lost_key=right.lost_key)
            out = of_right.lose_key("a join keeps the key of its left side only")
        return {OUT: out, LATE: left, LATE_RIGHT: right, **self.errors_port(out)}

    def right_columns(self, left: Stream, right: Stream) -> list[tuple[str, pa.Field]]:
        """Return (name on the right, field in the result) of every right column that is passed on."""
        if self.how in ("semi", "anti"):
            return []
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
        if self.last_rows is not None:
            counts = self.last_rows if isinstance(self.last_rows, tuple) else (self.last_rows,)
            bound = f"with the last {', '.join(map(str, counts))} rows"
        elif self.window is None:
            parts: tuple[Any, ...] = self.within if isinstance(self.within, tuple) else (self.within,)
            texts = [str(part) if isinstance(part, int) else spell(micros(part)) for part in parts]
            bound = f"within {', '.join(texts)}"
        return f"{self.how} join on {' and '.join(map(str, self.terms))} {bound}"


def _for_both_sides(value: Any) -> tuple[Any, Any]:
    """Return what is meant for the left and for the right: one value is meant for both."""
    return value if isinstance(value, tuple) else (value, value)


def _are_rates(rates: object) -> bool:
    """Return whether a user's rates are two numbers above zero."""
    return (
        isinstance(rates, tuple | list)
        and len(rates) == 2
        and all(isinstance(rate, int | float) and 0 < rate < math.inf for rate in rates)
    )
