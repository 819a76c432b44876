"""Values in their three forms, and the conversions between them.

An Arrow array; *plain* values, on which the reference engine works (None, bool, int, float, str, bytes,
Decimal, list, dict; a timestamp is int microseconds since 1970 in UTC, a date int days since 1970); and
*Python* values, which a user's row function sees and gives (datetime, date, NumPy scalars). Types are
canonical.

Arrays are made of NumPy's and of lists, and back, through their buffers: `pa.array` and `to_numpy` load
`numpy.ma`, and pandas where it is installed, with the first array. Most arrays need neither, and are
converted here; all others are left to Arrow. In a small run of the in-process engine that saves about 300 ms
of 570 ms CPU time (the program is in `tests/test_imports.py`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure, SchemaError
from penstock.expr import compute as pc

EPOCH = datetime(1970, 1, 1)
EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
WIDE = Context(prec=100)  # the default context would refuse decimals of more than 28 digits


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Types whose plain values Arrow takes without conversion.
_DIRECT_TYPES = frozenset((*_INTEGERS, pa.bool_(), pa.float64(), pa.string(), pa.binary()))
_DTYPE_OF: dict[pa.DataType, np.dtype[Any]] = {
    type_: np.dtype(type_.to_pandas_dtype()) for type_ in (*_INTEGERS, pa.float32(), pa.float64(), pa.bool_())
}
_OF_DTYPE = {dtype: type_ for type_, dtype in _DTYPE_OF.items()}
_PYTHON_OF = {"i": int, "f": float, "b": bool}


def to_plain(array: pa.Array) -> list[object]:
    """Return the array as plain values.

    >>> to_plain(pa.array([datetime(1970, 1, 2), None], pa.timestamp("us")))
    [86400000000, None]
    """
    stored = _stored_as(array.type)
    values: list[object] = (array if stored is array.type else array.cast(stored)).to_pylist()
    return values


def from_plain(values: Sequence[object], type: pa.DataType) -> pa.Array:
    """Return an array of plain values; raise a SchemaError that names a value that does not fit."""
    try:
        checked = [_check(value, type) for value in values]
    except RowFailure as failure:
        raise SchemaError(failure.reason, hint=f"give plain values of {type_name(type)}, or None") from None
    stored = _stored_as(type)
    array = from_list(checked, stored)
    return array if stored is type else array.cast(type)


def from_checked(values: list[object], type: pa.DataType) -> pa.Array:
    """Return an array of plain values that are known to fit the type."""
    return from_list(values, type) if type in _DIRECT_TYPES else from_plain(values, type)


def to_python(value: object, type: pa.DataType) -> object:
    """Return a plain value as a user sees it: timestamps as datetime (aware if zoned), dates as date."""
    if value is None:
        return None
    try:
        if kind.is_timestamp(type) and isinstance(value, int):
            moment = EPOCH + value * _MICROSECOND
            return moment.replace(tzinfo=UTC) if type.tz else moment
        if kind.is_date32(type) and isinstance(value, int):
            return EPOCH_DAY + timedelta(days=value)
    except OverflowError:
        raise RowFailure(f"{value} as {type_name(type)} lies outside the years 1 to 9999 of Python") from None
    if kind.is_list(type) and isinstance(value, list):
        return [to_python(item, type.value_type) for item in value]
    if kind.is_struct(type) and isinstance(value, dict):
        return {field.name: to_python(value[field.name], field.type) for field in type}
    return value


def from_python(value: object, type: pa.DataType) -> object:
    """Return a user's value as a plain value of `type`; raise RowFailure when it does not fit.

    >>> from_python(np.int16(3), pa.float64())
    3.0
    """
    if isinstance(value, np.generic):
        value = unwrap_scalar(value)
    if value is None:
        return None
    if kind.is_timestamp(type) and isinstance(value, datetime):
        return microseconds_of(value)
    if kind.is_date32(type) and isinstance(value, date) and not isinstance(value, datetime):
        return days_of(value)
    if kind.is_timestamp(type) or kind.is_date32(type):
        wanted = "datetime" if kind.is_timestamp(type) else "date"
        raise RowFailure(f"{_show(value)} is not a {wanted}, and its column is {type_name(type)}")
    if kind.is_floating(type) and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            raise RowFailure(f"{value!r:.40} is out of range for {type_name(type)}") from None
    if kind.is_list(type) and isinstance(value, list | tuple | np.ndarray):
        return [from_python(item, type.value_type) for item in value]
    if kind.is_struct(type) and isinstance(value, Mapping):
        names = [field.name for field in type]
        unknown = [name for name in value if name not in names]
        if unknown:
            raise RowFailure(f"{unknown[0]!r} is not a field of {type_name(type)}")
        return {field.name: from_python(value.get(field.name), field.type) for field in type}
    return _check(value, type)


def microseconds_of(moment: datetime) -> int:
    """Return microseconds since 1970: an aware datetime is converted to UTC, a naive one read as UTC."""
    if moment.tzinfo is not None:
        # Not astimezone(): a moment near year 1 or 9999 may leave datetime's range on the way to UTC.
        return (moment.replace(tzinfo=None) - EPOCH - (moment.utcoffset() or timedelta())) // _MICROSECOND
    return (moment - EPOCH) // _MICROSECOND


def days_of(day: date) -> int:
    """Return days since 1970."""
    return (day - EPOCH_DAY).days


def type_name(type: pa.DataType) -> str:
    """Return the type as users name it: "float32", "timestamp", "list<int64>"."""
    if kind.is_floating(type):
        return f"float{type.bit_width}"
    if kind.is_timestamp(type):
        return f"timestamp[us, {type.tz}]" if type.tz else "timestamp"
    if kind.is_date32(type):
        return "date"
    if kind.is_decimal128(type):
        return f"decimal({type.precision}, {type.scale})"
    if kind.is_list(type):
        return f"list<{type_name(type.value_type)}>"
    if kind.is_struct(type):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in type)}>"
    return str(type)


def float32(value: float) -> float:
    """Return the nearest value of 32-bit precision; beyond its range, infinity."""
    return ctypes.c_float(value).value


def integer_range(type: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    half = 1 << (type.bit_width - 1)
    return -half, half - 1


def unwrap_scalar(value: np.generic) -> object:
    """Return the Python value of a NumPy scalar; nanoseconds are floored, because datetime has none."""
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] in ("ns", "ps", "fs", "as"):
        value = value.astype("M8[us]")
    plain: object = value.item()
    return plain


def _stored_as(type: pa.DataType) -> pa.DataType:
    """Return the type whose Python values are plain ones: times become the integers that store them."""
    if kind.is_timestamp(type):
        return pa.int64()
    if kind.is_date32(type):
        return pa.int32()
    if kind.is_list(type):
        return pa.list_(_stored_as(type.value_type))
    if kind.is_struct(type):
        return pa.struct([field.with_type(_stored_as(field.type)) for field in type])
    return type


def _check(value: object, type: pa.DataType) -> object:
    """Return the plain value itself; raise RowFailure when it is not a plain value of the type."""
    if value is None:
        return None
    whole = kind.is_signed_integer(type) or kind.is_timestamp(type) or kind.is_date32(type)
    if whole and isinstance(value, int) and not isinstance(value, bool):
        low, high = integer_range(type)
        if not low <= value <= high:
            raise RowFailure(f"{value} is out of range for {type_name(type)}")
        return value
    if kind.is_floating(type) and isinstance(value, float):
        if kind.is_float32(type) and math.isfinite(value) and math.isinf(float32(value)):
            raise RowFailure(f"{value!r} is out of range for {type_name(type)}")
        return value
    if kind.is_decimal128(type) and isinstance(value, Decimal):
        try:
            exact = value.quantize(Decimal(1).scaleb(-type.scale), context=WIDE)
        except InvalidOperation:
            exact = None
        if exact is None or exact != value or len(exact.as_tuple().digits) > type.precision:
            raise RowFailure(f"{value} does not fit {type_name(type)}")
        return exact
    if kind.is_list(type) and isinstance(value, list):
        return [_check(item, type.value_type) for item in value]
    if kind.is_struct(type) and isinstance(value, dict) and set(value) == {field.name for field in type}:
        return {field.name: _check(value[field.name], field.type) for field in type}
    if kind.is_string(type) and isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowFailure(f"{value!r:.80} has half of a surrogate pair and is not text") from None
        return value
    if (kind.is_boolean(type) and isinstance(value, bool)) or (
        kind.is_binary(type) and isinstance(value, bytes)
    ):
        return value
    raise RowFailure(f"{_show(value)} does not fit the type {type_name(type)}")


def _show(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"


def from_numpy(values: npt.NDArray[Any], *, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return the values as an array of the same width, null where `missing` says so; numbers are not copied.

    >>> from_numpy(np.array([1, 2]), missing=np.array([False, True])).to_pylist()
    [1, None]
    """
    type_ = _OF_DTYPE.get(values.dtype)
    if type_ is None or values.ndim != 1:
        return pa.array(values, mask=missing, from_pandas=False)
    valid = None if missing is None or not missing.any() else _bits(~missing)
    data = _bits(values) if type_ == pa.bool_() else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(type_, len(values), [valid, data])


def from_list(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return plain values of a type as an array; None is null.

    >>> from_list(["a", None, "ß"], pa.string()).to_pylist()
    ['a', None, 'ß']
    """
    kinds = set(map(type, values))
    missing = None
    if type(None) in kinds:
        kinds.discard(type(None))
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    if type_ in (pa.string(), pa.binary()):
        return _from_bytes(values, type_, kinds, missing)
    dtype = _DTYPE_OF.get(type_)
    if dtype is None or not kinds <= {_PYTHON_OF[dtype.kind]}:
        return pa.array(values, type_)
    try:
        there = values if missing is None else [0 if value is None else value for value in values]
        numbers = np.array(there, dtype)
    except OverflowError:  # Arrow says which value does not fit
        return pa.array(values, type_)
    return from_numpy(numbers, missing=missing)


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values of an array without nulls, to be read only; numbers are not copied.

    >>> to_numpy(pa.array([True, False, True]).slice(1)).tolist()
    [False, True]
    """
    dtype = _DTYPE_OF.get(array.type)
    if dtype is None or array.null_count or not len(array):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    data = array.buffers()[1]
    if dtype.kind == "b":
        return _flags(data, array.offset, len(array))
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values as NumPy numbers: times as the integers that store them, zero for null."""
    if kind.is_temporal(array.type):
        array = array.view(pa.int32() if kind.is_date32(array.type) else pa.int64())
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(0).cast(array.type))
    return to_numpy(array)


def valid_in(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values are not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid = array.buffers()[0]
    if valid is None:  # of the null type, or of one that keeps its nulls elsewhere
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return _flags(valid, array.offset, len(array))


def _flags(data: pa.Buffer, start: int, n: int) -> npt.NDArray[np.bool_]:
    whole = np.frombuffer(data, np.uint8, (start % 8 + n + 7) // 8, start // 8)
    return np.unpackbits(whole, count=start % 8 + n, bitorder="little")[start % 8 :].view(np.bool_)


def _from_bytes(
    values: list[Any], type_: pa.DataType, kinds: set[type], missing: npt.NDArray[np.bool_] | None
) -> pa.Array:
    if kinds - {str if type_ == pa.string() else bytes}:
        return pa.array(values, type_)
    try:
        coded = [(value or "").encode() for value in values] if type_ == pa.string() else values
    except UnicodeEncodeError:  # half of a pair, which Arrow refuses in its own words
        return pa.array(values, type_)
    whole = b"".join(coded) if missing is None else b"".join(value or b"" for value in coded)
    if len(whole) >= 1 << 31:
        return pa.array(values, type_)
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter((len(value or b"") for value in coded), np.int32, len(values)), out=ends[1:])
    valid = None if missing is None else _bits(~missing)
    return pa.Array.from_buffers(type_, len(values), [valid, pa.py_buffer(ends), pa.py_buffer(whole)])


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return flags as Arrow keeps them: eight in a byte, the least first."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
