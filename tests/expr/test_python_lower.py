"""What is plainly of its type is told in one look, and is its own plain value; nothing else is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.caller import is_ours
from penstock.errors import RowFailure
from penstock.expr.python.lower import compile_row_check, exact_type_check, has_exact_check
from penstock.expr.values import from_python

TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.list_(pa.int64()),
]
NAMES = ["a", "two words", 'quote"d', "it's", "new\nline", "given", "otherwise", "é"]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.sampled_from([-129, -128, 127, 128, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1]),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["\ud800", b"", b"x", [1], {}, object()]),
)
FIELDS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TYPES), max_size=5)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(FIELDS, st.data())
def test_a_dict_is_copied_where_every_value_is_its_own_plain_value(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    row = data.draw(
        st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES)
        | st.fixed_dictionaries(dict.fromkeys(fields, VALUES))
    )
    look = compile_row_check(pa.schema(fields), lambda row_: ("otherwise", row_))
    result = look(row)
    if isinstance(result, dict):
        assert result == row or any(value != value for value in row.values())  # NaN is not itself
        assert list(result) == list(fields)
        assert result is not row
        for name, value in row.items():
            assert from_python(value, fields[name]) is value
    else:
        assert result == ("otherwise", row)
        assert row.keys() != fields.keys() or any(closer(row[name], fields[name]) for name in fields)


def closer(value: Any, type_: pa.DataType) -> bool:
    """Whether a value needs a closer look, as written in the module."""
    if value is None:
        return False
    if not has_exact_check(type_) or (isinstance(value, str) and not value.isascii()):
        return True
    try:
        return from_python(value, type_) is not value or type(value) not in (bool, int, float, str, bytes)
    except RowFailure:
        return True


@given(st.sampled_from(TYPES), VALUES)
def test_one_value_is_asked_about_as_in_a_row(type_: pa.DataType, value: Any) -> None:
    look = compile_row_check(pa.schema([("v", type_)]), lambda row: None)
    assert exact_type_check(type_)(value) == (value is not None and look({"v": value}) is not None)


@pytest.mark.parametrize("given_out", [None, 3, [], ("a",), type("Mine", (dict,), {})(a=1)])
def test_what_is_no_dict_is_somebody_elses_affair(given_out: object) -> None:
    look = compile_row_check(pa.schema([("a", pa.int64())]), lambda row: row)
    assert look(given_out) is given_out


def test_what_is_written_for_a_schema_is_not_taken_for_code_of_the_user() -> None:
    assert is_ours(compile_row_check(pa.schema([]), str).__code__.co_filename)


def test_something_can_be_done_before_the_look() -> None:
    look = compile_row_check(
        pa.schema([("a", pa.int64())]),
        lambda row: "no",
        "row = double(row)",
        {"double": lambda n: {"a": 2 * n}},
    )
    assert look(4) == {"a": 8}
    assert look("x") == "no"
