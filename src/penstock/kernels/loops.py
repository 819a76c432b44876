"""One source for two speeds: loops that run as plain Python on little data and compiled by Numba on much.

`@loop("Ir I2 i")` keeps a function as it is; `.plain` calls it, `.compiled` builds it with Numba on first use
(explicit types, without the GIL, kept in the on-disk cache). Numba is imported only then, so a program that
sees few rows never loads it.

A loop may leave a rule open: it calls a loop by a name that stands for it, such as `merge`. `.with_rules`
puts rules in the place of such names, in the loop and in all loops that it calls. Steps that are too hot for
a call are put in by source (`inline.py`).

A signature has a code for each argument: i, f one number; I, F, B arrays that are written; Ir, Fr, Br those
that are only read (Arrow's buffers are read-only), J, Jr of 32-bit integers, O, Or of bytes; I2, F2 rows of
cells. n, N, N2 are of the numbers of a rule, which is still to come (`windows/accumulate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from penstock.kernels.inline import Function, write_function

Emit = Callable[[Any, Any, Any], None]


class Loop:
    """A function on arrays that can also be compiled; calling it runs it plain.

    signature    None: inlined into others, typed by how it is called
    reassociate  lets float sums be added up in several parts at once
    steps        functions whose bodies are put in the place of their calls
    emit         for a machine's instruction that Numba would not find: (builder, pointer to the data of the
                 first argument, the other arguments) writes it in the place of a call
    cached       whether its machine code is kept on disk
    holds_gil    whether no other thread gets the interpreter during a call: for loops so brief that to get it
                 back would take longer
    """

    def __init__(
        self,
        function: Function,
        signature: str | None,
        *,
        reassociate: bool = False,
        steps: Mapping[str, Function] | None = None,
        emit: Emit | None = None,
        cached: bool = True,
        holds_gil: bool = False,
    ) -> None:
        self._function, self._steps, self._emit = function, steps, emit
        self.signature, self._reassociate, self._cached = signature, reassociate, cached
        self._holds_gil = holds_gil
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, *arguments: Any) -> Any:
        """Run it plain: also how the source of one loop reads when it calls another."""
        return self.plain(*arguments)

    @cached_property
    def _source(self) -> Function:
        """Return the function that runs, or is compiled."""
        return write_function(self._function, self._steps) if self._steps else self._function

    def version(self, compiled: bool, *, or_loaded: bool = False) -> Function:
        """Return the loop at one of its two speeds.

        or_loaded  whether it is the quick one too if this process has its machine code already
        """
        return self.compiled if compiled or (or_loaded and "compiled" in self.__dict__) else self.plain

    def holding_gil(self) -> Loop:
        """Return the same loop, but no other thread gets the interpreter during a call."""
        return Loop(self._source, self.signature, reassociate=self._reassociate, holds_gil=True)

    def with_rules(self, signature: str | None, **rules: Loop) -> Loop:
        """Return the loop with `rules` in the place of the names that stand for them."""
        return Loop(self._copy(self._put_in_place(rules)), signature, reassociate=self._reassociate)

    @cached_property
    def plain(self) -> Function:
        """Return the function as it was written, with what it calls; floats overflow in silence."""
        run: Function = np.errstate(all="ignore")(self.build_with(lambda function: function))
        return run

    @cached_property
    def compiled(self) -> Function:
        """Return the function as machine code; the first process builds it, later ones load it."""
        numba: Any = import_module("numba")
        if self._emit is not None:
            # Numba's DISABLE_JIT is a switch for those who look for faults.
            return self.plain if numba.config.DISABLE_JIT else _build_instruction(self._emit)
        fast: Any = {"reassoc", "nsz"} if self._reassociate else False
        nogil = not self._holds_gil
        if self.signature is None:
            untyped: Function = numba.njit(self._link_compiled(), cache=False, nogil=True, fastmath=fast)
            return untyped
        types = parse_signature(self.signature)
        if self._cached:
            loaded = load_cached(self._rename(self._copy({})), types, nogil=nogil, fastmath=fast)
            if loaded is not None:
                return loaded
        typed = numba.njit(types, cache=self._cached, nogil=nogil, fastmath=fast)
        built: Function = typed(self._link_compiled())
        return built

    def build_with(self, build: Callable[[Function], Any]) -> Any:
        """Build the function by another compiler, and likewise every loop that it calls."""
        return build(
            self._copy({name: value.build_with(build) for name, value in self._globals(Loop).items()})
        )

    def _link_compiled(self) -> Function:
        return self._rename(self._copy({name: value.compiled for name, value in self._globals(Loop).items()}))

    def _rename(self, function: Any) -> Function:
        # Why: Numba's cache looks only at the date of this file. The name carries what the loop calls, so
        # that a change there, or another rule, is another entry.
        function.__qualname__ = f"{self.__name__}_{self._digest()}"
        renamed: Function = function
        return renamed

    def _globals(self, kind: Any) -> dict[str, Any]:
        """Return the globals of a kind that the source names: loops are those that it calls."""
        source: Any = self._source
        space = source.__globals__
        return {name: space[name] for name in source.__code__.co_names if isinstance(space.get(name), kind)}

    def _put_in_place(self, rules: dict[str, Loop]) -> dict[str, Loop]:
        """Return what takes the place of loops that this one calls: rules, and loops that call them."""
        replaced = {}
        for name, value in self._globals(Loop).items():
            if name in rules:
                replaced[name] = rules[name]
            elif inner := value._put_in_place(rules):
                replaced[name] = Loop(value._copy(inner), value.signature, reassociate=value._reassociate)
        return replaced

    def _copy(self, replaced: dict[str, Any]) -> Any:
        source: Any = self._source
        space = {**source.__globals__, **replaced}
        copy = FunctionType(source.__code__, space, self.__name__, source.__defaults__, source.__closure__)
        copy.__kwdefaults__, copy.__doc__ = source.__kwdefaults__, source.__doc__
        return copy

    def _digest(self) -> str:
        code = self._source.__code__
        parts = [code.co_code, repr(code.co_names).encode(), repr(code.co_consts[1:]).encode()]
        parts += [f"{name} {value._digest()}".encode() for name, value in sorted(self._globals(Loop).items())]
        parts += [f"{name} {value!r}".encode() for name, value in sorted(self._globals(int | float).items())]
        if self._emit is not None:
            parts.append(self._emit.__code__.co_code)
        if self._holds_gil:
            parts.append(b"holds the GIL")
        return hash_code(b"\0".join(parts))


def loop(
    signature: str | None = None,
    *,
    reassociate: bool = False,
    emit: Emit | None = None,
    **steps: Function,
) -> Callable[[Function], Loop]:
    """Make a Loop of a function; without a signature it is only called by other loops."""
    return lambda function: Loop(function, signature, reassociate=reassociate, steps=steps, emit=emit)


def _build_instruction(emit: Emit) -> Function:
    """Return what Numba puts in the place of a call with an array, a place and a value."""
    from numba import types
    from numba.extending import intrinsic

    def emit_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        emit(builder, array.data, arguments[1:])
        return context.get_dummy_value()

    built: Function = intrinsic(lambda typing, array, at, value: (types.void(array, at, value), emit_call))
    return built


def hash_code(code: bytes) -> str:
    """Return a name for what a loop says."""
    import hashlib  # for what is compiled only

    return hashlib.sha256(code).hexdigest()[:12]


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
        "J": nt.Array(nt.int32, 1, "C"),
        "Or": nt.Array(nt.uint8, 1, "C", readonly=True),
        "O": nt.Array(nt.uint8, 1, "C"),
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
