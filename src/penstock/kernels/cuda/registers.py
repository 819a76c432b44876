"""An operation's functions as device functions on rows of registers.

A part is a bare number or a tuple of up to four. CUDA code cannot make a tuple, or call a function, with
a length that is only known at run time, so each length has a line of its own; the rest is written once.
Every function computes before it writes, so `out` may be one of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba import cuda

from penstock.kernels.cuda.operation import Operation

Fn = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Registers:
    """lift(values, valid, neutral, out) writes one row's state; combine(a, b, out) joins two states."""

    lift: Any
    combine: Any


def device_registers(operation: Operation) -> Registers:
    """The device functions; numba compiles them together with the first kernel that calls them."""
    n = len(operation.zero)
    if operation.lift is None or operation.combine is None:
        return Registers(_device(_lift_nothing), _device(_combine_nothing))
    read = _device(_read_bare if operation.bare else READ[n])
    write = _device(_write_bare if operation.bare else WRITE[n])
    lift = _device(CALL[operation.columns](_device(operation.lift)))
    combine = _device(operation.combine)
    return Registers(_device(_lifting(lift, write, n)), _device(_combining(combine, read, write, n)))


def _lifting(lift: Fn, write: Fn, n: int) -> Fn:
    def lift_row(values: Any, valid: Any, neutral: Any, out: Any) -> None:
        if valid:
            write(lift(values), out)
            out[n] = 1
        else:
            for r in range(n + 1):
                out[r] = neutral[r]
        out[n + 1] = 1

    return lift_row


def _combining(combine: Fn, read: Fn, write: Fn, n: int) -> Fn:
    def combine_states(a: Any, b: Any, out: Any) -> None:
        part = combine(read(a), read(b))
        values = a[n] + b[n]
        rows = a[n + 1] + b[n + 1]
        write(part, out)
        out[n] = values
        out[n + 1] = rows

    return combine_states


def _lift_nothing(values: Any, valid: Any, neutral: Any, out: Any) -> None:
    out[0] = 1 if valid else 0
    out[1] = 1


def _combine_nothing(a: Any, b: Any, out: Any) -> None:
    values = a[0] + b[0]
    rows = a[1] + b[1]
    out[0] = values
    out[1] = rows


def _read_bare(state: Any) -> Any:
    return state[0]


def _write_bare(part: Any, out: Any) -> None:
    out[0] = part


def _write_one(part: Any, out: Any) -> None:
    out[0] = part[0]


def _write_two(part: Any, out: Any) -> None:
    out[0] = part[0]
    out[1] = part[1]


def _write_three(part: Any, out: Any) -> None:
    out[0] = part[0]
    out[1] = part[1]
    out[2] = part[2]


def _write_four(part: Any, out: Any) -> None:
    out[0] = part[0]
    out[1] = part[1]
    out[2] = part[2]
    out[3] = part[3]


READ: dict[int, Fn] = {
    1: lambda state: (state[0],),
    2: lambda state: (state[0], state[1]),
    3: lambda state: (state[0], state[1], state[2]),
    4: lambda state: (state[0], state[1], state[2], state[3]),
}
WRITE: dict[int, Fn] = {1: _write_one, 2: _write_two, 3: _write_three, 4: _write_four}
CALL: dict[int, Callable[[Fn], Fn]] = {
    1: lambda fn: lambda values: fn(values[0]),
    2: lambda fn: lambda values: fn(values[0], values[1]),
    3: lambda fn: lambda values: fn(values[0], values[1], values[2]),
    4: lambda fn: lambda values: fn(values[0], values[1], values[2], values[3]),
}


def _device(fn: Fn) -> Any:
    return cuda.jit(fn, device=True)
