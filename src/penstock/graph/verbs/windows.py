"""A pipe cut into windows, which an aggregation or a function of their rows completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar

from penstock.caller import find_call_site
from penstock.errors import GraphError
from penstock.graph.verbs.pipe import Pipe
from penstock.operators.aggregates import Aggregate
from penstock.operators.choices.device import on_cuda
from penstock.operators.choices.patterns import as_pattern, choose_pattern, why_not_pattern
from penstock.operators.op import Op, degree
from penstock.operators.window_specs import WindowSpec
from penstock.operators.windows import PATTERNS, Windows

PatternName = Literal["auto", "keyed", "parallel", "paned", "map_reduce"]
AnyPipe = TypeVar("AnyPipe", bound=Pipe)


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
        """Adds the window step; `result` says what is made of each window."""

        def make() -> Op:
            if self._pattern != "auto" and self._pattern not in PATTERNS:
                names = ", ".join(f'"{name}"' for name in ("auto", *PATTERNS))
                raise GraphError(f"pattern={self._pattern!r} is unknown", hint=f"use one of {names}")
            op = PATTERNS["keyed" if self._pattern == "auto" else self._pattern](
                self._windows, **result, **self._options
            )
            if self._pattern == "auto":
                return self._in_best_pattern(op)
            refusal = why_not_pattern(self._pattern, op, self._pipe.stream, totally_ordered=True)
            if refusal is not None:
                # A pattern never changes an answer, so one that cannot take the windows is only not followed.
                asked = f'pattern="{self._pattern}" was asked for, but for {refusal[0]} {refusal[1]}'
                return as_pattern("keyed", op, because=asked)
            return op

        return self._pipe._add_op(make, stem="window", name=self._options.get("name"))

    def _in_best_pattern(self, op: Windows) -> Op:
        """Returns the step in the pattern that fits it, for the replicas it asks for or takes over."""
        if on_cuda(op):
            return as_pattern("keyed", op, because='device="cuda" was asked for')
        replicas = degree(op.parallelism) or self._pipe.graph.steps.placement(self._pipe.feeds).degree
        choice = choose_pattern(op, self._pipe.stream, replicas.most)
        return as_pattern(choice.pattern, op, because=choice.reason)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and inspect ask for these, and can do without
            raise AttributeError(name)
        raise GraphError(
            f"a windowed pipe has no .{name}",
            step=self._options.get("name") or "window",
            where=find_call_site(),
            hint="end the window first: .aggregate(n=ps.count()) or .apply(fn)",
        )
