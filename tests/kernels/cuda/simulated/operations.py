"""Every operation, through CudaWindows, against Python's own functions; and their laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from penstock.errors import EngineError, NotSupported
from penstock.kernels.cuda.operation import Operation, count, fold, greatest, least, mean, total
from penstock.kernels.cuda.registers import device_registers
from penstock.kernels.cuda.windows import CudaWindows
from tests.naive.sliding import Sliding

NAN = math.nan


def nan_is_greatest(value: float) -> tuple[bool, float]:
    return (math.isnan(value), value)


def count_sum_max(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float, float]:
    return (a[0] + b[0], a[1] + b[1], max(a[2], b[2]))


def folded(number: Any, *functions: Any) -> tuple[Operation, Callable[[list[Any]], Any]]:
    """A fold and its plain twin."""
    lift, combine, zero, lower = functions
    operation = fold(lift, combine, zero, lower, number=number)
    return operation, lambda values: lower(reduce(combine, map(lift, values), zero))


INTS: dict[str, tuple[Operation, Callable[[list[Any]], Any]]] = {
    "count": (count(), len),
    "sum": (total("int64"), sum),
    "min": (least("int64"), min),
    "max": (greatest("int64"), max),
    "mean": (mean(), lambda values: sum(values) / len(values)),
    "fold to a number": folded("int64", lambda v: v * v, lambda a, b: a ^ b, 0, lambda part: -part),
    "fold to one of a tuple": folded(
        "int64", lambda v: (v,), lambda a, b: (max(a[0], b[0]),), (-999,), lambda part: part[0]
    ),
    "fold to two": folded(
        "float64", lambda v: (1, v), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0.0),
        lambda part: part[1] - part[0],
    ),
    "fold to three": folded(
        "float64", lambda v: (1.0, v, v), count_sum_max, (0.0, 0.0, -math.inf),
        lambda part: part[1] / max(part[0], 1) + part[2],
    ),
    "fold to four": folded(
        "float64", lambda v: (v, v, v, v),
        lambda a, b: (a[0] + b[0], min(a[1], b[1]), max(a[2], b[2]), a[3] + b[3]),
        (0.0, 99.0, -99.0, 0.0), lambda part: part[0] + 2 * part[1] + 3 * part[2] + part[3],
    ),
}  # fmt: skip
NEVER_NULL = {name for name in INTS if name == "count" or name.startswith("fold")}
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.none() | st.integers(-50, 50)),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("name", INTS)
@settings(deadline=None, derandomize=True, max_examples=4)
@given(rows=ROWS)
def test_an_operation_agrees_with_pythons_own_function(
    name: str, rows: list[tuple[int, int, int | None]]
) -> None:
    operation, expected = INTS[name]
    windows = CudaWindows(operation, size=6, every=2, n_windows=3, batch_rows=16)
    slots, times = (np.array([row[i] for row in rows]) for i in (0, 1))
    values = np.array([row[2] or 0 for row in rows])
    windows.add(slots, times, values, valid=np.array([row[2] is not None for row in rows]))
    found = windows.leave(math.inf)
    twin = Sliding(6, 2)
    twin.add([(slot, time, value) for slot, time, value in rows])
    left = [
        (start, slot, [v for v in values if v is not None]) for start, slot, values in twin.leave(math.inf)
    ]
    assert list(zip(found.starts.tolist(), found.slots.tolist(), strict=True)) == [row[:2] for row in left]
    assert found.valid.tolist() == [bool(values) or name in NEVER_NULL for *_, values in left]
    given_back = [result for result, valid in zip(found.results.tolist(), found.valid, strict=True) if valid]
    assert given_back == [expected(values) for *_, values in left if values or name in NEVER_NULL]


def one_window(operation: Operation, values: list[float]) -> Any:
    windows = CudaWindows(operation, size=10, every=10, batch_rows=16)
    n = len(values)
    windows.add(np.zeros(n, np.int64), np.arange(n), np.array(values, dtype=operation.dtype))
    return windows.leave(10).results.tolist()[0]


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.lists(st.sampled_from([NAN, math.inf, -math.inf, 0.0, 1.5, -2.5]), min_size=1, max_size=8))
def test_nan_is_greater_than_any_number_in_min_and_max(values: list[float]) -> None:
    low, high = one_window(least("float64"), values), one_window(greatest("float64"), values)
    assert nan_is_greatest(low)[0] == math.isnan(min(values, key=nan_is_greatest))
    assert nan_is_greatest(high)[0] == math.isnan(max(values, key=nan_is_greatest))
    assert math.isnan(low) or low == min(values, key=nan_is_greatest)
    assert math.isnan(high) or high == max(values, key=nan_is_greatest)


def test_nan_spreads_in_sum_and_mean() -> None:
    assert math.isnan(one_window(total("float64"), [1.0, NAN, 2.0]))
    assert math.isnan(one_window(mean(), [1.0, NAN, 2.0]))


def test_integer_sums_are_exact_where_floats_are_not_and_parts_may_leave_int64() -> None:
    assert one_window(total("int64"), [2**62 + 1, 2**62, 2**62, -(2**62), -(2**62)]) == 2**62 + 1
    assert one_window(total("int64"), [-(2**63), 2**63 - 1]) == -1


@pytest.mark.parametrize(("values", "exact"), [([2**63 - 1, 1], 2**63), ([-(2**63), -1], -(2**63) - 1)])
def test_a_sum_outside_int64_names_slot_and_window(values: list[int], exact: int) -> None:
    windows = CudaWindows(total("int64"), size=10, every=10, batch_rows=16)
    windows.add(np.array([3, 3, 1]), np.array([20, 21, 20]), np.array([*values, 7]))
    with pytest.raises(EngineError) as told:
        windows.leave(30)
    assert told.value.fact == f"the exact sum of slot 3 in the window from 20 is {exact}, outside int64"
    assert "float64" in (told.value.hint or "")


def test_a_fold_may_read_several_columns() -> None:
    weighted = fold(lambda v, w: (v * w, w), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0.0, 0.0),
                    lambda part: part[0] / part[1], columns=2)  # fmt: skip
    windows = CudaWindows(weighted, size=10, every=10, batch_rows=4)
    windows.add(np.array([0, 0]), np.array([1, 2]), np.array([[10.0, 1.0], [20.0, 3.0]]))
    assert windows.leave(10).results.tolist() == [17.5]


def test_a_fold_without_lower_gives_its_parts() -> None:
    both = fold(lambda v: (v, -v), lambda a, b: (a[0] + b[0], max(a[1], b[1])), (0.0, -math.inf))
    assert one_window(both, [1.0, 5.0]) == [6.0, -1.0]


@pytest.mark.parametrize(("zero", "columns"), [((0.0,) * 5, 1), ((), 1), (0.0, 5), (0.0, 0)])
def test_a_fold_that_is_too_wide_for_a_kernel_is_refused(zero: Any, columns: int) -> None:
    n = len(zero) if isinstance(zero, tuple) else 1
    with pytest.raises(NotSupported) as told:
        fold(lambda v: v, lambda a, b: a, zero, columns=columns)
    assert told.value.fact == f"a fold of {columns} columns into {n} numbers has no cuda kernel"
    assert told.value.hint == 'say device="cpu"'


STATES = st.lists(st.integers(-50, 50), min_size=3, max_size=3)


@pytest.mark.parametrize("name", INTS)
@settings(deadline=None, derandomize=True, max_examples=4)
@given(parts=STATES)
def test_combining_is_associative_commutative_and_leaves_the_neutral_state_out(
    name: str, parts: list[int]
) -> None:
    operation = INTS[name][0]
    registers = device_registers(operation)

    def both(a: Any, b: Any) -> Any:
        out = cuda.to_device(np.zeros_like(a))
        joined[1, 1](registers.combine, cuda.to_device(a), cuda.to_device(b), out)
        return out.copy_to_host()

    def joined_states(combine: Any, a: Any, b: Any, out: Any) -> None:
        combine(a, b, out)

    joined = cuda.jit(joined_states)
    a, b, c = (lifted(operation, part) for part in parts)
    assert both(both(a, b), c).tolist() == both(a, both(b, c)).tolist()
    assert both(a, b).tolist() == both(b, a).tolist()
    assert both(a, operation.neutral()).tolist() == a.tolist()


def lifted(operation: Operation, value: int) -> Any:
    part = operation.lift(operation.dtype.type(value)) if operation.lift else ()
    return np.array([*(part if isinstance(part, tuple) else (part,)), 1, 1], dtype=operation.dtype)
