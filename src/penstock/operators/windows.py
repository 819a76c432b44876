"""The windowed operators: one meaning, four ways to spread the work (WindFlow, 2.1).

Keyed windows send all rows of a key to one replica; parallel windows assign whole windows to replicas;
paned windows aggregate panes first and windows from panes; map-reduce windows cut each window into
partitions and combine their results. The answer is the same for all four and for any degree.

What each pattern can take, and which one "auto" means: time windows are known before their rows, so they can
be sent to replicas; where a session or a count window begins depends on all rows before. Partials are cells
of accumulators, so paned and map-reduce windows need aggregates that accumulators hold, whatever order rows
come in. Of those that can, keys come first, because a row then goes to one replica and nothing is merged
again; the others are for what WindFlow has them for: too few keys to go round, down to none (section 2.1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, ClassVar

import pyarrow as pa

from penstock.caller import name_of
from penstock.errors import GraphError, SchemaError, TimeError, nearest_first
from penstock.frozen import Frozen
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices import AUTO, DEVICES, device_refusal, why_rows
from penstock.operators.function import RowFunction, require_call, require_schema, row_function
from penstock.operators.op import IN, LATE, OUT, Op, Routing, Stream, columns, join_columns
from penstock.options import Cuda
from penstock.timing.slices import Slicing
from penstock.timing.units import Duration, micros, spell
from penstock.timing.windows import CountWindow, TimeWindow, Window, WindowSpec, check_length

WINDOW, START, END, INDEX, FINAL = "window", "window_start", "window_end", "window_index", "final"


class ResolvedWindows(Frozen):
    """Windows in microseconds: labelled when there are several on one stream.

    has_labels  whether results say which window they are of
    has_counts  whether results carry the index of a count window
    """

    windows: tuple[tuple[str | None, Window], ...]
    lateness: int
    early: int | None
    has_labels: bool
    has_counts: bool


class WindowContext(Frozen):
    """One window of one key.

    start, end  its bounds, as values of the time column
    index       the number of a count window; None for other kinds
    label       its name where a stream has several windows; None otherwise
    key         the values of the key columns; () without a key
    """

    start: Any
    end: Any
    index: int | None
    label: str | None
    key: tuple[Any, ...]


class Windows(Op, verb="window", pattern="keyed", fixed_routing=Routing.KEY_BY, chainable=False):
    """Group rows into windows per key, and aggregate them or apply a function to their rows.

    windows     one specification, or several by name, which share slices
    aggregates  name -> aggregate
    apply       a function of the window's rows, in order, instead of aggregates
    lateness    how long after its end a window still takes rows in
    early       emit unfinished results at this interval of the clock; adds the column `final`
    partial     emit a count window that is not full at the end of the stream
    device      "auto", "cpu", "cuda" or a Cuda with limits: where time windows keep their slices
    because     why the pattern was chosen; None where it was asked for by name
    function    the function to apply, checked
    specs       the windows with their labels; one alone has none
    """

    windows: WindowSpec | Mapping[str, WindowSpec]
    aggregates: Mapping[str, Aggregate] | None = None
    apply: object = None
    schema: object = None
    lateness: Duration = "0 s"
    early: Duration | None = None
    partial: bool = False
    device: str | Cuda = AUTO
    because: str | None = None
    function: RowFunction | None = field(init=False, repr=False)
    specs: tuple[tuple[str | None, WindowSpec], ...] = field(init=False, repr=False)

    pattern: ClassVar[str]

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        windows = self.windows
        specs = tuple(windows.items()) if isinstance(windows, Mapping) else ((None, windows),)
        object.__setattr__(self, "specs", specs)
        if not self.windows or not all(isinstance(spec, WindowSpec) for _, spec in specs):
            raise TimeError(
                f"{self.windows!r} is not a window", hint='use ps.tumbling("10 s"), ps.sliding(...), ...'
            )
        if (self.apply is None) == (not self.aggregates):
            raise GraphError(
                "a window step needs aggregates or a function",
                hint="end it with .aggregate(n=ps.count()) or .apply(fn)",
            )
        if self.aggregates is not None and not isinstance(self.aggregates, Mapping):
            raise GraphError(
                f"{self.aggregates} has no name",
                hint=f"name the result: .aggregate(result=ps.{self.aggregates})",
            )
        for name, aggregate in (self.aggregates or {}).items():
            if not isinstance(aggregate, Aggregate):
                # Most often an aggregate that was not called: `n=ps.count`.
                is_ours = callable(aggregate) and getattr(aggregate, "__module__", "") == Aggregate.__module__
                text = f"ps.{name_of(aggregate)}" if is_ours else f"{aggregate!r:.80}"
                hint = f"call it: {name}={text}(...)" if is_ours else f'write {name}=ps.sum("price")'
                raise GraphError(f'"{name}" is given {text}, not an aggregate', hint=hint)
        if not isinstance(self.device, Cuda) and self.device not in DEVICES:
            names = nearest_first(str(self.device), DEVICES)
            raise GraphError(
                f"device={self.device!r} is unknown",
                detail=f"the devices are {', '.join(names)}",
                hint=f'say device="{names[0]}"',
            )
        function = None
        if self.apply is not None:
            function = row_function(self.apply, schema=self.schema, many=True)
            require_call(function.call, *(("rows", "window") if takes_window(function.call) else ("rows",)))
        object.__setattr__(self, "function", function)

    def resolve(self, up: Stream) -> ResolvedWindows:
        """Return the windows in microseconds, once the time column is known."""
        time = up.require_time("a window")
        windows = tuple((label, spec.resolve(time)) for label, spec in self.specs)
        early = None if self.early is None else micros(self.early, subject="early")
        lateness = check_length(time.length(self.lateness, "lateness"), "lateness")
        if lateness < 0:
            raise TimeError(f"lateness {spell(lateness)} is negative", hint='use lateness="1 s"')
        if early is not None and early <= 0:
            raise TimeError(f"early {spell(early)} is not longer than zero", hint='use early="200 ms"')
        has_counts = any(isinstance(window, CountWindow) for _, window in windows)
        return ResolvedWindows(windows, lateness, early, windows[0][0] is not None, has_counts)

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return key, window bounds, results; and the rows that came too late."""
        up = inputs[IN]
        if up.lost_key is not None:
            raise up.lost_key.refuse("a window", up.schema)
        resolved = self.resolve(up)
        if self.partial and not resolved.has_counts:
            raise TimeError(
                "partial=True is for count windows", hint="time and session windows leave as they are"
            )
        if refusal := device_refusal(self, up):
            raise refusal
        if self.function is not None:
            results = require_schema(self.function, "apply")
        else:
            types = {}
            for name, aggregate in (self.aggregates or {}).items():
                try:
                    types[name] = aggregate.type(up)
                except SchemaError as wrong:
                    wrong.detail = wrong.detail or f"in {name}={aggregate}"
                    raise
            results = columns(*types.items())
        time = up.require_time("a window").type
        label = [(WINDOW, pa.string())] if resolved.has_labels else []
        index = [(INDEX, pa.int64())] if resolved.has_counts else []
        schema = join_columns(
            [
                ("the key", columns(*((name, up.schema.field(name).type) for name in up.key))),
                ("the window", columns(*label, (START, time), (END, time), *index)),
                ("the results", results),
                ("early results", columns((FINAL, pa.bool_())) if resolved.early else columns()),
            ],
            hint="give the result another name",
        )
        return {OUT: Stream(schema, up.time, up.key), LATE: up, **self.errors_port(up)}

    def describe(self) -> str:
        """Return the windows and their aggregates or function."""
        specs = ", ".join(f"{label}: {spec}" if label else str(spec) for label, spec in self.specs)
        result = self.function or ", ".join(f"{n}={a}" for n, a in (self.aggregates or {}).items())
        late = str(self.lateness)  # a bare int is in the time column's unit, which is not known here
        if not isinstance(self.lateness, int):
            late = spell(micros(self.lateness))
        none = late in ("0", spell(0))
        return f"{self.pattern} windows {specs}: {result}" + ("" if none else f"; lateness {late}")


def takes_window(fn: Callable[..., Any]) -> bool:
    """Return whether a function takes the window beside the rows: a second parameter, needed or named so.

    >>> takes_window(lambda rows, window: None), takes_window(lambda rows, top=3: None)
    (True, False)
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    return positional[1].default is inspect.Parameter.empty or positional[1].name == "window"


class KeyedWindows(Windows, kind="KW"):
    """All rows of a key go to one replica, which keeps the key's windows."""


class ParallelWindows(Windows, kind="PW", pattern="parallel", fixed_routing=Routing.COMPLEX):
    """Whole windows, also of one key, are assigned to replicas; a row goes to all replicas that need it."""


class PanedWindows(Windows, kind="PAW", pattern="paned", fixed_routing=Routing.COMPLEX):
    """Panes are aggregated in parallel (PLQ), windows are put together from panes (WLQ)."""


class MapReduceWindows(Windows, kind="MRW", pattern="map_reduce", fixed_routing=Routing.COMPLEX):
    """Every window is cut into parts that replicas aggregate, and the parts are combined."""


PATTERNS: dict[str, type[Windows]] = {
    kind.pattern: kind for kind in (KeyedWindows, ParallelWindows, PanedWindows, MapReduceWindows)
}
KEYED, PARALLEL, PANED, MAP_REDUCE = PATTERNS
DECOMPOSED = {
    KEYED: "all rows of a key go to one replica",
    PARALLEL: "windows go to replicas in turn, and a row to all that have one of its windows; "
    "results are put in order by key",
    PANED: "PLQ + WLQ: slices go to replicas in turn, and windows are combined from them by key",
    MAP_REDUCE: "MAP + REDUCE: rows go to replicas in turn, and partials of slices are merged by key",
}


class Choice(Frozen):
    """A pattern by name, and why it was chosen."""

    pattern: str
    reason: str


def choose_pattern(
    op: Windows, up: Stream, degree: int, *, totally_ordered: bool = False, n_keys: int | None = None
) -> Choice:
    """Choose the pattern for a number of replicas; `n_keys` is the number of keys, if it is known."""
    if degree == 1:
        return Choice(KEYED, "there is one replica")
    if up.key and (n_keys is None or n_keys >= degree):
        return Choice(KEYED, f"the keys ({', '.join(up.key)}) spread the rows, and nothing is combined after")
    few = "there is no key" if not up.key else f"there are {n_keys} keys for {degree} replicas"
    patterns = possible_patterns(op, up, totally_ordered=totally_ordered)
    if PANED in patterns:
        windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
        longest = max(slicing.longest for slicing in Slicing.groups(windows))
        if longest == 1:
            return Choice(MAP_REDUCE, f"{few}, and windows do not overlap: the rows of each are shared out")
        return Choice(
            PANED, f"{few}, and windows overlap: each is made of up to {longest} slices, which are shared out"
        )
    if PARALLEL in patterns:
        return Choice(PARALLEL, f"{few}, and results are made from the rows of whole windows")
    return Choice(KEYED, f"{few}, but sessions and count windows can only be spread by key")


def why_not_pattern(
    pattern: str, op: Windows, up: Stream, *, totally_ordered: bool
) -> tuple[str, str] | None:
    """Return (what the pattern cannot take, why), or None if it can take everything."""
    if pattern == KEYED:
        return None
    for _, window in op.resolve(up).windows:
        if not isinstance(window, TimeWindow):
            why = "which windows a row is in depends on other rows, so windows cannot be sent to replicas"
            return str(window), why
    if pattern == PARALLEL:
        return None
    if op.function is not None:
        return str(op.function), "it sees all rows of a window at once, which here are never together"
    for name, aggregate in (op.aggregates or {}).items():
        reason = why_rows(aggregate, up, totally_ordered=totally_ordered)
        if isinstance(aggregate, Fold) and not aggregate.commutative:
            reason = "commutative=False asks for rows in order, and partials are merged in any order"
        elif reason is not None and not isinstance(aggregate, Fold):
            reason = "it is computed from the rows of a window, and partials hold numbers only"
        if reason is not None:
            return f"{name}={aggregate}", reason
    return None


def possible_patterns(op: Windows, up: Stream, *, totally_ordered: bool) -> tuple[str, ...]:
    """Return the patterns that can take the step."""
    return tuple(
        name for name in PATTERNS if why_not_pattern(name, op, up, totally_ordered=totally_ordered) is None
    )


def pattern_refusal(pattern: str, op: Windows, up: Stream, *, totally_ordered: bool) -> GraphError | None:
    """Return the error that names the patterns that can, or None if this one can take the step."""
    problem = why_not_pattern(pattern, op, up, totally_ordered=totally_ordered)
    if problem is None:
        return None
    culprit, why = problem
    possible = " or ".join(
        f'pattern="{name}"' for name in possible_patterns(op, up, totally_ordered=totally_ordered)
    )
    return GraphError(f'pattern="{pattern}" cannot compute {culprit}', detail=why, hint=f"use {possible}")


def as_pattern(pattern: str, op: Windows, *, because: str | None = None) -> Windows:
    """Return the same step as an operator of the pattern, with the reason if it was chosen and not named."""
    if op.pattern == pattern and op.because == because:
        return op
    options = {field.name: getattr(op, field.name) for field in fields(op) if field.init}
    return PATTERNS[pattern](**options | {"because": because})
