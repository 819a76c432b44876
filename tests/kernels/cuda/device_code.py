"""Compiles every kernel to device code (PTX), for a device that need not be there; run as a program.

The simulator runs kernels as Python, so it cannot tell whether numba can type and compile them. This
can, given libnvvm. Prints how many kernels were compiled; exits with 77 when there is no libnvvm.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from numba import cuda, types
from numba.cuda import dispatcher

from penstock.kernels.cuda import kernels as cuda_kernels
from penstock.kernels.cuda.kernels import LIFTS, explain_rule_refusal
from penstock.kernels.user_functions import FunctionSource
from penstock.kernels.windows.accumulate import RULES, Rule
from penstock.kernels.windows.folds import build_fold_rule

CAPABILITY = (8, 0)
INT, INTS = types.int64, types.Array(types.int64, 1, "C")
MASKS, BYTES = types.Array(types.boolean, 2, "C"), types.Array(types.int8, 2, "C")
FLOAT_LIFTS = ("float", "moments", "part")


def add(a: float, b: float) -> float:
    return a + b


def three(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float]:
    return (a[0] + b[0], min(a[1], b[1]), max(a[2], b[2]))


def spell(a: float, b: float) -> float:
    return float(f"{a} is not spelt {b}")


FOLDS = (
    build_fold_rule("add", FunctionSource(add), (0.0,), alone=True),
    build_fold_rule("three", FunctionSource(three), (0.0, 1e9, -1e9), alone=False),
)


def arrays(*, floats: bool) -> list[Any]:
    """Arrays of one and two dimensions."""
    number = types.float64 if floats else types.int64
    return [types.Array(number, dimensions, "C") for dimensions in (1, 2)]


def plain() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(kernel, argument types) of the kernels that no rule is part of."""
    yield cuda_kernels.exchange, (INTS, INT, INT, INT)
    yield cuda_kernels.place_rows, (INTS, INTS, INT, INT, INT, INTS, INTS, INTS)
    yield cuda_kernels.touch, (INTS, INT, INTS, BYTES)
    yield cuda_kernels.clear_slices, (BYTES, INT, types.Array(types.int8, 1, "C"), INT, INT)
    for floats in (False, True):
        one, two = arrays(floats=floats)
        yield cuda_kernels.clear_slices, (two, INT, one, INT, INT)
        yield cuda_kernels.fill, (two, one)
        yield cuda_kernels.load_leaves, (two, INT, INT, INT, one, two, INT, INTS, INT, INT, INT)


def lift_kernels() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(kernel, argument types) of every lift."""
    for name in LIFTS:
        one, two = arrays(floats=name in FLOAT_LIFTS)
        yield (
            cuda_kernels.lift_kernel(name),
            (INTS, INT, INT, INTS, INTS, two, INT, MASKS, INT, INT, one, two),
        )


def around(rule: Rule) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """(kernel, argument types) of the kernels around a rule."""
    _, two = arrays(floats=rule.floats)
    own = cuda_kernels.rule_kernels(rule)
    yield own.reduce_step, (INTS, INT, INT, INT, two, two)
    yield own.add_to_ring, (INTS, INT, INTS, two, two, INT)
    yield own.merge_states, (INTS, INTS, two, two, INT)
    yield own.update_level, (two, INT, INTS, INT, INT, INT, INT, INT)
    yield own.compute, (two, INT, INTS, INT, INT, INTS, INTS, two)


def main() -> int:
    pathfinder = importlib.import_module("cuda.pathfinder")  # untyped, and comes with numba-cuda
    try:
        pathfinder.load_nvidia_dynamic_lib("nvvm")
    except pathfinder.DynamicLibNotFoundError:
        return 77
    # numba asks the device at hand which code to make for functions that kernels call: answer for it
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=CAPABILITY)
    rules = (*RULES, *FOLDS)
    kernels = [*plain(), *lift_kernels(), *(pair for rule in rules for pair in around(rule))]
    for kernel, arguments in kernels:
        code, _ = cuda.compile_ptx(kernel.py_func, arguments, cc=CAPABILITY)
        assert ".entry" in code
    assert [explain_rule_refusal(rule, CAPABILITY) for rule in rules] == [None] * len(rules)
    assert (
        explain_rule_refusal(build_fold_rule("spell", FunctionSource(spell), (0.0,), alone=True), CAPABILITY)
        is not None
    )
    sys.stdout.write(f"{len(kernels)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
