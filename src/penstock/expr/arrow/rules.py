"""Numbers, text, time, logic and choices on arrays, with the failures that each choice lets through.

Integers are computed with a check for overflow, floats by IEEE 754. Integers of up to 32 bits are computed in
64, where they cannot overflow, and then checked for range. Times are computed as integers, and by NumPy's
calendar, which has no last year. Comparison follows from `equal` and `less`, which know the place of NaN.

The hash is XXH64, written out in NumPy for four and eight bytes, the library for text. It is defined by its
specification (xxhash.com); for inputs below 32 bytes it is one round per eight or four bytes, starting from
the seed, and a final mix. Text is hashed once per distinct (seed, text).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind
import xxhash

from penstock import expr as nodes
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue, Mask, Numbers, any_failed, from_numbers, null_of
from penstock.expr.nodes.numbers import SEED
from penstock.expr.nodes.text_and_time import CLOCK_PARTS, DAY, UNITS
from penstock.expr.program import BOOL, Function, Instruction, Rules, convert_literal
from penstock.expr.values import from_plain, integer_range, numbers_of, valid_in

CheckedOperation = Callable[[Numbers, Numbers], tuple[Numbers, Mask]]
Words = npt.NDArray[np.uint64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def _round(node: nodes.Round, out: Instruction) -> Function:
    if kind.is_signed_integer(out.type):
        return _identity
    scale = 10.0**node.digits

    def round_to_digits(array: pa.Array) -> ColumnarValue:
        numbers = numbers_of(array)
        with np.errstate(all="ignore"):
            scaled = numbers * scale
            # A float of 2**52 or more is whole already, and one that overflows has no decimals to lose.
            values = np.where(np.abs(scaled) < 2.0**52, np.rint(scaled) / scale, numbers)
        return from_numbers(values, out.type, [array])

    return round_to_digits


def _add_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """Return the sum, and where it overflows int64: there its sign is that of neither operand."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def _multiply_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    """Return the product, and where it overflows int64; only large products are tested by division."""
    product = a * b
    large = np.abs(a.astype(np.float64) * b.astype(np.float64)) >= 2.0**62
    overflowed = np.zeros(len(product), dtype=np.bool_)
    if large.any():
        x, y, xy = a[large], b[large], product[large]  # a large product has no zero operand
        overflowed[large] = (xy // y != x) | ((y == -1) & (x == np.iinfo(np.int64).min))
    return product, overflowed


def to_integer(array: pa.Array, wanted: pa.DataType) -> ColumnarValue:
    """Return numbers as integers, rounded to zero; NaN, infinity and what is out of range fail."""
    low, high = integer_range(wanted)
    numbers = numbers_of(array)
    if kind.is_floating(array.type):
        numbers = numbers.astype(np.float64)
        with np.errstate(all="ignore"):
            # Compared before truncation; high + 1 is a power of two and exact, high of int64 is not.
            is_high_enough = numbers > low - 1.0 if wanted.bit_width < 64 else numbers >= low
            failed = ~(is_high_enough & (numbers < high + 1.0))
        return from_numbers(np.where(failed, 0, numbers).astype(np.int64), wanted, [array], failed)
    return from_numbers(numbers, wanted, [array], (numbers < low) | (numbers > high))


def _subtract_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) < 0


def _floor_divide_checked(a: Numbers, b: Numbers) -> tuple[Numbers, Mask]:
    left = (b == 0) | ((b == -1) & (a == np.iinfo(np.int64).min))
    return a // np.where(left, 1, b), left


def _divide(operation: Function, left: pa.Array, right: pa.Array) -> ColumnarValue:
    """Divide numbers of one type; the only failure is a zero divisor."""
    divisor = numbers_of(right)
    zero = divisor == 0
    with np.errstate(all="ignore"):
        values = operation(numbers_of(left), np.where(zero, divisor.dtype.type(1), divisor))
    return from_numbers(values, left.type, [left, right], zero)


_CHECKED: dict[type[nodes.Node], tuple[Function, CheckedOperation]] = {
    nodes.Add: (pc.add, _add_checked),
    nodes.Subtract: (pc.subtract, _subtract_checked),
    nodes.Multiply: (pc.multiply, _multiply_checked),
    nodes.FloorDivide: (partial(_divide, np.floor_divide), _floor_divide_checked),
}
"""For floats and for integers."""


def _compute_checked(node: nodes.Node, out: Instruction) -> Function:
    float_kernel, operation = _CHECKED[type(node)]
    if kind.is_floating(out.type):
        return float_kernel
    low, high = integer_range(out.type)

    def compute(left: pa.Array, right: pa.Array) -> ColumnarValue:
        a, b = (numbers_of(array).astype(np.int64, copy=False) for array in (left, right))
        with np.errstate(all="ignore"):
            values, failed = operation(a, b)
        if out.type.bit_width < 64:
            failed |= (values < low) | (values > high)
        return from_numbers(values, out.type, [left, right], failed)

    return compute


def _without_least(
    float_kernel: Function, operation: Callable[[Numbers], Numbers], type: pa.DataType
) -> Function:
    """Return the kernel for floats, and for integers the operation, which has no value for the least one."""
    if kind.is_floating(type):
        return float_kernel
    least, _ = integer_range(type)

    def compute(array: pa.Array) -> ColumnarValue:
        numbers = numbers_of(array)
        return from_numbers(operation(numbers), type, [array], numbers == least)

    return compute


def _identity(array: pa.Array) -> pa.Array:
    return array


def _hash(node: nodes.Hash, out: Instruction) -> Function:
    def hash_columns(*arrays: pa.Array) -> pa.Array:
        state = np.full(len(arrays[0]), SEED, dtype=np.uint64)
        for array in arrays:
            valid = valid_in(array)
            state = np.where(valid, _hash_column(state, array), state)
        return from_numbers(state.view(np.int64), out.type, []).values

    return hash_columns


def _hash_column(seeds: Words, array: pa.Array) -> Words:
    if kind.is_string(array.type) or kind.is_binary(array.type):
        return _hash_texts(seeds, array)
    values = numbers_of(array)
    if kind.is_floating(array.type):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            values = np.where(np.isnan(values), np.nan, values + values.dtype.type(0))  # one NaN, one zero
    with np.errstate(over="ignore"):
        if values.dtype.itemsize == 8:
            state = (seeds + _P5 + np.uint64(8)) ^ (_rotate(values.view(np.uint64) * _P2, 31) * _P1)
            return _mix(_rotate(state, 27) * _P1 + _P4)
        if values.dtype != np.float32:
            values = values.astype(np.int32)  # small integers and bool, with their sign
        state = (seeds + _P5 + np.uint64(4)) ^ (values.view(np.uint32).astype(np.uint64) * _P1)
        return _mix(_rotate(state, 23) * _P2 + _P3)


def _rotate(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mix(state: Words) -> Words:
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _hash_texts(seeds: Words, array: pa.Array) -> Words:
    encoded = array.dictionary_encode()
    texts = [text.encode() if isinstance(text, str) else text for text in encoded.dictionary.to_pylist()]
    if not texts:
        return seeds
    codes = numbers_of(encoded.indices).astype(np.int64)
    if (seeds == seeds[0]).all():  # nothing was hashed before, so sorting the seeds is needless
        return np.array([xxhash.xxh64_intdigest(text, int(seeds[0])) for text in texts], dtype=np.uint64)[
            codes
        ]
    different, seed_codes = np.unique(seeds, return_inverse=True)
    pairs, places = np.unique(seed_codes * len(texts) + codes, return_inverse=True)
    digests = [
        xxhash.xxh64_intdigest(texts[p % len(texts)], int(different[p // len(texts)])) for p in pairs.tolist()
    ]
    return np.array(digests, dtype=np.uint64)[places]


def _slice(node: nodes.Slice, out: Instruction) -> Function:
    def slice_text(text: pa.Array) -> pa.Array:
        tail = pc.utf8_slice_codeunits(text, start=node.start)
        return tail if node.length is None else pc.utf8_slice_codeunits(tail, start=0, stop=node.length)

    return slice_text


def months_of(days: Numbers) -> Numbers:
    """Return months since January 1970, as int64."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_day_of(months: Numbers) -> Numbers:
    """Return the first day of a month since January 1970, in days since 1970."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _time_part(node: nodes.TimePart, out: Instruction) -> Function:
    is_date = kind.is_date32(out.operands[0])

    def part(times: pa.Array) -> ColumnarValue:
        counts = numbers_of(times).astype(np.int64, copy=False)
        if node.part in CLOCK_PARTS:
            length, modulus = CLOCK_PARTS[node.part]
            return from_numbers(counts // length % modulus, out.type, [times])
        return from_numbers(_date_part(node.part, counts if is_date else counts // DAY), out.type, [times])

    return part


def _epoch(node: nodes.Epoch, out: Instruction) -> Function:
    length = 1 if kind.is_date32(out.operands[0]) else UNITS[node.unit]
    return lambda times: from_numbers(numbers_of(times) // length, out.type, [times])


def _shift(times: pa.Array, micros: Numbers) -> ColumnarValue:
    """Add microseconds to timestamps; beyond 64 bits the row fails."""
    values, failed = _add_checked(numbers_of(times), micros)
    return from_numbers(values, times.type, [times], failed)


def scale_to_micros(counts: pa.Array, length: int, type: pa.DataType) -> ColumnarValue:
    """Multiply counts by a length in microseconds; beyond 64 bits the row fails."""
    numbers = numbers_of(counts).astype(np.int64, copy=False)
    with np.errstate(all="ignore"):
        values, failed = _multiply_checked(numbers, np.full(len(numbers), length, dtype=np.int64))
    return from_numbers(values, type, [counts], failed)


def _date_part(part: str, days: Numbers) -> Numbers:
    if part == "weekday":
        return (days + 3) % 7  # 1970 began on a Thursday
    months = months_of(days)
    if part == "year":
        return months // 12 + 1970
    return months % 12 + 1 if part == "month" else days - first_day_of(months) + 1


def equal(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Return whether both are equal; NaN equals NaN."""
    same = pc.equal(a, b)
    return pc.or_(same, pc.and_(pc.is_nan(a), pc.is_nan(b))) if kind.is_floating(a.type) else same


def less(a: pa.Array, b: pa.Array) -> pa.BooleanArray:
    """Return whether a comes before b; everything but NaN comes before NaN."""
    before = pc.less(a, b)
    if not kind.is_floating(a.type):
        return before
    return pc.or_(before, pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


def _is_in(node: nodes.IsIn, out: Instruction) -> Function:
    type = out.operands[0]
    wanted = _normalize_floats(
        from_plain([convert_literal(value.value, type) for value in node.values], type)
    )

    def look_up(array: pa.Array) -> pa.BooleanArray:
        hits = pc.is_in(_normalize_floats(array), value_set=wanted)
        return pc.if_else(array.is_valid(), hits, null_of(BOOL)) if array.null_count else hits

    return look_up


def _normalize_floats(array: pa.Array) -> pa.Array:
    """Make equal floats equal in their bits, by which Arrow looks them up: one zero and one NaN."""
    if not kind.is_floating(array.type):
        return array
    one_zero = pc.add(array, pa.scalar(0.0, array.type))
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, array.type), one_zero)


def _case(node: nodes.Case, out: Instruction) -> Function:
    count, no = len(node.conditions), pa.scalar(False)

    def choose(*inputs: ColumnarValue) -> ColumnarValue:
        chosen = inputs[-1]
        # From the last condition to the first, so that an earlier one overrules what comes after it.
        for condition, value in zip(reversed(inputs[:count]), reversed(inputs[count:-1]), strict=True):
            holds = pc.fill_null(condition.values, False)
            inside = None
            if value.failed is not None or chosen.failed is not None:
                then, other = (no if side.failed is None else side.failed for side in (value, chosen))
                inside = pc.if_else(holds, then, other)
            values = pc.if_else(holds, value.values, chosen.values)
            chosen = ColumnarValue(values, any_failed(condition.failed, inside))
        return chosen

    return choose


def _fail_undecided(values: pa.BooleanArray, a: ColumnarValue, b: ColumnarValue) -> ColumnarValue:
    """Fail where a side failed, which is null here, and the other side did not decide."""
    failed = any_failed(a.failed, b.failed)
    return ColumnarValue(values, None if failed is None else pc.and_(failed, values.is_null()))


def _first_not_null(*inputs: ColumnarValue) -> ColumnarValue:
    """Go from the last to the first: a value hides what comes after it, and so does a failure."""
    chosen = inputs[-1]
    for value in reversed(inputs[:-1]):
        valid = value.values.is_valid()
        inherited = None if chosen.failed is None else pc.and_not(chosen.failed, valid)
        values = pc.if_else(valid, value.values, chosen.values)
        chosen = ColumnarValue(values, any_failed(value.failed, inherited))
    return chosen


RULES: Rules = {
    **dict.fromkeys(_CHECKED, _compute_checked),
    nodes.Divide: lambda node, out: partial(_divide, np.divide),
    nodes.Modulo: lambda node, out: partial(_divide, np.remainder),
    nodes.Power: lambda node, out: pc.power,
    nodes.Negate: lambda node, out: _without_least(pc.negate, np.negative, out.type),
    nodes.Absolute: lambda node, out: _without_least(pc.abs, np.abs, out.type),
    nodes.Floor: lambda node, out: pc.floor if kind.is_floating(out.type) else _identity,
    nodes.Ceil: lambda node, out: pc.ceil if kind.is_floating(out.type) else _identity,
    nodes.Sqrt: lambda node, out: pc.sqrt,
    nodes.Round: _round,
    nodes.Hash: _hash,
    nodes.Lower: lambda node, out: pc.ascii_lower,
    nodes.Upper: lambda node, out: pc.ascii_upper,
    nodes.Length: lambda node, out: lambda text: pc.utf8_length(text).cast(pa.int64()),
    nodes.Contains: lambda node, out: lambda text: pc.match_substring(text, node.pattern),
    nodes.StartsWith: lambda node, out: lambda text: pc.starts_with(text, node.pattern),
    nodes.EndsWith: lambda node, out: lambda text: pc.ends_with(text, node.pattern),
    nodes.Split: lambda node, out: lambda text: pc.split_pattern(text, node.pattern),
    nodes.Replace: lambda node, out: lambda text: pc.replace_substring(text, node.pattern, node.replacement),
    nodes.Strip: lambda node, out: lambda text: pc.utf8_trim(text, characters=node.characters),
    nodes.Slice: _slice,
    nodes.Concat: lambda node, out: lambda *texts: pc.binary_join_element_wise(*texts, ""),
    nodes.TimePart: _time_part,
    nodes.Epoch: _epoch,
    nodes.FromEpoch: lambda node, out: lambda counts: scale_to_micros(counts, UNITS[node.unit], out.type),
    nodes.Truncate: lambda node, out: lambda times: _shift(times, -(numbers_of(times) % node.micros)),
    nodes.Shift: lambda node, out: lambda times: _shift(times, np.array([node.micros])),
    nodes.Equal: lambda node, out: equal,
    nodes.NotEqual: lambda node, out: lambda a, b: pc.invert(equal(a, b)),
    nodes.Less: lambda node, out: less,
    nodes.LessEqual: lambda node, out: lambda a, b: pc.invert(less(b, a)),
    nodes.Greater: lambda node, out: lambda a, b: less(b, a),
    nodes.GreaterEqual: lambda node, out: lambda a, b: pc.invert(less(a, b)),
    nodes.Between: lambda node, out: (
        lambda a, low, high: pc.and_(pc.invert(less(a, low)), pc.invert(less(high, a)))
    ),
    nodes.IsIn: _is_in,
    nodes.And: lambda node, out: lambda a, b: _fail_undecided(pc.and_kleene(a.values, b.values), a, b),
    nodes.Or: lambda node, out: lambda a, b: _fail_undecided(pc.or_kleene(a.values, b.values), a, b),
    nodes.Not: lambda node, out: pc.invert,
    nodes.IsNull: lambda node, out: pc.is_null,
    nodes.IsNotNull: lambda node, out: pc.is_valid,
    nodes.IsNan: lambda node, out: pc.is_nan,
    nodes.FillNull: lambda node, out: _first_not_null,
    nodes.Coalesce: lambda node, out: _first_not_null,
    nodes.Case: _case,
}
