"""Machine code from Numba's cache, without what Numba needs only to compile.

Asked for a cached function, Numba first gathers all that it can compile, which takes longer than to import it
and to run a first window together. Code that is there needs none of that. If it is not there, or a later
Numba keeps it in another way, nothing is loaded here, and the loop is built as usual.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

Function = Callable[..., Any]


def load_cached(function: Function, signature: Any, **options: Any) -> Function | None:
    """The function's code for one signature, as `numba.njit` left it in the cache; None if it did not.

    function   its name and code are looked for, what it calls is not looked at
    signature  Numba's types of the arguments
    options    those of `numba.njit` for it
    """
    import numba
    from numba.core.runtime import rtsys

    dispatcher: Any = numba.njit(function, cache=True, **options)
    try:
        cache, context = dispatcher._cache, dispatcher.targetctx
        rtsys.initialize(context)  # what allocates arrays for compiled code
        found = cache._load_overload(signature, context)
    except Exception:  # another Numba, or a damaged file: building it will do, or say why not
        return None
    if found is None:
        return None
    cache.load_overload = lambda wanted, where: found
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    built: Function = dispatcher
    return built


# One source for two speeds: loops that run as plain Python on little data and compiled by Numba on much.
#
# `@loop("Ir I2 i")` keeps a function as it is; `.plain` calls it, `.compiled` builds it with Numba on
# first use (explicit types, nogil, kept in the on-disk cache). Numba is imported only then, so a program
# that sees few rows never loads it. A loop that is written for any associative rule calls the name
# `merge`; `.with_rule(rule)` puts the rule's own function in its place.
#
# Types are written in signature: i, f one number; I, F, B arrays that are written; Ir, Fr, Br those that are
# only read (Arrow's buffers are read-only); I2, F2 rows of cells.


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
        self._source = function
        self._signature = signature  # None: inlined into others, typed by how it is called
        self._reassociate = reassociate
        self._rules = rules or {}
        self._cached = cached
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Run it plain: also how the source of one loop reads when it calls another."""
        return self.plain(*arguments)

    @property
    def is_typed(self) -> bool:
        """Whether it is compiled for itself, rather than into the loops that call it."""
        return self._signature is not None

    def version(self, compiled: bool) -> Function:
        """The loop at one of its two speeds."""
        return self.compiled if compiled else self.plain

    def with_rule(self, rule: Loop, signature: str, *, cached: bool = True) -> Loop:
        """The loop with `rule` in the place of the name `merge`."""
        return Loop(self._source, signature, rules={"merge": rule}, cached=cached)

    @cached_property
    def plain(self) -> Function:
        """The function as it was written, with the rule in its place; floats overflow in silence."""
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
        """The function as machine code; the first process builds it, later ones load it."""
        numba: Any = import_module("numba")
        fast: Any = {"reassoc", "nsz"} if self._reassociate else False
        if self._signature is None:
            alone: Function = numba.njit(self._calling_compiled(), cache=False, nogil=True, fastmath=fast)
            return alone
        types = parse_signature(self._signature)
        if self._cached:
            found = load_cached(self._renamed(self._copy({})), types, nogil=True, fastmath=fast)
            if found is not None:
                return found
        typed = numba.njit(types, cache=self._cached, nogil=True, fastmath=fast)
        built: Function = typed(self._calling_compiled())
        return built

    def _calling_compiled(self) -> Function:
        return self._renamed(self._copy({name: value.compiled for name, value in self._inner().items()}))

    def _renamed(self, function: Any) -> Function:
        # Numba's cache looks at this file's date only. The name carries what the loop calls, so that a
        # change there, or another rule, is another entry.
        function.__qualname__ = f"{self.__name__}_{self._digest()}"
        renamed: Function = function
        return renamed

    def build_with(self, build: Callable[[Function], Any]) -> Any:
        """The function by another compiler, and likewise every loop that it calls."""
        return build(self._copy({name: value.build_with(build) for name, value in self._inner().items()}))

    def _named(self) -> dict[str, Any]:
        names = self._source.__code__.co_names
        space = {**self._source.__globals__, **self._rules}
        return {name: space[name] for name in names if name in space}

    def _inner(self) -> dict[str, Loop]:
        """The loops that this one calls, under the same rule."""
        called = {name: value for name, value in self._named().items() if isinstance(value, Loop)}
        return {
            name: value if name in self._rules or not self._rules else value._with(self._rules)
            for name, value in called.items()
        }

    def _with(self, rules: dict[str, Loop]) -> Loop:
        return Loop(self._source, self._signature, reassociate=self._reassociate, rules=rules)

    def _copy(self, instead: dict[str, Any]) -> Any:
        source: Any = self._source
        copy = python_types.FunctionType(source.__code__, {**source.__globals__, **instead}, self.__name__)
        copy.__doc__ = source.__doc__
        return copy

    def _digest(self) -> str:
        import hashlib  # for what is compiled only

        code = self._source.__code__
        parts = [code.co_code, repr(code.co_names).encode(), repr(code.co_consts[1:]).encode()]
        parts += [f"{name} {value._digest()}".encode() for name, value in sorted(self._inner().items())]
        for name, value in sorted(self._named().items()):
            if isinstance(value, int | float):
                parts.append(f"{name} {value!r}".encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def loop(signature: str | None = None, *, reassociate: bool = False) -> Callable[[Function], Loop]:
    """Make a Loop of a function; without signature it is only called by other loops.

    `reassociate` lets float sums be added up in several lanes.
    """
    return lambda function: Loop(function, signature, reassociate=reassociate)


def parse_signature(signature: str) -> Any:
    """Numba's types for "i I Fr …"; what a loop returns is left to be found out."""
    from numba import types as nt

    known = {
        "i": nt.int64,
        "f": nt.float64,
        "I": nt.Array(nt.int64, 1, "C"),
        "F": nt.Array(nt.float64, 1, "C"),
        "Ir": nt.Array(nt.int64, 1, "C", readonly=True),
        "Fr": nt.Array(nt.float64, 1, "C", readonly=True),
        "B": nt.Array(nt.boolean, 1, "C"),
        "Br": nt.Array(nt.boolean, 1, "C", readonly=True),
        "I2": nt.Array(nt.int64, 2, "C"),
        "F2": nt.Array(nt.float64, 2, "C"),
    }
    return tuple(known[letter] for letter in signature.split())
