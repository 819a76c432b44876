"""Compiles every kernel to device code (PTX), for a device that need not be there; run as a program.

The simulator runs kernels as Python, so it cannot tell whether numba can type and compile them. This
can, given libnvvm. Prints how many kernels were compiled; exits with 77 when there is no libnvvm.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from numba import cuda, types
from numba.cuda import dispatcher

from penstock.kernels.cuda import panes, sorting, tree
from penstock.kernels.cuda.operation import Operation, count, fold, greatest, least, mean, total
from penstock.kernels.cuda.registers import device_registers

CAPABILITY = (8, 0)
INT, INTS = types.int64, types.Array(types.int64, 1, "C")
FLAGS, BYTES = types.Array(types.boolean, 1, "C"), types.Array(types.int8, 1, "C")
OPERATIONS = [
    count(),
    total("int64"),
    total("float64"),
    mean(),
    least("int64"),
    least("float64"),
    greatest("int64"),
    greatest("float64"),
    fold(lambda v: v * v, lambda a, b: a + b, 0.0),
    fold(lambda v: (v,), lambda a, b: (max(a[0], b[0]),), (-math.inf,)),
    fold(lambda v, w: (1, v * w), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0.0), columns=2),
    fold(lambda u, v, w: (u, v, w), lambda a, b: (a[0] + b[0], a[1] + b[1], min(a[2], b[2])),
         (0.0, 0.0, math.inf), columns=3),
    fold(lambda t, u, v, w: (t, u, v, w), lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] ^ b[3]),
         (0, 0, 0, 0), columns=4, number="int64"),
]  # fmt: skip


def arrays(number: str) -> list[Any]:
    """Arrays of one, two and three dimensions."""
    return [types.Array(getattr(types, number), dimensions, "C") for dimensions in (1, 2, 3)]


def plain() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(kernel, argument types) of the kernels that no operation is part of."""
    yield sorting.exchange, (INTS, INT, INT, INT)
    yield panes.place_rows, (INTS, INTS, INT, INT, INTS, INT, INTS, INTS, INTS)
    for number in ("int64", "float64"):
        one, two, three = arrays(number)
        yield panes.clear_slices, (three, BYTES, one, INT, INT)
        yield panes.fill, (two, one)
        yield tree.load_leaves, (three, INT, INT, one, three, INTS, INT, INT, INT)


def around(operation: Operation) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(kernel, argument types) of the kernels around an operation."""
    one, two, three = arrays(operation.number)
    registers = device_registers(operation)
    pane = panes.pane_kernels(registers.lift, registers.combine)
    yield pane.lift_sorted, (INTS, INT, INT, two, FLAGS, one, two)
    yield pane.reduce_step, (INTS, INT, INT, INT, two, two)
    yield pane.add_to_ring, (INTS, INT, INTS, two, three, BYTES, INTS)
    yield pane.merge_states, (INTS, INTS, two, three, BYTES, INTS)
    trees = tree.tree_kernels(registers.combine)
    yield trees.init_level, (three, INTS, INT, INT, INT)
    yield trees.update_level, (three, INTS, INT, INT, INT, INT, INT)
    yield trees.compute, (three, INTS, INT, INT, INT, INT, INT, INT, two)


def main() -> int:
    pathfinder = importlib.import_module("cuda.pathfinder")  # untyped, and comes with numba-cuda
    try:
        pathfinder.load_nvidia_dynamic_lib("nvvm")
    except pathfinder.DynamicLibNotFoundError:
        return 77
    # numba asks the device at hand which code to make for functions that kernels call: answer for it
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)
    kernels = [*plain(), *(pair for operation in OPERATIONS for pair in around(operation))]
    for kernel, arguments in kernels:
        code, _ = cuda.compile_ptx(kernel.py_func, arguments, cc=CAPABILITY)
        assert ".entry" in code
    sys.stdout.write(f"{len(kernels)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
