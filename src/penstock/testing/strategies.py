"""Hypothesis strategies for streams: nasty values, disordered times, and every way to cut a stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

T = TypeVar("T")

INT64 = st.one_of(st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1))
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324]), st.floats()
)
TEXTS = st.one_of(
    st.sampled_from(["", " ", "ß", "e\u0301", "é", "🌊", "a\tb", "\u202etxt"]), st.text(max_size=6)
)


def values(type_: pa.DataType, *, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Generate values of a type as a user would write them, the awkward ones often."""
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        strategy: st.SearchStrategy[Any] = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    elif pa.types.is_floating(type_):
        strategy = FLOATS if type_.bit_width == 64 else st.floats(width=32)
    elif pa.types.is_boolean(type_):
        strategy = st.booleans()
    elif pa.types.is_string(type_):
        strategy = TEXTS
    elif pa.types.is_binary(type_):
        strategy = st.binary(max_size=6)
    elif pa.types.is_timestamp(type_):
        strategy = st.datetimes(timezones=st.just(UTC) if type_.tz else st.none())
    elif pa.types.is_date(type_):
        strategy = st.dates()
    elif pa.types.is_list(type_):
        strategy = st.lists(values(type_.value_type), max_size=3)
    elif pa.types.is_struct(type_):
        strategy = st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    else:
        raise ValueError(f"no strategy for {type_}")
    return st.one_of(st.none(), strategy) if nulls else strategy


def rows(
    schema: pa.Schema, *, min_size: int = 0, max_size: int = 30, **columns: st.SearchStrategy[Any]
) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Generate lists of rows of a schema; a column may have a strategy of its own."""
    row = st.fixed_dictionaries({field.name: columns.get(field.name, values(field.type)) for field in schema})
    return st.lists(row, min_size=min_size, max_size=max_size)


def timed_rows(
    *, span: int = 100, keys: Sequence[object] = ("a", "b", None), max_size: int = 30
) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Generate rows {"t", "key", "value"} with disordered times in [-span, span], so that windows fill."""
    row = st.fixed_dictionaries(
        {
            "t": st.integers(-span, span),
            "key": st.sampled_from(list(keys)),
            "value": st.one_of(st.none(), st.integers(-1000, 1000)),
        }
    )
    return st.lists(row, max_size=max_size)


@st.composite
def cuts(draw: st.DrawFn, stream: Sequence[T]) -> list[list[T]]:
    """Return a way to cut a stream into batches, empty ones included."""
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    bounds = [0, *places, len(stream)]
    return [list(stream[low:high]) for low, high in pairwise(bounds)]
