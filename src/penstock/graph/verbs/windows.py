"""A pipe cut into windows, waiting to be told what to make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.caller import find_call_site
from penstock.errors import GraphError
from penstock.operators.aggregates import Aggregate
from penstock.operators.choices.device import on_cuda
from penstock.operators.choices.patterns import as_pattern, choose_pattern, why_not_pattern
from penstock.operators.op import Op, degree
from penstock.operators.window import WindowSpec
from penstock.operators.windows import PATTERNS, Windows

if TYPE_CHECKING:
    from penstock.graph.multipipe import MultiPipe
    from penstock.graph.verbs.base import Verbs


class WindowedPipe:
    """What `pipe.window(...)` gives: end it with `.aggregate(...)` or `.apply(fn)`."""

    def __init__(
        self,
        pipe: Verbs,
        windows: WindowSpec | Mapping[str, WindowSpec],
        *,
        pattern: str,
        name: str | None,
        options: Mapping[str, Any],
    ) -> None:
        self._pipe = pipe
        self._windows = windows
        self._pattern = pattern
        self._name = name
        self._options = options

    def aggregate(
        self, aggregates: Mapping[str, Aggregate] | None = None, /, **named: Aggregate
    ) -> MultiPipe:
        """One row per key and window: `aggregate(views=ps.count(), revenue=ps.sum("price"))`."""
        if isinstance(aggregates, Mapping):
            named = {**aggregates, **named}
        return self._step(aggregates=named if aggregates is None or named else aggregates)

    def apply(self, function: Callable[..., Any], *, schema: object = None) -> MultiPipe:
        """Call `fn(rows)`, or `fn(rows, window)`, on all the rows of a window, in order of time.

        It gives one row, several, or None; key and window columns are added to each. `window` has
        `start`, `end`, `index`, `label` and `key`.
        """
        return self._step(apply=function, schema=schema)

    def _step(self, **what: Any) -> MultiPipe:
        def make() -> Op:
            if self._pattern != "auto" and self._pattern not in PATTERNS:
                names = ", ".join(f'"{name}"' for name in ("auto", *PATTERNS))
                raise GraphError(f"pattern={self._pattern!r} is unknown", hint=f"use one of {names}")
            operator = PATTERNS["keyed" if self._pattern == "auto" else self._pattern]
            made = operator(self._windows, name=self._name, **what, **self._options)
            if self._pattern == "auto":
                return self._chosen(made)
            found = why_not_pattern(self._pattern, made, self._pipe.stream, totally_ordered=True)
            if found is not None:
                # A pattern never changes an answer, so one that cannot take the windows is only not followed.
                asked = f'pattern="{self._pattern}" was asked for, but for {found[0]} {found[1]}'
                return as_pattern("keyed", made, because=asked)
            return made

        return self._pipe._then(make, stem="window", name=self._name)

    def _chosen(self, op: Windows) -> Op:
        """The step in the pattern that fits it, for the replicas it asks for or takes over."""
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
            step=self._name or "window",
            where=find_call_site(),
            hint="end the window first: .aggregate(n=ps.count()) or .apply(fn)",
        )
