"""The verb window, and the pipe cut into windows that an aggregation or a function of rows completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar

from penstock.caller import find_call_site
from penstock.errors import GraphError, nearest_first
from penstock.graph.steps import locate_errors
from penstock.graph.verbs.pipe import STEP_OPTIONS, Pipe
from penstock.operators.aggregates import Aggregate
from penstock.operators.choices import on_cuda
from penstock.operators.op import Op, degree
from penstock.operators.patterns import as_pattern, choose_pattern, why_not_pattern
from penstock.operators.windows import PATTERNS
from penstock.options import Cuda
from penstock.timing.units import Duration
from penstock.timing.windows import WindowSpec

PatternName = Literal["auto", "keyed", "parallel", "paned", "map_reduce"]
AnyPipe = TypeVar("AnyPipe", bound=Pipe)
WINDOW_OPTIONS = ("device", "early", "lateness", "partial", "pattern", *STEP_OPTIONS)


class WindowVerbs(Pipe):
    """Rows grouped into windows."""

    __slots__ = ()

    def window(
        self,
        window: WindowSpec | None = None,
        /,
        *,
        lateness: Duration = "0 s",
        early: Duration | None = None,
        partial: bool = False,
        pattern: PatternName = "auto",
        device: Literal["auto", "cpu", "cuda"] | Cuda = "auto",
        **named: Any,
    ) -> WindowedPipe[Self]:
        """Group rows into windows; end it with `.aggregate(...)` or `.apply(fn)`.

        Several windows by name share the work: `window(fast=ps.tumbling("1 s"), slow=ps.tumbling("1 h"))`
        gives results with a column `window`. The options of `ps.StepOptions` go beside them.

        lateness  how long after its end a window still takes rows in; its result is emitted only then
        early     emit unfinished results at this interval of the clock; adds a column `final`
        partial   let count windows that are not full be emitted at the end
        pattern   "auto", "keyed", "parallel", "paned" or "map_reduce": how the work is spread
        device    "auto", "cpu" or "cuda": where windows are kept; "auto" takes a CUDA device if there is one.
                  `ps.options.Cuda(...)` is "cuda" with limits of your own
        """
        windows = {n: v for n, v in named.items() if n not in STEP_OPTIONS or isinstance(v, WindowSpec)}
        options = {n: v for n, v in named.items() if n not in windows}
        with locate_errors(options.get("name") or "window", find_call_site()):
            for name, value in windows.items():
                if not isinstance(value, WindowSpec):
                    known = nearest_first(name, WINDOW_OPTIONS)
                    raise GraphError(
                        f"window has no option {name}=, and {value!r} is not a window",
                        detail=f"the options are {', '.join(known)}",
                        hint=f'did you mean {known[0]}=? Windows are ps.tumbling("10 s"), ...',
                    )
            if (window is None) == (not windows):
                raise GraphError(
                    "window takes one window, or several by name",
                    hint='window(ps.tumbling("10 s")), or window(fast=..., slow=...)',
                )
        options |= {"lateness": lateness, "early": early, "partial": partial, "device": device}
        return WindowedPipe(self, window if window is not None else windows, pattern=pattern, options=options)


class WindowedPipe(Generic[AnyPipe]):
    """What `pipe.window(...)` returns: end it with `.aggregate(...)` or `.apply(fn)`."""

    def __init__(
        self,
        pipe: AnyPipe,
        windows: WindowSpec | Mapping[str, WindowSpec],
        *,
        pattern: PatternName,
        options: Mapping[str, Any],
    ) -> None:
        self._pipe = pipe
        self._windows = windows
        self._pattern = pattern
        self._options = options

    def aggregate(self, aggregates: Mapping[str, Aggregate] | None = None, /, **named: Aggregate) -> AnyPipe:
        """Make one row per key and window: `aggregate(views=ps.count(), revenue=ps.sum("price"))`."""
        if isinstance(aggregates, Mapping):
            named = {**aggregates, **named}
        return self._complete(aggregates=named if aggregates is None or named else aggregates)

    def apply(self, function: Callable[..., Any], *, schema: object = None) -> AnyPipe:
        """Call `fn(rows)`, or `fn(rows, window)`, on all the rows of a window, in order of time.

        It returns one row, several, or None; key and window columns are added to each. `window` has
        `start`, `end`, `index`, `label` and `key`.
        """
        return self._complete(apply=function, schema=schema)

    def _complete(self, **result: Any) -> AnyPipe:
        """Add the window step; `result` has the aggregates, or the function and its schema."""

        def make() -> Op:
            if self._pattern != "auto" and self._pattern not in PATTERNS:
                names = ", ".join(f'"{name}"' for name in ("auto", *PATTERNS))
                raise GraphError(f"pattern={self._pattern!r} is unknown", hint=f"use one of {names}")
            op = PATTERNS["keyed" if self._pattern == "auto" else self._pattern](
                self._windows, **result, **self._options
            )
            if self._pattern == "auto":
                if on_cuda(op):
                    return as_pattern("keyed", op, because='device="cuda" was asked for')
                # For the replicas that the step asks for, or takes over from the pipe.
                replicas = degree(op.parallelism) or self._pipe.graph.steps.placement(self._pipe.feeds).degree
                choice = choose_pattern(op, self._pipe.stream, replicas.most)
                return as_pattern(choice.pattern, op, because=choice.reason)
            refusal = why_not_pattern(self._pattern, op, self._pipe.stream, totally_ordered=True)
            if refusal is not None:
                # A pattern never changes an answer, so one that cannot take the windows is only not followed.
                asked = f'pattern="{self._pattern}" was asked for, but for {refusal[0]} {refusal[1]}'
                return as_pattern("keyed", op, because=asked)
            return op

        return self._pipe._add_op(make, stem="window", name=self._options.get("name"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and inspect ask for these, and can do without
            raise AttributeError(name)
        raise GraphError(
            f"a windowed pipe has no .{name}",
            step=self._options.get("name") or "window",
            where=find_call_site(),
            hint="end the window first: .aggregate(n=ps.count()) or .apply(fn)",
        )
