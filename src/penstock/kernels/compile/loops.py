"""One source for two speeds: loops that run as plain Python on little data and compiled by Numba on much.

`@loop("Ir I2 i")` keeps a function as it is; `.plain` calls it, `.compiled` builds it with Numba on first use
(explicit types, without the GIL, kept in the on-disk cache). Numba is imported only then, so a program that
sees few rows never loads it.

A loop may leave a rule open: it calls a loop by a name that stands for it, such as `merge`. `.with_rules`
puts rules in the place of such names, in the loop and in all loops that it calls. Steps that are too hot for
a call are put in by source (`inline.py`).

A signature has a code for each argument: i, f one number; I, F, B arrays that are written; Ir, Fr, Br those
that are only read (Arrow's buffers are read-only), Jr one of 32-bit integers; I2, F2 rows of cells.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

Function = Callable[..., Any]


class Loop:
    """A function on arrays that can also be compiled; calling it runs it plain."""

    def __init__(
        self,
        function: Function,
        signature: str | None,
        *,
        reassociate: bool = False,
        rules: dict[str, Loop] | None = None,
        cached: bool = True,
    ) -> None:
        self._function = function
        self._signature = signature  # None: inlined into others, typed by how it is called
        self._reassociate = reassociate
        self._rules = rules or {}
        self._cached = cached
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Run it plain: also how the source of one loop reads when it calls another."""
        return self.plain(*arguments)

    @cached_property
    def _source(self) -> Function:
        """Return the function that runs, or is compiled."""
        return self._function

    @property
    def is_typed(self) -> bool:
        """Return whether it is compiled on its own, rather than into the loops that call it."""
        return self._signature is not None

    def version(self, compiled: bool) -> Function:
        """Return the loop at one of its two speeds."""
        return self.compiled if compiled else self.plain

    def with_rules(self, signature: str | None, *, cached: bool = True, **rules: Loop) -> Loop:
        """Return the loop with `rules` in the place of the names that stand for them."""
        return Loop(self._source, signature, reassociate=self._reassociate, rules=rules, cached=cached)

    @cached_property
    def plain(self) -> Function:
        """Return the function as it was written, with the rules in place; floats overflow in silence."""
        bare = self._bare

        def run(*arguments: Any) -> Any:
            with np.errstate(all="ignore"):
                return bare(*arguments)

        return run

    @cached_property
    def _bare(self) -> Function:
        function: Function = self._copy({name: value._bare for name, value in self._inner().items()})
        return function

    @cached_property
    def compiled(self) -> Function:
        """Return the function as machine code; the first process builds it, later ones load it."""
        numba: Any = import_module("numba")
        fast: Any = {"reassoc", "nsz"} if self._reassociate else False
        if self._signature is None:
            untyped: Function = numba.njit(self._link_compiled(), cache=False, nogil=True, fastmath=fast)
            return untyped
        types = parse_signature(self._signature)
        if self._cached:
            loaded = load_cached(self._rename(self._copy({})), types, nogil=True, fastmath=fast)
            if loaded is not None:
                return loaded
        typed = numba.njit(types, cache=self._cached, nogil=True, fastmath=fast)
        built: Function = typed(self._link_compiled())
        return built

    def build_with(self, build: Callable[[Function], Any]) -> Any:
        """Build the function by another compiler, and likewise every loop that it calls."""
        return build(self._copy({name: value.build_with(build) for name, value in self._inner().items()}))

    def _link_compiled(self) -> Function:
        return self._rename(self._copy({name: value.compiled for name, value in self._inner().items()}))

    def _rename(self, function: Any) -> Function:
        # Why: Numba's cache looks only at the date of this file. The name carries what the loop calls, so
        # that a change there, or another rule, is another entry.
        function.__qualname__ = f"{self.__name__}_{self._digest()}"
        renamed: Function = function
        return renamed

    def _globals(self) -> dict[str, Any]:
        """Return the globals that the source names, with the rules in place."""
        names = self._source.__code__.co_names
        space = {**self._source.__globals__, **self._rules}
        return {name: space[name] for name in names if name in space}

    def _inner(self) -> dict[str, Loop]:
        """Return the loops that this one calls, under the same rules."""
        called = {name: value for name, value in self._globals().items() if isinstance(value, Loop)}
        return {
            name: value if name in self._rules else value._under(self._rules)
            for name, value in called.items()
        }

    def _under(self, rules: dict[str, Loop]) -> Loop:
        """Return the loop under the rules of its caller; itself where it calls none of their names."""
        if not self._calls_any(rules):
            return self
        return Loop(
            self._source, self._signature, reassociate=self._reassociate, rules={**rules, **self._rules}
        )

    def _calls_any(self, rules: dict[str, Loop]) -> bool:
        return any(
            isinstance(value, Loop) and (name in rules or value._calls_any(rules))
            for name, value in self._globals().items()
        )

    def _copy(self, replaced: dict[str, Any]) -> Any:
        source: Any = self._source
        copy = python_types.FunctionType(source.__code__, {**source.__globals__, **replaced}, self.__name__)
        copy.__doc__ = source.__doc__
        return copy

    def _digest(self) -> str:
        import hashlib  # for what is compiled only

        code = self._source.__code__
        parts = [code.co_code, repr(code.co_names).encode(), repr(code.co_consts[1:]).encode()]
        parts += [f"{name} {value._digest()}".encode() for name, value in sorted(self._inner().items())]
        for name, value in sorted(self._globals().items()):
            if isinstance(value, int | float):
                parts.append(f"{name} {value!r}".encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def loop(signature: str | None = None, *, reassociate: bool = False) -> Callable[[Function], Loop]:
    """Make a Loop of a function; without a signature it is only called by other loops.

    `reassociate` lets float sums be added up in several parts at once.
    """
    return lambda function: Loop(function, signature, reassociate=reassociate)


def parse_signature(signature: str) -> Any:
    """Return Numba's types for "i I Fr …"; what a loop returns is left to Numba to infer."""
    from numba import types as nt

    known = {
        "i": nt.int64,
        "f": nt.float64,
        "I": nt.Array(nt.int64, 1, "C"),
        "F": nt.Array(nt.float64, 1, "C"),
        "Ir": nt.Array(nt.int64, 1, "C", readonly=True),
        "Fr": nt.Array(nt.float64, 1, "C", readonly=True),
        "Jr": nt.Array(nt.int32, 1, "C", readonly=True),
        "B": nt.Array(nt.boolean, 1, "C"),
        "Br": nt.Array(nt.boolean, 1, "C", readonly=True),
        "I2": nt.Array(nt.int64, 2, "C"),
        "F2": nt.Array(nt.float64, 2, "C"),
    }
    return tuple(known[code] for code in signature.split())


def load_cached(function: Function, types: Any, **options: Any) -> Function | None:
    """Return machine code from Numba's cache, without what Numba needs only to compile; None if it has none.

    Asked for a cached function, Numba first gathers all that it can compile, which takes longer than to
    import it and to run a first window together. If the code is not there, or a later Numba keeps it in
    another way, nothing is loaded here, and the loop is built as usual.

    function  its name and code are looked up; what it calls is not looked at
    types     Numba's types of the arguments
    options   those of `numba.njit` for it
    """
    import numba
    from numba.core.runtime import rtsys

    dispatcher: Any = numba.njit(function, cache=True, **options)
    try:
        cache, context = dispatcher._cache, dispatcher.targetctx
        rtsys.initialize(context)  # what allocates arrays for compiled code
        overload = cache._load_overload(types, context)
    except Exception:  # another Numba, or a damaged file: building it will do, or say why not
        return None
    if overload is None:
        return None
    cache.load_overload = lambda types, context: overload
    dispatcher.compile(types)
    dispatcher.disable_compile()
    built: Function = dispatcher
    return built
