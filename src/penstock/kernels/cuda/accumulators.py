"""What a device keeps of the rows of a slice: accumulators, by the rules of `kernels/windows/accumulate.py`.

A rule has one source for the plain loops, for Numba and for CUDA, so that devices cannot disagree. What is
written here is how one row becomes a cell: the lift, which on the host is the first step of a loop over rows.
Device functions are made once per process and rule; numba compiles them with the kernels that call them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import cuda, types

from penstock.frozen import dataclass
from penstock.kernels.cuda.device import is_simulated
from penstock.kernels.user_functions import explain_refusal
from penstock.kernels.windows.accumulate import Rule

Fn = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CudaAccumulator:
    """One accumulator.

    rule     the cells' type, width and neutral, and how two become one
    lift     a name in LIFTS
    column   which of the rows' columns it reads; the first of several for "part"; None where it is of rows
    flip     -1 where values, or times and order, are kept as complements; else 0
    """

    rule: Rule
    lift: str
    column: int | None = None
    flip: int = 0

    @property
    def reads(self) -> range:
        """Return the columns whose values are read, rather than only which of them are null."""
        if self.column is None or self.lift == "null":
            return range(0)
        return range(self.column, self.column + (self.rule.width if self.lift == "part" else 1))


@cache
def device_merge(rule: Rule) -> Any:
    """merge(into, i, other, j) as a device function."""
    return rule.merge.build_with(as_device)


def explain_rule_refusal(rule: Rule, capability: tuple[int, int] | None = None) -> str | None:
    """Return why numba cannot compile a rule, in one line; None when it can."""
    if is_simulated():  # it compiles nothing
        return None
    merge, at = device_merge(rule).py_func, types.int64
    cells = types.Array(types.float64 if rule.floats else types.int64, 2, "C")
    try:
        cuda.compile_ptx(merge, (cells, at, cells, at), device=True, cc=capability)
    except Exception as cause:  # numba's errors have no common ground below this
        return explain_refusal(cause)
    return None


def as_device(fn: Fn) -> Any:
    """Return a function that kernels can call."""
    return cuda.jit(fn, device=True)


def _lift_row(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = 1


def _lift_time(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = times[row]


def _lift_value(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = values[column, row]


def _lift_halves(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = values[column, row] >> 32
    out[i, 1] = values[column, row] & 0xFFFFFFFF


def _lift_extreme(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = values[column, row] ^ flip


def _lift_counted(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = values[column, row] ^ flip
    out[i, 1] = 1


def _lift_placed(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = times[row] ^ flip
    out[i, 1] = order[row] ^ flip
    out[i, 2] = values[column, row]


def _lift_moments(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    out[i, 0] = 1.0
    out[i, 1] = values[column, row]
    out[i, 2] = values[column, row] - values[column, row]  # NaN of what is not finite, as on the host


def _lift_part(
    times: Any, order: Any, values: Any, column: Any, row: Any, flip: Any, out: Any, i: Any
) -> None:
    for p in range(out.shape[1]):
        out[i, p] = values[column + p, row]


LIFTS: dict[str, Fn] = {
    "row": _lift_row,
    "null": _lift_row,  # of the nulls alone; of all others the rows that are null are left out
    "time": _lift_time,
    "float": _lift_value,
    "halves": _lift_halves,
    "extreme": _lift_extreme,
    "counted": _lift_counted,
    "placed": _lift_placed,
    "moments": _lift_moments,
    "part": _lift_part,
}
"""lift(times, order, values, column, row, flip, out, i) writes the cell of a row to out[i].

times, order  int64[n]
values        int64[columns, n] or float64[columns, n], as the cells are
"""
