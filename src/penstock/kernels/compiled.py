"""How kernels are compiled: for stated types, cached beside their source, without the GIL.

The types are stated so that a kernel is built when it is imported and never again for others; the cache
makes the second process load it ready. Division by zero follows NumPy, not Python: no kernel raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types

F = TypeVar("F", bound=Callable[..., Any])

INT = types.int64
INTS = types.int64[::1]
# Arrow's buffers are read-only; an array that may be written to is accepted as well.
READ_INTS = types.Array(types.int64, 1, "C", readonly=True)
ROW_AND_COUNT = types.UniTuple(types.int64, 2)


def compiled(signature: Any, *, inline: bool = False) -> Callable[[F], F]:
    """Compile a kernel for one signature, such as `INT(INTS, INT)`; `inline` for parts of other kernels."""
    decorate = njit(signature, cache=True, nogil=True, error_model="numpy", forceinline=inline)
    return cast(Callable[[F], F], decorate)
