"""Values in their three forms, and the conversions between them.

An Arrow array; *plain* values, on which the reference engine works (None, bool, int, float, str, bytes,
Decimal, list, dict; a timestamp is int microseconds since 1970 in UTC, a date int days since 1970); and
*Python* values, which a user's row function sees and gives (datetime, date, NumPy scalars). Types are
canonical.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure, SchemaError
from penstock.expr.numpy import from_list

EPOCH = datetime(1970, 1, 1)
EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
WIDE = Context(prec=100)  # the default context would refuse decimals of more than 28 digits


# Types whose plain values Arrow takes without conversion.
_DIRECT_TYPES = frozenset(
    (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary())
)


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
        value = _float_of(value, type)
    if kind.is_list(type) and isinstance(value, list | tuple | np.ndarray):
        return [from_python(item, type.value_type) for item in value]
    if kind.is_struct(type) and isinstance(value, Mapping):
        return _struct_from_python(value, type)
    return _check(value, type)


def microseconds_of(moment: datetime) -> int:
    """Microseconds since 1970: an aware datetime is converted to UTC, a naive one read as UTC."""
    if moment.tzinfo is not None:
        # Not astimezone(): a moment near year 1 or 9999 may leave datetime's range on the way to UTC.
        return (moment.replace(tzinfo=None) - EPOCH - (moment.utcoffset() or timedelta())) // _MICROSECOND
    return (moment - EPOCH) // _MICROSECOND


def days_of(day: date) -> int:
    """Days since 1970."""
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
    if kind.is_signed_integer(type) or kind.is_timestamp(type) or kind.is_date32(type):
        return _checked_int(value, type)
    if kind.is_floating(type) and isinstance(value, float):
        if kind.is_float32(type) and math.isfinite(value) and math.isinf(float32(value)):
            raise RowFailure(f"{value!r} is out of range for {type_name(type)}")
        return value
    if kind.is_decimal128(type) and isinstance(value, Decimal):
        return _checked_decimal(value, type)
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


def _checked_int(value: object, type: pa.DataType) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RowFailure(f"{_show(value)} does not fit the type {type_name(type)}")
    low, high = integer_range(type)
    if not low <= value <= high:
        raise RowFailure(f"{value} is out of range for {type_name(type)}")
    return value


def _checked_decimal(value: Decimal, type: pa.DataType) -> Decimal:
    try:
        exact = value.quantize(Decimal(1).scaleb(-type.scale), context=WIDE)
    except InvalidOperation:
        raise RowFailure(f"{value} does not fit {type_name(type)}") from None
    if exact != value or len(exact.as_tuple().digits) > type.precision:
        raise RowFailure(f"{value} does not fit {type_name(type)}")
    return exact


def _float_of(value: int, type: pa.DataType) -> float:
    try:
        return float(value)
    except OverflowError:
        raise RowFailure(f"{value!r:.40} is out of range for {type_name(type)}") from None


def _struct_from_python(value: Mapping[object, object], type: pa.DataType) -> dict[str, object]:
    names = [field.name for field in type]
    unknown = [name for name in value if name not in names]
    if unknown:
        raise RowFailure(f"{unknown[0]!r} is not a field of {type_name(type)}")
    return {field.name: from_python(value.get(field.name), field.type) for field in type}


def _show(value: object) -> str:
    return f"{type(value).__name__} {value!r:.80}"
