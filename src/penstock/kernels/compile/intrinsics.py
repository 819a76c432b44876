"""Instructions that loops over arrays cannot ask for in Python: each with a plain twin.

Loops call them as they call each other. Run plain, the function below is called; compiled, its place is taken
by the machine's own instruction, which Numba would not find by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile.loops import Function, Loop

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

Emit = Callable[[Any, Any, Any], None]
"""(builder, pointer to the array's data, the other arguments): write the instruction."""


class Instruction(Loop):
    """A function on one array and numbers, and what it becomes when it is compiled."""

    def __init__(self, function: Function, emit: Emit) -> None:
        super().__init__(function, None)
        self._emit = emit

    @cached_property
    def compiled(self) -> Function:
        """Return what Numba puts in the place of a call."""
        from numba import config, types
        from numba.extending import intrinsic

        if config.DISABLE_JIT:  # a switch of Numba's, for those who look for faults
            return self.plain
        emit, n_arguments = self._emit, self._source.__code__.co_argcount

        def emit_call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            emit(builder, array.data, arguments[1:])
            return context.get_dummy_value()

        # Why: Numba counts the parameters of the function that it is called with.
        typings: dict[int, Callable[..., Any]] = {
            2: lambda typing, a, b: (types.void(a, b), emit_call),
            3: lambda typing, a, b, c: (types.void(a, b, c), emit_call),
        }
        built: Function = intrinsic(typings[n_arguments])
        return built

    def _digest(self) -> str:
        return f"{super()._digest()} {self._emit.__code__.co_code.hex()}"


def _emit_pair(builder: Any, data: Any, arguments: Any) -> None:
    from llvmlite import ir

    at, value = arguments
    pair = ir.VectorType(ir.DoubleType(), 2)
    place = builder.gep(data, [builder.mul(at, ir.Constant(at.type, 2))])
    place = builder.bitcast(place, pair.as_pointer())
    adds = builder.insert_element(ir.Constant(pair, [1.0, 0.0]), value, ir.Constant(ir.IntType(32), 1))
    # NumPy aligns to 16 bytes by chance only.
    builder.store(builder.fadd(builder.load(place, align=8), adds), place, align=8)


def _emit_prefetch(builder: Any, data: Any, arguments: Any) -> None:
    from llvmlite import ir
    from numba.core import cgutils

    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    reading, near, of_data = (ir.Constant(word, n) for n in (0, 3, 1))
    builder.call(fetch, [builder.bitcast(builder.gep(data, [arguments[0]]), byte), reading, near, of_data])


def _add_pair(pairs: Floats, at: int, value: float) -> None:
    """Add 1 to pairs[2 at] and `value` to pairs[2 at + 1], in one reading and one writing of memory."""
    pairs[2 * at] += 1.0
    pairs[2 * at + 1] += value


def _prefetch(numbers: Numbers, at: int) -> None:
    """Tell the memory that numbers[at] and its neighbours will be read soon."""


add_pair = Instruction(_add_pair, _emit_pair)
prefetch = Instruction(_prefetch, _emit_prefetch)
